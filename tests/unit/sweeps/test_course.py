"""How far all experiments are, and how long the rest takes: by a clock that a test sets, and what is shown of it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clearway_lab.commands import reports as experiment_reports
from clearway_lab.commands.options import SweepOptions
from clearway_lab.commands.progress import LAST_S, LINE_EVERY_S, Course, CourseShown, expected
from clearway_lab.sweeps.local import Answered

EXPERIMENTS = ("cosim", "stochastic", "compaction", "drain", "promises", "urgent", "realtime")
PARTS = {"first": [10.0, 30.0], "second": [60.0]}


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def parts() -> dict[str, list[float]]:
    return {name: list(seconds) for name, seconds in PARTS.items()}


def test_every_experiment_has_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in EXPERIMENTS:
        monkeypatch.setattr(experiment_reports, name, lambda *_: [])
    entries = experiment_reports.every(tmp_path, tmp_path, 3, 5, SweepOptions(processes=1, quiet=True))
    assert [entry.name for entry in entries] == list(EXPERIMENTS)
    assert sorted(LAST_S) == sorted(EXPERIMENTS)
    one, two = (expected({"urgent": 3}, processes) for processes in (1, 2))
    assert sum(one["urgent"]) == 2 * sum(two["urgent"]) > 2.9 * sum(expected({"urgent": 1}, 2)["urgent"])
    assert one["cosim"] == two["cosim"], "it is measured alone"


@given(speed=st.floats(0.1, 10))
def test_the_estimate_becomes_right_on_a_machine_of_any_speed(speed: float) -> None:
    clock = Clock()
    course = Course(parts(), clock)
    assert course.left_s == 100, "as last measured"
    course.begin("first")
    for part, seconds in enumerate(PARTS["first"]):
        course.next_part()
        for share in (0.5, 1.0):
            clock.now_s += seconds / 2 * speed
            course.reached(share)
            done = sum(PARTS["first"][:part]) + share * seconds
            assert course.share == pytest.approx(done / 100)
            true_s = (100 - done) * speed
            first_guess_s = 100.0 - done
            assert min(true_s, first_guess_s) - 1e-6 <= course.left_s <= max(true_s, first_guess_s) + 1e-6
    course.end(made=True)
    course.begin("second")
    course.next_part()
    clock.now_s += 60 * speed
    course.reached(1.0)
    course.end(made=True)
    assert (course.share, course.left_s) == (1.0, 0.0)
    assert course.passed_s == pytest.approx(100 * speed)


def test_an_experiment_that_is_left_out_counts_for_nothing() -> None:
    clock = Clock()
    course = Course(parts(), clock)
    course.begin("first")
    course.end(made=False)
    assert (course.share, course.left_s) == (0.0, 60.0)
    course.begin("second")
    course.end(made=True)
    assert course.share == 1.0


def test_more_sweeps_than_were_known_are_no_error() -> None:
    course = Course(parts(), Clock())
    course.begin("second")
    for _ in range(3):
        course.next_part()
        course.reached(1.0)
    assert course.share == 0.6


def run(shown: CourseShown, clock: Clock) -> None:
    """Two answers a second for a minute."""
    shown.begin("first")
    with shown.open() as tell:
        for done in range(1, 121):
            clock.now_s += 0.5
            tell(Answered(done, 120, f"task {done}", done / 120))
    shown.end(made=True)


def test_elsewhere_than_on_a_terminal_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    run(CourseShown(Course(parts(), clock), silent=False, console=Console(file=io.StringIO())), clock)
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert lines[0] == "clearway: 0 %, 0:00 passed, about 1:40 left: first".replace(" %", "%")
    assert len(lines) == 1 + 60 // LINE_EVERY_S
    assert lines[2].endswith("left: first, task 60")


def test_on_a_terminal_one_line_is_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    clock, screen = Clock(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    run(CourseShown(Course(parts(), clock), silent=False, console=console), clock)
    assert "first, task 120" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K"), "and is gone at the end"
    assert len(capsys.readouterr().err.splitlines()) == 1, "what was said before the line was there"


def test_nothing_is_shown_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    clock, screen = Clock(), io.StringIO()
    run(CourseShown(Course(parts(), clock), silent=True, console=Console(file=screen, force_terminal=True)), clock)
    assert (screen.getvalue(), capsys.readouterr().err) == ("", "")
