"""A demo that is interrupted: nothing stays behind, and it does not claim a success that nobody saw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clearway.cli.demo import what_failed


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


def test_a_demo_that_fails_says_what_failed() -> None:
    assert what_failed(0, over=True, away=0) == ""
    assert what_failed(-12, over=True, away=0).startswith("the urgent job started after its deadline")
    assert what_failed(12, over=False, away=2) == "not all preempted jobs came back"
    assert what_failed(12, over=False, away=0) == "the eviction was not over in time"
