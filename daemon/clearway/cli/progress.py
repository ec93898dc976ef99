"""Progress on standard error: a bar on a terminal, lines elsewhere, or nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clearway.cli import render
from clearway.experiments.course import Course
from clearway.experiments.sweeps.base import Answered

Progress: TypeAlias = Callable[[], AbstractContextManager[Callable[[Answered], None]]]

LINE_EVERY_S = 15.0


def tell(line: str) -> None:
    print(render.visible(line), file=sys.stderr, flush=True)


@contextmanager
def sweep_progress(*, lines: bool, silent: bool) -> Iterator[Callable[[Answered], None]]:
    """A bar on a terminal; elsewhere a line for every answer, where ``lines`` are wanted. Nothing if ``silent``."""
    console = Console(stderr=True)
    if silent:
        yield lambda _: None
        return
    if not console.is_terminal:
        yield lambda last: tell(f"{last.done} of {last.total}: {last.what}") if lines else None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with _bar(console, *columns, TextColumn("{task.description}")) as progress:
        task = progress.add_task("starting", total=None)

        def show(last: Answered) -> None:
            if last.done == 1:  # another sweep begins
                progress.reset(task, total=last.total)
            progress.update(task, completed=last.done, total=last.total, description=render.visible(last.what))

        yield show


@contextmanager
def replay_bar(what: str, jobs: int, worth: int, *, silent: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on a terminal, for long runs."""
    console = Console(stderr=True)
    if silent or jobs < worth or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _bar(console, *columns) as progress:
        task = progress.add_task(what, total=jobs)
        yield lambda ended: progress.update(task, completed=ended)


class CourseShown:
    """The course of all experiments: one line on a terminal, which is written anew; elsewhere a line now and then."""

    def __init__(self, course: Course, *, silent: bool, console: Console | None = None) -> None:
        self._course = course
        self._silent = silent
        self._console = console or Console(stderr=True)
        self._update: Callable[[str], None] = self._now_and_then
        self._told_s = float("-inf")

    @contextmanager
    def open(self) -> Iterator[Callable[[Answered], None]]:
        """Shown until this block ends."""
        if self._silent or not self._console.is_terminal:
            yield self._answered
            return
        with _bar(self._console, BarColumn(), TextColumn("{task.description}", markup=False)) as progress:
            task = progress.add_task("", total=1.0)

            def update(what: str) -> None:
                progress.update(task, completed=self._course.share, description=render.visible(self._line(what)))

            self._update = update
            try:
                yield self._answered
            finally:
                self._update = self._now_and_then

    def begin(self, experiment: str) -> None:
        self._course.begin(experiment)
        self._told_s = float("-inf")  # that one begins is always said
        self._update("")

    def end(self, *, made: bool) -> None:
        self._course.end(made=made)

    def note(self, what: str) -> None:
        """The next part of an experiment that makes no sweep."""
        self._course.next_part()
        self._update(what)

    def _answered(self, last: Answered) -> None:
        if last.done == 1:
            self._course.next_part()
        self._course.reached(last.share)
        self._update(last.what)

    def _line(self, what: str) -> str:
        course = self._course
        said = f"{course.share:.0%}, {_time(course.passed_s)} passed, about {_time(course.left_s)} left"
        return f"{said}: {course.experiment}{', ' if what else ''}{what}"

    def _now_and_then(self, what: str) -> None:
        now_s = self._course.passed_s
        if not self._silent and now_s - self._told_s >= LINE_EVERY_S:
            self._told_s = now_s
            tell(f"clearway: {self._line(what)}")


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _bar(console: Console, *columns: rich.progress.ProgressColumn) -> rich.progress.Progress:
    """Gone when it is done. What is printed meanwhile stands above it; standard output is left alone elsewhere."""
    return rich.progress.Progress(
        *columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty(), redirect_stderr=True
    )
