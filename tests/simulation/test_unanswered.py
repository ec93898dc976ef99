"""Jobs with Slurm's --signal and --requeue alone: asked as Slurm would at their limit, and requeued, without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from clearway.config.configuration import Config
from clearway.estimates.unanswered import went_on
from clearway.model.cluster import Job, JobState
from clearway.model.operations import Answer, PreemptionState
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome
from clearway.simulation.jobs import Program
from clearway.slurm.base import Failures, JobChange
from tests.simulation.drains import drain, empty, now
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import World, config

GRACE_S = 20
MARKED = f"clearway:checkpoint=signal,signal=USR1,to=batch,grace={GRACE_S}"
# What the handlers of users do: they save and end, with one status or the other, or requeue the job, or go on.
HANDLERS = {
    "ends well": Program(save_s=3.0, ends="COMPLETED", work_s=4_000),
    "ends with a status": Program(save_s=3.0, ends="FAILED", work_s=4_000),
    "requeues": Program(save_s=3.0, requeues=True, work_s=4_000),
    "goes on": Program(save_s=3.0, work_s=4_000),
}
NEVER = Program(work_s=99_999)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(node_count=1, config=config(candidates={"min_runtime": 0, "max_preemptions": 9}))


def served(world: World, max_delay_s: int = 60, **fields: object) -> str:
    urgent = world.urgent(1, work_s=5.0, comment=f"clearway:max_delay={max_delay_s}", **fields)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=2.0 * max_delay_s)
    world.run_until(world.settled, limit_s=400)
    return urgent


@pytest.mark.parametrize("how", HANDLERS)
def test_it_goes_on_from_what_it_has_saved(world: World, how: str) -> None:
    job = world.submit(HANDLERS[how], on=("n1",), ran_s=900, comment=MARKED)
    begun = world.clock.now()
    urgent = served(world)
    eviction = world.store.evictions(limit=1)[0]
    (p,) = eviction.preemptions
    assert (p.job_id, p.action, p.state) == (job, Action.APP_CHECKPOINT, PreemptionState.RETURNED)
    assert p.predicted_checkpoint_s == GRACE_S, "all the time that it may take"
    assert f"saves itself within {GRACE_S}s" in eviction.plan.verdicts[0].reason
    started = world.started(urgent)
    assert started is not None
    waited_s = (started - begun).total_seconds()
    assert waited_s == pytest.approx(GRACE_S + 1 if how == "goes on" else 5, abs=3), "no longer than it needs"
    entry = world.cluster.jobs[job]
    assert len(entry.runs) == 2
    world.run_until(lambda: world.state(job) is JobState.ENDED, limit_s=4_000, every_s=20)
    assert entry.job.raw_state == "COMPLETED"
    assert entry.lost_s <= GRACE_S, "at most what it has done since it saved itself"
    (record,) = world.store.checkpoint_history()
    assert record.outcome is CheckpointOutcome.SAVED
    assert record.write_s == pytest.approx(GRACE_S if how == "goes on" else 3, abs=2)
    assert not world.observer.failures


def test_a_job_that_was_cancelled_meanwhile_is_not_run_again(world: World) -> None:
    job = world.submit(HANDLERS["goes on"], on=("n1",), ran_s=900, comment=MARKED)
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.cluster.jobs[job].asked_at is not None)
    world.cluster.end_run(world.cluster.jobs[job], requeue=False)
    world.run_until(lambda: world.started(urgent) is not None)
    world.run_until(world.settled)
    assert world.cluster.jobs[job].job.raw_state == "CANCELLED"
    assert len(world.cluster.jobs[job].runs) == 1


@pytest.mark.fault(
    "An owner who wrote into the Comment of a job that was asked to save itself lost the job.", found_by="random faults"
)
@pytest.mark.parametrize("comment", ["", "mine", f"{MARKED},seen", "clearway:checkpoint=none"])
@pytest.mark.parametrize("how", ["ends well", "goes on"])
@pytest.mark.parametrize("called_off", [False, True])
def test_what_its_owner_writes_once_it_was_asked_changes_nothing(
    world: World, how: str, comment: str, called_off: bool
) -> None:
    job = world.submit(HANDLERS[how], on=("n1",), ran_s=900, comment=MARKED)
    urgent, entry = world.urgent(1, work_s=5.0), world.cluster.jobs[job]
    world.run_until(lambda: entry.asked_at is not None)
    entry.job = replace(entry.job, comment=comment)
    if called_off:
        world.cluster.withdraw(world.cluster.jobs[urgent])
    else:
        world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    world.run_until(world.settled)
    world.run_until(lambda: world.state(job) is JobState.RUNNING)
    assert len(entry.runs) == 2
    assert entry.saved_s >= 900


def test_a_job_that_may_not_be_requeued_any_more_is_not_run_again_and_its_record_says_why(world: World) -> None:
    job = world.submit(HANDLERS["ends well"], on=("n1",), ran_s=900, comment=MARKED)
    urgent = world.urgent(1, work_s=5.0)
    entry = world.cluster.jobs[job]
    world.run_until(lambda: entry.asked_at is not None)
    entry.job = replace(entry.job, requeueable=False)
    world.run_until(lambda: world.started(urgent) is not None)
    world.run_until(world.settled)
    assert (entry.job.raw_state, len(entry.runs)) == ("COMPLETED", 1)
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert p.note == "ended once it was asked to save itself, and may not be requeued any more"


@pytest.mark.parametrize("how", ["ends well", "goes on"])
def test_a_job_that_was_asked_comes_back_also_where_the_urgent_job_is_gone(world: World, how: str) -> None:
    """From the signal on it may end at any moment, whatever becomes of the eviction."""
    job = world.submit(HANDLERS[how], on=("n1",), ran_s=900, comment=MARKED)
    urgent = world.urgent(1)
    world.run_until(lambda: world.cluster.jobs[job].asked_at is not None)
    world.cluster.withdraw(world.cluster.jobs[urgent])
    world.run_until(world.settled)
    world.run_until(lambda: world.state(job) is JobState.RUNNING)
    entry = world.cluster.jobs[job]
    assert len(entry.runs) == 2
    assert entry.saved_s >= 900
    assert not world.leftovers()


def test_one_that_ends_in_the_moment_of_its_requeue_is_run_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.submit(HANDLERS["goes on"], on=("n1",), ran_s=900, comment=MARKED)
    entry, change_jobs = world.cluster.jobs[job], world.backend.change_jobs

    def just_before(change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        if change is JobChange.REQUEUE and entry.job.state is JobState.RUNNING:
            world.cluster.leave_nodes(entry, "COMPLETED")
        return change_jobs(change, jobs, signal)

    monkeypatch.setattr(world.backend, "change_jobs", just_before)
    served(world)
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert (p.state, p.answer, p.checkpointed_at is not None) == (PreemptionState.RETURNED, Answer.TAKEN, True)
    assert p.requeued_at is not None, "by Clearway, not by another hand"
    assert len(entry.runs) == 2


def test_it_is_not_asked_while_its_users_other_jobs_wait_for_its_end(world: World) -> None:
    job = world.submit(HANDLERS["ends well"], on=("n1",), ran_s=900, comment=MARKED)
    of_another = world.submit(NEVER, dependency=f"afterany:{job}(unfulfilled)", user="mallory", priority=0)
    follows = world.submit(NEVER, dependency=f"afterok:{job}(unfulfilled)", priority=0)
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.started(urgent) is not None)
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert (p.job_id, p.action, p.asked_at) == (job, Action.KILL, None)
    world.run_until(world.settled)
    world.cluster.withdraw(world.cluster.jobs[follows])
    world.run_until(lambda: world.state(job) is JobState.RUNNING)
    served(world)
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert (p.job_id, p.action) == (job, Action.APP_CHECKPOINT), "another user's words do not count"
    assert world.state(of_another) is JobState.PENDING


@pytest.mark.parametrize(
    "claim", ["grace=65535", "grace=999999999999", "grace=0", "grace=-1", "grace=1e9", "grace=20,grace=1"]
)
def test_who_claims_too_much_is_treated_as_one_that_claims_nothing(world: World, claim: str) -> None:
    job = world.submit(NEVER, on=("n1",), ran_s=900, comment=f"clearway:checkpoint=signal,{claim}")
    urgent = world.urgent(1, work_s=5.0)
    begun = world.clock.now()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=30)
    started = world.started(urgent)
    assert started is not None
    assert (started - begun).total_seconds() < 10, "nobody waits for it"
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert (p.job_id, p.action) == (job, Action.KILL)


def test_a_longer_time_that_is_claimed_once_it_was_asked_does_not_count(world: World) -> None:
    job = world.submit(HANDLERS["goes on"], on=("n1",), ran_s=900, comment=MARKED)
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.cluster.jobs[job].asked_at is not None)
    entry = world.cluster.jobs[job]
    entry.job = replace(entry.job, comment=MARKED.replace("grace=20", "grace=3000"))
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert world.store.evictions(limit=1)[0].revision == 0


def test_one_that_only_says_so_is_found_out_by_its_next_run(make_world: Callable[..., World]) -> None:
    """It ignores the signal: its next run takes as long as those of its user's other jobs of that name."""
    world = make_world(
        node_count=1, config=config(candidates={"min_runtime": 0, "max_preemptions": 9}, learning={"failures": 1})
    )
    for _ in range(3):
        each = world.submit(Program(work_s=600), name="liar")
        world.run_until(lambda each=each: world.state(each) is JobState.ENDED, limit_s=700, every_s=5)
    job = world.submit(Program(work_s=600), on=("n1",), ran_s=400, comment=MARKED, name="liar")
    served(world)
    assert [each.outcome for each in world.store.checkpoint_history()] == [CheckpointOutcome.SAVED]
    world.run_until(lambda: world.state(job) is JobState.ENDED, limit_s=700, every_s=5)
    world.tick()
    assert [each.outcome for each in world.store.checkpoint_history()] == [CheckpointOutcome.FAILED]
    another = world.submit(Program(work_s=600), on=("n1",), ran_s=100, comment=MARKED, name="liar")
    served(world)
    (p,) = world.store.evictions(limit=1)[0].preemptions
    assert (p.job_id, p.action) == (another, Action.KILL), "nobody waits for it any more"


