"""A simulated job, its program (what it computes, how it saves itself and ends), and the file system it writes to."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

from clearway.model.claims import format_claims
from clearway.model.cluster import Job, JobState, Node

_MOMENT_S = 2e-6  # times are whole microseconds
HOLD_S = 20.0  # for so long a launcher holds a program that has saved itself, if not told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a simulated job does. Work is counted in seconds of running on its nodes."""

    work_s: float = 3_600.0
    save_s: float | None = None  # how long a checkpoint takes after the signal; None: the job ignores the signal
    save_mib: float | None = None  # instead of save_s: what a checkpoint writes to the shared file system ...
    save_mib_s: float = 1_000.0  # ... and its greatest rate
    save_fails: bool = False
    interval_s: float | None = None  # between checkpoints without a signal; None: it writes none
    exit_s: float = 0.1  # from SIGTERM to its last process gone; Slurm's KillWait bounds it
    boot_s: float = 0.0  # in CONFIGURING
    trap_s: float = 0.0  # from the start of a run until it waits for the signal, which ends it before, and says so
    pauses: bool = False  # does no work while it saves itself; a launcher holds it afterwards
    requeues: bool = False  # requeues itself after a checkpoint, and claims nothing in its Comment (submitit)
    ends: str = ""  # so, once it has saved itself, as a script of its own does: COMPLETED or FAILED


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a job, as accounting has it."""

    job_id: str
    submit_time: datetime
    restart_count: int  # before it ended
    nodes: tuple[str, ...]
    start: datetime
    end: datetime
    stood_s: float
    how: str  # it ended: COMPLETED, TIMEOUT, CANCELLED, FAILED, REQUEUED, NODE_FAIL


@dataclass
class Ills:
    """What is wrong with nodes for as long as it stands here."""

    epilogs: dict[str, str] = field(default_factory=dict)  # node to why Slurm drains it when a job leaves it
    prologs: set[str] = field(default_factory=set)  # no job can begin there: it is held, and the node is drained
    hangs: dict[str, float] = field(default_factory=dict)  # node to how long processes there take to die


@dataclass(slots=True)
class SimulatedJob:
    """A job and its hidden state, which Slurm does not see: the work that is done, and how much of it is safe."""

    job: Job
    program: Program
    cpus_per_node: int
    saved_s: float = 0.0
    base_s: float = 0.0  # work done when the present stretch of running began
    since: datetime | None = None  # when that was; None while it does not run
    lost_s: float = 0.0  # work that was done and has to be repeated
    runs: list[tuple[str, ...]] = field(default_factory=list)  # nodes of each run
    usual_priority: int = 0  # with a Nice of 0
    asked_at: datetime | None = None
    requeued: bool = False  # where COMPLETING leads: back to the queue, or out
    epoch: int = 0  # events of an earlier epoch are void
    ended_at: datetime | None = None
    suspended_at: datetime | None = None
    gpus: dict[str, Counter[str]] = field(default_factory=dict)  # that it holds, by node and type
    held: bool = False  # it has saved itself, and its launcher waits for the requeue
    ran_in: str = ""  # the partition that its newest run started in, where partitions differ in whom they admit
    stood_s: float = 0.0  # how long this run stood suspended: its time limit does not count that
    priority_is_set: bool = False  # by an administrator: what Slurm would work out does not count until a release
    held_by_admin: bool = False

    def ran(self, now: datetime, how: str) -> Iterator[Ran]:
        """The run that ends now."""
        job, counted = self.job, how in ("REQUEUED", "NODE_FAIL_REQUEUED")
        if job.start_time is not None:
            before = job.restart_count - counted
            yield Ran(job.job_id, job.submit_time, before, job.nodes, job.start_time, now, self.stood_s, how)

    def become(self, state: JobState, raw_state: str = "", **fields: Any) -> None:
        """Change the job's state (by its own name where Slurm's word is not given) and other fields."""
        self.job = replace(self.job, state=state, raw_state=raw_state or state.name, **fields)

    def claim(self, **pairs: str | int) -> None:
        """What its launcher says in its Comment."""
        said = format_claims(self.job.comment, run=self.job.restart_count, **pairs)
        self.job = replace(self.job, comment=said)

    @property
    def tells(self) -> bool:
        """Whether it says in its Comment what becomes of its checkpoints."""
        return not self.program.requeues and "grace=" not in self.job.comment

    def forget_claims(self, *more: str) -> None:
        """As the launcher does when it begins: what an earlier run said of its checkpoints does not hold any more."""
        comment = self.job.comment
        for key in ("asked", "state", "last", "restart", "restart_s", *more):
            comment = re.sub(rf"\b{key}=[^,\s]*,?", "", comment)
        self.job = replace(self.job, comment=comment.rstrip(","))
        if "clearway:checkpoint=signal" in comment and self.tells:
            self.claim()

    def pause(self, now: datetime) -> None:
        """Do no work from now on; all that was foreseen is void."""
        self.base_s, self.since = self.done_s(now), None
        self.epoch += 1

    def done_s(self, now: datetime) -> float:
        ran_s = (now - self.since).total_seconds() if self.since else 0.0
        return min(self.program.work_s, self.base_s + ran_s)


def submitted_job(
    job_id: str, node: Node, at: datetime, num_nodes: int, cpus_per_node: int | None, given: Mapping[str, Any]
) -> Job:
    """The record of a job that has just been submitted to a cluster of such nodes."""
    cpus = node.cpus if cpus_per_node is None else cpus_per_node
    known: dict[str, Any] = {"job_id": job_id, "state": JobState.PENDING, "raw_state": "PENDING"}
    known |= {"user": "alice", "partitions": node.partitions[:1], "priority": 100, "reason": "Priority"}
    known |= {"submit_time": at, "eligible_time": at, "num_nodes": num_nodes, "cpus": cpus * num_nodes}
    known |= {"even_cpus": cpus_per_node or 0, "exclusive": cpus_per_node is None}
    return Job(**{**known, **given})


def fair_rates(greatest_mib_s: Mapping[str, float], bandwidth_mib_s: float) -> dict[str, float]:
    """What each writer gets, in MiB/s: max-min fair sharing with a greatest rate for each, in O(n log n).

    A writer that can take less than an equal share leaves the rest to the others; bandwidth is never idle.
    """
    rates: dict[str, float] = {}
    left_mib_s = bandwidth_mib_s
    order = sorted(greatest_mib_s, key=lambda name: (greatest_mib_s[name], name))
    for place, name in enumerate(order):
        rates[name] = min(greatest_mib_s[name], left_mib_s / (len(order) - place))
        left_mib_s -= rates[name]
    return rates


@dataclass
class FileSystem:
    """Writes in progress; time only goes forward."""

    now: datetime
    bandwidth_mib_s: float = inf
    _left_mib: dict[str, float] = field(default_factory=dict)
    _greatest_mib_s: dict[str, float] = field(default_factory=dict)

    def begin(self, name: str, size_mib: float, greatest_mib_s: float, now: datetime) -> None:
        self.advance(now)
        self._left_mib[name], self._greatest_mib_s[name] = size_mib, greatest_mib_s

    def forget(self, name: str) -> None:
        """It writes no more."""
        self._left_mib.pop(name, None)
        self._greatest_mib_s.pop(name, None)

    def advance(self, now: datetime) -> None:
        """What has been written by then; no write may have been complete before."""
        seconds = (now - self.now).total_seconds()
        for name, rate in fair_rates(self._greatest_mib_s, self.bandwidth_mib_s).items():
            self._left_mib[name] -= rate * seconds
        self.now = now

    @property
    def writers(self) -> tuple[str, ...]:
        return tuple(self._left_mib)

    @property
    def complete(self) -> tuple[str, ...]:
        return tuple(
            name for name, left_mib in self._left_mib.items() if left_mib <= self._greatest_mib_s[name] * _MOMENT_S
        )

    def next_end(self) -> datetime | None:
        """When the next write is complete if none begins before; None when nothing is written."""
        rates = fair_rates(self._greatest_mib_s, self.bandwidth_mib_s)
        seconds = [max(0.0, left_mib) / rates[name] for name, left_mib in self._left_mib.items()]
        return self.now + timedelta(seconds=min(seconds)) if seconds else None
