"""The table of an eviction as a whole: its placement, its preemptor's start, its end."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.config.configuration import Config
from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import Phase, placement
from clearway.execution.progress import entered
from clearway.model.cluster import Job, JobState
from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.problem import Action
from clearway.preemption.lifecycle import Observation, next_phase, observe
from tests.builders import NOW, after, eviction, plan, snapshot, urgent_job

S = PreemptionState
E = EvictionState
J = JobState
URGENT = urgent_job()
ATTACHED = replace(URGENT, reservation="clearway_1")
STARTS = replace(ATTACHED, state=J.RUNNING, start_time=after(30), reason="None")
WATCH_S = 3_600.0


def begun(state: E, **fields: Any) -> Eviction:
    return eviction(plan(URGENT), state, **({"eviction_id": 1, "placement": "clearway_1"} | fields))


def observation(
    preemptor: Job | None = ATTACHED, *, placed: bool = True, nodes_free: bool = False, **fields: Any
) -> Observation:
    ours = placement(begun(E.PLACING), NOW, timedelta(minutes=15)) if placed else None
    return Observation(
        **(
            {"preemptor": preemptor, "placement": ours, "nodes_free": nodes_free, "placement_ends": after(1_500)}
            | {"extend_when_ends": after(450)}
            | fields
        )
    )


def phase(e: Eviction, seen: Observation, now: datetime = NOW) -> tuple[E, Command | None] | None:
    before = copy.deepcopy(e)
    found = next_phase(e, seen, now, WATCH_S)
    assert e == before
    return None if found is None else (found.state, found.command)


BEFORE_START = [E.PLACING, E.PREEMPTING, E.STARTING]


@pytest.mark.parametrize("state", [state for state in E if not state.acting])
def test_nothing_is_done_for_what_only_waits_or_is_over(state: E) -> None:
    assert phase(begun(state), observation()) is None


@pytest.mark.parametrize("state", BEFORE_START)
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(observation(None), E.CANCELLING, id="the urgent job is gone"),
        pytest.param(observation(replace(ATTACHED, state=J.ENDED)), E.CANCELLING, id="it has ended"),
        pytest.param(observation(STARTS), E.STARTED, id="it runs"),
        pytest.param(observation(replace(STARTS, state=J.CONFIGURING)), E.STARTED, id="its nodes boot"),
        pytest.param(observation(placement_ends=NOW), E.CANCELLING, id="its placement is over"),
    ],
)
def test_before_the_start(state: E, seen: Observation, expected: E) -> None:
    assert phase(begun(state), seen) == (expected, None)


@pytest.mark.parametrize("state", BEFORE_START)
def test_the_placement_is_made_and_given_to_the_job_first(state: E) -> None:
    assert phase(begun(state), observation(URGENT, placed=False)) == (state, Command.CREATE_PLACEMENT)
    assert phase(begun(state), observation(ATTACHED, placed=False)) == (state, Command.CREATE_PLACEMENT)
    assert phase(begun(state), observation(URGENT)) == (state, Command.ATTACH)
    other = replace(observation().placement, nodes=("elsewhere",))  # type: ignore[type-var]  # it has a placement
    assert phase(begun(state), replace(observation(), placement=other)) == (state, Command.MOVE_PLACEMENT)


@pytest.mark.parametrize(
    ("state", "seen", "now", "expected"),
    [
        (E.PLACING, observation(), NOW, (E.PREEMPTING, None)),
        (E.PLACING, observation(URGENT, placed=False, paused=True), NOW, None),
        (E.PREEMPTING, observation(), NOW, None),
        (E.PREEMPTING, observation(nodes_free=True), NOW, (E.STARTING, None)),
        (E.STARTING, observation(nodes_free=True), NOW, None),
        (E.STARTING, observation(nodes_free=True), after(601), (E.STARTING, None)),  # late: an event says so
        (E.STARTED, observation(STARTS), NOW, (E.STARTED, Command.DETACH)),
        (E.STARTED, observation(replace(STARTS, reservation=None)), NOW, (E.STARTED, Command.DELETE_PLACEMENT)),
        (E.STARTED, observation(None), NOW, (E.STARTED, Command.DELETE_PLACEMENT)),
        (E.STARTED, observation(replace(STARTS, reservation=None), placed=False), NOW, (E.RETURNING, None)),
        (E.CANCELLING, observation(), NOW, (E.CANCELLING, Command.DETACH)),
        (E.CANCELLING, observation(URGENT), NOW, (E.CANCELLING, Command.DELETE_PLACEMENT)),
        (E.CANCELLING, observation(URGENT, placed=False), NOW, None),  # preempted jobs are still out
        (E.RETURNING, observation(None, placed=False), NOW, None),
        (E.RETURNING, observation(None, placed=False), after(3_600), (E.COMPLETED, None)),
    ],
)
def test_phases(state: E, seen: Observation, now: datetime, expected: tuple[E, Command | None] | None) -> None:
    assert phase(begun(state), seen, now) == expected


@pytest.mark.parametrize(
    ("state", "fields", "expected"),
    [
        (E.RETURNING, {}, E.COMPLETED),
        (E.CANCELLING, {}, E.CANCELLED),
        (E.CANCELLING, {"late": True}, E.FAILED),
        (E.CANCELLING, {"late": True, "started_at": NOW}, E.CANCELLED),
    ],
)
def test_the_end(state: E, fields: dict[str, Any], expected: E) -> None:
    e = begun(state, **fields)
    e = replace(e, preemptions=tuple(replace(p, state=S.RETURNED) for p in e.preemptions))
    assert phase(e, observation(None, placed=False)) == (expected, None)


@pytest.mark.parametrize("state", [E.RETURNING, E.CANCELLING])
def test_a_preemptor_that_is_not_seen_is_let_out_before_the_end(state: E) -> None:
    """Where its placement has ended by itself: a job that asks for one that is gone could never start."""
    e = begun(state)
    seen = observation(None, placed=False, hidden=True)
    assert phase(e, seen) is None  # preempted jobs are still out: this is not the end
    e = replace(e, preemptions=tuple(replace(p, state=S.RETURNED) for p in e.preemptions))
    assert phase(e, seen) == (state, Command.DELETE_PLACEMENT)


def test_the_start_is_told_beside_the_deadline() -> None:
    found = next_phase(begun(E.STARTING), observation(STARTS), after(31), WATCH_S)
    assert isinstance(found, Phase)
    assert (found.event, found.started_at) == ("The urgent job started 570.0 s before its deadline.", after(30))
    late = replace(STARTS, start_time=after(700))
    found = next_phase(begun(E.STARTING), observation(late), after(701), WATCH_S)
    assert found is not None
    assert found.event == "The urgent job started 100.0 s after its deadline."


@pytest.mark.parametrize(
    ("state", "job_state", "free"),
    [
        (S.SUSPENDED, J.SUSPENDED, True),
        (S.SUSPENDED, J.RUNNING, False),  # somebody has resumed it
        (S.PLANNED, J.SUSPENDED, False),  # somebody else suspended it, and may resume it at any moment
        (S.PLANNED, J.RUNNING, False),
    ],
)
@pytest.mark.fault(
    "No test saw a change after which nodes count as free beside jobs that somebody else has suspended.",
    found_by="mutation",
)
def test_nodes_are_free_beside_jobs_that_we_suspended_and_no_others(state: S, job_state: J, free: bool) -> None:
    e = begun(E.PREEMPTING)
    first, second = e.preemptions
    e = replace(e, preemptions=(replace(first, state=state, action=Action.SUSPEND), replace(second, state=S.VACATED)))
    seen = snapshot([ATTACHED, replace(first.job, state=job_state)])
    assert observe(e, CycleContext(seen, Config(), NOW), frozenset()).nodes_free is free


@pytest.mark.fault(
    "No test saw a change after which an array counts as started with its first task.", found_by="mutation"
)
def test_an_array_has_started_when_the_last_of_its_tasks_has() -> None:
    e = begun(E.STARTING)
    e = replace(e, plan=replace(e.plan, preemptor=replace(URGENT, pending_tasks=2)))
    inside = tuple(replace(STARTS, job_id=f"90{n}", start_time=after(at)) for n, at in enumerate((700, 30)))
    found = next_phase(e, observation(inside=inside), after(701), WATCH_S)
    assert found is not None
    assert found.event == "2 task(s) of the urgent job started 100.0 s after its deadline."
    assert found.started_at == after(700)


@pytest.mark.parametrize(("ordinary", "called"), [(False, "The urgent job"), (True, "The ordinary job")])
def test_whoever_waits_is_called_what_it_is(ordinary: bool, called: str) -> None:
    e = begun(E.PREEMPTING)
    e = replace(e, plan=replace(e.plan, ordinary=ordinary))
    told = [
        (observation(None), NOW, "is gone."),
        (observation(in_vain=Outcome(OutcomeCode.POINTLESS, f"{called} is held")), NOW, "is held."),
        (observation(replace(ATTACHED, num_nodes=99)), NOW, "was changed."),
        (observation(replace(STARTS, start_time=None)), NOW, "started."),
        (observation(placement_ends=NOW), NOW, "did not start before its placement ended."),
        (observation(), after(601), "did not start by its deadline; it waits on."),
    ]
    for seen, now, words in told:
        found = next_phase(e, seen, now, WATCH_S)
        assert found is not None
        assert (found.event or (found.outcome.sentence if found.outcome else "")) == f"{called} {words}"


times = st.integers(-100, 400).map(after)
urgents = st.one_of(
    st.none(),
    st.builds(
        lambda state, reservation, start: replace(URGENT, state=state, reservation=reservation, start_time=start),
        st.sampled_from(JobState),
        st.sampled_from([None, "clearway_1", "other"]),
        st.one_of(st.none(), times),
    ),
)


@given(
    st.sampled_from(E),
    urgents,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    times,
    times,
    st.lists(st.tuples(st.sampled_from(S), st.sampled_from(Action)), min_size=2, max_size=2),
)
def test_a_placement_is_never_deleted_under_its_job(
    state: E,
    urgent: Job | None,
    placed: bool,
    free: bool,
    paused: bool,
    ends: datetime,
    now: datetime,
    leaving: list[tuple[S, Action]],
) -> None:
    """Nor left behind: it is gone when the eviction ends, whatever was planned for its jobs and seen of them."""
    e = begun(state)
    jobs = zip(e.preemptions, leaving, strict=True)
    e = replace(e, preemptions=tuple(replace(p, state=s, action=action) for p, (s, action) in jobs))
    seen = observation(urgent, placed=placed, nodes_free=free, paused=paused, placement_ends=ends)
    found = next_phase(e, seen, now, WATCH_S)
    if found is None:
        return
    assert state.acting
    entered(e, found.state, now)  # a step that the table has
    attached = urgent is not None and urgent.state is not J.ENDED and urgent.reservation == e.placement
    if found.command is Command.DELETE_PLACEMENT:
        assert not attached
        assert state not in BEFORE_START
    if found.command is Command.DETACH:
        assert attached
    if found.state.terminal:
        assert not placed
        assert not attached, "nothing of ours is left"
    if found.command in (Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT, Command.ATTACH) and not e.suspended_nodes:
        assert urgent is not None
        assert urgent.state is J.PENDING
