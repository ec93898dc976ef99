"""Slurm's own tokens as an identity: made by `scontrol token`, shown to the daemon, asked about by the daemon."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmError
from clearway.slurm.identity import SlurmIdentity
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import SLACK, missing_requirements


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """One node, with tokens and accounting."""
    if reason := missing_requirements(accounting=True):
        skip_or_fail(reason)
    with SlurmCluster(nodes=1, accounting=True, tokens=True, extra_conf=("PrivateData=jobs",)) as made:
        made.run("sacctmgr", "-i", "modify", "user", "cwbob", "set", "AdminLevel=Operator")
        yield made


def token_of(cluster: SlurmCluster, user: str, lifespan_s: int = 600) -> str:
    told = cluster.run(
        "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "scontrol", "token", f"lifespan={lifespan_s}"
    ).stdout
    return told.strip().removeprefix("SLURM_JWT=")


def forged(user: str, algorithm: str) -> str:
    parts = {"alg": algorithm, "typ": "JWT"}, {"exp": 4_000_000_000, "iat": 1, "sun": user}
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + ".AAAA"
    )


def test_who_a_token_belongs_to_and_what_that_user_may_do(cluster: SlurmCluster) -> None:
    identity = SlurmIdentity(now=lambda: datetime.now(UTC), slurm_conf=str(cluster.conf), timeout_s=5 * SLACK)
    alice = token_of(cluster, "cwalice")
    assert identity.user_of(alice) == "cwalice"
    head, body, signature = alice.split(".")
    others = (
        f"{head}.{body}.{signature[::-1]}",
        f"{head}.{body[:-1]}.{signature}",
        forged("root", "HS256"),
        forged("root", "none"),
    )
    for token in others:
        assert identity.user_of(token) is None
    brief = token_of(cluster, "cwalice", 1)
    cluster.wait_for(lambda: identity.user_of(brief) is None, 30, "the token's end")
    assert identity.admin_level("cwalice") is AdminLevel.NONE
    assert identity.admin_level("cwbob") is AdminLevel.OPERATOR
    assert identity.admin_level("root") is AdminLevel.ADMINISTRATOR
    assert identity.admin_level("no-such-user") is AdminLevel.NONE
    assert identity.private_data() == {"jobs"}

    cluster.stop_controller()
    with pytest.raises(SlurmError):
        identity.user_of(alice)
    cluster.start_controller()
    assert identity.user_of(alice) == "cwalice"


def test_the_daemon_knows_the_users_of_the_cluster(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "daemon"
    text = config_text(folder, cluster.conf)
    with RunningDaemon(cluster, folder, config=text) as daemon:

        def pause(user: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token_of(cluster, user)}"}
            return httpx.post(f"{daemon.address()}/api/v1/pause", headers=headers, timeout=20 * SLACK)

        assert (pause("cwbob").status_code, pause("cwbob").json()["actor"]) == (202, "cwbob")
        assert pause("cwalice").status_code == 403
        log = daemon.log.read_text()
        assert "eyJ" not in log, "no token is logged"
