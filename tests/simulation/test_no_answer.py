"""Slurm does not answer in the middle of a batch: what was not given is given later, and nothing is given twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from clearway.model.cluster import Job
from clearway.model.errors import HaltedError, SlurmError, SlurmTimeoutError, SlurmUnavailableError
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from clearway.slurm.base import Failures, JobChange
from clearway.slurm.job_changes import one_by_one
from tests.simulation.world import SAVES, World, config

FREE = {"min_runtime": 0, "allow_cancel": True}


def steps(world: World, kind: str) -> list[tuple[str, str]]:
    return [(step.job_id or "", step.result) for step in world.store.steps(1) if step.kind == kind]


@pytest.mark.parametrize("error", [SlurmTimeoutError("no answer"), SlurmUnavailableError("down")])
def test_jobs_that_could_not_be_looked_at_are_asked_to_save_themselves_later(
    make_world: Callable[..., World], error: SlurmError
) -> None:
    """They were not asked. Taken as asked they would have been waited for until it was too late to save them."""
    world = make_world(node_count=2)
    jobs = [world.submit(Program(save_s=2.0), on=(f"n{n}",), ran_s=100, comment=SAVES) for n in (1, 2)]
    look, looks = world.backend.look_at, list[float]()

    def fails_once(job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        if whole:  # before the plan is stored
            return look(job_ids, whole=True)
        looks.append(world.clock.monotonic())
        return ({}, dict.fromkeys(job_ids, error)) if len(looks) == 1 else look(job_ids)

    world.backend.look_at = fails_once  # type: ignore[method-assign]
    urgent = world.urgent(2)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    asked = [(jobs[0], "held"), (jobs[0], "ok"), (jobs[1], "ok")]  # one after the other writes to the file system
    assert sorted(steps(world, "ask_checkpoint")) == asked
    assert looks[1] - looks[0] >= world.config.execution.retry_after
    assert all(p.checkpointed_at is not None for p in world.eviction().preemptions)


@pytest.mark.fault("A slurmctld that does not answer was waited for once for each job of a batch.", found_by="load")
def test_the_rest_of_a_batch_is_not_given_to_a_slurm_that_does_not_answer(make_world: Callable[..., World]) -> None:
    """Each kind of command would take as long again, and the cycle with it."""
    world = make_world(config=config(candidates=FREE), node_count=3)
    jobs = [world.submit(on=(f"n{n}",), ran_s=40, requeueable=n != 3) for n in (1, 2, 3)]
    calls: list[tuple[float, JobChange, int]] = []
    original = world.backend.change_jobs

    def change_jobs(change: JobChange, some: Sequence[Job], signal: str = "") -> Failures:
        calls.append((world.clock.monotonic(), change, len(some)))
        failures = original(change, some, signal)
        if len(calls) > 1:
            return failures
        world.clock.advance(7.5)
        return {job.job_id: SlurmTimeoutError("no answer within 7.5 s") for job in some}

    world.backend.change_jobs = change_jobs  # type: ignore[method-assign]
    urgent = world.urgent(3)
    reports = []
    while world.started(urgent) is None:
        reports.append(world.tick())
        assert len(reports) < 100, world.describe()
    assert max(report.seconds for report in reports) < 8.0
    assert [(change, number) for _, change, number in calls][:2] == [(JobChange.REQUEUE, 2), (JobChange.CANCEL, 1)]
    assert steps(world, "requeue") == [(job_id, "error") for job_id in jobs[:2]]  # done, though the answer was lost
    assert steps(world, "cancel_job") == [(jobs[2], "held"), (jobs[2], "ok")]
    assert [len(world.cluster.jobs[job_id].runs) for job_id in jobs][2] == 1
    assert world.eviction().state in (EvictionState.STARTED, EvictionState.RETURNING)


def test_one_after_another_only_the_first_without_an_answer_may_have_been_done() -> None:
    given: list[str] = []

    def act(key: str) -> None:
        given.append(key)
        if key == "b":
            raise SlurmTimeoutError("no answer")

    told = one_by_one(act, "abcd")
    assert given == ["a", "b"]
    assert {key: type(error).__name__ for key, error in told.items()} == {
        "b": "SlurmTimeoutError",
        "c": "NotAskedError",
        "d": "NotAskedError",
    }


def test_a_switch_that_is_thrown_while_the_lease_is_renewed_holds_the_command(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal waits for the database, which may take seconds."""
    world = make_world()
    world.tick()
    renew = world.store.renew_lease

    def slowly(*args: Any) -> None:
        world.store.add_request("halt", None, "root (command line)", world.clock.now())  # type: ignore[arg-type]
        renew(*args)

    monkeypatch.setattr(world.store, "renew_lease", slowly)
    world.clock.advance(world.config.daemon.lease / 2.5)
    world.loop.leadership.look()
    with pytest.raises(HaltedError):
        world.loop.leadership.command_limit_s()
