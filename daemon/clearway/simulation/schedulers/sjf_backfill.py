"""Shortest job first backfilling: EASY, but of those that may overtake the one with the shortest limit goes first.

Ties go by submission. The first job of the queue keeps its reservation as in EASY.
"""

from collections.abc import Sequence

from clearway.simulation.schedulers.easy import Easy


class ShortestJobFirstBackfill(Easy):
    name = "sjf-backfill"

    def backfill(self, fitting: Sequence[int], window_s: float) -> list[int]:
        queue = self.queue
        return sorted(super().backfill(sorted(fitting, key=lambda i: (queue[i].limit_s, i)), window_s))
