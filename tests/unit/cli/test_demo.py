"""A demo that is interrupted: nothing stays behind, and it does not claim a success that nobody saw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from clearway.cli.demo import Story, what_failed
from clearway.model.clock import ScaledClock
from clearway.model.problem import Action, Candidate, Option
from clearway.simulation import theta


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_cleans_up_and_is_no_success(tmp_path: Path, number: signal.Signals) -> None:
    # Simulated seconds as slow as real ones: it cannot have succeeded before it is interrupted.
    # Nor may it ignore Ctrl-C, as tests do that were themselves started in the background.
    python = ["env", "--default-signal", sys.executable, "-c", "from clearway.cli.app import main; main()"]
    command = [*python, "simulate-cluster", "--once"]
    process = subprocess.Popen(
        [*command, "--speed", "1"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert any("needs 2,048 nodes" in line for line in process.stdout)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "Traceback" not in complaints
    assert not list(tmp_path.iterdir())


def test_a_job_that_left_for_an_earlier_plan_counts_as_that_plan_says() -> None:
    world = theta.demo_cluster(datetime(2026, 1, 1, tzinfo=UTC), seed=1)
    story = Story(Console(file=StringIO()), cast("Any", None), world, ScaledClock(datetime.now(UTC), 60.0), 60.0)
    saved = Option(Action.APP_CHECKPOINT, checkpoint_s=30)
    story.remember([Candidate("1", 1, (kill(10.0), saved)), Candidate("2", 1, (kill(5.0),)), Candidate("3", 1, ())])
    story.remember([Candidate("2", 1, (kill(7.0),)), Candidate("4", 1, (kill(90.0),))])
    assert story.killing_would_lose(["1", "2", "3"]) == 15.0


def kill(lost_node_s: float) -> Option:
    return Option(Action.KILL, lost_work_node_s=lost_node_s)


def test_a_demo_that_fails_says_what_failed() -> None:
    assert what_failed(0, over=True, away=0) == ""
    assert what_failed(-12, over=True, away=0).startswith("the urgent job started after its deadline")
    assert what_failed(12, over=False, away=2) == "not all preempted jobs came back"
    assert what_failed(12, over=False, away=0) == "the eviction was not over in time"
