"""A record, a request or an operation that makes Clearway fail costs no more than what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clearway.drain.controller import DrainController
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.errors import StoreError, TransitionError, UnstorableError
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.model.report import Subject
from clearway.model.requests import RequestKind, RequestResult
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption import candidates, controller, lifecycle
from clearway.store.repository import Store
from tests.builders import NOW
from tests.simulation.bad_days import busy, finish
from tests.simulation.world import World

END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@pytest.fixture(autouse=True)
def tolerant(world: World) -> None:
    world.observer.tolerant = True


def quarantined(world: World, subject: Subject) -> list[str]:
    report = world.loop.report
    assert report is not None
    return [each.ident for each in report.quarantined if each.subject is subject]


@pytest.mark.fault("One job whose record made Clearway fail ended every cycle.", found_by="hostile input")
def test_an_urgent_job_with_a_poisoned_record_keeps_no_other_from_being_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(world)
    poisoned, urgent = world.urgent(1), world.urgent(2)
    original = world.backend.snapshot

    def snapshot() -> ClusterSnapshot:
        seen = original()
        jobs = [replace(job, submit_time=END_OF_TIME) if job.job_id == poisoned else job for job in seen.jobs]
        return replace(seen, jobs=tuple(jobs))

    monkeypatch.setattr(world.backend, "snapshot", snapshot)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    assert quarantined(world, Subject.JOB) == [f"{poisoned} as an urgent job"]
    assert any(isinstance(error, OverflowError) for error in world.observer.failures)
    monkeypatch.undo()
    finish(world, poisoned)
    world.run_until(lambda: not quarantined(world, Subject.JOB), limit_s=1_200, every_s=30)


def test_it_is_tried_again_less_and_less_often(world: World) -> None:
    busy(world)
    world.urgent(1)
    planner = FailsFor()
    world.start_daemon(planner=planner)
    for _ in range(100):
        world.tick(5.0)
    assert 5 <= planner.failed <= 15
    assert "no room today" in world.loop.report.waiting[0].why  # type: ignore[union-attr]


def test_a_running_job_with_a_poisoned_record_is_spared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = busy(world)
    original = candidates.options_for

    def options_for(job: Job, *arguments: Any, **named: Any) -> Any:
        if job.job_id == jobs[0]:  # the one that would lose least
            raise ValueError("cannot convert float NaN to integer")
        return original(job, *arguments, **named)

    monkeypatch.setattr(candidates, "options_for", options_for)
    finish(world, world.urgent(1))
    (plan,) = world.store.plans(1)
    assert jobs[0] not in [job.job_id for job in plan.leaving]
    verdict = next(each for each in plan.verdicts if each.job_id == jobs[0])
    assert verdict.code == "not_understood"


class FailsFor(EvictionDP):
    """A planner with a defect that one urgent job, of one node, meets."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = 0

    def decide(self, problem: EvictionProblem, *given: Any, **named: Any) -> Curve:
        if problem.waiting_nodes == 1:
            self.failed += 1
            raise ZeroDivisionError("no room today")
        return super().decide(problem, *given, **named)


def test_a_planner_that_fails_for_one_job_plans_for_the_others(world: World) -> None:
    busy(world)
    first, second = world.urgent(1), world.urgent(2)
    world.start_daemon(planner=FailsFor())
    world.run_until(lambda: world.started(second) is not None, limit_s=120)
    assert world.started(first) is None


def test_where_no_plan_for_several_jobs_can_be_made_they_have_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(world)
    urgent = [world.urgent(1), world.urgent(2)]
    original = controller.decide_batch

    def decide_batch(found: Sequence[Any], *arguments: Any) -> Any:
        if len(found) > 1:
            raise RecursionError("maximum recursion depth exceeded")
        return original(found, *arguments)

    monkeypatch.setattr(controller, "decide_batch", decide_batch)
    for each in urgent:
        finish(world, each)


def test_a_plan_that_cannot_be_stored_keeps_no_other_from_being_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(world)
    first, second = world.urgent(1), world.urgent(2)
    original = Store.create_eviction

    def create_eviction(store: Store, eviction: Eviction, *more: Any) -> Eviction:
        if eviction.preemptor.job_id == first:
            raise UnstorableError("integer out of range")
        return original(store, eviction, *more)

    monkeypatch.setattr(Store, "create_eviction", create_eviction)
    world.run_until(lambda: world.started(second) is not None, limit_s=120)
    assert world.started(first) is None


def test_an_operation_that_cannot_go_on_does_not_hold_up_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(world)
    first, second = world.urgent(1), world.urgent(2)
    world.tick()
    original = lifecycle.next_phase

    def next_phase(e: Eviction, *arguments: Any) -> Any:
        if e.preemptor.job_id == first:
            raise TransitionError("eviction cannot go from preempting to completed")
        return original(e, *arguments)

    monkeypatch.setattr(lifecycle, "next_phase", next_phase)
    world.run_until(lambda: world.started(second) is not None, limit_s=120)
    assert len(quarantined(world, Subject.OPERATION)) == 1
    assert world.started(first) is None
    monkeypatch.undo()
    finish(world, first)


def test_a_request_that_raises_is_finished_as_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def drain(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(DrainController, "drain", drain)
    busy(world)
    poisoned = world.store.add_request(RequestKind.DRAIN, None, "root", NOW, '{"nodes": "n1"}')
    after = world.store.add_request(RequestKind.PAUSE, None, "root", NOW)
    report = world.tick()
    assert report.paused
    found = world.store.request(poisoned)
    assert found is not None
    assert found.code is RequestResult.FAILED
    assert found.refused, "the command line ends with an error"
    assert "OverflowError: date value out of range" in found.result
    assert world.store.request(after).code is RequestResult.DONE  # type: ignore[union-attr]
    failures = len(world.observer.failures)
    world.start_daemon()
    world.tick()
    assert len(world.observer.failures) == failures == 1, "nothing is left of it for another daemon"


@pytest.mark.parametrize("part", ["record_ends", "record_restarts"])
def test_a_part_that_fails_does_not_keep_room_from_being_made(
    world: World, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("what?")

    monkeypatch.setattr(type(world.parts.history), part, fail)
    busy(world)
    finish(world, world.urgent(2))


def test_without_a_database_the_cycle_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What concerns everything is not passed over: nothing may be done without storing the intent."""

    def fail(*_: object) -> None:
        raise StoreError("database is locked")

    busy(world)
    world.urgent(1)
    monkeypatch.setattr(Store, "create_eviction", fail)
    with pytest.raises(StoreError):
        world.tick()
    assert not world.store.evictions(states=[EvictionState.PLACING])
