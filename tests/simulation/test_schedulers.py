"""The simulator's schedulers beside slow ones that count everything anew each second; and what holds at every event."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.config import plugins
from clearway.config.configuration import CandidatesConfig, Config, ExecutionConfig, PreemptorRule
from clearway_lab.errors import SimulationError
from clearway_lab.schedulers import GROUP
from clearway_lab.schedulers import clearway as clearway_suspend_module
from clearway_lab.schedulers import conservative as profile_module
from clearway_lab.schedulers import conservative as ujfb_module
from clearway_lab.schedulers import easy as easy_module
from clearway_lab.schedulers.clearway import ClearwaySjf, ClearwaySuspend, SuspensionRules
from clearway_lab.schedulers.conservative import Conservative, Ujfb
from clearway_lab.schedulers.easy import Easy, Fcfs, ShortestJobFirstBackfill, Ujf
from clearway_lab.simulator.engine import Replay, Scheduler, replay
from clearway_lab.simulator.machine import Machine, State
from clearway_lab.traces.trace import TraceJob, in_order
from tests.oracle import slow_schedulers as slow
from tests.oracle.plain_easy import plain_easy

NODES = 6
EXAMPLES = 150
CROWDED = 24


@st.composite
def workloads(draw: st.DrawFn, *, exact: bool = False, most_urgent: int = 3) -> tuple[TraceJob, ...]:
    count = draw(st.integers(1, 12))
    urgent = draw(st.lists(st.integers(0, count - 1), max_size=most_urgent, unique=True))
    jobs = []
    for number in range(count):
        run_s = draw(st.integers(1, 12))
        jobs.append(
            TraceJob(
                job_id=number + 1,
                submit_s=draw(st.integers(0, 25)),
                run_s=run_s,
                size=draw(st.integers(1, NODES)),
                requested_s=run_s + (0 if exact else draw(st.integers(0, 8))),
                urgent=number in urgent,
            )
        )
    ordered = in_order(jobs)
    return tuple(
        TraceJob(number, j.submit_s, j.run_s, j.size, j.requested_s, urgent=j.urgent)
        for number, j in enumerate(ordered, start=1)
    )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[TraceJob, ...]:
    """Two hundred jobs that come within a time in which a fraction of them can run: of many or few sizes and limits."""
    rng = draw(st.randoms(use_true_random=False))
    largest, longest, patience = (draw(st.integers(1, most)) for most in (CROWDED, 60, 40))
    jobs = []
    for number in range(1, 201):
        run_s = rng.randint(1, longest)
        limit_s = run_s + rng.randint(0, patience)
        jobs.append(TraceJob(number, rng.randint(0, 200), run_s, rng.randint(1, largest), limit_s))
    return tuple(jobs)


def starts(done: Replay) -> dict[int, float]:
    return {outcome.job.job_id: outcome.start_s for outcome in done.outcomes}


@pytest.mark.parametrize(
    ("scheduler", "rule"),
    [
        (Fcfs, lambda: slow.fcfs),
        (Ujf, lambda: slow.ujf),
        (Easy, lambda: slow.easy),
        (ShortestJobFirstBackfill, lambda: slow.sjf_backfill),
        (Conservative, slow.Conservative),
    ],
)
@pytest.mark.parametrize("long", [0, None])
@settings(max_examples=EXAMPLES, deadline=None)
@given(jobs=workloads())
def test_every_job_starts_when_the_slow_scheduler_starts_it(
    scheduler: Callable[[], Scheduler], rule: Callable[[], slow.Rule], long: int | None, jobs: tuple[TraceJob, ...]
) -> None:
    """Also where every queue and every plan counts as ``long``."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (easy_module, profile_module):
            patch.setattr(module, "_LONG", module._LONG if long is None else long)
        done = replay(jobs, NODES, scheduler(), observe=conserved)
    assert starts(done) == slow.starts(jobs, NODES, rule())


@settings(max_examples=EXAMPLES, deadline=None)
@given(jobs=crowds())
def test_a_long_queue_starts_as_a_plain_loop_starts_it(jobs: tuple[TraceJob, ...]) -> None:
    assert starts(replay(jobs, CROWDED, Easy())) == plain_easy(jobs, CROWDED)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(jobs=workloads(exact=True, most_urgent=6), out_s=st.integers(1, 3), in_s=st.integers(0, 3))
