"""Rows of the table for suspension, system-level checkpoints and jobs that requeue themselves; who is offered what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config, CostsConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.costs import (
    CostBasis,
    checkpoint_rate_mib_s,
    preemption_options,
    suspend_option,
    why_no_checkpoint,
)
from clearway.execution.job_lifecycle import Command, Step, StepContext, next_step
from clearway.execution.lifecycle import placement, placement_until
from clearway.model.claims import CheckpointHow, Claims
from clearway.model.cluster import Job, JobState
from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.plan import Choice, Preemptor
from clearway.model.problem import Action, Option
from clearway.preemption.lifecycle import Observation, next_phase
from clearway.preemption.problem import PreparedProblem, prepare_problem
from clearway_checkpoint.suspend import Suspend
from tests.builders import NOW, after, eviction, job, node, plan, preemption, snapshot, urgent_job

S = PreemptionState
E = EvictionState
J = JobState
SIGNAL = "clearway:checkpoint=signal"
DMTCP = f"{SIGNAL},checkpointer=dmtcp"
SELF = f"{SIGNAL},requeues=self"
KNOWN: Mapping[str, Action] = {
    "application": Action.APP_CHECKPOINT,
    "dmtcp": Action.SYS_CHECKPOINT,
    "suspend": Action.SUSPEND,
}
CONTEXT = StepContext(latest=after(300))
WAIT = replace(CONTEXT, may_kill=False)
GIVEN_UP = replace(CONTEXT, wanted=False)
RESUME = replace(CONTEXT, may_resume=True)
RUNS, SLEEPS = job("101"), job("101", state=J.SUSPENDED, priority=0)
TRIED = {"attempted_at": after(-1), "attempts": 1}
TRIED_LONG_AGO = {"attempted_at": after(-10), "attempts": 5}


@pytest.mark.parametrize(
    ("state", "seen", "context", "fields", "expected"),
    [
        pytest.param(S.PLANNED, RUNS, CONTEXT, {}, Step(S.VACATING, Command.SUSPEND), id="suspend"),
        pytest.param(S.PLANNED, RUNS, WAIT, {}, None, id="not before the checkpoints are safe"),
        pytest.param(S.PLANNED, SLEEPS, CONTEXT, {}, Step(S.PLANNED, stuck=True, note="it is SUSPENDED"), id="theirs"),
        pytest.param(S.VACATING, RUNS, CONTEXT, {}, Step(S.VACATING, Command.SUSPEND), id="died before it"),
        pytest.param(S.VACATING, RUNS, CONTEXT, TRIED, None, id="give Slurm a moment"),
        pytest.param(
            S.VACATING,
            RUNS,
            CONTEXT,
            TRIED_LONG_AGO,
            Step(S.FAILED, stuck=True, note="still running after 5 attempts to suspend it", void=True),
            id="give up",
        ),
        pytest.param(
            S.VACATING, RUNS, GIVEN_UP, {}, Step(S.SPARED, note="no longer needed", void=True), id="cancelled before it"
        ),
        pytest.param(S.VACATING, RUNS, GIVEN_UP, TRIED, None, id="cancelled, and the command may still arrive"),
        pytest.param(
            S.VACATING,
            RUNS,
            GIVEN_UP,
            {"attempted_at": after(-10), "attempts": 1},
            Step(S.SPARED, note="no longer needed", void=True),
            id="cancelled, and the command has not arrived",
        ),
        pytest.param(S.VACATING, SLEEPS, GIVEN_UP, {}, Step(S.SUSPENDED), id="cancelled after it"),
        pytest.param(
            S.VACATING,
            job("101", state=J.UNKNOWN),
            CONTEXT,
            {},
            Step(S.VACATING, stuck=True, note="it is UNKNOWN"),
            id="unknown",
        ),
        pytest.param(S.SUSPENDED, SLEEPS, CONTEXT, {}, None, id="somebody has its processors"),
        pytest.param(S.SUSPENDED, SLEEPS, RESUME, {}, Step(S.SUSPENDED, Command.RESUME), id="resume"),
        pytest.param(S.SUSPENDED, SLEEPS, RESUME, TRIED, None, id="resumed a moment ago"),
        pytest.param(
            S.SUSPENDED, SLEEPS, RESUME, TRIED_LONG_AGO, Step(S.SUSPENDED, Command.RESUME), id="never given up"
        ),
        pytest.param(S.SUSPENDED, RUNS, CONTEXT, TRIED, Step(S.RETURNED), id="runs again"),
        pytest.param(
            S.SUSPENDED, RUNS, CONTEXT, {}, Step(S.RETURNED, note="it was resumed outside Clearway"), id="by hand"
        ),
        pytest.param(
            S.SUSPENDED,
            job("101", state=J.ENDED, raw_state="CANCELLED"),
            CONTEXT,
            {},
            Step(S.ENDED, note="was cancelled"),
            id="cancelled by its owner",
        ),
        pytest.param(
            S.SUSPENDED,
            None,
            CONTEXT,
            {},
            Step(S.ENDED, note="is over, and Slurm does not say how it ended"),
            id="forgotten",
        ),
        pytest.param(S.SUSPENDED, job("101", state=J.COMPLETING), CONTEXT, {}, None, id="on its way out"),
        pytest.param(
            S.SUSPENDED,
            job("101", state=J.PENDING, restart_count=1),
            CONTEXT,
            {},
            Step(S.VACATED, note="it was requeued outside Clearway"),
            id="requeued outside Clearway",
        ),
    ],
)
def test_suspension(
    state: S, seen: Job | None, context: StepContext, fields: dict[str, Any], expected: Step | None
) -> None:
    assert next_step(preemption(RUNS, Action.SUSPEND, state=state, **fields), seen, NOW, context) == expected


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        (DMTCP, Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)),
        ("clearway:checkpoint=interval,interval=60,checkpointer=dmtcp", Step(S.CHECKPOINTING)),
        (
            "clearway:checkpoint=none",
            Step(S.PLANNED, stuck=True, note="it does not say any more that it can save itself"),
        ),
    ],
)
def test_system_checkpoint_is_asked_for_like_any_other(comment: str, expected: Step) -> None:
    seen = job("101", comment=comment)
    assert next_step(preemption(seen, Action.SYS_CHECKPOINT), seen, NOW, replace(CONTEXT, may_ask=True)) == expected


SAVED = f"{SELF},state=saved,asked={int(NOW.timestamp())},last={int(NOW.timestamp()) + 1}"
OWN = Step(S.VACATING, note="it put itself back in the queue")


@pytest.mark.parametrize(
    ("seen", "context", "expected"),
    [
        pytest.param(job("101", comment=SELF), CONTEXT, None, id="asked"),
        pytest.param(job("101", comment=SAVED), CONTEXT, None, id="saved: it will go by itself"),
        pytest.param(job("101", comment=SELF, state=J.COMPLETING, restart_count=1), CONTEXT, OWN, id="on its way"),
        pytest.param(job("101", comment=SELF, state=J.PENDING, restart_count=1), CONTEXT, OWN, id="in the queue"),
        pytest.param(job("101", comment=SELF, restart_count=1, start_time=after(1)), CONTEXT, OWN, id="runs again"),
        pytest.param(
            job("101", comment=SELF),
            replace(CONTEXT, latest=after(-1)),
            Step(S.CHECKPOINTING, stuck=True, note="its checkpoint is late"),
            id="late",
        ),
        pytest.param(
            job("101", comment=SELF),
            replace(CONTEXT, latest=after(-1), kill_when_late=True),
            Step(
                S.VACATING,
                Command.REQUEUE,
                note="its checkpoint is late; requeued without it, as the configuration allows",
            ),
            id="late, and may be killed",
        ),
    ],
)
def test_job_that_requeues_itself(seen: Job, context: StepContext, expected: Step | None) -> None:
    p = preemption(job("101", comment=SELF), Action.APP_CHECKPOINT, state=S.CHECKPOINTING, asked_at=NOW, **TRIED)
    assert next_step(p, seen, NOW, context) == expected


# -- the placement over suspended jobs -----------------------------------------------------------------------------

URGENT = urgent_job(nodes=1, time_limit_s=600)
SMALL = replace(URGENT, memory_mib=1_000)


def holding(state: E, of: S = S.SUSPENDED) -> Eviction:
    """One job on two nodes is suspended for an urgent job that needs one of them."""
    asleep = job("101", ("n1", "n2"))
    return eviction(
        plan(URGENT, [asleep], Action.SUSPEND, placement_nodes=("n1",)),
        state,
        eviction_id=1,
        placement="clearway_1",
        preemptions=(preemption(asleep, Action.SUSPEND, state=of),),
        started_at=None if state.before_start else NOW,
    )


def observation(e: Eviction, preemptor: Job, **fields: Any) -> Observation:
    ours = placement(e, NOW, after(60) - NOW)
    given: dict[str, Any] = {"preemptor": preemptor, "placement": ours, "nodes_free": True}
    return Observation(**(given | {"placement_ends": after(1_500), "extend_when_ends": after(30)} | fields))


def test_placement_stays_over_suspended_nodes_until_the_job_runs_again() -> None:
    e = holding(E.RETURNING)
    runs = replace(URGENT, state=J.RUNNING)
    watch = after(60) - NOW
    commands = {
        "attached": observation(e, replace(runs, reservation="clearway_1")),
        "gone": observation(e, runs, placement=None),
        "elsewhere": observation(e, runs, placement=replace(placement(e, NOW, watch), nodes=("n1", "n9"))),
        "ends": observation(e, runs, extend_when_ends=after(10_000)),
        "fits": observation(e, runs),
    }
    found = {
        name: (phase := next_phase(e, seen, after(9_999), 60.0)) and phase.command for name, seen in commands.items()
    }
    assert found == {
        "attached": Command.DETACH,
        "gone": Command.CREATE_PLACEMENT,
        "elsewhere": Command.MOVE_PLACEMENT,
        "ends": Command.EXTEND_PLACEMENT,
        "fits": None,  # and watching does not end, however long it takes
    }
    back = holding(E.RETURNING, S.RETURNED)
    removed = next_phase(back, observation(e, runs), NOW, 60.0)
    assert removed is not None
    assert removed.command is Command.DELETE_PLACEMENT


def test_what_the_placement_covers_and_until_when() -> None:
    grace = after(60) - NOW
    for state in E:
        assert holding(state).held_nodes == ("n1", "n2")
    assert holding(E.PREEMPTING, S.SPARED).held_nodes == ("n1",)
    assert holding(E.RETURNING, S.RETURNED).held_nodes == ()
    for state in (E.STARTED, E.RETURNING, E.CANCELLING):  # the job was not seen when it was called off
        assert holding(state, S.PLANNED).held_nodes == (), "no further job is suspended"
    assert placement_until(holding(E.RETURNING), NOW, grace) == after(660)  # its time limit, and the grace
    assert placement_until(holding(E.RETURNING), after(5_000), grace) == after(5_060)  # it overstays
    assert placement_until(holding(E.CANCELLING), NOW, grace) >= after(60)


# -- who is offered what -------------------------------------------------------------------------------------------


def situation(jobs: list[Job], of: Job = SMALL, memory_mib: int = 4_000, **candidates: Any) -> PreparedProblem:
    config = Config.model_validate({"preemptors": [{"qos": ["urgent"]}], "candidates": {"min_runtime": 0} | candidates})
    names = sorted({name for each in jobs for name in each.nodes})
    seen = snapshot(jobs, [node(name, memory_mib=memory_mib, alloc_cpus=4) for name in names])
    who = Preemptor(of, "rule 1", 600, after(600))
    context = PlanningContext(snapshot=seen, config=config, now=NOW, preempted={}, under_way=UnderWay(), actions=KNOWN)
    return prepare_problem(who, "batch", context)


def offered(found: PreparedProblem) -> dict[str, set[Action]]:
    return {each.job_id: {option.action for option in each.options} for each in found.problem.candidates}


@pytest.mark.parametrize(
    ("comment", "action", "why"),
    [
        (SIGNAL, Action.APP_CHECKPOINT, ""),
        (DMTCP, Action.SYS_CHECKPOINT, ""),
        ("clearway:checkpoint=none", None, "it says that it cannot be checkpointed"),
        (f"{SIGNAL},checkpointer=blcr", None, "its checkpointer blcr is not one that the daemon knows"),
        (f"{SIGNAL},checkpointer=suspend", None, "its checkpointer suspend is not one that the daemon knows"),
    ],
)
def test_checkpoint_by_the_checkpointer_that_the_job_names(comment: str, action: Action | None, why: str) -> None:
    found = situation([job("101", ("n1",), comment=comment)], allow_kill=False)
    assert offered(found) == ({"101": {action}} if action else {})
    if why:
        (verdict,) = found.verdicts
        assert (verdict.choice, verdict.code) == (Choice.EXEMPT, "no_option")
        assert verdict.reason == f"{why}, and killing is not allowed"
        assert offered(situation([job("101", ("n1",), comment=comment)])) == {"101": {Action.KILL}}


def test_system_checkpoint_writes_all_memory() -> None:
    claims = Claims(checkpoint=CheckpointHow.SIGNAL, checkpointer="dmtcp")
    costs = CostsConfig(node_mib_s=100.0, app_memory_fraction=0.5, checkpoint_overhead=2.0)
    of = job(memory_mib=1_000)
    by = CostBasis(now=NOW, costs=costs, actions=KNOWN)
    (whole,) = preemption_options(of, claims, by, kill=False, requeueable=True)
    assert whole == Option(Action.SYS_CHECKPOINT, checkpoint_s=12.0, return_node_s=12)
    itself = replace(claims, checkpointer="application")
    (part,) = preemption_options(of, itself, by, kill=False, requeueable=True)
    assert part == Option(Action.APP_CHECKPOINT, checkpoint_s=7.0, return_node_s=7)


def test_rate_of_a_checkpoint_is_its_last_one_else_the_models() -> None:
    costs = CostsConfig(node_mib_s=100.0, file_system_mib_s=1_000.0)
    assert checkpoint_rate_mib_s(job(nodes=3), None, costs) == 300.0
    assert checkpoint_rate_mib_s(job(nodes=30), None, costs) == 1_000.0
    assert checkpoint_rate_mib_s(job(), Claims(size_mib=100, took_s=4.0), costs) == 25.0


def test_suspension_where_every_node_keeps_enough_memory() -> None:
    of = job(memory_mib=1_000)
    yes = (Option(Action.SUSPEND),)
    assert suspend_option(of, [(4_000, [1_000, 2_000])], 1_000) == yes
    assert suspend_option(of, [(4_000, [1_000, 2_000])], 1_001) == ()
    assert suspend_option(of, [(9_000, [1_000]), (1_999, [1_000])], 1_000) == ()  # one node is too small
    assert suspend_option(of, [(9_000, [1_000, 0])], 1_000) == ()  # nobody knows what the other has
    assert suspend_option(of, [(9_000, [1_000])], 0) == ()  # nor what the urgent job wants
    assert suspend_option(replace(of, memory_mib=0), [(9_000, [0])], 1_000) == ()


def test_suspension_is_offered_only_where_allowed_and_on_nodes_that_can_be_kept() -> None:
    small = job("101", ("n1", "n2"), memory_mib=1_000)
    wants = replace(URGENT, memory_mib=2_000)
    assert offered(situation([small], wants)) == {"101": {Action.KILL}}
    assert offered(situation([small], wants, allow_suspend=True)) == {"101": {Action.KILL, Action.SUSPEND}}
    beside = job("102", ("n2",), memory_mib=1_500)  # it counts: it may stay there suspended as well
    assert offered(situation([small, beside], wants, allow_suspend=True))["101"] == {Action.KILL}
    asleep = replace(beside, state=J.SUSPENDED)
    assert offered(situation([small, asleep], wants, allow_suspend=True))["101"] == {Action.KILL}
    excluded = replace(wants, excluded_nodes=("n2",))
    assert offered(situation([small], excluded, allow_suspend=True)) == {"101": {Action.KILL}}


def test_no_checkpoint_is_explained_only_where_there_is_something_to_explain() -> None:
    assert why_no_checkpoint(None, KNOWN) == ""
    assert why_no_checkpoint(Claims(checkpoint=CheckpointHow.SIGNAL), KNOWN) == ""
    assert why_no_checkpoint(Claims(checkpoint=CheckpointHow.NONE), KNOWN) != ""


def test_the_suspend_checkpointer_does_nothing_on_the_node() -> None:
    from pathlib import Path

    it = Suspend()
    assert (it.name, it.action) == ("suspend", Action.SUSPEND)
    assert it.limits
    assert it.wrap(("prog", "x")) == it.restart(Path("g"), ("prog", "x")) == ("prog", "x")
    for answer in (it.probe(), it.checkpoint(Path("g"), 1), it.verify(Path("g"))):
        assert not answer.ok
        assert answer.reason == "Slurm suspends, nothing to do on the node"
