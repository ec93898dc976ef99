"""Who may drain, on a cluster with accounting: by the daemon's rule, and by what Slurm asks of the daemon itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway import bootstrap
from clearway.api.logins import digest_of
from clearway.config.configuration import Config
from clearway.drain.request import DrainRequest
from clearway.model.cluster import AdminLevel
from clearway.model.operations import EvictionState
from clearway.model.orders import RollingState
from clearway.slurm.cli import CliBackend
from clearway.store.repository import Store
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import SLACK
from tests.slurm.test_drain import ask, drained
from tests.slurm.test_service_user import DENIED, SERVICE_USER, as_service_user

USER = "cwbob"


@pytest.fixture
def cluster(accounting_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    accounting_cluster.reset()
    yield accounting_cluster
    accounting_cluster.set_admin_level(USER, "None")
    accounting_cluster.set_admin_level(SERVICE_USER, "Operator")
    accounting_cluster.reset()


def test_an_operator_may_and_an_ordinary_user_may_not(cluster: SlurmCluster, tmp_path: Path) -> None:
    backend = CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(cluster.conf), timeout_s=15)
    daemon = RunningDaemon(cluster, tmp_path / "daemon")
    # The token's name is whose rights count.
    (daemon.folder / "tokens").write_text(f"{USER} operator never {digest_of(daemon.token)}\n")
    with daemon:
        for level in AdminLevel:
            cluster.set_admin_level(USER, level.value.capitalize())
            assert backend.admin_level(USER) is level
            answer = ask(daemon, "drains", nodes="node8")
            if level is AdminLevel.NONE:
                assert answer.startswith(f"refused: {USER} is neither an operator nor an administrator of Slurm")
                assert not drained(cluster)
                continue
            assert answer.startswith("drain "), answer
            daemon.wait_for(lambda: daemon.evictions()[0].started_at is not None, 30, "the node to be empty")
            (reason,) = drained(cluster).values()
            assert reason == f"clearway drain {(drain := daemon.evictions()[0]).eviction_id} {drain.mark}"
            cluster.set_admin_level(USER, "None")
            assert ask(daemon, "undrains", nodes="node8").startswith(f"refused: {USER} is neither")
            assert list(drained(cluster)) == ["node8"]
            cluster.set_admin_level(USER, level.value.capitalize())
            assert ask(daemon, "undrains", nodes="node8") == "brought back node8"
        assert not drained(cluster)
        assert len(daemon.evictions()) == len(AdminLevel) - 1  # the refused one left none


@pytest.mark.parametrize("rolling", [None, 2])
def test_slurm_does_not_let_an_operators_daemon_drain(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolling: int | None
) -> None:
    """Slurm 22.05 wants an administrator; its words end the order, and no node was touched."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    running = cluster.sbatch("sleep 600", "-N1", "--exclusive", "-wnode1", user="cwalice")
    cluster.wait_state(running, "RUNNING")
    folder = cluster.folder_of(SERVICE_USER)
    config = Config.model_validate(
        {
            "daemon": {"mode": "automatic"},
            "slurm": {"backend": "cli", "conf": str(cluster.conf)},
            "store": {"url": f"sqlite:///{folder}/clearway.sqlite"},
        }
    )
    Store(f"sqlite:///{tmp_path}/warm.sqlite").close()  # whatever is imported late is imported before the fork

    def serve() -> tuple[str, str, int, list[str]]:
        daemon = bootstrap.build(config, origin="test")
        wish = DrainRequest(nodes="node[1-6]", rolling=rolling)
        daemon.store.add_request("drain", None, "root", datetime.now(UTC), wish.model_dump_json())
        limit = datetime.now(UTC) + timedelta(seconds=120 * SLACK)
        ended = False
        while not ended and datetime.now(UTC) < limit:
            daemon.loop.cycle()
            found = daemon.store.rolling_drains() if rolling else daemon.store.evictions()
            ended = bool(found) and found[0].state.terminal
        evictions = daemon.store.evictions()
        refused = [s.kind for s in daemon.store.steps(evictions[0].eviction_id) if s.result == "refused"]
        daemon.loop.parts.backend.close()
        daemon.store.close()
        return found[0].state.value, found[0].outcome, len(evictions), refused

    state, outcome, evictions, refused = as_service_user(serve)
    assert state == (RollingState.CANCELLED if rolling else EvictionState.CANCELLED)
    assert DENIED.partition("|")[0] in outcome or DENIED.partition("|")[2] in outcome
    assert "The nodes cannot be taken: " in outcome
    assert "\n" not in outcome
    assert (evictions, refused) == (1, ["drain"])
    assert not drained(cluster)
    assert cluster.state(running) == "RUNNING"
    assert cluster.job(running)["Restarts"] == "0"
