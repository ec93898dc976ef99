"""``clearway-suspend`` on shortest-job-first backfilling instead of EASY: of the jobs that may overtake, urgent ones go
first, then the one with the shortest limit.
"""

from collections.abc import Sequence

from clearway.simulation.schedulers.clearway_suspend import ClearwaySuspend


class ClearwaySjf(ClearwaySuspend):
    name = "clearway-sjf"

    def backfill(self, fitting: Sequence[int], window_s: float) -> list[int]:
        queue = self.queue
        order = sorted(fitting, key=lambda i: (not queue[i].urgent, queue[i].limit_s, i))
        return sorted(super().backfill(order, window_s))
