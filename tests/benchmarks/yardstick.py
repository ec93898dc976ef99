"""What a fixed piece of plain Python takes, beside which times are judged on a machine that others share.

It is of the kind that the daemon's cycles consist of: records, dictionaries, sorting, JSON. Nothing is Clearway's.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

RECORDS = 2_000
# On the machine that limits in milliseconds were set for, with nobody else on it.
QUIET_MS = 7.0


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


class Pace:
    """How slow the machine is: by measures that are taken between those of what is judged.

    ``clock``: the one that what is judged is measured by, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._taken_ms: list[float] = []

    def take(self) -> None:
        """One more measure; some 15 ms, because the first of two finds caches that others have filled.

        Without the garbage collector, which would take the longer the more the process has loaded.
        """
        collecting = gc.isenabled()
        gc.disable()
        for _ in range(2):
            begin = self._clock()
            done = _work()
            spent_ms = (self._clock() - begin) * 1_000
        self._taken_ms.append(spent_ms)
        if collecting:
            gc.enable()
        assert done == RECORDS * (RECORDS - 1) // 2

    @property
    def slower(self) -> float:
        """How many times slower than a quiet machine, by the median; never less than once."""
        return max(1.0, statistics.median(self._taken_ms) / QUIET_MS)
