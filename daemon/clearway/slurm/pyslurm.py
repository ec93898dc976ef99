"""Slurm through pyslurm, which lives in a process of its own (``pyslurm_process``).

Two queries read everything, a third names the reservations when a node is in one, and two of ``scontrol``, every ten
minutes, tell what Slurm's own preemption goes by; one more tells of the switches while a waiting job asks for one.
Numbers name exactly one job here:
unlike scontrol and scancel, which take the id of an array's last task for the whole array. As in the ``cli``
backend, changes look at the job just before, because Slurm would do as it is told: requeue a job that has completed,
or never answer a signal to a suspended one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from clearway.model.cluster import FIRST, AdminLevel, ClusterSnapshot, Job, JobState, Node, Reservation, Skipped
from clearway.model.errors import JobNotRunningError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse, rights
from clearway.slurm import pyslurm_records as records
from clearway.slurm.guards import LEAVING, ON_NODES, checked, require_run
from clearway.slurm.parse import FieldError
from clearway.slurm.preempt_reader import PreemptReader
from clearway.slurm.process import Commands
from clearway.slurm.pyslurm_process import COMMAND, RefusedError, WorkerProcess
from clearway.slurm.requeue_delay import RequeueRest
from clearway.slurm.topology_reader import TopologyReader

# Slurm's error numbers where no is as good as done.
_ALREADY_DONE = 2021
_JOB_PENDING = 2024
_JOB_FINISHED = 2084
_INVALID_JOB_ID = 2017

_PYSLURM_FLAGS = {ours: theirs for theirs, ours in records.RESERVATION_FLAGS.items()}


class PyslurmBackend:
    """The ``pyslurm`` backend. ``now`` tells aware UTC; ``timeout_s`` limits each call."""

    name = "pyslurm"

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        slurm_conf: str | None = None,
        timeout_s: float = 20.0,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._now = now
        self._worker = WorkerProcess(slurm_conf=slurm_conf, timeout_s=timeout_s, command=command)
        self._commands = Commands(timeout_s=timeout_s, slurm_conf=slurm_conf)  # for what pyslurm does not tell
        self._preempt = PreemptReader()
        self._topology = TopologyReader()
        self._rest = RequeueRest(now=now)
        self._skipped_reservations: tuple[Skipped, ...] = ()

    def worker_restarts(self) -> int:
        """How often the worker had to be replaced, because it hung or crashed."""
        return self._worker.restarts

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id while it runs."""
        return self._worker.pid

    def available(self) -> str | None:
        """Why this backend cannot be used now, in one line; None when it can."""
        try:
            self.snapshot()
        except SlurmError as error:
            return str(error)
        return None

    def close(self) -> None:
        self._worker.close()

    # ---- reading -----------------------------------------------------------------------------------------------

    def snapshot(self) -> ClusterSnapshot:
        taken_at = self._now()
        found = self._worker.call("snapshot")
        reservations = found["reservations"]
        jobs, skipped_jobs = records.read_jobs(found["jobs"])
        self._rest.saw_all(jobs)
        nodes, skipped_nodes = records.read_nodes(found["nodes"], reservations or [])
        priorities, preempt_queries = self._preempt.read(self._commands.run, taken_at)
        topology, topology_queries = self._topology.read(self._commands.run, jobs, taken_at)
        return ClusterSnapshot(
            taken_at=taken_at,
            jobs=tuple(jobs),
            nodes=tuple(nodes),
            skipped=(*skipped_jobs, *skipped_nodes, *self._skipped_reservations),
            queries=(2 if reservations is None else 3) + preempt_queries + topology_queries,
            preempt_priorities=priorities,
            topology=topology,
        )

    def job(self, job_id: str) -> Job | None:
        if not job_id.isdecimal() or not job_id.isascii():
            raise SlurmRefusedError(f"{job_id!r} is not a job id")
        record = self._worker.call("job", job_id=int(job_id))
        if record is None:
            return None
        try:
            return records.read_job(record)
        except FieldError as error:
            raise SlurmUnavailableError(f"job {job_id} cannot be read: {error}") from None

    def reservations(self) -> tuple[Reservation, ...]:
        found, skipped = records.read_reservations(self._worker.call("reservations"))
        self._skipped_reservations = tuple(skipped)  # told with the next snapshot
        return tuple(found)

    # ---- jobs --------------------------------------------------------------------------------------------------

    def requeue(self, job: Job) -> None:
        current = self._known(job.job_id)
        if current.state in LEAVING:
            return
        require_run(current, job, *ON_NODES)
        if current.state is JobState.SUSPENDED:
            # Requeued while suspended it would wait held (JobHeldAdmin), and its TERM handler could not run.
            self._change_job("resume", job.job_id)
        with _as_good_as_done(_JOB_PENDING):
            self._change_job("requeue", job.job_id)

    def cancel(self, job: Job) -> None:
        current = self._known(job.job_id)
        if current.state is JobState.COMPLETING:
            return
        if current.state is JobState.PENDING and job.state is not JobState.PENDING:
            return  # the run is over; what waits now is not what was decided on
        require_run(current, job, JobState.PENDING, *ON_NODES)
        with _as_good_as_done(_ALREADY_DONE, _JOB_FINISHED, _INVALID_JOB_ID):
            self._change_job("cancel", job.job_id)

    def signal(self, job: Job, signal: str, *, batch_only: bool) -> None:
        if not re.fullmatch(r"[A-Z][A-Z0-9]*", signal, re.ASCII):
            raise SlurmRefusedError(f"{signal!r} is not a signal")
        require_run(self._known(job.job_id), job, JobState.RUNNING)
        steps = "batch" if batch_only else "children"
        self._change_job("send_signal", job.job_id, name=f"SIG{signal}", steps=steps)

    def suspend(self, job: Job) -> None:
        self._suspend_or_resume(job, "suspend", JobState.RUNNING, JobState.SUSPENDED)

    def resume(self, job: Job) -> None:
        self._suspend_or_resume(job, "resume", JobState.SUSPENDED, JobState.RUNNING)

    def _suspend_or_resume(self, job: Job, call: str, before: JobState, after: JobState) -> None:
        current = self._known(job.job_id)
        require_run(current, job, before, after)
        if current.state is before:
            self._change_job(call, job.job_id)

    def start_now(self, job_id: str) -> None:
        current = self._known(job_id)
        if current.state is not JobState.PENDING:  # set while COMPLETING it would be lost without a word
            raise SlurmRefusedError(f"job {job_id} is {current.raw_state}; only a waiting job can start now")
        self._rest.before_start(current)
        self._change_job("start_now", job_id)

    def first_in_queue(self, job_id: str) -> None:
        self._known(job_id)
        self._change_job("set_priority", job_id, priority=FIRST)

    def usual_priority(self, job_id: str) -> None:
        current = self.job(job_id)
        if current is not None and current.state is not JobState.ENDED and current.priority == FIRST:
            with _as_good_as_done(_ALREADY_DONE, _JOB_FINISHED, _INVALID_JOB_ID):
                self._change_job("release", job_id)

    def attach(self, job_id: str, reservation: str) -> None:
        if self._known(job_id).reservation != reservation:
            self._change_job("set_reservation", job_id, reservation=checked(reservation))

    def detach(self, job_id: str) -> None:
        current = self.job(job_id)
        if current is None or current.reservation is None or current.state is JobState.ENDED:
            return
        with _as_good_as_done(_ALREADY_DONE, _JOB_FINISHED, _INVALID_JOB_ID):
            self._change_job("set_reservation", job_id, reservation="")

    def _known(self, job_id: str) -> Job:
        """The job as it is now. Raises JobNotRunningError when it has ended."""
        current = self.job(job_id)
        if current is None or current.state is JobState.ENDED:
            raise JobNotRunningError(f"job {job_id} has ended")
        return current

    def _change_job(self, call: str, job_id: str, **args: Any) -> None:
        self._worker.call(call, job_id=int(job_id), **args)

    # ---- reservations ------------------------------------------------------------------------------------------

    def create_reservation(self, reservation: Reservation) -> None:
        if reservation.end_time <= self._now():
            raise SlurmRefusedError(f"reservation {reservation.name} would end at {reservation.end_time}, in the past")
        if not reservation.users or not reservation.nodes:
            raise SlurmRefusedError(f"reservation {reservation.name} needs users and nodes")
        try:
            self._worker.call(
                "create_reservation",
                name=checked(reservation.name),
                nodes=parse.compress(map(checked, reservation.nodes)),
                users=[checked(user) for user in reservation.users],
                flags=[_PYSLURM_FLAGS.get(flag, flag) for flag in reservation.flags],
                end_time=math.ceil(reservation.end_time.timestamp()),
            )
        except SlurmRefusedError:
            # Slurm tells of an overlap, not that the name exists.
            existing = {item.name: set(item.nodes) for item in self.reservations()}
            if existing.get(reservation.name) != set(reservation.nodes):
                raise

    def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None:
        if not nodes:
            raise SlurmRefusedError(f"reservation {name} needs nodes")
        hosts = parse.compress(map(checked, nodes))
        self._worker.call("update_reservation", name=checked(name), nodes=hosts)

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        self._worker.call("extend_reservation", name=checked(name), end_time=math.ceil(end_time.timestamp()))

    def delete_reservation(self, name: str) -> None:
        try:
            self._worker.call("delete_reservation", name=checked(name))
        except SlurmRefusedError:
            if any(item.name == name for item in self.reservations()):
                raise

    # ---- nodes -------------------------------------------------------------------------------------------------

    def drain(self, node: str, reason: str) -> None:
        current = self._node(node)
        if current.reason and current.reason != reason:
            raise SlurmRefusedError(f"node {node} has a reason of somebody else: {current.reason[:120]}")
        if not _drained(current):
            self._worker.call("drain", name=node, reason=reason)

    def undrain(self, node: str, reason: str) -> None:
        current = self._node(node)
        if not _drained(current):
            return
        if current.reason != reason:
            raise SlurmRefusedError(f"node {node} was drained by somebody else: {current.reason[:120]}")
        # Not RESUME, which would also bring back a node that is DOWN.
        self._worker.call("undrain", name=node)

    def power_down(self, node: str) -> None:
        self._commands.run(["scontrol", "--oneliner", "update", f"NodeName={checked(node)}", "State=POWER_DOWN"])

    def admin_level(self, user: str) -> AdminLevel:
        return rights.admin_level(self._commands, user)

    def _node(self, name: str) -> Node:
        nodes, skipped = records.read_nodes([self._worker.call("node", name=checked(name))], [])
        if skipped:
            raise SlurmUnavailableError(f"node {name} cannot be read: {skipped[0].why}")
        return nodes[0]


def _drained(node: Node) -> bool:
    return parse.node_status(f"State={node.raw_state}").drained


@contextmanager
def _as_good_as_done(*numbers: int) -> Iterator[None]:
    """Swallow a refusal with one of these numbers."""
    try:
        yield
    except RefusedError as error:
        if error.errno not in numbers:
            raise
