"""Sweeps on the processors of this machine."""

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
from typing import TypeVar

from clearway.experiments.sweeps.base import ENDING, LONGEST_WAIT_S, Task, Workers, undisturbed

T = TypeVar("T")

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