def test_ujfb_does_what_the_slow_one_does(jobs: tuple[TraceJob, ...], out_s: int, in_s: int) -> None:
    def swap(job_id: int) -> tuple[int, int]:
        return out_s + job_id % 2, in_s

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ujfb_module, "swap_times_s", lambda job_id, _seed: swap(job_id))
        done = replay(jobs, NODES, Ujfb(), observe=conserved)
    assert {o.job.job_id: (o.start_s, o.end_s) for o in done.outcomes} == slow.ujfb(jobs, NODES, swap)


@pytest.mark.parametrize("scheduler", [ClearwaySuspend, ClearwaySjf])
@settings(max_examples=EXAMPLES, deadline=None)
@given(jobs=workloads(exact=True, most_urgent=6), out_s=st.integers(1, 3), in_s=st.integers(0, 3))
def test_clearway_does_what_the_slow_one_does(
    scheduler: type[ClearwaySuspend], jobs: tuple[TraceJob, ...], out_s: int, in_s: int
) -> None:
    def swap(job_id: int) -> tuple[int, int]:
        return out_s + job_id % 2, in_s

    often = CandidatesConfig(allow_suspend=True, allow_kill=False, min_runtime=0.0, max_preemptions=1_000)
    rules = Config(preemptors=(PreemptorRule(partition=("urgent",), max_delay=0.0),), candidates=often)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clearway_suspend_module, "swap_times_s", lambda job_id, _seed: swap(job_id))
        done = replay(jobs, NODES, scheduler(rules), observe=conserved)
    expected = slow.clearway(jobs, NODES, swap, shortest_overtakes=scheduler is ClearwaySjf)
    assert {o.job.job_id: (o.start_s, o.end_s) for o in done.outcomes} == expected


def conserved(machine: Machine) -> None:
    """No node is used twice, none is lost, and none is used by a job that does not run."""
    held = [node for _, _, job in machine.running for node in job.nodes]
    held += [node for job in machine.leaving.values() for node in job.nodes]
    assert sorted([*held, *machine.free, *machine.kept_free]) == list(range(machine.nodes))
    assert len(held) == machine.used
    assert all(len(job.nodes) == job.size for _, _, job in machine.running)
    assert set(machine.kept) == {node for job in machine.suspended.values() for node in job.nodes}
    assert all(job.state is State.SUSPENDED for job in machine.suspended.values())
    assert [end for end, _, _ in machine.running] == sorted(end for end, _, _ in machine.running)


@pytest.mark.parametrize("name", plugins.names(GROUP))
@settings(max_examples=100, deadline=None)
@given(jobs=workloads(most_urgent=6))
def test_every_job_ends_with_all_its_work_done(name: str, jobs: tuple[TraceJob, ...]) -> None:
    done = replay(jobs, NODES, plugins.load(GROUP, name)(), observe=conserved)
    assert [outcome.job for outcome in done.outcomes] == list(jobs)
    for outcome in done.outcomes:
        assert outcome.start_s >= outcome.job.submit_s
        assert outcome.end_s - outcome.start_s >= outcome.job.run_s
        if not outcome.preemptions:
            assert outcome.end_s - outcome.start_s == outcome.job.run_s
    work = sum(o.job.size * (o.job.run_s + o.lost_s + o.overhead_s) for o in done.outcomes)
    assert done.busy_node_s == pytest.approx(work)


@settings(max_examples=50, deadline=None)
@given(jobs=workloads(most_urgent=6))
def test_the_same_trace_and_seed_give_the_same_replay(jobs: tuple[TraceJob, ...]) -> None:
    assert repr(replay(jobs, NODES, Ujfb(), seed=3)) == repr(replay(reversed(jobs), NODES, Ujfb(), seed=3))


def job(number: int, submit_s: int, run_s: int, size: int, *, urgent: bool = False) -> TraceJob:
    return TraceJob(number, submit_s, run_s, size, requested_s=run_s, urgent=urgent)


def test_an_urgent_job_takes_the_nodes_of_the_job_with_longest_to_run_and_gives_them_back() -> None:
    jobs = (job(1, 0, 1_000, 3), job(2, 0, 500, 3), job(3, 100, 10, 2, urgent=True), job(4, 101, 400, 6))
    out_s, in_s = ujfb_module.swap_times_s(1, 0)
    first, second, urgent, last = replay(jobs, NODES, Ujfb()).outcomes
    assert (urgent.start_s, urgent.end_s) == (100 + out_s, 110 + out_s)
    assert (first.preemptions, second.preemptions, first.lost_s) == (1, 0, 0)
    assert first.end_s == pytest.approx(1_000 + 10 + out_s + in_s)
    assert last.start_s == first.end_s


