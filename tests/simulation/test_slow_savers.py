"""One job that does not save itself in time beside others that do: it delays none of them, and is replaced in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from clearway.config.configuration import Config
from clearway.model.cluster import JobState
from clearway.model.operations import PreemptionState
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

NEVER = Program(work_s=9_000)
SAVER = Program(work_s=9_000, save_s=3.0)
EXPECTED_S = 5.0  # by took=3, and two seconds for signal and answer
MAX_DELAY_S = 100
NODES = 16
ENDS_S = 6  # kill_allowance


def settings(late: str = "kill", at_once: int = 1, **sections: dict[str, object]) -> Config:
    execution = {"late_checkpoint": late, "concurrent_checkpoints": at_once, "kill_allowance": ENDS_S}
    return config(execution=execution | sections.pop("execution", {}), **sections)


def full_of(world: World, programs: Sequence[Program]) -> list[str]:
    """One job a node; each claims that it saves itself in three seconds."""
    return [
        world.submit(program, on=(f"n{number}",), ran_s=900, comment=f"{SAVES},took=3")
        for number, program in enumerate(programs, start=1)
    ]


def served(world: World, nodes: int = NODES, max_delay_s: int = MAX_DELAY_S) -> float:
    """Seconds until the urgent job has started."""
    begun = world.clock.now()
    urgent = world.urgent(nodes, work_s=20.0, comment=f"clearway:max_delay={max_delay_s}")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=2.0 * max_delay_s)
    started = world.started(urgent)
    assert started is not None
    return (started - begun).total_seconds()


def lost(world: World, jobs: Sequence[str]) -> list[str]:
    """Jobs that have to do again what they had done."""
    return [job_id for job_id in jobs if world.cluster.jobs[job_id].lost_s > EXPECTED_S]


@pytest.mark.fault(
    "One job that never answered kept fifteen from being asked to save themselves: all sixteen lost their work.",
    found_by="reading",
)
@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("at_once", [1, 2])
def test_one_that_never_answers_keeps_no_other_from_saving_itself(
    make_world: Callable[..., World], place: int, at_once: int
) -> None:
    world = make_world(node_count=NODES, config=settings(at_once=at_once))
    jobs = full_of(world, [NEVER if number == place else SAVER for number in range(NODES)])
    assert served(world) <= MAX_DELAY_S
    assert lost(world, jobs) == [jobs[place]]
    world.run_until(world.settled, limit_s=200)
    assert {p.state for p in world.eviction().preemptions} == {PreemptionState.RETURNED}
    assert not world.observer.failures


@pytest.mark.fault(
    "With the defaults one job that never answered kept the urgent job waiting, where none could take its place.",
    found_by="trial",
)
@pytest.mark.parametrize("place", [0, 7, 15])
def test_with_the_defaults_it_pays_for_itself(make_world: Callable[..., World], place: int) -> None:
    world = make_world(node_count=NODES, config=settings("wait"))
    jobs = full_of(world, [NEVER if number == place else SAVER for number in range(NODES)])
    assert served(world) <= MAX_DELAY_S
    assert lost(world, jobs) == [jobs[place]]
    assert [each.job_id for each in world.store.checkpoint_history() if each.outcome is CheckpointOutcome.LATE] == [
        jobs[place]
    ]
    pledge = world.eviction().plan.pledge
    assert pledge is not None
    assert pledge.replaced, "no other one may follow it"
    world.run_until(world.settled, limit_s=200)
    assert {p.state for p in world.eviction().preemptions} == {PreemptionState.RETURNED}
    assert not world.observer.failures


@pytest.mark.parametrize("late", ["kill", "wait"])
def test_one_that_offers_nothing_any_more_pays_for_itself(make_world: Callable[..., World], late: str) -> None:
    """By the time at which it would be asked: its launcher has found out that it cannot be saved."""
    world = make_world(node_count=NODES, config=settings(late))
    jobs = full_of(world, [SAVER] * NODES)
    urgent = world.urgent(NODES, work_s=20.0, comment=f"clearway:max_delay={MAX_DELAY_S}")
    world.run_until(lambda: any(p.asked_at for e in world.store.evictions() for p in e.preemptions))
    last = next(p.job_id for p in reversed(world.eviction().preemptions) if p.asked_at is None)
    world.cluster.jobs[last].claim(checkpoint="none")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=MAX_DELAY_S)
    assert lost(world, jobs) == [last]


@pytest.mark.parametrize("silent", [2, NODES])
def test_with_the_defaults_no_more_than_one_does(make_world: Callable[..., World], silent: int) -> None:
    """On a day on which the file system stands still, sixteen would lose all that they had done."""
    world = make_world(node_count=NODES, config=settings("wait"))
    jobs = full_of(world, [NEVER if number < silent else SAVER for number in range(NODES)])
    urgent = world.urgent(NODES, work_s=20.0, comment=f"clearway:max_delay={MAX_DELAY_S}")
    world.tick()
    until = world.eviction().plan.deadline + timedelta(seconds=60)
    world.run_until(lambda: world.clock.now() > until, limit_s=2.0 * MAX_DELAY_S)
    assert world.state(urgent) is JobState.PENDING
    assert not lost(world, jobs)
    told = [step.detail for step in world.store.steps(world.eviction().eviction_id)]
    assert any("no other plan is possible: it waits" in (each or "") for each in told)


def test_where_many_never_answer_the_others_save_themselves_all_the_same(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=NODES, config=settings())
    jobs = full_of(world, [NEVER if number % 2 else SAVER for number in range(NODES)])
    assert served(world) <= MAX_DELAY_S
    assert lost(world, jobs) == jobs[1::2]


def test_it_keeps_no_room_on_the_file_system_for_another_urgent_job(make_world: Callable[..., World]) -> None:
    """Both plans write at once; that of the second waits for the time in which the first was to be saved, no longer."""
    sections = {"planning": {"checkpoints": "shared"}, "costs": {"file_system_mib_s": 100.0, "node_mib_s": 100.0}}
    world = make_world(node_count=2, config=settings("wait", **sections))
    silent = world.submit(NEVER, on=("n1",), ran_s=900, comment=f"{SAVES},size_mib=1000")
    job = world.submit(SAVER, on=("n2",), ran_s=900, comment=f"{SAVES},size_mib=4000")
    first = world.urgent(1, comment="clearway:max_delay=40")
    world.run_until(lambda: bool(world.store.evictions()) and world.eviction().preemptions[0].asked_at is not None)
    assert world.eviction().preemptions[0].job_id == silent
    assert served(world, 1) < 25, "12 s for the first plan, and then its own"
    assert (lost(world, [job]), world.state(first)) == ([], JobState.PENDING)


@pytest.mark.fault(
    "A checkpoint that did not come was replaced too late: by a kill of a job that could have saved itself.",
    found_by="reading",
)
@pytest.mark.parametrize("late", ["kill", "wait"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_it_is_replaced_while_another_job_has_time_to_save_itself(
    make_world: Callable[..., World], late: str, at_once: int
) -> None:
    world = make_world(node_count=NODES + 1, config=settings(late, at_once))
    jobs = full_of(world, [NEVER, *[SAVER] * NODES])
    assert served(world) <= MAX_DELAY_S
    assert not lost(world, jobs)
    eviction = world.eviction()
    assert eviction.revision == 1
    states = {p.job_id: p.state for p in eviction.preemptions}
    assert states.pop(jobs[0]) is PreemptionState.SPARED
    assert len(states) == NODES
    assert world.state(jobs[0]) is JobState.RUNNING
    told = [step.detail for step in world.store.steps(eviction.eviction_id)]
    assert f"Planned anew ({jobs[0]}: its checkpoint takes longer than expected)." in told


def test_one_that_is_slow_but_in_time_is_waited_for(make_world: Callable[..., World]) -> None:
    """It takes four times as long as expected: another would have to leave in its place without need."""
    world = make_world(node_count=2, config=settings("wait"))
    slow, other = full_of(world, [Program(work_s=9_000, save_s=20.0), SAVER])
    assert served(world, 1) < 25
    assert [(p.job_id, p.state) for p in world.eviction().preemptions] == [(slow, PreemptionState.VACATED)]
    assert len(world.cluster.jobs[other].runs) == 1


def test_its_place_is_taken_no_earlier_than_it_must_be(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=2, config=settings("wait"))
    silent, other = full_of(world, [NEVER, SAVER])
    waited_s = served(world, 1)
    assert not lost(world, [silent, other])
    latest_s = MAX_DELAY_S - ENDS_S
    assert latest_s - EXPECTED_S - 8 < waited_s <= latest_s
    (record,) = [each for each in world.store.checkpoint_history() if each.job_id == silent]
    assert record.outcome is CheckpointOutcome.LATE, "it is remembered of its application"


@pytest.mark.parametrize("late", ["kill", "wait"])
def test_no_job_is_killed_for_it_before_the_latest_moment(make_world: Callable[..., World], late: str) -> None:
    world = make_world(node_count=2, config=settings(late))
    silent = world.submit(NEVER, on=("n1",), ran_s=900, comment=f"{SAVES},took=3")
    other = world.submit(NEVER, on=("n2",), ran_s=100)
    waited_s = served(world, 1)
    assert waited_s >= MAX_DELAY_S - ENDS_S
    assert lost(world, [silent, other]) == [silent if late == "kill" else other]


def test_what_an_operator_has_approved_is_not_changed(make_world: Callable[..., World]) -> None:
    sections = {"daemon": {"mode": "approve"}, "execution": {"approval_time": "20s"}}
    world = make_world(node_count=2, config=settings("kill", **sections))
    silent, other = full_of(world, [NEVER, SAVER])
    urgent = world.urgent(1, comment=f"clearway:max_delay={MAX_DELAY_S}")
    world.tick()
    world.store.add_request("approve", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=MAX_DELAY_S)
    assert world.eviction().revision == 1, "by the approval alone"
    assert lost(world, [silent, other]) == [silent]


def test_of_one_plan_those_that_failed_before_are_asked_last(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=3, config=settings("wait"))
    fails = Program(work_s=9_000, save_s=1.0, save_fails=True)
    bad = world.submit(fails, on=("n1",), ran_s=900, comment=f"{SAVES},took=3", name="bad")
    other = world.submit(NEVER, on=("n2",), ran_s=10)
    world.submit(Program(work_s=99_999), on=("n3",), ran_s=10, user="root", comment="clearway:checkpoint=none")
    served(world, 1)
    assert [each.outcome for each in world.store.checkpoint_history()] == [CheckpointOutcome.FAILED]
    world.run_until(world.settled, limit_s=300)
    world.run_until(lambda: world.state(other) is JobState.RUNNING, limit_s=60)
    world.cluster.jobs[bad].claim(state="saving")
    world.cluster.withdraw(world.cluster.jobs[other])
    good = world.submit(SAVER, on=("n2",), ran_s=900, comment=f"{SAVES},took=4", name="good")
    world.urgent(2, comment=f"clearway:max_delay={MAX_DELAY_S}")
    asked = world.cluster.jobs
    world.run_until(lambda: asked[good].asked_at is not None, limit_s=30)
    plan = world.store.evictions(limit=1)[0].plan
    assert {each.job_id: each.action for each in plan.chosen.actions} == dict.fromkeys(
        (bad, good), Action.APP_CHECKPOINT
    )
    asked_at = [p.asked_at for p in world.store.evictions(limit=1)[0].preemptions if p.job_id == bad]
    assert asked_at == [None], "though it says that it is quicker"
