"""When a preempted job is expected to run again."""

from __future__ import annotations

from datetime import timedelta

from clearway.estimates.learning import History, Requeued, runs_again
from clearway.model.operations import PreemptionState
from clearway.model.problem import Action
from tests.builders import NOW, after, preemption


def test_by_what_others_waited() -> None:
    history = History(requeued=tuple(Requeued(1, 600.0) for _ in range(20)))
    left = preemption(state=PreemptionState.QUEUED, requeued_at=NOW, vacated_at=after(10))
    assert runs_again(left, None, history, after(20))[0] == after(610)
    at, why = runs_again(left, None, history, after(700))
    assert at is None
    assert "longer than most" in why
    assert runs_again(left, None, History(), NOW)[1].startswith("Too few")


def test_a_suspended_job_goes_on_when_the_urgent_one_has_ended() -> None:
    suspended = preemption(action=Action.SUSPEND, state=PreemptionState.SUSPENDED, requeued_at=NOW)
    end = NOW + timedelta(hours=1)
    assert runs_again(suspended, end, History(), NOW)[0] == end
    assert runs_again(suspended, None, History(), NOW)[0] is None


def test_nothing_of_a_job_that_runs() -> None:
    for state in (PreemptionState.PLANNED, PreemptionState.RETURNED, PreemptionState.ENDED):
        assert runs_again(preemption(state=state), None, History(), NOW) == (None, "")
