"""kill -9 in the middle of a batch, some jobs of which have had their command and others not: the same end.

``killing`` splits a call for many jobs into its jobs, so that the daemon is killed between any two of them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.simulation.jobs import Program
from tests.simulation.killing import CHANGES, End, Interruption, MortalDaemon, killed_everywhere
from tests.simulation.world import World, config

FREE = {"min_runtime": 0, "allow_cancel": True, "allow_suspend": True}


class TestBatch(Interruption):
    nodes = 5
    least_effects = 40
    end: ClassVar[End] = {
        "eviction": EvictionState.COMPLETED,
        "in_time": True,
        "runs": {"a": 2, "b": 2, "c": 2, "cancelled": 1, "kept": 1},
        "leftovers": [],
        "oversubscribed": [],
    }

    def settings(self) -> Any:
        return config(candidates=FREE | {"protected_users": ["vip"]})

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = {
            name: world.submit(Program(exit_s=1.0), on=(f"n{number}",), ran_s=40 + number)
            for number, name in enumerate("abc", 1)
        }
        jobs["cancelled"] = world.submit(Program(exit_s=1.0), on=("n4",), ran_s=30, requeueable=False)
        jobs["kept"] = world.submit(on=("n5",), ran_s=40, user="vip")
        urgent = world.urgent(4, work_s=10.0)
        for _ in range(200):
            daemon.tick()
            if world.started(urgent) and world.settled():
                break
        started = world.started(urgent)
        assert started is not None, world.describe()
        preemptions = world.eviction().preemptions
        return {
            "eviction": world.eviction().state,
            "in_time": started <= world.eviction().plan.deadline,
            "runs": {name: len(world.cluster.jobs[job_id].runs) for name, job_id in jobs.items()},
            "restarts": {name: world.cluster.jobs[job_id].job.restart_count for name, job_id in jobs.items()},
            "preemptions": {p.job_id: (p.action, p.state) for p in preemptions},
            "leftovers": world.leftovers(),
            "oversubscribed": world.cluster.oversubscribed,
        }


def requeues(world: World) -> list[str]:
    return [step.result for step in world.store.steps(1) if step.kind == "requeue"]


def test_one_call_stores_the_intent_of_all_before_the_first_and_the_results_after_the_last(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(candidates=FREE), node_count=4)
    for number in range(1, 5):
        world.submit(on=(f"n{number}",), ran_s=40)
    seen: list[tuple[list[str], list[PreemptionState]]] = []
    original = world.backend.requeue

    def requeue(job: Any) -> None:
        seen.append((requeues(world), [p.state for p in world.eviction().preemptions]))
        original(job)

    world.backend.requeue = requeue  # type: ignore[method-assign]
    urgent = world.urgent(4)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert seen == [([""] * 4, [PreemptionState.VACATING] * 4)] * 4
    assert requeues(world) == ["ok"] * 4


def withdrawn(world: World, daemon: MortalDaemon) -> None:
    """The urgent job is withdrawn while the daemon is dead: jobs whose turn had not come need not leave any more."""
    jobs = [world.submit(on=(f"n{number}",), ran_s=40) for number in range(1, 4)]
    urgent = world.urgent(3)
    for _ in range(8):
        daemon.tick()
        if daemon._killed_at is not None:
            break
    else:
        return
    stay = [job_id for job_id in jobs if world.state(job_id) is JobState.RUNNING]
    world.cluster.withdraw(world.cluster.jobs[urgent])
    for _ in range(40):
        daemon.tick()
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in stay), world.describe()


def test_what_had_not_its_turn_stays_when_the_urgent_job_is_withdrawn(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE), node_count=3)
    changes = tuple(name for name in CHANGES if name == "requeue")
    daemon = killed_everywhere(world, withdrawn, lambda _: True, changes=changes, writes=("nothing",))
    assert len(daemon.kills) >= 3
