"""What may be taken from jobs for one user, account or rule, and what looks like a loop: then an operator is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.execution.restraints import EVERYBODY
from clearway.model.operations import Eviction, EvictionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.requests import RequestKind
from clearway.simulation.jobs import Program
from tests.builders import eviction, job, plan, urgent_job
from tests.simulation.bad_days import busy
from tests.simulation.world import World, config

RULES = [
    {"name": "urgent", "partition": ["urgent"], "user": ["ursula"], "max_delay": "60s"},
    {"name": "other", "partition": ["urgent"], "max_delay": "60s"},
]


def awaiting(world: World) -> list[Eviction]:
    open_ones = [e for e in world.store.open_evictions() if isinstance(e, Eviction)]
    return [e for e in open_ones if e.state is EvictionState.AWAITING_APPROVAL]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after another"])
@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({"user_evictions_per_hour": 2}, "3 evictions within an hour would be for user ursula, 2 are allowed"),
        ({"user_jobs_per_hour": 2}, "3 jobs within an hour would be for user ursula, 2 are allowed"),
        ({"account_evictions_per_hour": 2}, "3 evictions within an hour would be for account storms, 2 are allowed"),
        ({"rule_jobs_per_hour": 2}, "3 jobs within an hour would be for rule urgent, 2 are allowed"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_so_much_for_one_user_account_or_rule(
    make_world: Callable[..., World], budget: Mapping[str, Any], told: str, at_once: bool
) -> None:
    world = make_world(config=config(budget=dict(budget), preemptors=RULES))
    busy(world, Program(work_s=1e6, save_s=3.0))
    for _ in range(3):
        world.urgent(1, account="storms", work_s=3_000.0)
        if not at_once:
            world.tick()
    world.urgent(1, user="otto", account="tides", work_s=3_000.0)
    world.tick()
    (waits,) = awaiting(world)
    assert waits.preemptor.user == "ursula"
    assert waits.why == told
    for _ in range(5):
        world.tick(2.0)
    assert len(awaiting(world)) == 1
    world.run_until(lambda: not awaiting(world), limit_s=4_000, every_s=20)


def test_lost_work_counts_as_it_is_expected(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(budget={"user_lost_node_hours_per_hour": 0.5}))
    busy(world, Program(work_s=1e6), comment="")
    for _ in range(4):
        world.urgent(1)
    world.tick()
    (waits, *_) = awaiting(world)
    assert "lost node-hours within an hour would be for user ursula, 0.5 are allowed" in waits.why


def test_an_automatic_daemon_has_limits_for_a_user() -> None:
    budget = Config().budget
    assert budget.user_evictions_per_hour == 20
    assert budget.user_jobs_per_hour == 200


# -- loops --------------------------------------------------------------------------------------------------------


@pytest.mark.fault(
    "An urgent job that is submitted again and again made the same job leave each time, without an end.",
    found_by="attack",
)
def test_the_same_job_again_and_again_for_the_same_urgent_job(make_world: Callable[..., World]) -> None:
    """Something, an epilog perhaps, requeues the urgent job whenever it has started."""
    rules = {"min_runtime": 0, "max_preemptions": 100}
    world = make_world(config=config(candidates=rules))
    cheap, *_ = busy(world, Program(work_s=1e6, save_s=1.0))
    urgent = world.urgent(1, work_s=1e6)
    for _ in range(3):
        world.run_until(lambda: world.started(urgent) is not None or bool(awaiting(world)), limit_s=600)
        for each in awaiting(world):  # more than the first plan said: an operator lets it have that
            world.store.add_request(RequestKind.APPROVE, each.eviction_id, "olga", world.clock.now())
        world.run_until(lambda: world.started(urgent) is not None, limit_s=600)
        entry = world.cluster.jobs[urgent]
        world.cluster.end_run(entry, requeue=True)
        world.run_until(world.settled, limit_s=1_800, every_s=5)
        entry.job = replace(entry.job, reason="Priority", eligible_time=None)  # its BeginTime is over
    chosen = [p.job_id for e in world.store.evictions() for p in e.preemptions]
    assert chosen == [cheap] * 3
    world.tick(11.0)
    other = world.urgent(1, work_s=5.0, user="otto")
    report = world.tick()
    (waits,) = awaiting(world)
    assert waits.preemptor.user == "ursula"
    assert f"job {cheap} was preempted 3 times for job {urgent}, which looks like a loop" in waits.why
    assert report.user_pauses == (False,)
    world.run_until(lambda: world.started(other) is not None, limit_s=120)
    world.store.add_request(RequestKind.RESUME, None, "olga", world.clock.now())
    world.tick(11.0)
    world.tick(11.0)
    assert not awaiting(world), "an operator has looked at it"


def in_vain(world: World, user: str, code: OutcomeCode = OutcomeCode.TOO_LATE) -> None:
    """An eviction that made a job leave, and whose urgent job did not start."""
    number = len(world.store.evictions())
    now = world.clock.now()
    made = eviction(plan(urgent_job(700 + number, user=user, num_nodes=1), [job(600 + number)]))
    created = world.store.create_eviction(made)
    left = tuple(replace(p, requeued_at=now) for p in created.preemptions)
    ended = replace(created, state=EvictionState.FAILED, preemptions=left, finished_at=now + timedelta(seconds=number))
    world.store.save_eviction(ended.told(Outcome(code, "The urgent job did not start")))


def asked_about(world: World) -> set[str]:
    world.store.close()
    world.start_daemon()  # it has seen none of these steps, so it looks at all of them
    world.tick(11.0)
    return set(world.store.get_value("user_pauses") or {})


def test_evictions_without_a_start(world: World) -> None:
    for _ in range(2):
        in_vain(world, "ursula")
    assert asked_about(world) == set()
    in_vain(world, "ursula")
    assert asked_about(world) == {"ursula"}


def test_evictions_without_a_start_for_several_users_concern_all(world: World) -> None:
    busy(world, Program(work_s=1e6, save_s=1.0))
    for user in ("ursula", "otto", "ursula"):
        in_vain(world, user)
    assert asked_about(world) == {EVERYBODY}
    (entry,) = (row.document() for row in world.store.audit_trail() if row.document()["kind"] == "user_pause")
    assert (entry["actor"], entry["about"]["user"], entry["about"]["left_alone"]) == ("clearway", EVERYBODY, False)
    world.urgent(1, user="anna")
    world.tick()
    assert "looks like a loop" in awaiting(world)[0].why
    world.clock.advance(6 * 3_600)
    world.run_until(lambda: not awaiting(world), limit_s=120)


@pytest.mark.parametrize("code", [OutcomeCode.CANCELLED, OutcomeCode.POINTLESS, OutcomeCode.MISUSED])
def test_what_users_and_operators_end_is_no_loop(world: World, code: OutcomeCode) -> None:
    """Else one user could make everybody's urgent jobs wait for approval."""
    for _ in range(4):
        in_vain(world, "ursula", code)
    assert asked_about(world) == set()
