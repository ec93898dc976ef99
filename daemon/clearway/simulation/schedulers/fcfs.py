"""First come, first served: no job overtakes.

The base of the schedulers with one queue: they differ in its order, and in what they do once the first does not fit.
"""

from bisect import insort
from operator import attrgetter

from clearway.simulation.machine import Machine, ReplayedJob

BY_INDEX = attrgetter("index")


class Fcfs:
    name = "fcfs"
    machine: Machine

    def __init__(self) -> None:
        self.queue: list[ReplayedJob] = []

    def begin(self, machine: Machine) -> None:
        self.machine = machine

    def submitted(self, job: ReplayedJob) -> None:
        self.queue.append(job)

    def ended(self, job: ReplayedJob) -> None:
        pass

    def returned(self, job: ReplayedJob) -> None:
        """Preempted jobs were submitted before those that wait, so they come first."""
        insort(self.queue, job, key=BY_INDEX)

    def schedule(self) -> None:
        machine, queue = self.machine, self.queue
        started = 0
        for job in queue:
            if job.size > len(machine.free):
                break
            machine.start(job)
            started += 1
        if started:
            del queue[:started]


class Ujf(Fcfs):
    """Urgent job first: as first come, first served, but urgent jobs stand before all others in the queue.

    No job is preempted. Source: the UJFB paper, section V-B.
    """

    name = "ujf"

    def submitted(self, job: ReplayedJob) -> None:
        if job.urgent:
            insort(self.queue, job, key=lambda each: (not each.urgent, each.index))
        else:
            self.queue.append(job)
