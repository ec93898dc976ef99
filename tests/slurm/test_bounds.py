"""One user's many requests beside an urgent job, on a real cluster."""

from __future__ import annotations

from pathlib import Path

from clearway.api.logins import digest_of
from clearway.model.requests import OF_USERS
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text


def test_many_drains_of_one_user_hold_up_nobody(cluster: SlurmCluster, tmp_path: Path) -> None:
    """40 for 65,536 nodes that there are not, and 70 for one node; cycles go on between, and few are stored."""
    config = config_text(tmp_path / "daemon", cluster.conf, drain="owners = true")
    daemon = RunningDaemon(cluster, tmp_path / "daemon", config=config)
    (daemon.folder / "tokens").write_text(f"cwbob user never {digest_of(daemon.token)}\n")
    with daemon:
        for _ in range(40):
            answer = daemon.post("/api/v1/drains", {"nodes": "a[1-65536]"})
            assert answer.status_code == 422, answer.text
            assert "names more than the" in answer.text
        statuses = [daemon.post("/api/v1/drains", {"nodes": "node1"}).status_code for _ in range(OF_USERS.recent + 10)]
        assert set(statuses) == {202, 429}
        assert statuses.count(202) <= OF_USERS.recent
        store = daemon.store()
        try:
            daemon.wait_for(lambda: not store.pending_requests(), 20, "all requests to be handled")
            asked = [row.document()["actor"] for row in store.audit_trail(limit=1_000)]
            assert asked.count("cwbob") == statuses.count(202)
        finally:
            store.close()
