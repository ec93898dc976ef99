"""A site's jobs under its own configuration: whatever the record and the guards, they are kept and all jobs end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.config import plugins
from clearway.config.configuration import CandidatesConfig, Config, PreemptorRule
from clearway.experiments.site_study import RULES, UrgentJobs, evaluate, find_urgent, mark_urgent, schedulers
from clearway.simulation.engine import Replay, replay
from clearway.simulation.traces.trace import Names, Trace, TraceJob, in_order

NODES = 8
PLANNERS = [(name, plugins.load(plugins.PLANNERS, name)) for name in ("eviction-dp", *RULES)]
RULE = PreemptorRule(name="forecast", qos=("high",), max_delay=300)


@st.composite
def jobs(draw: st.DrawFn, job_id: int) -> TraceJob:
    run_s = draw(st.integers(1, 5_000))
    user, qos = draw(st.sampled_from(["ann", "bob"])), draw(st.sampled_from(["normal", "normal", "high"]))
    return TraceJob(
        job_id,
        draw(st.integers(0, 4_000)),
        run_s,
        draw(st.integers(1, NODES)),
        requested_s=run_s + draw(st.integers(0, 2_000)),
        names=Names(user, "phys", draw(st.sampled_from(["batch", "long"])), qos, "run"),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    made = [draw(jobs(number)) for number in range(1, draw(st.integers(1, 12)) + 1)]
    urgent = TraceJob(99, draw(st.integers(0, 4_000)), 100, 2, names=Names("eve", "met", "batch", "high", "storm"))
    return Trace("site", in_order([*made, urgent]))


def replayed(trace: Trace, config: Config) -> tuple[UrgentJobs, dict[str, Replay]]:
    urgent = find_urgent(trace, config.preemptors)
    marked = mark_urgent(trace, urgent)
    runs = {name: replay(marked.jobs, NODES, each) for name, _, each in schedulers(marked, config, PLANNERS)}
    return urgent, runs


@given(
    traces(),
    st.builds(
        CandidatesConfig,
        protected_users=st.sampled_from([(), ("bob",)]),
        protected_partitions=st.sampled_from([(), ("long",)]),
        min_runtime=st.sampled_from([0.0, 600.0]),
        max_preemptions=st.integers(0, 2),
        allow_kill=st.booleans(),
    ),
)
@settings(max_examples=60, deadline=None)
def test_guards_hold_in_every_run_and_every_job_ends(trace: Trace, guards: CandidatesConfig) -> None:
    config = Config(preemptors=(RULE,), candidates=guards)
    urgent, runs = replayed(trace, config)
    assert len(runs) == 2 + len(PLANNERS)
    asked = {job.job_id for job in trace.jobs}
    for name, run in runs.items():
        assert {outcome.job.job_id for outcome in run.outcomes} == asked
        for outcome in run.outcomes:
            if not outcome.preemptions:
                assert outcome.lost_s == 0
                continue
            names = outcome.job.names
            assert names is not None
            assert name not in {"easy", "urgent first"}
            assert guards.allow_kill
            assert not outcome.job.urgent
            assert names.user not in guards.protected_users
            assert names.partition not in guards.protected_partitions
            assert outcome.preemptions <= guards.max_preemptions
            assert outcome.lost_s >= guards.min_runtime
        told = evaluate(name, None, run, urgent)
        late = [o for o in run.outcomes if o.job.urgent and o.start_s - o.job.submit_s > RULE.max_delay]
        assert told.late == len(late)


@given(traces())
@settings(max_examples=30, deadline=None)
def test_a_lone_urgent_job_never_waits_where_everybody_may_be_preempted(trace: Trace) -> None:
    """Its own deadline is far enough away, and no guard stands in its way: every rule makes room in time."""
    alone = Trace(
        "site", tuple(job for job in trace.jobs if job.job_id == 99 or (job.names and job.names.qos != "high"))
    )
    guards = CandidatesConfig(min_runtime=0, max_preemptions=1_000)
    urgent, runs = replayed(alone, Config(preemptors=(RULE,), candidates=guards))
    for name, run in runs.items():
        told = evaluate(name, None, run, urgent)
        if name not in {"easy", "urgent first"}:
            assert told.late == 0
            assert told.urgent_wait_s.largest <= RULE.max_delay
