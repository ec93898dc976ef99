"""GET /calibration: by checkpointer, and page by page by user, application and checkpointer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.model.claims import Restart
from clearway.model.records import CheckpointOutcome
from tests.integration.store.test_history import CHECKPOINT, RESTART
from tests.simulation.world import World
from tests.unit.api.conftest import ApiWorld
from tests.unit.cli.running import clearway

SAVED = replace(CHECKPOINT, outcome=CheckpointOutcome.SAVED, actual_s=20.0, write_s=20.0)


def test_nothing_is_known_at_first(api: ApiWorld) -> None:
    assert api.client.get("/api/v1/calibration").json() == {"checkpointers": [], "items": [], "next_offset": None}


def test_what_is_known(api: ApiWorld) -> None:
    api.parts.history.add_checkpoint(SAVED)
    for number in (2, 3):
        api.parts.history.add_checkpoint(replace(CHECKPOINT, eviction_id=number, user="bob", ended_at=api.clock.now()))
    api.store.record_restart(replace(RESTART, restart=Restart.SCRATCH))
    answer = api.client.get("/api/v1/calibration").json()
    (dmtcp,) = answer["checkpointers"]
    assert dmtcp["checkpointer"] == "dmtcp"
    assert dmtcp["checkpoints"] == {"saved": 1, "failed": 0, "late": 2, "ended": 0}
    assert dmtcp["restarts"] == {"ok": 0, "fallback": 0, "scratch": 1}
    assert (dmtcp["median_ratio"], dmtcp["share_within"], dmtcp["compared"]) == (2.0, 0.0, 1)
    alice, bob = answer["items"]
    assert (alice["user"], alice["app"], alice["trusted"], alice["expected_s"]) == ("alice", "solver", True, 21.0)
    assert (bob["user"], bob["trusted"], bob["failures_in_a_row"]) == ("bob", False, 2)


def test_pages(api: ApiWorld) -> None:
    for user in ("a", "b", "c"):
        api.parts.history.add_checkpoint(replace(SAVED, job_id=user, user=user))
    first = api.client.get("/api/v1/calibration", params={"limit": 2}).json()
    assert ([item["user"] for item in first["items"]], first["next_offset"]) == (["a", "b"], 2)
    last = api.client.get("/api/v1/calibration", params={"limit": 2, "offset": 2}).json()
    assert ([item["user"] for item in last["items"]], last["next_offset"]) == (["c"], None)
    assert api.client.get("/api/v1/calibration", params={"limit": 0}).status_code == 422


@pytest.mark.parametrize("output", ["table", "json"])
def test_the_command_line_tells_the_same(make_api: Callable[..., ApiWorld], tmp_path: Path, output: str) -> None:
    api: World = make_api()
    path = tmp_path / "clearway.toml"
    path.write_text(f'[store]\nurl = "{api.store_url}"\n')
    assert "no checkpoint" in clearway("calibration", "-c", path).stdout
    api.store.record_checkpoint(SAVED)
    api.store.record_restart(RESTART)
    done = clearway("calibration", "-c", path, "-o", output)
    assert done.exit_code == 0, done.stderr
    for word in ("alice", "solver", "dmtcp"):
        assert word in done.stdout
    assert ("2.00" if output == "table" else '"median_ratio": 2.0') in done.stdout