def test_clearway_gives_the_nodes_of_a_suspended_job_to_nobody_but_the_urgent_job_that_it_left_for() -> None:
    """The first leaves three nodes to an urgent job of one; the second urgent job could have the other two at once."""
    jobs = (job(1, 0, 1_000, 3), job(2, 0, 2_000, 3), job(3, 100, 50, 1, urgent=True), job(4, 110, 300, 2, urgent=True))
    out_s, in_s = ujfb_module.swap_times_s(1, 0)
    first, second, _, urgent = replay(jobs, NODES, ClearwaySuspend(), observe=conserved).outcomes
    assert (first.preemptions, second.preemptions) == (1, 1)
    assert first.end_s == pytest.approx(1_000 + out_s + 50 + in_s)
    assert urgent.start_s == 110 + ujfb_module.swap_times_s(2, 0)[0]
    eager = ClearwaySuspend(rules=SuspensionRules(return_at_once=False))
    first, second, _, urgent = replay(jobs, NODES, eager, observe=conserved).outcomes
    assert (first.preemptions, second.preemptions) == (1, 0)
    assert first.end_s == pytest.approx(1_000 + 10 + 300 + in_s)
    assert urgent.start_s == 110


def test_clearway_suspends_no_job_needlessly() -> None:
    """Urgent jobs for nine nodes on a machine of six: the regular job stays until one of them can have its nodes."""
    jobs = (job(1, 0, 100, 4), job(2, 10, 20, 5, urgent=True), job(3, 10, 30, 4, urgent=True))
    regular, *_ = replay(jobs, NODES, ClearwaySuspend(), observe=conserved).outcomes
    assert (regular.preemptions, regular.end_s) == (0, 100)
    eager = ClearwaySuspend(rules=SuspensionRules(never_needlessly=False))
    assert replay(jobs, NODES, eager, observe=conserved).outcomes[0].preemptions > 0


def test_clearway_takes_the_shortest_urgent_job_first() -> None:
    jobs = (job(1, 0, 100, 6, urgent=True), job(2, 10, 500, 6, urgent=True), job(3, 20, 5, 6, urgent=True))
    _, long, short = replay(jobs, NODES, ClearwaySuspend()).outcomes
    assert (short.start_s, long.start_s) == (100, 105)
    _, long, short = replay(jobs, NODES, ClearwaySuspend(rules=SuspensionRules(shortest_first=False))).outcomes
    assert (long.start_s, short.start_s) == (100, 600)


def test_ujfb_without_suspensions_or_without_returning_to_the_same_nodes() -> None:
    jobs = (job(1, 0, 1_000, 3), job(2, 0, 120, 3), job(3, 100, 500, 3, urgent=True))
    out_s, in_s = ujfb_module.swap_times_s(1, 0)
    first, _, urgent = replay(jobs, NODES, Ujfb(), observe=conserved).outcomes
    assert (first.end_s, urgent.start_s) == (pytest.approx(100 + out_s + 500 + in_s + 900), 100 + out_s)
    first, _, urgent = replay(jobs, NODES, Ujfb(keep_nodes=False), observe=conserved).outcomes
    assert (first.end_s, urgent.start_s) == (pytest.approx(120 + in_s + 900), 100 + out_s)
    first, _, urgent = replay(jobs, NODES, Ujfb(suspends=False), observe=conserved).outcomes
    assert (first.end_s, urgent.start_s) == (1_000, 120)


def test_ujfbs_jobs_swap_out_together_unless_told_otherwise() -> None:
    jobs = (job(1, 0, 1_000, 3), job(2, 0, 900, 3), job(3, 100, 10, 6, urgent=True))
    out_s = [ujfb_module.swap_times_s(number, 0)[0] for number in (1, 2)]
    assert replay(jobs, NODES, Ujfb(), observe=conserved).outcomes[2].start_s == 100 + max(out_s)
    assert replay(jobs, NODES, Ujfb(swap_together=False), observe=conserved).outcomes[2].start_s == 100 + sum(out_s)


