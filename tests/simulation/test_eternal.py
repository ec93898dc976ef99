"""Eternal jobs on a simulated cluster: they run in gaps, leave for every ordinary job, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway.preemption.validation import plan_misfit
from clearway.simulation.jobs import Program
from tests.simulation.killing import MortalDaemon, killed_everywhere, one_in
from tests.simulation.shown import show, show_explanation
from tests.simulation.world import SAVES, World, config

WORK_S = 1e6


def settings(mode: str = "automatic", **sections: Any) -> Any:
    eternal = {"partitions": ["eternal"], "patience": "2s", "min_runtime": 0, "max_delay": "60s"}
    return config(mode, eternal=eternal | sections.pop("eternal", {}), **sections)


def eternal(world: World, on: tuple[str, ...] = (), **fields: Any) -> str:
    defaults = {"partitions": ("eternal",), "priority": 1, "comment": SAVES, "num_nodes": max(1, len(on))}
    program = fields.pop("program", Program(work_s=WORK_S, save_s=2.0))
    return world.submit(program, on=on, **(defaults | fields))


def ordinary(world: World, nodes: int = 1, work_s: float = 20.0, **fields: Any) -> str:
    return world.submit(Program(work_s=work_s), num_nodes=nodes, **({"reason": "Resources"} | fields))


@pytest.fixture
def gaps(make_world: Callable[..., World]) -> World:
    """Two nodes, which ordinary jobs and eternal ones may use."""
    return with_eternal(make_world(config=settings(), node_count=2))


def with_eternal(world: World) -> World:
    world.cluster.nodes = {
        name: replace(node, partitions=("batch", "urgent", "eternal")) for name, node in world.cluster.nodes.items()
    }
    return world


def test_preempted_twenty_times_it_gets_on_and_repeats_next_to_nothing(gaps: World) -> None:
    job = eternal(gaps, ("n1", "n2"), ran_s=0.0)
    for round_ in range(20):
        gaps.run_until(lambda: gaps.state(job) is JobState.RUNNING, 60)
        for _ in range(30):
            gaps.tick(5.0)
        other = ordinary(gaps, 2, partitions=("batch",))
        gaps.run_until(lambda other=other: gaps.started(other) is not None, 60)
        assert len(gaps.cluster.jobs[job].runs) == round_ + 1
        gaps.run_until(lambda other=other: gaps.state(other) is JobState.ENDED, 60, every_s=2.0)
    gaps.run_until(gaps.settled, 60)
    entry = gaps.cluster.jobs[job]
    assert entry.job.restart_count == 20
    assert {e.state for e in gaps.store.evictions()} == {EvictionState.COMPLETED}
    assert {p.action for e in gaps.store.evictions() for p in e.preemptions} == {Action.APP_CHECKPOINT}
    assert all(p.eternal for e in gaps.store.evictions() for p in e.preemptions)
    done_s = entry.done_s(gaps.clock.now())
    assert done_s > 20 * 100
    assert entry.lost_s < 0.01 * done_s
    assert not gaps.leftovers()


def test_only_eternal_jobs_leave_for_an_ordinary_job(gaps: World) -> None:
    beside = gaps.submit(Program(work_s=WORK_S, save_s=0.1), on=("n1",), ran_s=1_000, comment=SAVES)
    job = eternal(gaps, ("n2",), ran_s=5.0)
    first, second = (ordinary(gaps, partitions=("batch",), work_s=WORK_S) for _ in range(2))
    gaps.run_until(lambda: gaps.started(first) is not None, 60)
    for _ in range(100):
        gaps.tick()
    assert gaps.started(second) is None
    assert gaps.state(job) is JobState.PENDING
    assert len(gaps.cluster.jobs[beside].runs) == 1
    assert gaps.state(beside) is JobState.RUNNING
    (verdict,) = [v for v in gaps.eviction().plan.verdicts if v.job_id == beside]
    assert verdict.code == "not_eternal"
    (waiting,) = [w for w in gaps.tick().waiting if w.preemptor.job.job_id == second] or [None]
    assert waiting is None  # no eternal job holds a node any more: it is Slurm's affair again


@pytest.mark.parametrize("partition", ["batch", "urgent"])
def test_whom_room_is_made_for_is_called_what_it_is(
    gaps: World, partition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called, other = ("ordinary job", "urgent job") if partition == "batch" else ("urgent job", "ordinary job")
    elsewhere = eternal(gaps, ("n1",), ran_s=500.0)
    gaps.cluster.nodes["n1"] = replace(gaps.cluster.nodes["n1"], partitions=("eternal",))
    eternal(gaps, ("n2",), ran_s=500.0)
    waits = ordinary(gaps, partitions=(partition,))
    gaps.run_until(lambda: gaps.started(waits) is not None, 60)
    gaps.run_until(gaps.settled, 60)
    gaps.loop.explain(float("inf"))
    done = gaps.eviction()
    assert done.outcome.startswith(f"The {called} started ")
    assert f"none of its nodes can serve the {called}" in {
        v.reason for v in done.plan.verdicts if v.job_id == elsewhere
    }
    misfit = plan_misfit(done.plan, gaps.backend.snapshot())
    assert misfit == f"the {called} {waits} does not wait any more"
    for output in ("table", "json"):
        show(gaps, done.eviction_id, output)
        show_explanation(gaps, done.eviction_id, output)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Eviction 1 for job {waits} of alice: completed. The {called} started " in shown
    assert other not in shown


@pytest.mark.parametrize("allow_kill", [True, False])
@pytest.mark.parametrize("late", ["kill", "wait"])
def test_one_that_does_not_save_itself_is_left_and_told_so(
    make_world: Callable[..., World], allow_kill: bool, late: str
) -> None:
    world = with_eternal(
        make_world(
            config=settings(
                candidates={"min_runtime": 0, "allow_kill": allow_kill},
                execution={"kill_allowance": "6s", "late_checkpoint": late, "placement_grace": "30s"},
            ),
            node_count=2,
        )
    )
    deaf = eternal(world, ("n1",), ran_s=500.0, comment="", program=Program(work_s=WORK_S))
    hung = eternal(world, ("n2",), ran_s=500.0, program=Program(work_s=WORK_S))  # claims, and never answers
    other = ordinary(world, 2, partitions=("batch",))
    report = None
    for _ in range(30):
        report = world.tick(5.0)
    assert report is not None
    (waiting,) = report.waiting
    assert "not enough" in waiting.why
    lone = ordinary(world, 1, partitions=("batch",), priority=200)
    for _ in range(60):
        world.tick(5.0)
    assert world.started(lone) is None
    assert world.eviction().state is EvictionState.FAILED
    assert {p.action for p in world.eviction().preemptions} == {Action.APP_CHECKPOINT}
    told = {v.job_id: v.reason for v in world.eviction().plan.verdicts}
    assert told[deaf] == "it cannot save itself, and eternal jobs are never killed"
    for job_id in (deaf, hung):
        assert len(world.cluster.jobs[job_id].runs) == 1
        assert world.cluster.jobs[job_id].lost_s == 0
    assert world.started(other) is None
    assert not world.leftovers()


def test_urgent_jobs_take_eternal_ones_first(gaps: World) -> None:
    cheap = gaps.submit(Program(work_s=WORK_S, save_s=0.1), on=("n1",), ran_s=1_000, comment=f"{SAVES},took=1")
    job = eternal(
        gaps, ("n2",), ran_s=10.0, comment=f"{SAVES},took=20,run=0", program=Program(work_s=WORK_S, save_s=20.0)
    )
    urgent = gaps.urgent(1)
    gaps.run_until(lambda: gaps.started(urgent) is not None, 60)
    assert [p.job_id for p in gaps.eviction().preemptions] == [job]
    assert len(gaps.cluster.jobs[cheap].runs) == 1
    more = gaps.urgent(1)  # now only the other one can go
    gaps.run_until(lambda: gaps.started(more) is not None, 60)
    assert len(gaps.cluster.jobs[cheap].runs) == 1
    assert gaps.state(cheap) is not JobState.RUNNING


def test_slurm_has_its_turn_and_its_order_is_kept(gaps: World) -> None:
    gaps.submit(Program(work_s=WORK_S), on=("n1",), ran_s=10, time_limit_s=3_600)
    job = eternal(gaps, ("n2",), ran_s=10.0)
    wide = ordinary(gaps, 2, partitions=("batch",), priority=500, time_limit_s=600)
    long = ordinary(gaps, 1, partitions=("batch",), priority=400, time_limit_s=7_200, work_s=600.0)
    gaps.tick(1.0)
    assert not gaps.store.evictions()  # patience
    for _ in range(60):
        gaps.tick()
    assert not gaps.store.evictions()  # the first needs more than eternal jobs hold; the second would delay it
    assert gaps.state(job) is JobState.RUNNING
    short = ordinary(gaps, 1, partitions=("batch",), priority=300, time_limit_s=60)
    gaps.run_until(lambda: gaps.started(short) is not None, 60)  # it ends before the first could start
    assert gaps.started(wide) is None
    assert gaps.started(long) is None


def test_a_dry_run_only_says_what_it_would_do(make_world: Callable[..., World]) -> None:
    world = with_eternal(make_world(config=settings("observe"), node_count=2))
    job = eternal(world, ("n1", "n2"), ran_s=50.0)
    ordinary(world, 1, partitions=("batch",), work_s=1.0)
    for _ in range(20):
        report = world.tick()
    assert world.eviction().state is EvictionState.PROPOSED
    assert [p.job_id for p in world.eviction().preemptions] == [job]
    assert [w.eviction_id for w in report.waiting] == [world.eviction().eviction_id]
    assert world.state(job) is JobState.RUNNING
    assert not world.cluster.jobs[job].asked_at


def test_budgets_do_not_count_them(make_world: Callable[..., World]) -> None:
    world = with_eternal(make_world(config=settings(budget={"jobs_per_hour": 0}), node_count=1))
    job = eternal(world, ("n1",), ran_s=5.0)
    other = ordinary(world, 1, partitions=("batch",))
    world.run_until(lambda: world.started(other) is not None, 60)
    assert world.loop.report is not None
    assert world.loop.report.usage.jobs == 0
    assert world.cluster.jobs[job].lost_s < 2


def test_many_waiting_jobs_are_served_a_few_at_a_time(make_world: Callable[..., World]) -> None:
    world = with_eternal(make_world(config=settings(eternal={"at_once": 2}), node_count=8))
    jobs = [eternal(world, (f"n{i}",), ran_s=5.0) for i in range(1, 9)]
    others = [ordinary(world, 1, partitions=("batch",), work_s=WORK_S) for _ in range(40)]
    most = 0
    for _ in range(200):
        world.tick()
        most = max(most, sum(e.state.before_start for e in world.store.open_evictions()))
    assert 1 <= most <= 2
    started = [other for other in others if world.started(other) is not None]
    assert started == others[:8]
    assert all(world.state(job) is JobState.PENDING for job in jobs)
    assert not world.leftovers()


def play(world: World, daemon: MortalDaemon) -> None:
    """An ordinary job takes the node of an eternal one."""
    job = eternal(world, ("n1", "n2"), ran_s=300.0)
    other = ordinary(world, 2, partitions=("batch",), work_s=10.0)
    for _ in range(400):
        daemon.tick()
        if world.started(other) and world.settled():
            break
    entry = world.cluster.jobs[job]
    assert len(world.cluster.jobs[other].runs) == 1, world.describe()
    assert len(entry.runs) == 2, world.describe()
    assert entry.lost_s <= 1.5
    assert world.eviction().state is EvictionState.COMPLETED
    assert {p.state for p in world.eviction().preemptions} == {PreemptionState.RETURNED}
    assert not world.leftovers()


def test_killed_at_every_effect_nothing_is_lost(make_world: Callable[..., World]) -> None:
    world = with_eternal(make_world(config=settings(), node_count=2))
    daemon = killed_everywhere(world, play, one_in(3))
    assert daemon.effects > 20
