"""What Slurm's accounting knows of a site's jobs: the command, and how its answer is read.

Other than a trace (``sacct``), it keeps all that Slurm needs to place a job: its partition, resources, features, nodes,
reservation and Comment, and every run of a job that was requeued (``--duplicates``). Times are Unix times
(``SLURM_TIME_FORMAT=%s``). Comment and JobName come last: a bar in one of them moves text between the two, and no other
field.

What a job did in all (``work_s``) is what its last run took; of a job that saves itself, what its runs before had kept
as well.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import NamedTuple

from clearway.model.claims import CheckpointHow, ClaimError, Claims, SaveState, parse_claims
from clearway.model.cluster import Counts, Job, JobState, Reservation
from clearway.simulation.jobs import HOLD_S
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.hostlist import expand
from clearway.slurm.site_facts import sacct_command
from clearway_lab.errors import TraceError
from clearway_lab.traces.trace import BrokenLine

ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
_NO_TIME = {"Unknown", "None", ""}
_SEEN_AFTER = timedelta(seconds=1)  # from the second of a submission: a poll of the daemon, in the mean
_SIMPLE = re.compile(r"[A-Za-z0-9_.:-]+(&[A-Za-z0-9_.:-]+)*")


class _Row(NamedTuple):
    """The fields that sacct is asked for, by its own names."""

    JobIDRaw: str
    User: str
    Account: str
    Partition: str
    QOS: str
    State: str
    Submit: str
    Eligible: str
    Start: str
    End: str
    ElapsedRaw: str  # seconds
    TimelimitRaw: str  # minutes, or a word
    NNodes: str
    NodeList: str
    Priority: str
    Reservation: str
    Constraints: str
    ReqTRES: str
    AllocTRES: str
    Comment: str
    JobName: str

    @property
    def time_limit_s(self) -> int | None:
        return 60 * fields.number(self.TimelimitRaw, "") if self.TimelimitRaw.isdecimal() else None

    @property
    def priority(self) -> int:
        return fields.number(self.Priority, "Priority") if self.Priority.isdecimal() else 0

    @property
    def features(self) -> str:
        """What it asks for, where that is a list of names; else nothing."""
        return self.Constraints if _SIMPLE.fullmatch(self.Constraints) else ""

    @property
    def num_nodes(self) -> int:
        return max(1, fields.number(self.NNodes, "NNodes"))

    def on_a_node(self) -> tuple[int, int, Counts]:
        """Of processors, memory (MiB) and GPUs its share of one node."""
        held, nodes = fields.tres(self.AllocTRES) or fields.tres(self.ReqTRES), self.num_nodes
        cpus = ceil(fields.number(held.get("cpu", "0"), "TRES cpu") / nodes)
        memory_mib = ceil(fields.size_mib(held["mem"], "TRES mem") / nodes) if "mem" in held else 0
        return cpus, memory_mib, _gpus(held, nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    start: datetime
    end: datetime | None  # None: it still runs
    elapsed_s: float
    nodes: tuple[str, ...]
    eligible: datetime | None = None  # from when on it could have begun
    requeued: bool = False  # and not by the failure of a node
    comment: str = ""  # at its end
    asked_for: datetime | None = None  # the submission of the urgent job that it was asked for first, if that is known

    @property
    def claims(self) -> Claims | None:
        return _claims(self.comment)

    def ended_by(self, at: datetime) -> bool:
        """One that was requeued in this very second will have been so after it: for the job that came then."""
        return self.end is not None and (self.end < at or (self.end == at and not self.requeued))

    @property
    def kept_s(self) -> float:
        """What it computed and a later run goes on from. While a job saves itself it does no work."""
        told = self.claims
        if not self.requeued or told is None or (told.run is None and told.last is None):
            return self.elapsed_s  # of what requeues itself and says nothing, all is believed
        until = told.last if told.state is not SaveState.SAVED else self.asked_first
        return 0.0 if until is None else max(0.0, (until - self.start).total_seconds())

    @property
    def asked_first(self) -> datetime | None:
        """When the checkpoint that its state speaks of was begun; None where it does not say.

        Asked again while it saves itself or its launcher holds it, a job answers as soon as it has done so, with when
        it was asked last. It was asked first when an urgent job had come, else it stands for half of the time.
        """
        told = self.claims
        if told is None or told.state is not SaveState.SAVED or told.asked is None or told.asked < self.start:
            return None
        hidden = self._hidden_ask
        if hidden is None:
            return told.asked
        earliest, latest = hidden
        if self.asked_for is not None:
            return max(self.start, min(self.asked_for + _SEEN_AFTER, latest))
        return max(self.start, earliest + (latest - earliest) / 2)

    @property
    def _hidden_ask(self) -> tuple[datetime, datetime] | None:
        """Between which times it was asked first, where its Comment tells only of the last time."""
        told = self.claims
        if told is None or told.asked is None or told.last is None or told.took_s is None:
            return None
        if (told.last - told.asked).total_seconds() >= told.took_s / 2:
            return None
        latest = told.asked - timedelta(seconds=told.took_s)
        return latest - timedelta(seconds=HOLD_S), latest

    def knowing(self, urgent: Sequence[datetime]) -> "Run":
        """``urgent``: when urgent jobs were submitted, in order."""
        if (hidden := self._hidden_ask) is None:
            return self
        earliest, latest = (at - _SEEN_AFTER for at in hidden)
        came = [at for at in urgent if earliest <= at <= latest + _SEEN_AFTER]  # whole seconds: one of tolerance
        return replace(self, asked_for=came[-1]) if came else self

    @property
    def stood_s(self) -> float:
        """How long it did no work because it saved itself and was held, and was not requeued after all."""
        asked, told = self.asked_first, self.claims
        if self.requeued or asked is None or told is None or told.last is None or self.end is None:
            return 0.0
        return min(self.end - asked, told.last - asked + timedelta(seconds=HOLD_S)).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job that ran, or runs. ``cpus`` and ``memory_mib`` are those of one node."""

    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    comment: str
    submit: datetime
    eligible: datetime
    time_limit_s: int | None
    num_nodes: int
    cpus: int
    memory_mib: int
    gpus: Counts
    features: str
    reservation: str
    priority: int
    runs: tuple[Run, ...]
    earlier: tuple[Run, ...] = ()  # runs that had ended when a replay begins
    took_s: tuple[float, ...] = ()  # what its checkpoints took, as its runs said

    @property
    def claims(self) -> Claims | None:
        return _claims(self.comment)

    @property
    def saves_itself(self) -> bool:
        return self.claims is not None and self.claims.checkpoint not in (None, CheckpointHow.NONE)

    @property
    def work_s(self) -> float:
        """What it computes; of one that still runs, as much as its time limit allows."""
        last = self.runs[-1]
        last_s = last.elapsed_s - last.stood_s if last.end else max(last.elapsed_s, self.time_limit_s or 0.0)
        before_s = sum(run.kept_s for run in self.runs[:-1]) if self.saves_itself else 0.0
        return max(1.0, before_s + last_s)

    def saved_by(self, now: datetime) -> datetime | None:
        """When the run that was under way then had saved itself, as far as its Comment at its end tells that."""
        run, told = self.runs[0], self._told_by_run()
        if told is None or told.last is None or told.last < run.start:
            return None
        if told.last <= now and (told.asked is None or told.asked < now):
            return told.last
        if told.asked is None or told.took_s is None or run.asked_first is None or run.asked_first == told.asked:
            return None
        before = run.asked_first + timedelta(seconds=told.took_s)
        return before if before <= now else None

    def saves_at(self, now: datetime) -> datetime | None:
        """Since when it was saving itself then; None where it was not."""
        asked, told = self.runs[0].asked_first, self._told_by_run()
        return asked if told is not None and told.last is not None and asked and asked < now < told.last else None

    def _told_by_run(self) -> Claims | None:
        told = self.runs[0].claims
        return told if told is not None and told.run == len(self.earlier) else None

    def as_slurm(self) -> Job:
        """As far as rules and estimates ask."""
        return Job(
            job_id=str(self.job_id),
            user=self.user,
            account=self.account,
            qos=self.qos,
            name=self.name,
            comment=self.comment,
            state=JobState.PENDING,
            raw_state="PENDING",
            partitions=(self.partition,),
            num_nodes=self.num_nodes,
            submit_time=self.submit,
            memory_mib=self.memory_mib,
        )


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that took no jobs. ``end`` None: it still does not."""

    node: str
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class SiteRecord:
    name: str
    jobs: tuple[RecordedJob, ...]
    broken: tuple[BrokenLine, ...] = ()
    never_ran: int = 0
    reservations: tuple[Reservation, ...] = ()
    outages: tuple[Outage, ...] = ()
    begins: datetime | None = None  # when a replay begins; None: when the first run ended
    earlier: tuple[RecordedJob, ...] = ()  # jobs of which a run had ended by then, with all their runs

    def knowing(self, urgent: Callable[[RecordedJob], bool]) -> "SiteRecord":
        """Its jobs were asked to save themselves when urgent ones came."""
        came = sorted(job.submit for job in self.jobs if urgent(job))
        jobs = (replace(job, runs=tuple(run.knowing(came) for run in job.runs)) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))

    def as_of(self, job_id: int, urgent: Callable[[RecordedJob], bool]) -> "SiteRecord":
        """From the moment on when this job was submitted: what ran then runs, what waited waits.

        Where urgent jobs waited already, it begins with the first of them: jobs may have been leaving for it.

        Raises:
            TraceError: there is no such job.
        """
        at = next((job.submit for job in self.jobs if job.job_id == job_id), None)
        if at is None:
            raise TraceError(f"{self.name}: no job {job_id} that ran")
        for job in sorted(filter(urgent, self.jobs), key=lambda each: each.submit, reverse=True):
            if job.submit < at <= job.runs[0].start:
                at = job.submit
        jobs = []
        for job in self.jobs:
            ended = tuple(run for run in job.runs if run.ended_by(at))
            if runs := job.runs[len(ended) :]:
                jobs.append(replace(job, runs=runs, earlier=ended, eligible=runs[0].eligible or job.eligible))
        earlier = tuple(job for job in self.jobs if job.runs[0].ended_by(at))
        return replace(self, jobs=tuple(jobs), begins=at, earlier=earlier)


def _claims(comment: str) -> Claims | None:
    try:
        return parse_claims(comment)
    except ClaimError:
        return None


def command(start: str, end: str) -> Sequence[str]:
    """For all runs of all jobs of all users between two times, as sacct reads times."""
    return sacct_command(_Row._fields, "--allusers", "--duplicates", f"--starttime={start}", f"--endtime={end}")


def read_record(lines: Iterable[str], name: str) -> SiteRecord:
    by_job: dict[int, list[tuple[_Row, Run]]] = {}
    broken: list[BrokenLine] = []
    never_ran = 0
    for number, line in enumerate(lines, start=1):
        words = line.rstrip("\r\n").split("|", len(_Row._fields) - 1)
        if not line.strip():
            continue
        try:
            if len(words) != len(_Row._fields):
                raise FieldError(f"{len(words)} fields, not {len(_Row._fields)}")  # noqa: TRY301 - as any other fault
            row = _Row(*words)
            run = _run(row)
            if run is None:
                never_ran += 1
                continue
            by_job.setdefault(fields.number(row.JobIDRaw, "JobIDRaw"), []).append((row, run))
        except FieldError as error:
            broken.append(BrokenLine(number, str(error)))
    jobs = []
    for job_id, rows in by_job.items():
        try:
            jobs.append(_job(job_id, rows))
        except FieldError as error:
            broken.append(BrokenLine(0, f"job {job_id}: {error}"))
    jobs.sort(key=lambda job: (job.submit, job.job_id))
    return SiteRecord(name, tuple(jobs), tuple(broken), never_ran)


def _run(row: _Row) -> Run | None:
    """None for one that never began."""
    start, end = unix_time(row.Start, "Start"), unix_time(row.End, "End")
    elapsed_s = fields.number(row.ElapsedRaw, "ElapsedRaw")
    if start is None or (end is not None and elapsed_s == 0):
        return None
    return Run(
        start=start,
        end=end,
        elapsed_s=elapsed_s,
        nodes=expand(row.NodeList),
        eligible=unix_time(row.Eligible, "Eligible"),
        requeued=row.State == "REQUEUED",
        comment=row.Comment,
    )


def _job(job_id: int, rows: list[tuple[_Row, Run]]) -> RecordedJob:
    unique = {run.start: (row, run) for row, run in rows}
    ordered = [unique[at] for at in sorted(unique)]
    first, last = ordered[0][0], ordered[-1][0]
    submit = unix_time(first.Submit, "Submit")
    if submit is None:
        raise FieldError("Submit is missing")
    cpus, memory_mib, gpus = last.on_a_node()
    said = [told for row, _ in ordered if (told := _claims(row.Comment)) is not None]
    return RecordedJob(
        job_id=job_id,
        user=last.User,
        account=last.Account,
        partition=last.Partition,
        qos=last.QOS,
        name=last.JobName,
        comment=next((row.Comment for row, _ in reversed(ordered) if row.Comment), ""),  # a run's is kept when it ends
        submit=submit,
        eligible=unix_time(first.Eligible, "Eligible") or submit,
        time_limit_s=last.time_limit_s,
        num_nodes=last.num_nodes,
        cpus=cpus,
        memory_mib=memory_mib,
        gpus=gpus,
        features=last.features,
        reservation=last.Reservation,
        priority=first.priority,
        runs=tuple(run for _, run in ordered),
        took_s=tuple(told.took_s for told in said if told.took_s is not None),
    )


def _gpus(held: dict[str, str], nodes: int) -> Counts:
    """On each node, by type where that is told."""
    counts = {
        name.removeprefix("gres/gpu").removeprefix(":"): count for name, count in held.items() if "gres/gpu" in name
    }
    typed = {kind: count for kind, count in counts.items() if kind} or counts
    return tuple(sorted((kind, ceil(fields.number(count, "TRES gpu") / nodes)) for kind, count in typed.items()))


def unix_time(word: str, what: str) -> datetime | None:
    if word in _NO_TIME:
        return None
    if not word.isdecimal():
        raise FieldError(f"{what} is {word[:40]!r}, not a Unix time (sacct tells those with SLURM_TIME_FORMAT=%s)")
    return datetime.fromtimestamp(fields.number(word, what), UTC)
