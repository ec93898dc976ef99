"""Progress on standard error: a bar on a terminal, lines elsewhere, or nothing.

How far a run of all experiments is, and how long the rest will take. Pure: the clock is passed in.

Model: each experiment has parts (its sweeps, one after another), and each part took so many seconds the last time that
they were measured. The measured seconds tell parts from each other, not how fast this machine is: what is left takes as
long for each of them as what is done did. The first ``_TRUSTED_S`` count as if they had been as fast as then, so that
there is an estimate from the beginning and its first changes are small.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clearway.cli import render
from clearway_lab.sweeps.local import Answered

_TRUSTED_S = 15.0
# Seconds of processor time of each part, and more of them for each drawing (a seed, a random day), measured on one
# machine. What matters is the ratios.
LAST_S: Mapping[str, Sequence[tuple[float, float]]] = {
    "stochastic": ((40, 0), (17, 0)),
    "compaction": ((0, 2.8),),
    "drain": ((15, 0),),
    "promises": ((12, 21),),
    "urgent": ((7, 57),),
    "realtime": ((3, 0), (1, 68)),
    "cosim": ((2, 0), (3, 0), (22, 0), (1, 0)),
}
ALONE = frozenset({"cosim"})  # computed by one process, whatever is asked for


@dataclass(slots=True)
class Course:
    """A run of experiments, from its making on."""

    parts: dict[str, list[float]]  # by experiment: what each of its parts takes
    clock: Callable[[], float]
    began_s: float = field(init=False)
    done: dict[str, float] = field(init=False, default_factory=dict)  # by experiment: what is done, of the same
    experiment: str = field(init=False, default="")
    _part: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def begin(self, experiment: str) -> None:
        self.experiment, self._part = experiment, -1
        self.done[experiment] = 0.0

    def next_part(self) -> None:
        """The part before it is done."""
        self._part += 1
        self.reached(0.0)

    def reached(self, share: float) -> None:
        """So much of the part is done."""
        parts = self.parts[self.experiment]
        part = min(self._part, len(parts) - 1)
        self.done[self.experiment] = sum(parts[:part]) + share * parts[part]

    def end(self, *, made: bool) -> None:
        """An experiment that was not made counts for nothing."""
        if not made:
            self.parts[self.experiment] = [0.0]
        self.done[self.experiment] = sum(self.parts[self.experiment])

    @property
    def share(self) -> float:
        """What is done, of everything."""
        whole = self._whole()
        return sum(self.done.values()) / whole if whole else 1.0

    @property
    def passed_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def left_s(self) -> float:
        done = sum(self.done.values())
        return (self._whole() - done) * (self.passed_s + _TRUSTED_S) / (done + _TRUSTED_S)

    def _whole(self) -> float:
        return sum(map(sum, self.parts.values()))


def expected(drawings: Mapping[str, int], processes: int) -> dict[str, list[float]]:
    """What the parts of all experiments would have taken the last time, with so many drawings and processes."""
    return {
        name: [
            (fixed_s + drawn_s * drawings.get(name, 1)) / (1 if name in ALONE else processes)
            for fixed_s, drawn_s in parts
        ]
        for name, parts in LAST_S.items()
    }


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
