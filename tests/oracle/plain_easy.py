"""EASY backfilling as a plain loop: what one writes for this question alone, without nodes, preemption or checks.

The yardstick of the simulator's speed, which a shared or slower machine slows down as much as it does the simulator;
and its witness, since both must start every job at the same second.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from clearway_lab.traces.trace import TraceJob


def plain_easy(jobs: Iterable[TraceJob], nodes: int) -> dict[int, int]:
    """The second at which each job starts, by job id."""
    coming = sorted((job for job in jobs if job.size <= nodes), key=lambda job: (job.submit_s, job.job_id))
    arrived, free = 0, nodes
    queue: list[TraceJob] = []
    ends: list[tuple[int, int, int, TraceJob]] = []  # true end, order, end by its limit, job
    starts: dict[int, int] = {}
    while arrived < len(coming) or ends:
        now = min(coming[arrived].submit_s if arrived < len(coming) else ends[0][0], ends[0][0] if ends else 10**18)
        while ends and ends[0][0] == now:
            free += heapq.heappop(ends)[3].size
        while arrived < len(coming) and coming[arrived].submit_s == now:
            queue.append(coming[arrived])
            arrived += 1

        def start(job: TraceJob) -> None:
            nonlocal free
            free -= job.size
            starts[job.job_id] = now  # noqa: B023 - called at once
            heapq.heappush(ends, (now + job.run_s, len(starts), now + job.limit_s, job))  # noqa: B023

        while queue and queue[0].size <= free:
            start(queue.pop(0))
        if queue:
            head = queue[0]
            shadow, then = 0, free
            for limit, size in sorted((limit, job.size) for _, _, limit, job in ends):
                if then >= head.size and limit > shadow:
                    break
                then += size
                shadow = limit
            extra = then - head.size
            for job in queue[1:]:
                if job.size <= free and (now + job.limit_s <= shadow or job.size <= extra):
                    if now + job.limit_s > shadow:
                        extra -= job.size
                    start(job)
                    queue.remove(job)
    return starts
