"""What checkpoints cost in a replay, and what they save: the four schemes of the WCJS paper (DOI
10.48550/arXiv.2103.13130), section 4.2.

- ``NoCheckpoints`` (equations 1-5): a preempted job begins again.
- ``SystemCheckpoints`` (6-10): every batch job is saved at a fixed interval, whatever it is.
- ``ApplicationCheckpoints`` (11-15): each job saves itself as often as keeps the time it spends on that within a
  share of its time limit, evenly over the limit (section 7.1.4; the paper takes 5 % and 10 %).
- ``JustInTime`` (16-20): a job is saved when it is preempted, and leaves when its image is written.

The periodic schemes lengthen the run: a job that is preempted falls back to the end of its last checkpoint. A job
that returns first reads its image. Urgent jobs are never preempted and save nothing.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from clearway_lab.simulator.machine import ReplayedJob
from clearway_lab.traces.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Storage:
    """How fast images come to the file system, with Mira's figures (WCJS paper, section 5.2).

    ``unit_nodes`` is how many nodes one unit of a trace's sizes stands for.
    """

    unit_nodes: int = 512
    node_gib: float = 16
    nodes_per_io_node: int = 128
    io_node_gib_s: float = 4
    file_system_gib_s: float = 216

    def transfer_s(self, size: int) -> int:
        """Whole seconds to write or to read the memory of a job of ``size`` units (equation 34)."""
        nodes = size * self.unit_nodes
        rate_gib_s = min(nodes / self.nodes_per_io_node * self.io_node_gib_s, self.file_system_gib_s)
        return math.ceil(self.node_gib * nodes / rate_gib_s)


MIRA = Storage()  # the WCJS paper's traces, in blocks of 512 nodes
NODES = Storage(unit_nodes=1)  # any other trace: a unit is a node with a node of Mira's memory and share of the network


@dataclass(frozen=True, slots=True)
class Departure:
    """How a preempted job leaves; the arguments of ``Machine.preempt``. ``saved_s`` None: all of its work."""

    leave_s: float
    saved_s: float | None
    return_s: float


class CheckpointModel(ABC):
    """One object serves one replay: ``lengthened`` is asked once for each job, before it."""

    def __init__(self, storage: Storage = MIRA) -> None:
        self.storage = storage

    def lengthened(self, job: TraceJob) -> TraceJob:
        """The job with the time that its checkpoints take."""
        return job

    @abstractmethod
    def departure(self, job: ReplayedJob, now_s: float) -> Departure:
        """What happens when this running job is preempted now."""


class NoCheckpoints(CheckpointModel):
    def departure(self, job: ReplayedJob, now_s: float) -> Departure:  # noqa: ARG002 - it loses everything
        return Departure(leave_s=0, saved_s=0, return_s=0)


class JustInTime(CheckpointModel):
    def departure(self, job: ReplayedJob, now_s: float) -> Departure:  # noqa: ARG002 - it loses nothing
        transfer_s = self.storage.transfer_s(job.size)
        return Departure(leave_s=transfer_s, saved_s=None, return_s=transfer_s)


class _Periodic(CheckpointModel):
    def __init__(self, storage: Storage = MIRA) -> None:
        super().__init__(storage)
        self._period_s: dict[int, float] = {}  # by job_id: a stretch of work and the checkpoint after it

    @abstractmethod
    def interval_s(self, job: TraceJob) -> float:
        """Work between two checkpoints; infinite where the job makes none."""

    def lengthened(self, job: TraceJob) -> TraceJob:
        interval_s = self.interval_s(job)
        if job.urgent or interval_s >= job.limit_s:
            return job
        write_s = self.storage.transfer_s(job.size)
        self._period_s[job.job_id] = interval_s + write_s
        # None is made at the very end of the work.
        run_s, limit_s = (each + (math.ceil(each / interval_s) - 1) * write_s for each in (job.run_s, job.limit_s))
        return replace(job, run_s=run_s, requested_s=limit_s)

    def departure(self, job: ReplayedJob, now_s: float) -> Departure:
        period_s = self._period_s.get(job.job_id)
        saved_s = job.worked_s(now_s) // period_s * period_s if period_s else 0
        return Departure(leave_s=0, saved_s=saved_s, return_s=self.storage.transfer_s(job.size) if saved_s else 0)


class SystemCheckpoints(_Periodic):
    def __init__(self, every_s: int = 3_600, storage: Storage = MIRA) -> None:
        super().__init__(storage)
        self.every_s = every_s

    def interval_s(self, job: TraceJob) -> float:  # noqa: ARG002 - all alike
        return self.every_s


class ApplicationCheckpoints(_Periodic):
    def __init__(self, percent: int = 5, storage: Storage = MIRA) -> None:
        super().__init__(storage)
        self.percent = percent

    def interval_s(self, job: TraceJob) -> float:
        count = job.limit_s * self.percent // (100 * self.storage.transfer_s(job.size))
        return job.limit_s / (count + 1) if count else math.inf
