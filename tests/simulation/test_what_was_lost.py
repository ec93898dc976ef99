"""What a job lost by leaving is told as measured: once its next run has said how it went on, and not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from clearway.api import schemas as s
from clearway.api.views import preemption_view
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.options import saving
from clearway.estimates.costs import BY_ITSELF
from clearway.estimates.history import saved_node_s
from clearway.model.claims import Restart
from clearway.model.cluster import JobState
from clearway.model.events import LossMeasured
from clearway.model.notice import Channel, NoticeKind
from clearway.model.operations import EvictionState, Preemption, PreemptionState
from clearway.model.problem import Action
from clearway.notify.changes import sentence
from clearway.simulation.jobs import Program
from clearway.telemetry.metrics import Metrics
from tests.simulation.test_notices import NOTIFY, told
from tests.simulation.world import Quiet, World, config

DMTCP = "clearway:checkpoint=signal,checkpointer=dmtcp"
LASTS = 99_999.0
NODES = 2
RESTART_S = 4
LOST = "clearway_lost_work_node_seconds_total{action=sys_checkpoint}"


class Counting(Quiet):
    """Passes what it hears on to the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self.metrics = metrics
        self.measured: list[LossMeasured] = []

    def __call__(self, event: Any) -> None:
        super().__call__(event)
        self.metrics.record(event)
        if isinstance(event, LossMeasured):
            self.measured.append(event)

    def counter(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def start(world: World, **sections: dict[str, Any]) -> None:
    """A daemon that knows DMTCP, with these sections changed."""
    changed = {name: getattr(world.config, name).model_copy(update=keys) for name, keys in sections.items()}
    world.config = world.config.model_copy(update=changed)
    world.store.close()
    world.start_daemon(checkpointers={**BY_ITSELF, "dmtcp": Action.SYS_CHECKPOINT})


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world(config=config(candidates={"min_runtime": 0, "protected_users": ["vip"]}, notify=NOTIFY))
    made.observer = Counting(Metrics(made.clock))
    start(made)
    for number in range(1 + NODES, 9):
        made.submit(Program(work_s=LASTS), on=(f"n{number}",), ran_s=10, user="vip")
    return made


def saver(world: World, ran_s: float = 500.0, **fields: Any) -> str:
    nodes = tuple(f"n{number}" for number in range(1, 1 + NODES))
    program = fields.pop("program", Program(save_s=2.0, work_s=LASTS))
    return world.submit(program, on=nodes, num_nodes=NODES, ran_s=ran_s, comment=f"{DMTCP},run=0", **fields)


def preempt(world: World, job_id: str) -> None:
    """Until it runs again, and has not said how."""
    runs = len(world.cluster.jobs[job_id].runs)
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    world.run_until(lambda: len(world.cluster.jobs[job_id].runs) > runs, limit_s=300)
    world.run_until(world.settled, limit_s=300)


def say(world: World, job_id: str, restart: str, **pairs: str | int) -> None:
    """The launcher's word of its new run."""
    world.tick(RESTART_S + 2)
    world.cluster.jobs[job_id].claim(restart=restart, restart_s=RESTART_S, **pairs)
    world.tick()
    world.tick()


def record(world: World, job_id: str) -> Preemption:
    """In the newest operation that it left for."""
    return next(each.preemption for each in world.store.involvements(job_id) if each.preemption is not None)


def view(world: World, job_id: str) -> s.PreemptionView:
    return preemption_view(record(world, job_id))


def ran_s(p: Preemption, since: datetime | None = None) -> float:
    assert p.requeued_at is not None
    assert p.job.start_time is not None
    return (p.requeued_at - (since or p.job.start_time)).total_seconds()


def mails(world: World, kind: NoticeKind) -> list[str]:
    texts = world.config.notify.texts
    return [sentence(each, texts) for each in told(world, kind) if each.channel is Channel.MAIL]


def lost(world: World, action: str = "sys_checkpoint") -> float:
    assert isinstance(world.observer, Counting)
    return world.observer.counter("clearway_lost_work_node_seconds_total", action=action)


def spared(world: World) -> float:
    assert isinstance(world.observer, Counting)
    return world.observer.counter("clearway_saved_work_node_seconds_total")


@pytest.mark.fault(
    "A job that had been saved was said to have lost a node-second, before its next run had shown anything.",
    found_by="trial",
)
def test_before_the_next_run_tells_nobody_says_what_was_lost(world: World) -> None:
    job_id = saver(world)
    preempt(world, job_id)
    seen = view(world, job_id)
    assert (seen.state, seen.restart, seen.loss_measured) == (PreemptionState.RETURNED, None, False)
    assert seen.loss.startswith("Whether it goes on from its checkpoint is not known yet. If it does, ")
    assert "It lost" not in seen.loss
    (mail,) = mails(world, NoticeKind.RETURNED)
    assert mail.endswith("Whether it goes on from its checkpoint is not known yet.")
    assert spared(world) == 0, "nothing is saved before somebody goes on from it"


def test_a_restart_from_the_newest_checkpoint(world: World) -> None:
    job_id = saver(world)
    preempt(world, job_id)
    before = record(world, job_id)
    assert before.checkpointed_at is not None
    assert before.actual_lost_node_s is not None
    say(world, job_id, "ok", last=int(before.checkpointed_at.timestamp()), generation=1)
    p, seen = record(world, job_id), view(world, job_id)
    since_image_s = ran_s(p, before.checkpointed_at.replace(microsecond=0))
    assert p.actual_lost_node_s == pytest.approx(NODES * (since_image_s + RESTART_S), abs=0.1)
    assert (seen.restart, seen.restart_s, seen.loss_measured) == (Restart.OK, RESTART_S, True)
    assert seen.loss.startswith("It went on from its newest checkpoint. It lost ")
    assert lost(world) == pytest.approx(p.actual_lost_node_s)
    assert saved_node_s(p) > 0
    assert spared(world) == pytest.approx(saved_node_s(p))
    assert mails(world, NoticeKind.BEGAN) == []


@pytest.mark.fault(
    "After a restart from an older checkpoint the loss was counted from the newest one.", found_by="trial"
)
def test_a_restart_from_an_older_checkpoint(world: World) -> None:
    job_id = saver(world)
    preempt(world, job_id)
    before = record(world, job_id)
    assert before.requeued_at is not None
    image = before.requeued_at.replace(microsecond=0) - timedelta(seconds=200)
    say(world, job_id, "fallback", last=int(image.timestamp()), generation=1)
    p, seen = record(world, job_id), view(world, job_id)
    assert p.actual_lost_node_s == pytest.approx(NODES * (ran_s(p, image) + RESTART_S), abs=0.1)
    assert seen.loss.startswith("It went on from an older checkpoint. It lost 409 node-seconds")
    (mail,) = mails(world, NoticeKind.BEGAN)
    assert "did not go on from its newest checkpoint. It went on from an older checkpoint" in mail
    assert lost(world) == pytest.approx(p.actual_lost_node_s)
    assert spared(world) == pytest.approx(saved_node_s(p))


@pytest.mark.fault(
    "A job that began anew after its save was recorded with a loss of a node-second, and not with all its work.",
    found_by="trial",
)
def test_a_job_that_began_anew_has_lost_all_its_work(world: World) -> None:
    job_id = saver(world)
    preempt(world, job_id)
    say(world, job_id, "scratch")
    p, seen = record(world, job_id), view(world, job_id)
    assert p.actual_lost_node_s == pytest.approx(NODES * (ran_s(p) + RESTART_S), abs=0.1)
    assert p.actual_lost_node_s > NODES * 500
    assert seen.loss.startswith("It began anew. It lost 1,0")
    (mail,) = mails(world, NoticeKind.BEGAN)
    assert "It began anew. It lost 1,0" in mail
    assert lost(world) == pytest.approx(p.actual_lost_node_s)
    assert spared(world) == 0
    (eviction,) = world.store.evictions()
    assert eviction.state is EvictionState.COMPLETED, "what it has lost is kept after its end, too"
    assert eviction.actual_lost_node_s == p.actual_lost_node_s
    (case,) = world.store.cases_since(eviction.created_at - timedelta(hours=1))
    assert [each.actual_lost_node_s for each in case.jobs] == [p.actual_lost_node_s]


def test_what_was_carried_on_from_run_to_run_is_lost_with_the_last(world: World) -> None:
    start(world, candidates={"max_preemptions": 9})
    job_id = saver(world)
    preempt(world, job_id)
    first = record(world, job_id)
    assert first.checkpointed_at is not None
    say(world, job_id, "ok", last=int(first.checkpointed_at.timestamp()))
    first = record(world, job_id)
    assert first.actual_lost_node_s is not None
    world.tick(100)
    preempt(world, job_id)
    say(world, job_id, "scratch")
    second = record(world, job_id)
    assert second.job.restart_count == 1
    carried = NODES * ran_s(first) - (first.actual_lost_node_s - NODES * RESTART_S)
    assert second.actual_lost_node_s == pytest.approx(carried + NODES * (ran_s(second) + RESTART_S), abs=0.1)
    world.tick(100)
    preempt(world, job_id)
    say(world, job_id, "scratch")
    third = record(world, job_id)
    assert third.actual_lost_node_s == pytest.approx(NODES * (ran_s(third) + RESTART_S), abs=0.1), "since it began anew"


def test_a_loss_is_measured_once(world: World) -> None:
    """Neither a new start of the daemon nor a later run, which another hand has begun, changes it."""
    job_id = saver(world)
    preempt(world, job_id)
    say(world, job_id, "scratch")
    before = record(world, job_id)
    start(world)
    world.tick()
    entry = world.cluster.jobs[job_id]
    entry.job = replace(entry.job, restart_count=2, start_time=world.clock.now())
    say(world, job_id, "fallback")
    assert record(world, job_id) == before
    assert isinstance(world.observer, Counting)
    assert len(world.observer.measured) == 1
    assert len(mails(world, NoticeKind.BEGAN)) == 1


@pytest.mark.fault(
    "Where the save itself ended the program and it began anew in the same run, no loss was told.", found_by="trial"
)
def test_a_program_that_its_save_has_ended(world: World) -> None:
    """The launcher has begun anew in the same run, and the job does not leave."""
    job_id = saver(world, program=Program(save_s=30.0, work_s=LASTS))
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: record_or_none(world, job_id) is not None, limit_s=60)
    world.run_until(lambda: record(world, job_id).asked_at is not None, limit_s=60)
    asked = int(world.clock.now().timestamp())
    world.tick(5)
    entry = world.cluster.jobs[job_id]
    entry.epoch += 1  # the program that was to be saved is no more
    entry.claim(state="failed", asked=asked, restart="scratch", restart_s=1)
    world.tick()
    world.by_hand.cancel(world.cluster.jobs[urgent].job)
    world.run_until(world.settled)
    p, seen = record(world, job_id), view(world, job_id)
    began = saving(
        entry.job, PlanningContext(snapshot=world.tick().snapshot, config=world.config, now=world.clock.now())
    )
    assert "began anew" in began.began
    assert p.job.restart_count == entry.job.restart_count == 0
    assert (p.state, p.requeued_at, p.restart) == (PreemptionState.SPARED, None, Restart.SCRATCH)
    assert p.actual_lost_node_s == pytest.approx(NODES * 505, abs=30)
    assert seen.loss.startswith("It began anew. It lost ")
    assert lost(world, "kill") == pytest.approx(p.actual_lost_node_s)
    assert len(mails(world, NoticeKind.BEGAN)) == 1


