"""What ``clearway explain`` says in its tables."""

from __future__ import annotations

import pytest
from rich.console import Console

from clearway.api.schemas import WholePlanView
from clearway.api.views import explanation_view, plan_view
from clearway.cli.explain import tables
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.explanation import explain
from tests.builders import plan


def page(problem: EvictionProblem, capsys: pytest.CaptureFixture[str]) -> list[str]:
    curve = EvictionDP().solve(problem)
    chosen = curve.choose()
    assert chosen is not None
    made = plan(problem=problem, curve=curve, chosen=chosen)
    shown = plan_view(made, WholePlanView)
    Console(width=80).print(tables(shown, explanation_view(0, made, explain(made, EvictionDP())), {}))
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_cheapest_way_is_one_that_there_is_time_for(capsys: pytest.CaptureFixture[str]) -> None:
    late = (
        Option(Action.KILL, 7_200),
        Option(Action.APP_CHECKPOINT, checkpoint_s=121),
        Option(Action.END, ready_s=121),
    )
    lines = page(
        EvictionProblem(1, 120, 60, (Candidate("1", 1, (Option(Action.KILL, 3_600),)), Candidate("2", 1, late))), capsys
    )
    assert "2 1 requeue without checkpoint 2.0 +1.0 node-hours" in lines


def test_a_small_difference_is_not_shown_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [Candidate(job_id, 1, (Option(Action.KILL, lost),)) for job_id, lost in (("1", 40), ("2", 76), ("3", 400))]
    lines = page(EvictionProblem(1, 0, 60, tuple(jobs)), capsys)
    assert "1 1 requeue without checkpoint 0.0 +0.01 node-hours" in lines
    assert "3 1 requeue without checkpoint 0.1 +0.1 node-hours" in lines
