"""What is kept of urgent jobs for the report, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from clearway.api.report import report
from clearway.model.explanation import Explanation
from clearway.model.operations import EvictionState
from clearway.model.records import Ending
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.builders import NOW
from tests.simulation.bad_days import busy, finish
from tests.simulation.world import SAVES, World, config


def test_the_first_plan_of_observe_mode_outlives_its_proposal(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    busy(world, Program(work_s=4_000.0), comment="")
    urgent = world.urgent(2)
    world.tick()
    (case,) = world.store.open_cases()
    assert (case.mode, case.acted, case.started_at) == ("observe", False, None)
    first = world.eviction().plan
    while (started := world.started(urgent)) is None:
        world.tick(20.0)
    for _ in range(70):
        world.tick(60.0)
    assert not world.store.evictions(), "the proposal is forgotten"
    (kept,) = world.store.cases_since(NOW)
    assert kept.planned_at == first.made_at
    assert kept.closed_at is not None
    assert kept.started_at == started
    assert {job.job_id for job in kept.jobs} == {job.job_id for job in first.leaving}
    assert all(job.left_at is not None and not job.preempted for job in kept.jobs)
    told = report([kept], NOW, world.clock.now())
    (one,) = told.cases
    assert one.ending is Ending.SOONER
    assert one.sooner_s == (started - kept.expected_start).total_seconds()
    assert told.sums.would_lose_node_s == first.chosen.lost_work_node_s
    assert told.sums.lost_node_s == 0


def test_a_plan_that_is_carried_out_is_kept_with_its_losses(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world, Program(work_s=1e6, save_s=3.0), comment=SAVES)
    urgent = world.urgent(2)
    finish(world, urgent)
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    world.run_until(lambda: not world.store.open_cases(), limit_s=4_000, every_s=60.0)
    (case,) = world.store.cases_since(NOW)
    assert case.acted
    assert case.started_at == eviction.started_at
    told = report([case], NOW, world.clock.now())
    assert told.cases[0].ending is Ending.SERVED
    assert told.sums.lost_node_s == eviction.actual_lost_node_s
    assert told.held.starts == told.held.starts_in_time == 1
    assert told.held.checkpoints == len(eviction.preemptions)


def test_a_daemon_that_starts_again_goes_on(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    busy(world, Program(work_s=2_500.0), comment="")
    urgent = world.urgent(1)
    world.tick()
    world.start_daemon()
    for _ in range(30):
        world.tick(10.0)
    (case,) = world.store.cases_since(NOW - timedelta(days=1))
    assert case.job_id == urgent
    assert case.started_at is not None


def test_a_plan_that_was_called_off_has_not_served(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world, Program(work_s=4_000.0, save_s=30.0))
    urgent = world.urgent(2)
    world.run_until(lambda: bool(world.store.evictions()) and bool(world.eviction().placement))
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, limit_s=1_000)
    assert world.eviction().state is EvictionState.CANCELLED
    world.run_until(lambda: world.started(urgent) is not None, limit_s=6_000, every_s=20.0)
    world.tick()
    (case,) = world.store.cases_since(NOW)
    assert case.started_at == world.started(urgent), "it started by itself"
    (told,) = report([case], NOW, world.clock.now()).cases
    assert told.ending is Ending.CALLED_OFF
    assert told.wait_s is not None
    assert told.wait_s > 1_000, "nothing was done for it"
    assert (told.lost_node_s, told.would_lose_node_s) == (0.0, 0.0)


class Counting(Store):
    """Counts the questions for explanations."""

    asked: list[tuple[int, ...]]

    def explanations(self, eviction_ids: Iterable[int]) -> dict[int, Explanation]:
        ids = tuple(eviction_ids)
        self.asked.append(ids)
        return super().explanations(ids)


def test_explanations_of_all_open_cases_are_asked_for_at_once(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    store = Counting(world.store_url)
    store.asked = []
    world.start_daemon(store=store)
    busy(world, Program(work_s=4_000.0), comment="")
    for _ in range(3):
        world.urgent(2)
    world.tick()
    assert len(world.store.open_cases()) == 3
    before = len(store.asked)
    for _ in range(40):
        world.tick(0.5)
    assert len(store.asked) - before <= 3, "20 s have passed, and it is asked every 10 s"
    assert max(len(ids) for ids in store.asked) == 3
    world.loop.explain(float("inf"))
    world.tick(10.0)
    assert all(case.beside is not None for case in world.store.open_cases())
    asked = len(store.asked)
    for _ in range(40):
        world.tick(0.5)
    assert len(store.asked) == asked, "what is known is not asked for"
    store.close()


DAYS = (  # whose jobs fill the cluster, how long they work on after the urgent job has come, and its nodes
    ("ann", 10_800.0, 2),
    ("bob", 1_800.0, 4),
    ("cyd", 21_600.0, 1),
    ("ann", 7_200.0, 8),
)


def test_some_days_of_observe_mode_have_the_sums_of_their_history(make_world: Callable[..., World]) -> None:
    """Each day all nodes are busy, an urgent job comes an hour later, and starts when the jobs end by themselves."""
    world = make_world(config=config("observe"))
    for day, (user, left_s, nodes) in enumerate(DAYS):
        for number in range(1, 9):
            work = Program(work_s=3_600.0 + left_s)
            world.submit(work, on=(f"n{number}",), ran_s=3_600.0, user=user, time_limit_s=86_400)
        world.urgent(nodes)
        world.tick(1.0)
        world.loop.explain(float("inf"))
        world.tick(10.0)
        end = NOW + timedelta(days=day + 1)
        while world.clock.now() < end:
            world.tick(300.0)
    told = report(world.store.cases_since(NOW), NOW, world.clock.now())
    sums = told.sums
    assert (sums.cases, sums.urgent_jobs, sums.by_ending["sooner"]) == (4, 4, 4)
    assert not world.store.open_cases()
    delay_s = 61.0  # the longest from submission to the start by a plan: a cycle, and ``max_delay``
    sooner_s = sum(left_s for _, left_s, _ in DAYS)
    assert sooner_s - len(DAYS) * delay_s <= sums.sooner_s <= sooner_s
    nodes = sum(count for _, _, count in DAYS)
    assert nodes * 3_600.0 <= sums.would_lose_node_s <= nodes * (3_600.0 + delay_s)
    assert (sums.lost_node_s, sums.in_time, sums.not_compared) == (0.0, 0, 0)
    assert {share.user: share.jobs for share in told.users} == {"ann": 10, "bob": 4, "cyd": 1}
    assert {share.user: share.ended_soon for share in told.users} == {"ann": 0, "bob": 4, "cyd": 0}
    assert sums.compared + sums.slurm_without_plan == 4
    assert sums.plan_node_s <= sums.slurm_node_s
