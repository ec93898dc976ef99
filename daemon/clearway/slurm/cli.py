"""Slurm through its own commands: squeue, scontrol, scancel. Works with every Slurm release from 22.05 on.

Reading takes two queries (squeue, ``scontrol show node``), a third for the excluded nodes of waiting jobs when
new ones have come, every ten minutes two for what Slurm's own preemption goes by, and every five minutes one for the
leaf switches while a waiting job asks for one. Changes look at the job just before, because Slurm would do as it is
told: requeue a job that has completed (it runs a second time), requeue a whole array when asked for its last task, or
wait forever to signal a job that does not run. Between the look and the act is a gap of some milliseconds that no
client can close.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from clearway.model.cluster import FIRST, AdminLevel, ClusterSnapshot, Job, JobState, Reservation, Skipped
from clearway.model.errors import JobNotRunningError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse, rights
from clearway.slurm.guards import LEAVING, ON_NODES, checked, require_run
from clearway.slurm.preempt_reader import PreemptReader
from clearway.slurm.process import Commands
from clearway.slurm.requeue_delay import RequeueRest
from clearway.slurm.topology_reader import TopologyReader

# Excluded nodes hardly ever change; a fresh look at one job (``job``) always reads them.
EXCLUDED_NODES_FOR_S = 300.0

_UNKNOWN_JOB = re.compile(r"Invalid job id")
_FINISHED_JOB = re.compile(r"Job has already finished|already completing or completed|Invalid job id")


class CliBackend:
    """The ``cli`` backend. ``now`` tells aware UTC; ``timeout_s`` limits each command."""

    name = "cli"

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        slurm_conf: str | None = None,
        timeout_s: float = 15.0,
        bin_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._now = now
        self._rest = RequeueRest(now=now, sleep=sleep)
        self._commands = Commands(timeout_s=timeout_s, slurm_conf=slurm_conf, bin_dir=bin_dir, env=env or {})
        self._preempt = PreemptReader()
        self._topology = TopologyReader()
        self._columns: tuple[str, ...] | None = None  # of squeue, once it was asked which it has
        self._excluded: dict[str, tuple[str, ...]] = {}
        self._excluded_at: datetime | None = None
        self._skipped_reservations: tuple[Skipped, ...] = ()

    def detect_version(self) -> str:
        """Slurm's version as its client says ("22.05.8"); needs no controller."""
        answer = self._commands.run(["squeue", "--version"])
        found = re.search(r"\d+\.\d+(?:\.\d+)?\S*", answer)
        if found is None:
            raise SlurmUnavailableError(f"squeue --version says {answer.strip()[:80]!r}")
        return found[0]

    def available(self) -> str | None:
        """Why this backend cannot be used now, in one line; None when it can."""
        try:
            self.detect_version()
            self._scontrol("show", "node")
            self._squeue("--jobs=1")  # whether such a job exists or not
        except SlurmError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Nothing is kept open between commands."""

    # ---- reading -----------------------------------------------------------------------------------------------

    def snapshot(self) -> ClusterSnapshot:
        taken_at = self._now()
        text, token = self._squeue()
        jobs, skipped = parse.read_jobs(text, token, self._job_columns())
        self._rest.saw_all(jobs)
        nodes, skipped_nodes = parse.read_nodes(
            self._scontrol("--details", "show", "node")
        )  # which tell of GPUs in use
        priorities, preempt_queries = self._preempt.read(self._commands.run, taken_at)
        topology, topology_queries = self._topology.read(self._commands.run, jobs, taken_at)
        queries = 2 + self._refresh_excluded(jobs, taken_at) + preempt_queries + topology_queries
        return ClusterSnapshot(
            taken_at=taken_at,
            jobs=tuple(self._with_excluded(job) for job in jobs),
            nodes=tuple(nodes),
            skipped=(*skipped, *skipped_nodes, *self._skipped_reservations),
            queries=queries,
            preempt_priorities=priorities,
            topology=topology,
        )

    def job(self, job_id: str) -> Job | None:
        found = self._look(job_id)
        if found is None:
            return None
        job, _ = found
        if job.state is JobState.PENDING or (job.state.holds_nodes and job_id not in self._excluded):
            self._read_excluded(f"--jobs={job_id}")
        return self._with_excluded(job)

    def reservations(self) -> tuple[Reservation, ...]:
        found, skipped = parse.read_reservations(self._scontrol("show", "reservation"))
        self._skipped_reservations = tuple(skipped)  # told with the next snapshot
        return tuple(found)

    def _squeue(self, *options: str) -> tuple[str, str]:
        """Output of squeue and the token in its separators.

        The format travels in the environment: arguments can be read by every user of this machine, who could
        then put the token into a job's Comment before squeue has its answer.
        """
        token = secrets.token_hex(8)
        argv = ["squeue", "--all", "--local", "--noheader", "--noconvert", *options]
        try:
            return self._commands.run(argv, env={"SQUEUE_FORMAT2": parse.job_format(token, self._job_columns())}), token
        except SlurmRefusedError as error:
            if _UNKNOWN_JOB.search(str(error)):
                return "", token
            raise

    def _job_columns(self) -> tuple[str, ...]:
        """Asked once: it is the client on this machine that knows them."""
        if self._columns is None:
            try:
                known = self._commands.run(["squeue", "--helpFormat"])
            except SlurmRefusedError:
                known = ""  # a release that does not tell
            self._columns = parse.job_columns(known)
        return self._columns

    def _look(self, job_id: str) -> tuple[Job, str] | None:
        """The job as it is now, and how to name it to scontrol; None when Slurm does not know it."""
        if not job_id.isdecimal():
            raise SlurmRefusedError(f"{job_id!r} is not a job id")
        text, token = self._squeue("--states=all", f"--jobs={job_id}")
        rows, _ = parse.split_rows(text, token, self._job_columns())
        # For an array or a heterogeneous job squeue lists every part.
        for row in rows:
            if row["JobID"] == job_id:
                try:
                    job = parse.job_from_row(row)
                except parse.FieldError as error:
                    raise SlurmUnavailableError(f"job {job_id} cannot be read: {error}") from None
                self._rest.saw(job)
                return job, parse.job_target(row)
        return None

    def _refresh_excluded(self, jobs: list[Job], now: datetime) -> int:
        """Ask for excluded nodes if a job is new or the last answer is old; how many queries it took.

        Of running jobs as well: wherever they are moved, they must not be sent there.
        """
        asking = {job.job_id for job in jobs if job.state is JobState.PENDING or job.state.holds_nodes}
        if not asking:
            return 0
        fresh = self._excluded_at is not None and abs((now - self._excluded_at).total_seconds()) < EXCLUDED_NODES_FOR_S
        if fresh and asking <= self._excluded.keys():
            return 0
        self._excluded = dict.fromkeys(asking, ())  # a job that is gone by now must not be asked for again
        self._read_excluded()
        self._excluded_at = now
        return 1

    def _read_excluded(self, *options: str) -> None:
        token = secrets.token_hex(8)
        text = self._commands.run(
            ["squeue", "--all", "--local", "--noheader", *options],
            env={"SQUEUE_FORMAT": parse.excluded_nodes_format(token)},
        )
        found, _ = parse.read_excluded_nodes(text, token)
        self._excluded.update(found)

    def _with_excluded(self, job: Job) -> Job:
        excluded = self._excluded.get(job.job_id, ())
        return replace(job, excluded_nodes=excluded) if excluded else job

    # ---- jobs --------------------------------------------------------------------------------------------------

    def requeue(self, job: Job) -> None:
        found = self._look(job.job_id)
        if found is None or found[0].state is JobState.ENDED:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        current, target = found
        if current.state in LEAVING:
            return
        require_run(current, job, *ON_NODES)
        if current.state is JobState.SUSPENDED:
            # Requeued while suspended it would wait held (JobHeldAdmin), and its TERM handler could not run.
            self._scontrol("resume", target)
        try:
            self._scontrol("requeue", target)
        except SlurmRefusedError as error:
            if "Job is pending execution" not in str(error):
                raise

    def cancel(self, job: Job) -> None:
        found = self._look(job.job_id)
        if found is None or found[0].state is JobState.ENDED:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        current, target = found
        if current.state is JobState.COMPLETING:
            return
        if current.state is JobState.PENDING and job.state is not JobState.PENDING:
            return  # the run is over; what waits now is not what was decided on
        require_run(current, job, JobState.PENDING, *ON_NODES)
        self._change_job(["scancel", target])

    def signal(self, job: Job, signal: str, *, batch_only: bool) -> None:
        if not re.fullmatch(r"[A-Z][A-Z0-9]*", signal, re.ASCII):
            raise SlurmRefusedError(f"{signal!r} is not a signal")
        found = self._look(job.job_id)
        if found is None:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        current, target = found
        require_run(current, job, JobState.RUNNING)
        self._commands.run(["scancel", f"--signal={signal}", *(["--batch"] if batch_only else []), target])

    def suspend(self, job: Job) -> None:
        self._suspend_or_resume(job, "suspend", JobState.RUNNING, JobState.SUSPENDED)

    def resume(self, job: Job) -> None:
        self._suspend_or_resume(job, "resume", JobState.SUSPENDED, JobState.RUNNING)

    def _suspend_or_resume(self, job: Job, verb: str, before: JobState, after: JobState) -> None:
        found = self._look(job.job_id)
        if found is None:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        current, target = found
        require_run(current, job, before, after)
        if current.state is before:
            self._scontrol(verb, target)

    def start_now(self, job_id: str) -> None:
        found = self._look(job_id)
        if found is None or found[0].state is JobState.ENDED:
            raise JobNotRunningError(f"job {job_id} has ended")
        current, target = found
        if current.state is not JobState.PENDING:  # set while COMPLETING it would be lost without a word
            raise SlurmRefusedError(f"job {job_id} is {current.raw_state}; only a waiting job can start now")
        self._rest.before_start(current)
        self._scontrol("update", f"JobId={target}", "StartTime=now")

    def first_in_queue(self, job_id: str) -> None:
        self._update_job(job_id, "Priority", str(FIRST))

    def usual_priority(self, job_id: str) -> None:
        found = self._look(job_id)
        if found is not None and found[0].state is not JobState.ENDED and found[0].priority == FIRST:
            self._change_job(["scontrol", "release", found[1]])

    def attach(self, job_id: str, reservation: str) -> None:
        found = self._look(job_id)
        if found is None or found[0].state is JobState.ENDED:
            raise JobNotRunningError(f"job {job_id} has ended")
        current, target = found
        if current.reservation != reservation:
            self._scontrol("update", f"JobId={target}", f"ReservationName={checked(reservation)}")

    def detach(self, job_id: str) -> None:
        found = self._look(job_id)
        if found is None or found[0].reservation is None or found[0].state is JobState.ENDED:
            return
        self._change_job(["scontrol", "update", f"JobId={found[1]}", "ReservationName="])

    def _update_job(self, job_id: str, key: str, value: str) -> None:
        found = self._look(job_id)
        if found is None or found[0].state is JobState.ENDED:
            raise JobNotRunningError(f"job {job_id} has ended")
        self._scontrol("update", f"JobId={found[1]}", f"{key}={value}")

    def _change_job(self, argv: list[str]) -> None:
        """Run a command for which a job that has ended meanwhile is as good as done."""
        try:
            self._commands.run(argv)
        except SlurmRefusedError as error:
            if not _FINISHED_JOB.search(str(error)):
                raise

    # ---- reservations ------------------------------------------------------------------------------------------

    def create_reservation(self, reservation: Reservation) -> None:
        seconds = (reservation.end_time - self._now()).total_seconds()
        if seconds <= 0:
            raise SlurmRefusedError(f"reservation {reservation.name} would end at {reservation.end_time}, in the past")
        if not reservation.users or not reservation.nodes:
            raise SlurmRefusedError(f"reservation {reservation.name} needs users and nodes")
        try:
            self._scontrol(
                "create",
                "reservation",
                f"ReservationName={checked(reservation.name)}",
                "StartTime=now",
                f"Duration={math.ceil(seconds / 60)}",  # minutes; 0 would be a reservation without end
                f"Users={','.join(map(checked, reservation.users))}",
                f"Nodes={parse.compress(map(checked, reservation.nodes))}",
                *([f"Flags={','.join(map(checked, reservation.flags))}"] if reservation.flags else []),
            )
        except SlurmRefusedError:
            # Slurm tells of an overlap, not that the name exists.
            existing = {item.name: set(item.nodes) for item in self.reservations()}
            if existing.get(reservation.name) != set(reservation.nodes):
                raise

    def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None:
        hosts = parse.compress(map(checked, nodes))
        if not hosts:
            raise SlurmRefusedError(f"reservation {name} needs nodes")
        self._scontrol("update", f"ReservationName={checked(name)}", f"Nodes={hosts}")

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        # A duration counts from the reservation's start, which only Slurm knows; an end is in its local time.
        local = end_time.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        self._scontrol("update", f"ReservationName={checked(name)}", f"EndTime={local}")

    def delete_reservation(self, name: str) -> None:
        try:
            self._scontrol("delete", f"ReservationName={checked(name)}")
        except SlurmRefusedError:
            if any(item.name == name for item in self.reservations()):
                raise

    # ---- nodes -------------------------------------------------------------------------------------------------

    def drain(self, node: str, reason: str) -> None:
        status = self._node_status(node)
        if status.reason and status.reason != reason:
            raise SlurmRefusedError(f"node {node} has a reason of somebody else: {status.reason[:120]}")
        if not status.drained:
            self._scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def undrain(self, node: str, reason: str) -> None:
        status = self._node_status(node)
        if not status.drained:
            return
        if status.reason != reason:
            raise SlurmRefusedError(f"node {node} was drained by somebody else: {status.reason[:120]}")
        # Not RESUME, which would also bring back a node that is DOWN.
        self._scontrol("update", f"NodeName={node}", "State=UNDRAIN")

    def power_down(self, node: str) -> None:
        self._scontrol("update", f"NodeName={checked(node)}", "State=POWER_DOWN")

    def _node_status(self, node: str) -> parse.NodeStatus:
        return parse.node_status(self._scontrol("show", "node", checked(node)))

    def admin_level(self, user: str) -> AdminLevel:
        return rights.admin_level(self._commands, user)

    def _scontrol(self, *arguments: str) -> str:
        return self._commands.run(["scontrol", "--oneliner", *arguments])
