"""Sweeps: one function over many tasks that do not depend on each other, computed by ``Workers``; and their signals.

The answers come in the order of the tasks, whichever ends first, and what is random in a task is drawn from a seed
that is part of it. So the same tasks give the same answers with one process, with many, and on many machines.
Here: the processors of this machine.
"""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Task = tuple[Any, ...]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_WAIT_S = 0.5  # of a thread that waits while signals wait
Answer = Callable[[int, Any], Any] | int | signal.Handlers | None


class Workers(Protocol):
    """Where tasks are computed: processes of this machine, or jobs on a cluster."""

    def answers(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
        """``function(*task)`` for every task: the task's place and its answer, as soon as it is there.

        Function, tasks and answers are pickled. An exception of a task ends the sweep and is raised here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answered:
    """How far a sweep is after an answer. ``share``: of the work, as the tasks' weights count it."""

    done: int
    total: int
    what: str  # the task that was answered last
    share: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """``tell`` is told after every answer how far the sweep is."""

    workers: Workers
    tell: Callable[[Answered], None] = lambda _: None

    def __call__(
        self,
        function: Callable[..., T],
        tasks: Sequence[Task],
        what: Callable[[T], str],
        weight: Callable[[Task], float] = lambda _: 1.0,
    ) -> list[T]:
        """The answers in the order of the tasks.

        ``what`` names one for ``tell``, ``weight`` says how long a task takes beside others.
        """
        found: dict[int, T] = {}
        weights = [weight(task) for task in tasks]
        whole, done = sum(weights), 0.0
        # The longest first, so that no worker has one left while the others have nothing. Those alike keep their order.
        order = sorted(range(len(tasks)), key=weights.__getitem__, reverse=True)
        for at, answer in self.workers.answers(function, [tasks[place] for place in order]):
            place = order[at]
            found[place] = answer
            done += weights[place]
            self.tell(Answered(len(found), len(tasks), what(answer), done / whole))
        return [found[place] for place in range(len(tasks))]


@contextmanager
def answered(answer: Callable[[int], Answer], *numbers: int) -> Iterator[None]:
    """Answer these signals as ``answer`` says of each; after this block as before, even if its code changed that."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, answer(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that ask to end wait until this block has ended.

    Their handlers raise. In the middle of other people's code that could leave a lock locked for ever, for which
    another thread waits; or it is lost, because an exception raised while an object is deleted is ignored.
    """
    came: list[int] = []
    try:
        with answered(lambda _: lambda number, _: came.append(number), *ENDING):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


_COLLECTIONS = (20_000, 20, 20)  # new objects, and collections of younger ones, before the next; Python's: 700, 10, 10


@contextmanager
def local_workers(processes: int) -> Iterator[Workers]:
    """So many processes; they end with this block, and with this process however it ends."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(max_workers=processes, initializer=_begin)
    done = False
    try:
        with undisturbed():
            # All are forked here: later a progress bar's thread could hold a lock that a fork would keep for ever.
            list(pool.map(abs, range(processes)))
        yield _Local(pool)
        done = True
    finally:
        with undisturbed():
            if not done:  # interrupted, or a task failed: the rest is not waited for
                for process in set(multiprocessing.active_children()) - others:
                    process.kill()
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Local:
    pool: ProcessPoolExecutor

    def answers(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
        # Unlike as_completed it holds no lock that others need while it waits.
        ended: SimpleQueue[Future[T]] = SimpleQueue()
        with undisturbed():
            places = {self.pool.submit(function, *task): place for place, task in enumerate(tasks)}
            for future in places:
                future.add_done_callback(ended.put)
        for _ in tasks:
            future = _next(ended)
            with undisturbed():
                answer = future.result()
            yield places.pop(future), answer


def _next(ended: SimpleQueue[Future[T]]) -> Future[T]:
    """A signal that comes in the moment before a wait begins does not end it: so no wait is long."""
    while True:
        with suppress(Empty):
            return ended.get(timeout=LONGEST_WAIT_S)


def _begin() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)  # not what our parent does then
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # What a replay makes in great numbers is gone once nothing refers to it. To look for cycles among it took up to a
    # tenth of the time.
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)
    # HiGHS prints to standard output without being asked.
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