def test_ujfbs_regular_jobs_wait_for_urgent_ones_that_wait_unless_told_otherwise() -> None:
    jobs = (job(1, 0, 100, 4, urgent=True), job(2, 10, 50, 4, urgent=True), job(3, 20, 5, 2))
    assert replay(jobs, NODES, Ujfb(), observe=conserved).outcomes[2].start_s == 100
    assert replay(jobs, NODES, Ujfb(regular_wait=False), observe=conserved).outcomes[2].start_s == 20


def busy_machine(*, ends_s: int = 1_000) -> tuple[TraceJob, ...]:
    """Two jobs hold all nodes when an urgent one asks for two; the second is the younger, the first the longer."""
    return (job(1, 0, 2_000, 3), job(2, 50, ends_s - 50, 3), job(3, 100, 10, 2, urgent=True))


def config(*, suspend: bool, kill: bool, max_delay_s: float = 0.0, protected: tuple[str, ...] = ()) -> Config:
    return Config(
        preemptors=(PreemptorRule(partition=("urgent",), max_delay=max_delay_s),),
        candidates=CandidatesConfig(
            allow_suspend=suspend, allow_kill=kill, min_runtime=0.0, protected_partitions=protected
        ),
        execution=ExecutionConfig(kill_allowance=0.0),
    )


def test_the_daemons_planner_takes_the_least_lost_work() -> None:
    first, second, urgent = replay(busy_machine(), NODES, ClearwaySuspend(config(suspend=False, kill=True))).outcomes
    assert urgent.start_s == 100
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert second.lost_s == 50


def test_the_daemons_planner_suspends_and_loses_nothing() -> None:
    first, second, urgent = replay(busy_machine(), NODES, ClearwaySuspend(config(suspend=True, kill=True))).outcomes
    assert urgent.start_s == 100 + ujfb_module.swap_times_s(1, 0)[0]
    assert (first.preemptions, second.preemptions, first.lost_s, first.saved_s) == (1, 0, 0, 100)
    assert first.end_s > 2_010


def test_the_daemons_planner_waits_for_a_job_that_ends_in_time() -> None:
    jobs = busy_machine(ends_s=130)
    *others, urgent = replay(jobs, NODES, ClearwaySuspend(config(suspend=True, kill=True, max_delay_s=60.0))).outcomes
    assert urgent.start_s == 130
    assert not any(other.preemptions for other in others)


def test_the_daemons_policy_protects_whom_the_site_protects() -> None:
    rules = config(suspend=True, kill=True, protected=("batch",))
    *others, urgent = replay(busy_machine(), NODES, ClearwaySuspend(rules)).outcomes
    assert urgent.start_s == 1_000
    assert not any(other.preemptions for other in others)


def test_a_job_that_loses_work_does_it_again() -> None:
    class KillOnce(Easy):
        def schedule(self) -> None:
            if self.machine.now_s == 40:
                self.machine.preempt(self.machine.running[0][2], saved_s=30, leave_s=5, return_s=7)
            super().schedule()

    done = replay((job(1, 0, 100, 2), job(2, 40, 1, 6)), NODES, KillOnce(), observe=conserved)
    killed, other = done.outcomes
    assert (killed.lost_s, killed.saved_s, killed.overhead_s, killed.preemptions) == (10, 30, 12, 1)
    assert (killed.end_s, other.start_s) == (45 + 7 + 70, 122)
    assert done.busy_node_s == 2 * (100 + 10 + 12) + 6


def test_a_job_larger_than_the_machine_is_left_out_and_named() -> None:
    done = replay((job(1, 0, 10, 7), job(2, 0, 10, 6)), NODES, Fcfs())
    assert [each.job_id for each in done.too_large] == [1]
    assert [outcome.job.job_id for outcome in done.outcomes] == [2]


class StartsBlindly(Fcfs):
    name = "starts-blindly"

    def schedule(self) -> None:
        for each in self.queue:
            self.machine.start(each)


class NeverStarts(Fcfs):
    name = "never-starts"

    def schedule(self) -> None:
        pass


@pytest.mark.parametrize(
    ("scheduler", "why"),
    [
        (StartsBlindly, "job 2 cannot start: 4 nodes wanted, 2 are free"),
        (NeverStarts, "never-starts left job 1 waiting for ever"),
    ],
)
def test_a_scheduler_that_breaks_the_rules_is_stopped(scheduler: Callable[[], Scheduler], why: str) -> None:
    with pytest.raises(SimulationError, match=why):
        replay((job(1, 0, 5, 4), job(2, 0, 5, 4)), NODES, scheduler())
