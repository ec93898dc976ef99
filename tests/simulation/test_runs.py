"""A claim counts in the run in which it was made: a signal that nothing waits for yet would end the job for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.model.claims import read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.records import StepRecord
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from clearway.slurm.base import Failures
from tests.simulation.drains import ask, drain, empty, now
from tests.simulation.moving_jobs import ask as ask_move
from tests.simulation.moving_jobs import moving, nodes_of, serial
from tests.simulation.world import SAVES, World, make_world  # noqa: F401 - a fixture

SAVER = Program(save_s=2.0, work_s=100_000.0, trap_s=20.0)


def saved_and_requeued(world: World, **fields: Any) -> str:
    """A job that was saved and requeued without Clearway's help, and runs again since a second."""
    job = world.submit(SAVER, on=("n1",), ran_s=900, comment=SAVES, **fields)
    entry = world.cluster.jobs[job]
    world.cluster.signalled(entry)
    world.clock.advance(3)
    world.cluster.advance(world.clock.now())
    assert "state=saved" in entry.job.comment
    world.cluster.end_run(entry, requeue=True)
    world.clock.advance(1)
    world.cluster.advance(world.clock.now())
    SimulatedBackend(world.cluster, world.clock).start_now(job)
    world.clock.advance(1)
    world.cluster.advance(world.clock.now())
    assert entry.job.restart_count == 1
    assert entry.job.state is JobState.RUNNING
    assert "checkpoint=signal" in entry.job.comment, "the Comment outlives the requeue"
    return job


def steps(world: World) -> list[StepRecord]:
    return [step for eviction in world.store.evictions() for step in world.store.steps(eviction.eviction_id)]


def signals(world: World) -> list[str]:
    return [step.job_id or "" for step in steps(world) if step.kind == "ask_checkpoint" and step.result == "ok"]


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:  # noqa: F811 - pytest's way
    return make_world()


def test_a_drain_asks_no_run_by_the_claim_of_the_last(world: World) -> None:
    job = saved_and_requeued(world)
    request = ask(world, ",".join(world.cluster.jobs[job].job.nodes))
    for _ in range(10):
        world.tick(1.0)
    assert world.state(job) is JobState.RUNNING, "the signal came before the trap, and the job has failed"
    assert signals(world) == []
    assert world.store.request(request) is not None
    world.run_until(lambda: read_claims(world.cluster.jobs[job].job)[0].checkpoint is not None, 60)  # type: ignore[union-attr]
    begun = drain(world, ",".join(world.cluster.jobs[job].job.nodes))
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    assert world.cluster.jobs[job].lost_s < 2, "by its new claim it was saved again"


@pytest.mark.fault(
    "A requeued job was sent a signal, by the claim of its last run, before it waited for any: that ended it for good.",
    found_by="random faults",
)
def test_an_eviction_asks_no_run_by_the_claim_of_the_last(make_world: Callable[..., World]) -> None:  # noqa: F811
    world = make_world(node_count=1)
    job = saved_and_requeued(world)
    world.urgent(1)
    for _ in range(3):
        world.tick(1.0)
    assert signals(world) == []
    assert world.cluster.jobs[job].job.raw_state != "FAILED"


def test_a_move_asks_no_run_by_the_claim_of_the_last(make_world: Callable[..., World]) -> None:  # noqa: F811
    world = make_world(config=moving())
    job = saved_and_requeued(world, cpus_per_node=1, memory_mib=500, time_limit_s=4_500)
    fixed = serial(world, "n2" if world.cluster.jobs[job].job.nodes == ("n1",) else "n1", save_s=None)
    ask_move(world)
    for _ in range(5):
        world.tick(1.0)
    assert signals(world) == []
    assert world.state(job) is JobState.RUNNING
    world.clock.advance(300)  # by its new claim it is moved
    answer, _ = ask_move(world)
    world.run_until(lambda: nodes_of(world, job) == nodes_of(world, fixed), 300)
    assert len(signals(world)) == 1, answer


def test_a_job_that_takes_its_offer_back_before_the_signal_is_not_signalled(world: World) -> None:
    """Between the snapshot and the signal the launcher may have found that it cannot save this program."""
    job = world.submit(replace(SAVER, trap_s=0.0), on=("n1",), ran_s=900, comment=SAVES)
    fresh = world.backend.look_at

    def jobs_now(job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        for job_id in job_ids:
            entry = world.cluster.jobs[job_id]
            entry.job = replace(entry.job, comment="clearway:run=0,checkpoint=none")
        return fresh(job_ids, whole=whole)

    world.backend.look_at = jobs_now  # type: ignore[method-assign]
    ask(world, "n1")
    world.run_until(lambda: any(s.kind == "ask_checkpoint" for s in steps(world)), 60)
    assert signals(world) == []
    refused = [step for step in steps(world) if step.kind == "ask_checkpoint"]
    assert [step.result for step in refused] == ["refused"]
    assert "does not say any more" in refused[0].detail
    assert world.cluster.jobs[job].asked_at is None


def test_the_signal_is_the_one_that_the_job_names_now(world: World) -> None:
    job = world.submit(replace(SAVER, trap_s=0.0), on=("n1",), ran_s=900, comment=SAVES)
    sent: list[tuple[str, bool]] = []
    fresh = world.backend.look_at

    def jobs_now(job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        for job_id in job_ids:
            entry = world.cluster.jobs[job_id]
            if entry.asked_at is None:
                entry.job = replace(entry.job, comment="clearway:run=0,checkpoint=signal,signal=USR2,to=steps")
        return fresh(job_ids, whole=whole)

    given = world.backend.signal

    def signal(about: Job, name: str, *, batch_only: bool) -> None:
        sent.append((name, batch_only))
        given(about, name, batch_only=batch_only)

    world.backend.look_at, world.backend.signal = jobs_now, signal  # type: ignore[method-assign]
    ask(world, "n1")
    world.run_until(lambda: bool(sent), 60)
    assert sent == [("USR2", False)]
    world.run_until(lambda: empty(world, "n1"), 60)
    assert world.cluster.jobs[job].job.restart_count == 1


def test_a_claim_of_the_submission_is_used_when_its_handler_may_be_there(world: World) -> None:
    """Sbatch --comment is older than the run: a minute goes by before the first signal."""
    world.submit(replace(SAVER, trap_s=30.0), on=("n1",), ran_s=5.0, comment=SAVES)
    begun = drain(world, "n1")
    world.clock.advance(1)
    asked = now(world, begun).created_at + timedelta(seconds=54)
    while world.clock.now() < asked:
        world.tick(1.0)
        assert signals(world) == []
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    assert len(signals(world)) == 1