@pytest.mark.parametrize("how", HANDLERS)
def test_a_drain_asks_it_and_brings_it_back(make_world: Callable[..., World], how: str) -> None:
    world = make_world(node_count=2)
    job = world.submit(HANDLERS[how], on=("n1",), ran_s=900, comment=MARKED)
    asked = drain(world, "n1")
    back = [PreemptionState.RETURNED]
    world.run_until(lambda: [p.state for p in now(world, asked).preemptions] == back, limit_s=120)
    assert empty(world, "n1")
    assert now(world, asked).preemptions[0].action is Action.APP_CHECKPOINT
    entry = world.cluster.jobs[job]
    assert entry.runs == [("n1",), ("n2",)]
    assert entry.saved_s >= 900
    assert entry.lost_s <= GRACE_S


class TestInterruption(Interruption):
    """A daemon that dies may ask twice, and finds a job that has ended meanwhile."""

    nodes = 4
    least_effects = 30
    end: ClassVar[End] = {
        "in_time": True,
        "leftovers": [],
        "runs": dict.fromkeys(HANDLERS, 2),
        "states": dict.fromkeys(HANDLERS, JobState.RUNNING),
        "saved": True,
    }

    def settings(self) -> Config:
        return config(candidates={"min_runtime": 0, "allow_kill": False})

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = {
            how: world.submit(replace(program, work_s=9_000), on=(f"n{number}",), ran_s=900, comment=MARKED)
            for number, (how, program) in enumerate(HANDLERS.items(), start=1)
        }
        urgent = world.urgent(4, work_s=15.0)
        for _ in range(700):
            daemon.tick()
            if world.started(urgent) and world.settled():
                break
        started = world.started(urgent)
        assert started is not None, world.describe()
        entries = {how: world.cluster.jobs[job_id] for how, job_id in jobs.items()}
        return {
            "in_time": started <= world.eviction().plan.deadline,
            "leftovers": world.leftovers(),
            "runs": {how: len(entry.runs) for how, entry in entries.items()},
            "states": {how: entry.job.state for how, entry in entries.items()},
            "saved": all(entry.saved_s >= 900 for entry in entries.values()),
        }


@pytest.mark.parametrize(
    ("ran_s", "then_s", "others_s", "expected"),
    [
        (400, 300, (), True),
        (400, 500, (), None),
        (400, 610, (600, 600), None),
        (400, 590, (600, 600, 610), False),
        (300, 320, (600, 600, 610), True),
        (300, 320, (600, 600, 610, 20, 30, 40, 50), True),
        (100, 600, (600, 600, 610), None),
    ],
)
def test_whether_a_run_went_on(ran_s: float, then_s: float, others_s: tuple[float, ...], expected: bool | None) -> None:
    assert went_on(ran_s, then_s, others_s) is expected
