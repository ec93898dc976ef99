"""The table of one preemptee's steps, row by row, and what no row may ever do."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.execution.job_lifecycle import Command, Step, StepContext, next_step
from clearway.execution.progress import preemption_entered, with_answer, with_intent
from clearway.model.claims import Claims, checkpointed_since
from clearway.model.cluster import FIRST, LOWEST_NICE, Job, JobState, first_nice
from clearway.model.operations import Answer, EvictionState, Preemption, PreemptionState
from clearway.model.problem import Action
from tests.builders import NOW, after, job, preemption

S = PreemptionState
E = EvictionState
J = JobState
T = int(NOW.timestamp())
CONTEXT = StepContext(latest=after(300))
SIGNAL = "clearway:checkpoint=signal"
INTERVAL = "clearway:checkpoint=interval,interval=600"


def chosen(comment: str = "", **fields: Any) -> Job:
    return job("101", comment=comment, **fields)


def step(
    state: S,
    seen: Job | None,
    action: Action = Action.KILL,
    context: StepContext = CONTEXT,
    now: datetime = NOW,
    of: Job | None = None,
    **fields: Any,
) -> Step | None:
    return next_step(preemption(of or chosen(), action, state=state, **fields), seen, now, context)


# -- one preemptee -----------------------------------------------------------------------------------------------

OPEN = [state for state in S if not state.terminal]
RUNS = chosen()
RUNS_AGAIN = chosen(restart_count=1, start_time=NOW)
WAITS = chosen(state=J.PENDING, restart_count=1)
HELD = chosen(state=J.PENDING, restart_count=1, priority=0, reason="JobHeldAdmin")
LAUNCH_FAILED = chosen(state=J.PENDING, restart_count=2, priority=0, reason="launch_failed_requeued_held")
IS_HELD = Step(S.HELD, note="it is held in the queue (JobHeldAdmin), and goes on once it is released")
LATER = chosen(state=J.PENDING, restart_count=1, eligible_time=after(121))
TOMORROW = chosen(state=J.PENDING, restart_count=1, eligible_time=after(86_400))


@pytest.mark.parametrize("state", [state for state in S if state.terminal])
@pytest.mark.parametrize("seen", [None, RUNS, RUNS_AGAIN, WAITS, chosen(state=J.ENDED)])
def test_nothing_follows_a_terminal_state(state: S, seen: Job | None) -> None:
    assert step(state, seen) is None


@pytest.mark.parametrize("state", OPEN)
def test_a_job_that_is_over_has_ended(state: S) -> None:
    for seen in (None, chosen(state=J.ENDED)):
        found = step(state, seen)
        assert found is not None
        assert (found.state, found.command, found.stuck) == (S.ENDED, None, False)
        assert found.note


@pytest.mark.parametrize("state", OPEN)
def test_a_job_on_its_way_out_is_waited_for(state: S) -> None:
    assert step(state, chosen(state=J.COMPLETING)) is None
    assert step(state, chosen(state=J.COMPLETING, restart_count=1)) is None


@pytest.mark.parametrize(
    ("state", "seen", "action", "expected"),
    [
        # planned
        pytest.param(S.PLANNED, RUNS, Action.KILL, Step(S.VACATING, Command.REQUEUE), id="kill"),
        pytest.param(S.PLANNED, RUNS, Action.END, None, id="end: it is waited for"),
        pytest.param(
            S.PLANNED, chosen(SIGNAL), Action.APP_CHECKPOINT, Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT), id="ask"
        ),
        pytest.param(S.PLANNED, chosen(INTERVAL), Action.APP_CHECKPOINT, Step(S.CHECKPOINTING), id="at its own pace"),
        pytest.param(
            S.PLANNED,
            chosen("clearway:checkpoint=sig"),
            Action.APP_CHECKPOINT,
            Step(S.PLANNED, stuck=True, note="it does not say any more that it can save itself"),
            id="claims that became unreadable",
        ),
        pytest.param(S.PLANNED, WAITS, Action.KILL, Step(S.VACATED, note="it was requeued outside Clearway"), id="p1"),
        pytest.param(
            S.PLANNED, RUNS_AGAIN, Action.KILL, Step(S.RETURNED, note="it was requeued outside Clearway"), id="p2"
        ),
        pytest.param(
            S.PLANNED,
            chosen(state=J.SUSPENDED),
            Action.KILL,
            Step(S.PLANNED, stuck=True, note="it is SUSPENDED"),
            id="p3",
        ),
        pytest.param(
            S.PLANNED, chosen(state=J.UNKNOWN), Action.KILL, Step(S.PLANNED, stuck=True, note="it is UNKNOWN"), id="p4"
        ),
        # vacating
        pytest.param(S.VACATING, RUNS, Action.KILL, Step(S.VACATING, Command.REQUEUE), id="died before requeueing"),
        pytest.param(S.VACATING, WAITS, Action.KILL, Step(S.VACATED), id="back in the queue"),
        pytest.param(S.VACATING, RUNS_AGAIN, Action.KILL, Step(S.RETURNED), id="runs again already"),
        pytest.param(
            S.VACATING,
            chosen(state=J.SUSPENDED),
            Action.KILL,
            Step(S.VACATING, stuck=True, note="it is SUSPENDED"),
            id="suspended meanwhile",
        ),
        # vacated
        pytest.param(S.VACATED, LATER, Action.KILL, Step(S.QUEUED, Command.START_NOW), id="lift the wait"),
        pytest.param(S.VACATED, WAITS, Action.KILL, Step(S.QUEUED), id="its wait is over"),
        pytest.param(S.VACATED, TOMORROW, Action.KILL, Step(S.QUEUED), id="its owner wants it to start later"),
        pytest.param(S.VACATED, HELD, Action.KILL, IS_HELD, id="held"),
        pytest.param(S.VACATED, RUNS_AGAIN, Action.KILL, Step(S.RETURNED), id="started at once"),
        # queued
        pytest.param(S.QUEUED, WAITS, Action.KILL, None, id="its turn comes"),
        pytest.param(S.QUEUED, HELD, Action.KILL, IS_HELD, id="held while it waits for its turn"),
        pytest.param(
            S.QUEUED,
            LAUNCH_FAILED,
            Action.KILL,
            Step(S.HELD, note="it is held in the queue (launch_failed_requeued_held), and goes on once it is released"),
            id="its prolog failed",
        ),
        pytest.param(S.QUEUED, LATER, Action.KILL, Step(S.QUEUED, Command.START_NOW), id="the wait is still there"),
        pytest.param(S.QUEUED, TOMORROW, Action.KILL, None, id="a later start was asked for"),
        # held
        pytest.param(S.HELD, HELD, Action.KILL, None, id="still held"),
        pytest.param(S.HELD, LATER, Action.KILL, Step(S.VACATED), id="released"),
        pytest.param(S.HELD, RUNS_AGAIN, Action.KILL, Step(S.RETURNED), id="released, and runs"),
        pytest.param(S.QUEUED, RUNS_AGAIN, Action.KILL, Step(S.RETURNED), id="runs again"),
        pytest.param(S.QUEUED, chosen(state=J.CONFIGURING, restart_count=1), Action.KILL, Step(S.RETURNED), id="boots"),
    ],
)
def test_rows(state: S, seen: Job, action: Action, expected: Step | None) -> None:
    of = chosen(seen.comment)
    assert step(state, seen, action, of=of, state_since=after(-2), waits_until=LATER.eligible_time) == expected


def test_a_job_that_is_back_in_the_queue_rests_before_it_is_started() -> None:
    for seen in (WAITS, HELD):
        assert step(S.VACATED, seen, state_since=after(-1)) is None
    assert step(S.VACATED, RUNS_AGAIN, state_since=after(-1)) == Step(S.RETURNED)


@pytest.mark.parametrize("state", [S.PLANNED, S.CHECKPOINTING])
def test_a_job_that_cannot_be_requeued_is_cancelled(state: S) -> None:
    for of in (chosen(requeueable=False), chosen(batch=False)):
        late = StepContext(latest=after(-1), kill_when_late=True)
        assert step(state, of, context=late, of=of) == Step(
            S.VACATING, Command.CANCEL, note="" if state is S.PLANNED else
            "its checkpoint is late; requeued without it, as the configuration allows"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("context", "action", "expected"),
    [
        (replace(CONTEXT, may_kill=False), Action.KILL, None),
        (replace(CONTEXT, may_ask=False), Action.APP_CHECKPOINT, None),
        (StepContext(latest=NOW), Action.END, None),
        (StepContext(latest=after(-1)), Action.END, Step(S.PLANNED, stuck=True, note="it did not end in time")),
    ],
    ids=["kills wait for what is open", "one checkpoint at a time", "just in time", "an end that is late"],
)
def test_what_waits(context: StepContext, action: Action, expected: Step | None) -> None:
    assert step(S.PLANNED, chosen(SIGNAL), action, context, of=chosen(SIGNAL)) == expected


LATE = StepContext(latest=after(-1))
KILLS = Step(S.VACATING, Command.REQUEUE)


@pytest.mark.parametrize(
    ("claims", "context", "expected"),
    [
        pytest.param(f"{SIGNAL},state=saving,asked={T}", CONTEXT, None, id="it saves"),
        pytest.param(f"{SIGNAL},state=saved,asked={T},last={T + 9}", CONTEXT, KILLS, id="it saved"),
        pytest.param(f"{SIGNAL},state=saved,asked={T - 60},last={T - 50}", CONTEXT, None, id="an older checkpoint"),
        pytest.param(
            f"{SIGNAL},state=saving,asked={T},last={T - 50}", CONTEXT, None, id="an older one, a new one begun"
        ),
        pytest.param(
            f"{SIGNAL},state=saved,asked={T - 60},last={T + 1}", CONTEXT, None, id="begun before it was asked"
        ),
        pytest.param(f"{INTERVAL},last={T + 1}", CONTEXT, KILLS, id="its own pace: saved"),
        pytest.param(f"{INTERVAL},last={T}", CONTEXT, None, id="its own pace: not since"),
        pytest.param(
            f"{SIGNAL},state=failed,asked={T}",
            CONTEXT,
            Step(S.CHECKPOINTING, stuck=True, note="its checkpoint failed"),
            id="it failed",
        ),
        pytest.param(f"{SIGNAL},state=failed,asked={T - 60}", CONTEXT, None, id="it failed another time"),
        pytest.param(
            f"{SIGNAL},state=failed,asked={T}",
            replace(CONTEXT, kill_when_late=True),
            replace(KILLS, note="its checkpoint failed; requeued without it, as the configuration allows"),
            id="it failed, killing is allowed",
        ),
        pytest.param(
            f"{SIGNAL},state=failed,asked={T}",
            replace(CONTEXT, kill_when_late=True, may_kill=False),
            Step(S.CHECKPOINTING, stuck=True, note="its checkpoint failed"),
            id="it failed, but others could still make a kill unnecessary",
        ),
        pytest.param(SIGNAL, LATE, Step(S.CHECKPOINTING, stuck=True, note="its checkpoint is late"), id="late"),
        pytest.param(
            SIGNAL,
            replace(LATE, kill_when_late=True, may_kill=False),
            replace(KILLS, note="its checkpoint is late; requeued without it, as the configuration allows"),
            id="late, killing is allowed",
        ),
        pytest.param(f"{SIGNAL},state=saved,asked={T},last={T}", LATE, KILLS, id="late, but saved"),
        pytest.param(
            "clearway:state", LATE, Step(S.CHECKPOINTING, stuck=True, note="its checkpoint is late"), id="bad"
        ),
        pytest.param("clearway:state", CONTEXT, None, id="unreadable: not saved"),
    ],
)
def test_checkpointing(claims: str, context: StepContext, expected: Step | None) -> None:
    found = step(
        S.CHECKPOINTING, chosen(claims), Action.APP_CHECKPOINT, context, after(30) if context.latest > NOW else NOW,
        asked_at=NOW, attempted_at=NOW, attempts=1,
    )  # fmt: skip
    assert found == expected


def test_a_job_that_saves_itself_since_it_was_to_be_asked_is_not_asked_again() -> None:
    """The daemon died in the middle of a batch: some of its jobs had been asked."""
    told = chosen(f"{SIGNAL},state=saving,asked={T}")
    assert step(S.CHECKPOINTING, told, Action.APP_CHECKPOINT, asked_at=NOW) is None
    asks = Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)
    assert step(S.CHECKPOINTING, told, Action.APP_CHECKPOINT, asked_at=after(60)) == asks  # what it says is older


def test_a_request_that_was_intended_and_not_made_is_made() -> None:
    found = step(S.CHECKPOINTING, chosen(SIGNAL), Action.APP_CHECKPOINT, asked_at=after(-1))
    assert found == Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)


@pytest.mark.parametrize(
    ("state", "seen", "ago_s", "attempts", "expected"),
    [
        (S.VACATING, RUNS, 4, 1, None),
        (S.VACATING, RUNS, 5, 1, Step(S.VACATING, Command.REQUEUE)),
        (S.VACATING, RUNS, 5, 4, Step(S.VACATING, Command.REQUEUE)),
        (S.VACATING, RUNS, 5, 5,
         Step(S.FAILED, stuck=True, note="still running after 5 attempts to requeue it", void=True)),
        (S.VACATING, chosen(state=J.UNKNOWN), 4, 1, None),
        (S.QUEUED, LATER, 4, 1, None),
        (S.QUEUED, LATER, 5, 1, Step(S.QUEUED, Command.START_NOW)),
        (S.QUEUED, LATER, 24, 5, None),
        (S.QUEUED, LATER, 25, 5, Step(S.QUEUED, Command.START_NOW)),
    ],
)  # fmt: skip
def test_commands_are_repeated_and_given_up(
    state: S, seen: Job, ago_s: float, attempts: int, expected: Step | None
) -> None:
    tried = {"attempted_at": after(-ago_s), "attempts": attempts, "waits_until": LATER.eligible_time}
    assert step(state, seen, **tried) == expected


@pytest.mark.fault(
    "All five attempts to lift the wait after a requeue were spent within 25 s, before the job could start again.",
    found_by="trial",
)
def test_slurms_wait_is_lifted_soon_after_that_becomes_possible() -> None:
    p = replace(preemption(chosen(), state=S.QUEUED), waits_until=after(121))
    waits = replace(LATER, eligible_time=after(121))
    tried: list[int] = []
    for second in range(130):
        found = next_step(p, waits, after(second), StepContext(latest=after(999)))
        if found is not None:
            assert found.command is Command.START_NOW
            tried.append(second)
            p = replace(p, attempted_at=after(second), attempts=len(tried))
    assert tried == [0, 5, 15, 30, 50, 75, 105], "ever later, until Slurm's own wait is over"


def test_the_clocks_of_nodes_count_whole_seconds() -> None:
    asked = NOW + timedelta(seconds=0.9)
    claims = Claims(last=NOW)
    assert not checkpointed_since(claims, asked)
    assert checkpointed_since(Claims(last=after(1)), asked)
    assert not checkpointed_since(None, asked)


# -- jobs that give no answer --------------------------------------------------------------------------------------

MARKED = "clearway:checkpoint=signal,signal=USR1,to=batch,grace=20"
RUN_AGAIN = Step(S.VACATING, Command.RUN_AGAIN)


def over(word: str, **fields: Any) -> Job:
    return replace(chosen(MARKED), state=J.ENDED, raw_state=word, **fields)


LEAVES = Step(S.VACATING, Command.REQUEUE, note="it has had its time to save itself")


@pytest.mark.parametrize(
    ("state", "seen", "asked_s", "tried_s", "expected"),
    [
        pytest.param(S.CHECKPOINTING, chosen(MARKED), 19, 19, None, id="it has its time"),
        pytest.param(S.CHECKPOINTING, chosen(MARKED), 20, 20, LEAVES, id="its time is over"),
        pytest.param(
            S.CHECKPOINTING, chosen(MARKED), 20, None, Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT), id="not asked yet"
        ),
        pytest.param(S.CHECKPOINTING, chosen(MARKED, state=J.COMPLETING), 3, 3, None, id="on its way out"),
        pytest.param(
            S.CHECKPOINTING,
            chosen(MARKED, state=J.PENDING, restart_count=1, start_time=None),
            3,
            3,
            Step(S.VACATING, note="it put itself back in the queue"),
            id="requeued itself",
        ),
        pytest.param(S.CHECKPOINTING, over("COMPLETED"), 3, 3, RUN_AGAIN, id="ended"),
        pytest.param(S.CHECKPOINTING, over("FAILED"), 3, 3, RUN_AGAIN, id="failed"),
        pytest.param(S.CHECKPOINTING, over("FAILED", comment=SIGNAL), 3, 3, RUN_AGAIN, id="its owner wrote meanwhile"),
        pytest.param(S.PLANNED, over("FAILED"), 3, None, RUN_AGAIN, id="replanned"),
        pytest.param(S.VACATING, over("FAILED"), 3, None, RUN_AGAIN, id="spared"),
        pytest.param(S.VACATING, chosen(MARKED), 19, None, None, id="spared, and it goes on"),
        pytest.param(
            S.VACATING, chosen(MARKED), 20, None, Step(S.VACATING, Command.REQUEUE), id="spared, and time is up"
        ),
        pytest.param(S.VACATING, over("FAILED"), 9, 5, RUN_AGAIN, id="once more"),
        pytest.param(S.VACATING, over("FAILED"), 9, 4, Step(S.VACATING), id="just tried"),
    ],
)
def test_a_job_without_an_answer(
    state: S, seen: Job, asked_s: float, tried_s: float | None, expected: Step | None
) -> None:
    tried = {} if tried_s is None else {"attempted_at": after(-tried_s), "attempts": 1}
    found = step(state, seen, Action.APP_CHECKPOINT, of=chosen(MARKED), asked_at=after(-asked_s), **tried)
    assert found == expected


@pytest.mark.parametrize(
    "seen",
    [
        *(over(word) for word in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")),
        over("COMPLETED", restart_count=1),
        over("COMPLETED", start_time=after(-5)),
        over("COMPLETED", requeueable=False),
        over("COMPLETED", comment=f"{SIGNAL},run=0"),
        over("COMPLETED", comment=f"{MARKED},run=0"),
        None,
    ],
)
def test_an_end_that_is_not_the_answer_is_its_end(seen: Job | None) -> None:
    """Another hand's, another run's, or that of a job whose launcher answers by now; also where it was forgotten."""
    for state in (S.CHECKPOINTING, S.VACATING):
        found = step(state, seen, Action.APP_CHECKPOINT, of=chosen(MARKED), asked_at=after(-3))
        assert found is not None
        assert (found.state, found.command) == (S.ENDED, None)
    unasked = step(S.PLANNED, over("COMPLETED"), of=chosen(MARKED))
    assert unasked is not None
    assert unasked.state is S.ENDED, "it has ended by itself"


# -- what no row may do ------------------------------------------------------------------------------------------

times = st.integers(-100, 400).map(after)
comments = st.sampled_from(
    ["", "clearway:nonsense", SIGNAL, INTERVAL]
    + [f"{how},state={state},asked={T + d},last={T + d}" for how in (SIGNAL, INTERVAL) for state in ("saved", "failed")
       for d in (-50, 5)]
)  # fmt: skip
sightings = st.one_of(
    st.none(),
    st.builds(
        lambda state, runs, start, comment, priority: chosen(
            comment, state=state, restart_count=runs, start_time=start, priority=priority
        ),
        st.sampled_from(JobState),
        st.integers(0, 1),
        st.sampled_from([after(-3_600), NOW, None]),
        comments,
        st.sampled_from([0, 100]),
    ),
)
contexts = st.builds(
    StepContext,
    latest=times,
    may_ask=st.booleans(),
    may_kill=st.booleans(),
    kill_when_late=st.booleans(),
    retry_after=st.just(timedelta(seconds=5)),
    give_up_after=st.integers(1, 3),
)
preemptions = st.builds(
    lambda comment, requeueable, batch, **fields: preemption(
        chosen(comment, requeueable=requeueable, batch=batch), **fields
    ),
    comment=comments,
    requeueable=st.booleans(),
    batch=st.booleans(),
    action=st.sampled_from(Action),
    state=st.sampled_from(S),
    attempted_at=st.one_of(st.none(), times),
    attempts=st.integers(0, 4),
    asked_at=st.one_of(st.none(), times),
)
ENDING = (Command.REQUEUE, Command.CANCEL)


@settings(max_examples=400)
@given(preemptions, st.lists(st.tuples(sightings, st.integers(0, 60), contexts), min_size=1, max_size=12))
def test_only_the_chosen_run_is_ever_ended(p: Preemption, seen: list[tuple[Job | None, int, StepContext]]) -> None:
    now, ended = NOW, False
    assert seen
    for sighting, seconds, rule in seen:
        now += timedelta(seconds=seconds)
        before = copy.deepcopy((p, sighting))
        found = next_step(p, sighting, now, rule)
        assert (p, sighting) == before, "was changed"
        assert found == next_step(p, sighting, now, rule), "always the same answer"
        if found is None:
            continue
        assert not p.state.terminal
        preemption_entered(p, found.state, now)  # a step that the table has
        if found.command in ENDING:
            assert sighting is not None
            assert sighting.run == p.job.run
            assert sighting.state is JobState.RUNNING
            assert found.state is S.VACATING, "past the point of no return from here on"
            assert (found.command is Command.REQUEUE) == sighting.can_be_requeued, "as it is now, not as it was planned"
            ended = True
        if found.command is Command.ASK_CHECKPOINT:
            assert sighting is not None
            assert (sighting.run, sighting.state) == (p.job.run, JobState.RUNNING)
        if found.command is Command.START_NOW:
            assert sighting is not None
            assert sighting.state is JobState.PENDING
        p = replace(
            p,
            state=found.state,
            asked_at=now if found.state is S.CHECKPOINTING and p.state is not found.state else p.asked_at,
            attempted_at=now if found.command else None if found.state is not p.state else p.attempted_at,
            attempts=p.attempts + 1 if found.command else p.attempts,
        )
        assert not (ended and p.state.cancellable), "what was requeued cannot be called back"


def test_only_what_was_not_requeued_can_be_cancelled() -> None:
    assert {state for state in S if state.cancellable} == {S.PLANNED, S.CHECKPOINTING}


# -- what counts as Clearway's doing ------------------------------------------------------------------------------


def ended(word: str, restarts: int = 0) -> Job:
    return chosen(state=J.ENDED, restart_count=restarts, raw_state=word)


HOW = {
    "COMPLETED": "ended by itself",
    "FAILED": "ended by itself",
    "TIMEOUT": "was ended by its time limit",
    "NODE_FAIL": "ended because a node failed",
    "CANCELLED": "was cancelled",
}


@pytest.mark.parametrize("answer", list(Answer))
@pytest.mark.parametrize("word", HOW)
def test_a_run_that_ended_was_not_requeued(word: str, answer: Answer) -> None:
    found = step(S.VACATING, ended(word), answer=answer)
    assert found == Step(S.ENDED, note=f"{HOW[word]} before it had left ({word})", void=True)


@pytest.mark.parametrize("word", [*HOW, None])
@pytest.mark.parametrize("state", [S.PLANNED, S.CHECKPOINTING, S.QUEUED])
@pytest.mark.fault(
    "A job that was cancelled, timed out or lost its node was said to have ended by itself.", found_by="trial"
)
def test_a_job_has_ended_by_itself_only_where_slurm_says_so(word: str | None, state: S) -> None:
    found = step(state, None if word is None else ended(word, int(state is S.QUEUED)))
    assert found is not None
    assert (found.state, found.command) == (S.ENDED, None)
    assert ("ended by itself" in found.note) is (word in ("COMPLETED", "FAILED"))
    assert word is None or HOW[word] in found.note


def test_a_job_that_was_to_end_in_time_may_be_cancelled() -> None:
    notes = {word: step(S.PLANNED, ended(word), Action.END) for word in ("COMPLETED", "TIMEOUT", "CANCELLED")}
    assert {word: found and found.note for word, found in notes.items()} == {
        "COMPLETED": "ended by itself, as planned",
        "TIMEOUT": "was ended by its time limit, as planned",
        "CANCELLED": "was cancelled",
    }


def test_a_requeued_job_that_is_cancelled_in_the_queue_was_preempted() -> None:
    for answer in (Answer.TAKEN, Answer.OPEN):
        found = step(S.VACATING, ended("CANCELLED", 1), answer=answer)
        assert found is not None
        assert (found.state, found.void) == (S.ENDED, False)
    refused = step(S.VACATING, ended("CANCELLED", 1), answer=Answer.REFUSED)  # another hand has requeued it
    assert refused is not None
    assert refused.void


@pytest.mark.parametrize(("word", "void"), [("CANCELLED", False), ("COMPLETED", True), ("TIMEOUT", True)])
def test_a_job_that_can_only_be_cancelled(word: str, void: bool) -> None:
    of, seen = chosen(requeueable=False), ended(word)
    found = step(S.VACATING, seen, answer=Answer.TAKEN, of=of)
    assert found is not None
    assert found.void is void
    refused = step(S.VACATING, seen, answer=Answer.REFUSED, of=of)
    assert refused is not None
    assert refused.void


def test_of_a_forgotten_job_the_answers_tell() -> None:
    told = {answer: step(S.VACATING, None, answer=answer) for answer in Answer}
    assert {answer: found is not None and found.void for answer, found in told.items()} == {
        Answer.OPEN: True, Answer.TAKEN: False, Answer.REFUSED: True,
    }  # fmt: skip


@pytest.mark.parametrize(("seen", "state"), [(WAITS, S.VACATED), (RUNS_AGAIN, S.RETURNED)])
def test_who_has_requeued_it(seen: Job, state: S) -> None:
    for answer in (Answer.TAKEN, Answer.OPEN):
        assert step(S.VACATING, seen, answer=answer) == Step(state)
    refused = step(S.VACATING, seen, answer=Answer.REFUSED)
    assert refused == Step(state, note="it was requeued outside Clearway", void=True)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (["ok"], Answer.TAKEN),
        (["refused"], Answer.REFUSED),
        (["refused", "refused"], Answer.REFUSED),
        (["error"], Answer.OPEN),
        (["error", "refused"], Answer.OPEN),  # the first may have been carried out
        ([None, "refused"], Answer.OPEN),  # the daemon was killed before the answer
        (["refused", "error"], Answer.OPEN),
        (["ok", "error", "refused"], Answer.TAKEN),
    ],
)
def test_what_the_answers_tell(results: list[str | None], expected: Answer) -> None:
    p, requeue = preemption(chosen(), Action.KILL, state=S.VACATING), Step(S.VACATING, Command.REQUEUE)
    for result in results:
        before, p = p, with_intent(p, requeue, RUNS)
        p = with_answer(before, p, requeue.command, result) if result else p
    assert p.answer is expected


# -- the first place in the queue ---------------------------------------------------------------------------------

WAITS_FIRST = replace(CONTEXT, first=True)


def test_a_nice_is_given_once_and_put_back_while_it_is_that() -> None:
    waits = chosen(state=J.PENDING, restart_count=1, priority=500, nice=100)
    asks = Step(S.VACATED, Command.FIRST_IN_QUEUE)
    assert step(S.VACATED, waits, context=WAITS_FIRST) == asks
    ours = first_nice(waits)
    nices = {"nice_before": 100, "nice_given": ours}
    assert step(S.VACATED, waits, context=WAITS_FIRST, **nices) == asks, "the daemon was killed before it gave it"
    assert step(S.VACATED, waits, context=WAITS_FIRST, attempts=1, state_since=after(-1), **nices) is None
    runs = chosen(restart_count=1, start_time=NOW, priority=500, nice=ours)
    back = Step(S.QUEUED, Command.USUAL_PRIORITY)
    assert step(S.QUEUED, runs, **nices) == back
    assert step(S.QUEUED, runs, attempts=50, attempted_at=after(-60), **nices) == back, "it is never given up"
    for nice in (100, 300):
        assert step(S.QUEUED, replace(runs, nice=nice), **nices) == Step(S.RETURNED)
    held = replace(runs, state=J.PENDING, priority=0)
    assert step(S.HELD, held, context=replace(CONTEXT, unwatched=True), **nices) is None
    released = replace(held, priority=500)
    assert step(S.HELD, released, context=replace(CONTEXT, unwatched=True), **nices) == Step(S.HELD, back.command)


@pytest.mark.parametrize(("nice", "priority"), [(0, 11_462), (100, 11_462), (-50, 4_294_901_657), (7, FIRST)])
def test_a_nice_raises_no_priority_above_the_first(nice: int, priority: int) -> None:
    low = first_nice(chosen(nice=nice, priority=priority))
    assert LOWEST_NICE <= low <= nice
    assert priority + nice - low <= FIRST
    assert low == LOWEST_NICE or priority + nice - low == FIRST
