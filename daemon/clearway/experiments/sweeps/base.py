"""Sweeps: one function over many tasks that do not depend on each other. Pure; a ``Workers`` computes.

The answers come in the order of the tasks, whichever ends first, and what is random in a task is drawn from a seed
that is part of it. So the same tasks give the same answers with one process, with many, and on many machines.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Task = tuple[Any, ...]


class Workers(Protocol):
    """Where tasks are computed: processes of this machine, or jobs on a cluster."""

    def answers(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
        """``function(*task)`` for every task: the task's place and its answer, as soon as it is there.

        Function, tasks and answers are pickled. An exception of a task ends the sweep and is raised here.
        """
        ...


def _say_nothing(_done: int, _total: int, _what: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Sweep:
    """``tell`` is told after every answer how many there are, of how many, and which came last."""

    workers: Workers
    tell: Callable[[int, int, str], None] = _say_nothing

    def __call__(self, function: Callable[..., T], tasks: Sequence[Task], what: Callable[[T], str]) -> list[T]:
        """The answers in the order of the tasks; ``what`` names one for ``tell``."""
        found: dict[int, T] = {}
        for place, answer in self.workers.answers(function, tasks):
            found[place] = answer
            self.tell(len(found), len(tasks), what(answer))
        return [found[place] for place in range(len(tasks))]
