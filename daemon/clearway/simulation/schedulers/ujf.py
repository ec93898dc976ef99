"""Urgent job first: as first come, first served, but urgent jobs stand before all others in the queue.

No job is preempted. Source: the UJFB paper, section V-B.
"""

from bisect import insort

from clearway.simulation.machine import ReplayedJob
from clearway.simulation.schedulers.fcfs import Fcfs


def _urgent_first(job: ReplayedJob) -> tuple[bool, int]:
    return (not job.urgent, job.index)


class Ujf(Fcfs):
    name = "ujf"

    def submitted(self, job: ReplayedJob) -> None:
        if job.urgent:
            insort(self.queue, job, key=_urgent_first)
        else:
            self.queue.append(job)
