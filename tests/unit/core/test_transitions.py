"""The tables of states: no dead end, no state that is never reached, and no step beside them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest

from clearway.execution.progress import OPERATIONS, PREEMPTIONS, entered, preemption_entered, superseded
from clearway.model.errors import TransitionError
from clearway.model.operations import EvictionState, OperationKind, PreemptionState
from docs.reference.diagrams import FIRST_STATES
from tests.builders import NOW, after, eviction, preemption

E = EvictionState
S = PreemptionState


def reached(first: set[StrEnum], table: Mapping[StrEnum, Mapping[StrEnum, str]]) -> set[StrEnum]:
    found, waiting = set(first), list(first)
    while waiting:
        fresh = table.get(waiting.pop(), {}).keys() - found
        found |= fresh
        waiting += fresh
    return found


@pytest.mark.parametrize("kind", OperationKind)
def test_every_state_of_an_operation_is_reached_and_left(kind: OperationKind) -> None:
    table = OPERATIONS[kind]
    states = reached(set(FIRST_STATES[kind]), table)
    assert table.keys() <= states
    assert {state for state in states if not table.get(state)} == {state for state in states if state.terminal}
    for state in states:
        assert any(end.terminal for end in reached({state}, table))


def test_every_state_of_a_preemption_is_reached_and_left() -> None:
    assert reached({S.PLANNED}, PREEMPTIONS) == set(S)
    assert {state for state in S if not PREEMPTIONS.get(state)} == {S.RETURNED, S.ENDED, S.FAILED}
    for state in S:
        assert any(end.terminal for end in reached({state}, PREEMPTIONS))


def test_a_step_beside_the_table_is_refused() -> None:
    with pytest.raises(TransitionError, match="eviction 7 cannot go from completed to placing"):
        entered(eviction(state=E.COMPLETED, eviction_id=7), E.PLACING, NOW)
    with pytest.raises(TransitionError, match="job 101 cannot go from returned to vacating"):
        preemption_entered(preemption(state=S.RETURNED), S.VACATING, NOW)
    with pytest.raises(TransitionError, match="from vacating to planned"):
        preemption_entered(preemption(state=S.VACATING), S.PLANNED, NOW)


def test_what_is_put_aside_says_why() -> None:
    done = superseded(eviction(state=E.PROPOSED), "the job is held", after(5))
    assert (done.state, done.state_since, done.finished_at) == (E.SUPERSEDED, after(5), after(5))
    assert (done.outcome, done.why) == ("Not carried out: the job is held.", "the job is held")
