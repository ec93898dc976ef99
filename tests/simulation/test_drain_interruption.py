"""kill -9 of the daemon between any two effects of a drain, from its request to the nodes' return: the end is the same.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from clearway.execution.records import EvictionState, PreemptionState
from clearway.migration.request import DrainRequest, UndrainRequest
from clearway.model import Action
from clearway.simulation.cluster import Program
from tests.simulation.killing import MortalDaemon
from tests.simulation.world import SAVES, World, config


def play(world: World, blow_at: int | None) -> tuple[int, dict[str, Any]]:
    """Two drains, one of which is refused by a job, and the return of the nodes; with one kill."""

    def run_until(done: Callable[[], bool]) -> None:
        for _ in range(200):
            daemon.tick(1.0)
            if done():
                return
        raise AssertionError(world.describe())

    def ask(kind: str, document: str) -> int:
        return world.store.add_request(kind, None, "root", world.clock.now(), document)

    def emptied(request_id: int) -> bool:
        request = world.store.request(request_id)
        if request is None or request.eviction_id is None:
            return False
        eviction = world.store.eviction(request.eviction_id)
        return eviction.started_at is not None or eviction.state.terminal

    daemon = MortalDaemon(world, blow_at)
    saver = world.submit(Program(save_s=3.0, work_s=1_500), on=("n1", "n3"), num_nodes=2, ran_s=900, comment=SAVES)
    killed = world.submit(Program(exit_s=2.0), on=("n2",), ran_s=40)
    ending = world.submit(on=("n4",), ran_s=592, time_limit_s=600)
    stuck = world.submit(on=("n8",), ran_s=40)
    deadline = world.clock.now() + timedelta(seconds=90)
    forced = ask("drain", DrainRequest(nodes="n[1-2],n4", force=True, deadline=deadline).model_dump_json())
    refused = ask("drain", DrainRequest(nodes="n[7-8]").model_dump_json())
    run_until(lambda: emptied(forced) and emptied(refused) and world.settled())
    held = sorted(name for name, node in world.cluster.nodes.items() if node.drained)
    undrained = ask("undrain", UndrainRequest(nodes="n[1-2]").model_dump_json())
    run_until(lambda: bool((request := world.store.request(undrained)) and request.handled_at))
    evictions = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    jobs = {"saver": saver, "killed": killed, "ending": ending, "stuck": stuck}
    entries = {name: world.cluster.jobs[job_id] for name, job_id in jobs.items()}
    return daemon.effects, {
        "states": [e.state for e in evictions],
        "preemptions": [{p.job_id: (p.action, p.state) for p in e.preemptions} for e in evictions],
        "runs": {name: len(entry.runs) for name, entry in entries.items()},
        "away": not any(set(e.runs[-1]) & {"n1", "n2", "n4"} for n, e in entries.items() if n in ("saver", "killed")),
        "saved": entries["saver"].lost_s <= 1.5,
        "held": held,
        "left": sorted(name for name, node in world.cluster.nodes.items() if node.drained),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    return play(World(f"sqlite:///{tmp_path_factory.mktemp('undisturbed')}/store.sqlite", config=config()), None)


def test_undisturbed_run_is_what_the_others_are_compared_with(undisturbed: tuple[int, dict[str, Any]]) -> None:
    effects, end = undisturbed
    assert effects > 60  # otherwise the fuse sees nothing
    assert end == {
        "states": [EvictionState.COMPLETED, EvictionState.CANCELLED],
        "preemptions": [
            {
                "1": (Action.APP_CHECKPOINT, PreemptionState.RETURNED),
                "2": (Action.KILL, PreemptionState.RETURNED),
                "3": (Action.END, PreemptionState.ENDED),
            },
            {},
        ],
        "runs": {"saver": 2, "killed": 2, "ending": 1, "stuck": 1},
        "away": True,
        "saved": True,
        "held": ["n1", "n2", "n4"],
        "left": ["n4"],
    }


@pytest.mark.parametrize("part", range(4))
def test_killed_at_every_effect(
    make_world: Callable[..., World], undisturbed: tuple[int, dict[str, Any]], part: int
) -> None:
    effects, end = undisturbed
    # Only before each effect: after one nothing changes until the next.
    for blow_at in range(2 * part, effects, 8):
        world = make_world(config=config())
        _, found = play(world, blow_at)
        assert found == end, f"killed at effect {blow_at}: {world.describe()}"
