"""The machine of a replay as the daemon would see it: one node for each of its units, jobs with their nodes.

Second 0 of the replay is midnight of 1 January 2000. A job's start is the moment at which it
would have begun, had it done all of its work in this run.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway_lab.simulator.machine import Machine, ReplayedJob, State
from clearway_lab.traces.trace import Names, TraceJob

URGENT = "urgent"  # the partition of urgent jobs where a trace names none; all partitions have all nodes
BATCH = "batch"
SHORT = "short"  # the partition of batch jobs with short limits, where the site has one
INSTRUMENT = "instrument"  # the account of jobs that an instrument submits
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class ClusterView:
    """Snapshots of a replay's machine.

    ``states`` maps the replay's states to Slurm's for jobs that leave, ``comment`` gives each job's claims,
    ``partitions`` the partitions that exist.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        states: Mapping[State, JobState],
        comment: Callable[[ReplayedJob], str] = lambda _: "",
        node_memory_mib: int,
        job_memory_mib: int,
        partitions: tuple[str, ...] = (BATCH, URGENT),
    ) -> None:
        self._machine = machine
        self._states = states
        self._comment = comment
        self._job_memory_mib = job_memory_mib
        self._nodes = _nodes(machine.nodes, node_memory_mib, partitions)
        self.names = tuple(node.name for node in self._nodes)

    def snapshot(self, waiting: Iterable[ReplayedJob], closed: Collection[int] = ()) -> ClusterSnapshot:
        """All jobs that have nodes, and the waiting jobs that are given; ``closed`` nodes take no job."""
        machine = self._machine
        jobs = [self._job(job, JobState.PENDING) for job in waiting]
        jobs += [self._job(job, JobState.RUNNING) for _, _, job in machine.running]
        for job in (*machine.leaving.values(), *machine.suspended.values()):
            jobs.append(self._job(job, self._states[job.state]))
        nodes = list(self._nodes)
        for number in closed:
            nodes[number] = replace(nodes[number], available=False)
        return ClusterSnapshot(taken_at=_time(machine.now_s), jobs=tuple(jobs), nodes=tuple(nodes))

    def _job(self, job: ReplayedJob, state: JobState) -> Job:
        start_s = job.begun_s - job.done_s
        if job.keeps_nodes:  # one that swaps in has started long ago
            start_s = min(self._machine.now_s, start_s)
        return as_slurm(
            job.trace,
            state,
            start_time=_time(start_s) if state.holds_nodes else None,
            time_limit_s=round(job.limit_s),
            nodes=tuple(self.names[number] for number in job.nodes) if state.holds_nodes else (),
            memory_mib=self._job_memory_mib,
            comment=self._comment(job),
            reason="None" if state.holds_nodes else "Resources",
            restart_count=job.preemptions,
            priority=1,
        )


@lru_cache(maxsize=8)
def _nodes(count: int, memory_mib: int, partitions: tuple[str, ...]) -> tuple[Node, ...]:
    return tuple(
        Node(
            name=f"n{number:06}", available=True, raw_state="IDLE", cpus=1, memory_mib=memory_mib, partitions=partitions
        )
        for number in range(count)
    )


def as_slurm(job: TraceJob, state: JobState, **fields: Any) -> Job:
    """The recorded job as Slurm would show it."""
    names = names_of(job)
    return Job(
        job_id=str(job.job_id),
        user=names.user,
        name=names.job_name,
        account=names.account,
        qos=names.qos,
        state=state,
        raw_state=state.name,
        partitions=(names.partition,),
        num_nodes=job.size,
        submit_time=_time(job.submit_s),
        **fields,
    )


def names_of(job: TraceJob) -> Names:
    """As recorded; else the user's number, and the partition that stands for what the job is."""
    return job.names or Names(str(job.user), "", URGENT if job.urgent else BATCH, "", "")


def _time(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)
