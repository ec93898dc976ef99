"""What a fixed piece of work takes, beside which times are judged on a machine that others share or that is slower.

Plain Python is of the kind that the daemon's cycles consist of: records, dictionaries, sorting, JSON. Arrays are of the
kind that planning for large machines consists of: sums and minima of more than a cache holds, which neighbours and
other processors slow down by a factor of their own. Nothing is Clearway's.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

RECORDS = 2_000
CELLS, SHIFTS = 1 << 20, 4
# On the machine that limits in milliseconds were set for, with nobody else on it.
QUIET_MS = 7.0
QUIET_ARRAYS_MS = 7.0


@dataclass(frozen=True)
class _Record:
    number: int
    name: str
    nodes: tuple[int, ...]
    score: float


def _work() -> int:
    records = [_Record(n, f"job {n}", tuple(range(n % 7)), n * 0.37) for n in range(RECORDS)]
    by_name = {record.name: record for record in records}
    ready = (replace(r, score=max(r.score, len(r.nodes))) for r in records)
    weighed = sorted(ready, key=lambda r: (-r.score, r.number))
    text = json.dumps([(r.number, r.name, r.nodes, r.score) for r in weighed])
    return sum(by_name[name].number for _, name, _, _ in json.loads(text))


def _array_work() -> int:
    one = np.arange(CELLS, dtype=np.int64)
    other = one[::-1].copy()
    for shift in range(1, SHIFTS + 1):
        np.minimum(one[shift:], other[:-shift] + shift, out=one[shift:])
    return int(one.max())


class Pace:
    """How slow the machine is: by measures that are taken between those of what is judged.

    ``clock``: the one that what is judged is measured by, in seconds. ``arrays``: what is judged computes with large
    ones, so that it counts how slow the machine is with these where that is slower.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, arrays: bool = False) -> None:
        self._clock = clock
        self._arrays = arrays
        self._taken_ms: list[float] = []
        self._arrays_ms: list[float] = []

    def take(self) -> None:
        """One more measure; some 15 ms, or 30, because the first of two finds caches that others have filled.

        Without the garbage collector, which would take the longer the more the process has loaded.
        """
        collecting = gc.isenabled()
        gc.disable()
        spent_ms, done = self._second_of(_work)
        assert done == RECORDS * (RECORDS - 1) // 2
        self._taken_ms.append(spent_ms)
        if self._arrays:
            spent_ms, most = self._second_of(_array_work)
            assert most == CELLS // 2
            self._arrays_ms.append(spent_ms)
        if collecting:
            gc.enable()

    def _second_of(self, work: Callable[[], int]) -> tuple[float, int]:
        work()
        begin = self._clock()
        done = work()
        return (self._clock() - begin) * 1_000, done

    @property
    def slower(self) -> float:
        """How many times slower than a quiet machine, by the medians; never less than once."""
        slower = max(1.0, statistics.median(self._taken_ms) / QUIET_MS)
        return max(slower, statistics.median(self._arrays_ms) / QUIET_ARRAYS_MS) if self._arrays else slower
