"""Slurm through its own commands, from 22.05 on. By its own id an array's last task would mean the whole array."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial

from clearway.model.cluster import Job, JobState, Node, Reservation, Skipped
from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse
from clearway.slurm.base import Failures, JobChange
from clearway.slurm.guarded_backend import GuardedBackend
from clearway.slurm.job_changes import RequeueDelay, Seen, change_list
from clearway.slurm.kept_records import ArrayTasks, JobRecords, NodeRecords, new_token
from clearway.slurm.process import Commands, unless_unknown
from clearway.slurm.site_settings import NEVER

# Excluded nodes hardly ever change; a fresh look at one job (``job``) always reads them.
EXCLUDED_NODES_FOR_S = 300.0
MOST_NEW = 500  # jobs that they are asked for by id; of more than these they are asked of all jobs

_SQUEUE = ("squeue", "--all", "--local", "--noheader", "--noconvert")
_ENDED = re.compile(r"Job has already finished|already completing or completed|Invalid job id")


class CliBackend(GuardedBackend):
    """The ``cli`` backend. ``now`` returns aware UTC; ``timeout_s`` limits each command."""

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
        commands = Commands(timeout_s=timeout_s, slurm_conf=slurm_conf, bin_dir=bin_dir, env=env or {})
        super().__init__(now, commands, RequeueDelay(now=now, sleep=sleep))
        self._excluded: dict[str, tuple[str, ...]] = {}
        self._excluded_at = NEVER
        self._excluded_times = 0  # that they were asked for
        self._seen: tuple[Sequence[Job], int] = ((), 0)  # the jobs of the last snapshot, and that number then
        self._here: list[Job] = []
        # Those that exclude some, as they were read and with these; by id: the same job is the same object again.
        self._excluding: dict[str, tuple[Job, Job]] = {}
        self._array_tasks = ArrayTasks()
        self._job_records = JobRecords()
        self._node_records = NodeRecords()

    def available(self) -> str | None:
        try:
            answer = self._commands.run(["squeue", "--version"])
            if re.search(r"\d+\.\d+", answer) is None:
                return f"squeue --version says {answer.strip()[:80]!r}"
            self._scontrol("show", "node")
            self._squeue("--jobs=1")  # whether such a job exists or not
        except SlurmError as error:
            return str(error)
        return None

    def close(self) -> None: ...

    def _read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Node], Sequence[Skipped], int]:
        read, skipped = self._read_jobs()
        asked, answer = self._array_tasks.to_ask(read), list[Job]()
        if asked:
            text, token = self._squeue("--array", "--states=PENDING", f"--jobs={','.join(asked)}")
            answer, _ = parse.read_jobs(text, token, self._job_columns)
        jobs = self._array_tasks.complete(read, answer, asked)
        # The details tell of GPUs in use.
        nodes, skipped_nodes = self._node_records.read(
            partial(self._commands.run_in_pieces, ["scontrol", "--oneliner", "--details", "show", "node"])
        )
        queries = 2 + bool(asked) + self._refresh_excluded(jobs, now)
        # squeue lists the jobs of a federation that another cluster has started (REVOKED).
        seen = (jobs, self._excluded_times)
        if self._seen[0] is not jobs or self._seen[1] != self._excluded_times:
            excluded, self._seen = self._excluded, seen
            self._here = [
                self._with_excluded(job) if excluded.get(job.job_id) else job
                for job in jobs
                if job.state is not JobState.ENDED
            ]
        return self._here, nodes, skipped + skipped_nodes, queries

    def _read_jobs(self) -> tuple[list[Job], list[Skipped]]:
        env = self._asking(self._job_records.token)
        try:
            return self._job_records.read(
                lambda take: self._commands.run_in_pieces(_SQUEUE, take, env=env), self._job_columns
            )
        except SlurmError:
            self._job_records.renew()  # what squeue says is told, and may quote the format
            raise

    def job(self, job_id: str) -> Job | None:
        seen, failures = CliBackend.look_at(self, (job_id,), whole=True)
        for error in failures.values():
            raise error
        return seen.get(job_id)

    def look_at(self, job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        seen, failures = super().look_at(job_ids)
        return ({job.job_id: job for job in self._whole(tuple(seen.values()))} if whole else seen), failures

    def _whole(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """With what squeue does not say of them in the same columns."""
        pending = [job for job in jobs if job.state is JobState.PENDING]
        unread = [job for job in jobs if job.state.holds_nodes and job.job_id not in self._excluded]
        if asked := [job.job_id for job in (*pending, *unread)]:
            self._read_excluded(f"--jobs={','.join(asked)}")
        for job in jobs:
            told = job
            if job.array_job_id is not None and job.state is JobState.PENDING:
                told = self._array_tasks.learn_limit(job, self._scontrol("show", "job", job.job_id))
            yield self._with_excluded(told)

    def reservations(self) -> tuple[Reservation, ...]:
        found, skipped = parse.read_reservations(self._scontrol("show", "reservation"))
        self._skipped_reservations = tuple(skipped)
        return tuple(found)

    def _asking(self, token: str) -> Mapping[str, str]:
        """In the environment: every user can read arguments, and could put the token into a Comment in time."""
        return {"SQUEUE_FORMAT2": parse.job_format(token, self._job_columns)}

    def _squeue(self, *options: str) -> tuple[str, str]:
        token = new_token()
        return unless_unknown(lambda: self._commands.run([*_SQUEUE, *options], env=self._asking(token))) or "", token

    @cached_property
    def _job_columns(self) -> tuple[str, ...]:
        """Asked once: it is the client on this machine that knows them."""
        try:
            known = self._commands.run(["squeue", "--helpFormat"])
        except SlurmRefusedError:
            known = ""  # a release that does not tell
        return parse.job_columns(known)

    def _look_all(self, job_ids: Sequence[str]) -> tuple[dict[str, Seen], Failures]:
        failures: dict[str, SlurmError] = {
            job_id: SlurmRefusedError(f"{job_id!r} is not a job id") for job_id in job_ids if not job_id.isdecimal()
        }
        asked = [job_id for job_id in job_ids if job_id not in failures]
        rows: dict[str, dict[str, str]] = {}
        try:
            self._ask_for(asked, rows, "--states=all")
            hidden = [job_id for job_id in asked if job_id not in rows]
            if hidden and len(asked) > 1:  # tasks that squeue shows in the line of their array
                self._ask_for(hidden, rows, "--array", "--states=all")
        except SlurmError as error:
            return {}, failures | dict.fromkeys(asked, error)
        seen: dict[str, Seen] = {}
        for job_id, row in rows.items():
            try:
                job = parse.job_from_row(row)
            except parse.FieldError as error:
                failures[job_id] = SlurmUnavailableError(f"job {job_id} cannot be read: {error}")
            else:
                self._requeue_delay.saw(job)
                seen[job_id] = job, parse.job_target(row)
        return seen, failures

    def _ask_for(self, job_ids: Sequence[str], rows: dict[str, dict[str, str]], *options: str) -> None:
        """Add the rows of these jobs. For an array or a heterogeneous job squeue lists every part."""
        if job_ids:
            text, token = self._squeue(*options, f"--jobs={','.join(job_ids)}")
            wanted = set(job_ids)
            found = parse.split_rows(text, token, self._job_columns)[0]
            rows.update((row["JobID"], row) for row in reversed(found) if row["JobID"] in wanted)

    def _refresh_excluded(self, jobs: Sequence[Job], now: datetime) -> int:
        """Ask for excluded nodes, also of running jobs, which may be moved; how many queries it took."""
        known, ended = self._excluded, JobState.ENDED
        new = (
            []
            if jobs is self._seen[0]
            else [job.job_id for job in jobs if job.job_id not in known and job.state is not ended]
        )
        fresh = abs((now - self._excluded_at).total_seconds()) < EXCLUDED_NODES_FOR_S
        if fresh and not new:
            return 0
        # A job that is gone by now must not be asked for again.
        if fresh and len(new) <= MOST_NEW:
            self._excluded |= dict.fromkeys(new, ())
            unless_unknown(lambda: self._read_excluded(f"--jobs={','.join(new)}"))
            return 1
        self._excluded = {job.job_id: () for job in jobs if job.state is not ended}
        self._excluding = {}
        if not self._excluded:
            return 0
        self._read_excluded()
        self._excluded_at = now
        return 1

    def _read_excluded(self, *options: str) -> None:
        token = new_token()
        argv = ["squeue", "--all", "--local", "--noheader", *options]
        env = {"SQUEUE_FORMAT": parse.excluded_nodes_format(token)}
        found, _ = parse.read_excluded_nodes(self._commands.run(argv, env=env), token)
        self._excluded_times += 1
        self._excluded.update(found)

    def _with_excluded(self, job: Job) -> Job:
        excluded = self._excluded.get(job.job_id, ())
        if not excluded:
            return job
        known = self._excluding.get(job.job_id)
        if known is None or known[0] is not job or known[1].excluded_nodes != excluded:
            known = self._excluding[job.job_id] = (job, replace(job, excluded_nodes=excluded))
        return known[1]

    def _act_all(self, change: JobChange, targets: Sequence[str], signal: str = "") -> Failures:
        listed = ",".join(targets)
        update = ("scontrol", "--oneliner", "update", f"JobId={listed}")
        commands: dict[JobChange, tuple[str, ...]] = {
            JobChange.CANCEL: ("scancel", *targets),
            JobChange.SIGNAL_BATCH: ("scancel", f"--signal={signal}", "--batch", *targets),
            JobChange.SIGNAL_STEPS: ("scancel", f"--signal={signal}", *targets),
            JobChange.SUSPEND: ("scontrol", "--oneliner", "suspend", listed),
            JobChange.RESUME: ("scontrol", "--oneliner", "resume", listed),
            JobChange.START_NOW: (*update, "StartTime=now"),
            JobChange.REQUEUE: ("scontrol", "--oneliner", "requeue", "Incomplete", listed),
            JobChange.RUN_AGAIN: ("scontrol", "--oneliner", "requeue", listed),
        }
        return change_list(self._commands, commands[change], targets)

    def _give_nice(self, nice: int, targets: Sequence[str]) -> Failures:
        argv = ("scontrol", "--oneliner", "update", f"JobId={','.join(targets)}", f"Nice={nice}")
        return change_list(self._commands, argv, targets)

    def _set_reservation(self, target: str, reservation: str) -> None:
        self._change("update", f"JobId={target}", f"ReservationName={reservation}")

    def _has_ended(self, error: SlurmRefusedError) -> bool:
        return _ENDED.search(str(error)) is not None
