"""How many nodes are free in each interval, by the limits of the jobs: the plan of conservative backfilling.

A list of moments, ascending, and beside it how many nodes are free from each to the next; from the last on for
ever, when all of them are. Finding a place costs one pass over the moments at most, taking or giving one a pass over
those it covers; over many moments a pass is a few steps of numpy.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

_LONG = 64  # so many moments take numpy as long as a loop


class Profile:
    def __init__(self, now_s: float, free: int, coming: Iterable[tuple[float, int]] = ()) -> None:
        """``coming``: moments at which nodes become free, and how many; moments that have passed count as now."""
        self.times = array("d", [now_s])
        self.free = array("q", [free])
        for time_s, more in coming:
            free += more
            if time_s > self.times[-1]:
                self.times.append(time_s)
                self.free.append(free)
            else:
                self.free[-1] = free

    def advance(self, now_s: float) -> None:
        """Forget what lies before now."""
        passed = bisect_right(self.times, now_s) - 1
        if passed > 0:
            del self.times[:passed], self.free[:passed]
        self.times[0] = now_s

    def earliest(self, size: int, duration_s: float) -> float:
        """The first moment from which so many nodes are free for so long."""
        times, free, last = self.times, self.free, len(self.times)
        if last > _LONG:
            return self._earliest_of_many(size, duration_s)
        i = 0
        while True:
            while free[i] < size:
                i += 1
            start_s = times[i]
            end_s = start_s + duration_s
            i += 1
            while i < last and free[i] >= size and times[i] < end_s:
                i += 1
            if i == last or times[i] >= end_s:
                return start_s

    def _earliest_of_many(self, size: int, duration_s: float) -> float:
        times = np.frombuffer(self.times, np.float64)
        lacking = np.flatnonzero(np.frombuffer(self.free, np.int64) < size)
        if not len(lacking):
            return float(times[0])
        # Enough are free from the end of each lacking interval until the next one begins, which may be at once.
        until = times[lacking]
        if until[0] >= times[0] + duration_s:
            return float(times[0])
        starts = times[lacking + 1]
        enough = starts[:-1] + duration_s <= until[1:]
        place = int(enough.argmax()) if len(enough) else 0
        return float(starts[place if len(enough) and enough[place] else -1])

    def take(self, start_s: float, end_s: float, size: int) -> None:
        """So many nodes fewer in between; with a negative size, more."""
        first = self._moment(start_s)
        last = self._moment(end_s)
        free = self.free
        if last - first > _LONG:
            np.frombuffer(free, np.int64)[first:last] -= size
            return
        for i in range(first, last):
            free[i] -= size

    def room_before(self, size: int, end_s: float) -> bool:
        """Whether so many nodes are free at any moment before this one."""
        until = bisect_left(self.times, end_s)
        return bool((np.frombuffer(self.free, np.int64)[:until] >= size).any())

    def _moment(self, time_s: float) -> int:
        """The place of this moment, which is put in where it is missing."""
        place = bisect_left(self.times, time_s)
        if place == len(self.times) or self.times[place] != time_s:
            self.times.insert(place, time_s)
            self.free.insert(place, self.free[place - 1])
        return place