def record_or_none(world: World, job_id: str) -> Preemption | None:
    return next((each.preemption for each in world.store.involvements(job_id) if each.preemption is not None), None)


@pytest.mark.parametrize("late", [True, False])
def test_a_save_that_failed_before_the_requeue(world: World, late: bool) -> None:
    """It is requeued without a checkpoint: at once it is known that its work since the start is lost."""
    start(world, execution={"late_checkpoint": "kill"})
    program = Program(save_s=900.0, work_s=LASTS) if late else Program(save_s=1.0, save_fails=True, work_s=LASTS)
    job_id = saver(world, program=program)
    preempt(world, job_id)
    p, seen = record(world, job_id), view(world, job_id)
    assert p.checkpointed_at is None
    assert p.actual_lost_node_s == pytest.approx(NODES * ran_s(p), abs=1)
    assert seen.loss_measured
    assert seen.loss.startswith("It lost 1,")
    (mail,) = mails(world, NoticeKind.LEFT)
    assert "not saved" in mail


def test_a_job_that_was_cancelled_on_its_way_back_has_not_ended_by_itself(world: World) -> None:
    job_id = saver(world)
    urgent = world.urgent(1, work_s=900.0)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    world.run_until(lambda: record(world, job_id).state is PreemptionState.QUEUED, limit_s=120)
    world.by_hand.cancel(world.cluster.jobs[job_id].job)
    world.run_until(lambda: record(world, job_id).state is PreemptionState.ENDED, limit_s=120)
    assert record(world, job_id).note in ("was cancelled", "is over, and Slurm does not say how it ended")
    assert "It lost" not in view(world, job_id).loss
    assert world.state(job_id) is JobState.ENDED
