"""Logging: one line for each thing that happened, as text or as JSON, to standard error; and the loop's own lines.

Keys are fixed words of this project; values come from users (job names, Comments, Slurm's answers) and are escaped,
so that no job can forge a line. Anything outside printable ASCII is shown as an escape.

A cycle has a line when something changed, and every few minutes all the same; each step and each event of an eviction
has one, as the store tells them. No line repeats what the one before it said.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import singledispatchmethod
from typing import Any, Literal, NamedTuple, TextIO, TypeVar

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from clearway.drain.rolling import newly_skipped
from clearway.model import events
from clearway.model.claims import CLAIM, Restart, read_claims
from clearway.model.clock import Clock
from clearway.model.cluster import JobState
from clearway.model.errors import ClearwayError
from clearway.model.operations import Eviction, Operation
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord, StepRecord
from clearway.model.report import CycleReport, Waiting

_NAME = "clearway"
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;/+@%*()\[\]{}<>|~^-]+")  # needs no quotes in a key=value line
_LONGEST = 2_000  # characters of one value: a Comment or an error may be of any length
T = TypeVar("T")
HEARTBEAT = timedelta(minutes=5)
_MOST_LINES = 20  # of one sort in a cycle: a thousand bad records need no thousand lines
_NUMBER = re.compile(r"\d+(\.\d+)?[dhms]?")


def configure_logging(
    log_format: Literal["json", "text"], stream: TextIO | None = None, *, quiet: bool = False
) -> None:
    """Send what the daemon and its libraries log to ``stream``, one line each; ``quiet``: no mere information."""
    renderer: Processor = _as_json if log_format == "json" else _as_text
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)  # libraries speak up only when something is wrong
    logging.getLogger(_NAME).setLevel(logging.WARNING if quiet else logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def get_logger() -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger(_NAME)
    return logger


def _as_text(_: WrappedLogger, __: str, event: EventDict) -> str:
    """``time level event key=value ...`` on one line."""
    head = [str(event.pop("time", "")), str(event.pop("level", "info")), _escaped(_cut(str(event.pop("event", ""))))]
    return " ".join([*head, *(f"{key}={_value(value)}" for key, value in event.items() if value is not None)])


def _as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    first = ("time", "level", "event")
    ordered = {key: event[key] for key in first if key in event}
    ordered |= {key: value for key, value in event.items() if key not in first and value is not None}
    return json.dumps({key: _cut(value) for key, value in ordered.items()}, default=str, ensure_ascii=True)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(_cut(str(value)))
    return text if _PLAIN.fullmatch(text) else f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)[1:-1]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}... ({len(value)} characters)"
    return value


class _Condition(NamedTuple):
    """Something that lasts, and why: a line when it begins or has another cause, and one when it is over."""

    name: str  # of the report
    level: int
    begins: str
    over: str
    advice: str | None = None
    of_release: bool = False  # so that Slurm's is told when it is over


_CONDITIONS = (
    _Condition("clock_doubt", logging.WARNING, "nothing is done by this time", "the clock is gone by again"),
    _Condition(
        "only_observes",
        logging.WARNING,
        "Clearway only observes, whatever daemon.mode says",
        "Clearway acts again as daemon.mode says",
        of_release=True,
    ),
    _Condition("refused_rules", logging.ERROR, "not every rule holds", "every rule holds again"),
    _Condition(
        "stopped",
        logging.ERROR,
        "no job is made to leave any more",
        "jobs may be made to leave again",
        advice="clearway resume",
    ),
)


class LogLines:
    """``write`` takes any event; ``steps`` reads an eviction's steps from the store."""

    def __init__(self, clock: Clock, steps: Callable[[int], tuple[StepRecord, ...]]) -> None:
        self._clock = clock
        self._steps = steps
        self._log = get_logger()
        self._since = clock.now()
        self._told_step: dict[int, int] = {}  # eviction id to the last step that has a line
        self._evictions: dict[int, Operation] = {}
        self._acted = False
        self._waiting: dict[str, tuple[int | None, str]] = {}
        self._unread: frozenset[tuple[str, str]] = frozenset()
        self._complaints: frozenset[str] = frozenset()
        self._epoch: int | None = None
        self._conditions: dict[str, str] = {}
        self._signature: tuple[object, ...] | None = None
        self._spoke_at: datetime | None = None
        self._failure: tuple[str, datetime, int] | None = None

    @singledispatchmethod
    def write(self, event: events.Event) -> None:
        """The lines of one event; the types that are not registered below have none."""

    @write.register
    def _cycle(self, report: CycleReport) -> None:
        if self._failure is not None:
            self._log.info("cycles succeed again", failures=self._failure[2])
            self._failure = None
        if report.epoch != self._epoch:
            self._log.info("this daemon leads" if report.epoch else "another daemon leads", epoch=report.epoch)
            self._epoch = report.epoch
        for each in _CONDITIONS:
            why = getattr(report, each.name)
            if why and why != self._conditions.get(each.name):
                self._log.log(each.level, each.begins, why=why, next=each.advice)
            elif not why and self._conditions.get(each.name):
                self._log.info(each.over, slurm=report.snapshot.slurm_version if each.of_release else None)
            self._conditions[each.name] = why
        self._tell_unread(report)
        self._tell_waiting(report.waiting)
        self._tell_evictions(report)
        self._tell_cycle(report)

    def _tell_cycle(self, report: CycleReport) -> None:
        """Where something changed, and every few minutes all the same."""
        signature = (
            report.paused,
            report.halted,
            report.standby,
            len(self._unread),
            tuple((waiting.preemptor.job.job_id, waiting.eviction_id) for waiting in report.waiting),
            tuple((e.eviction_id, e.state, *(p.state for p in e.preemptions)) for e in report.open_evictions),
        )
        same, self._signature = signature == self._signature, signature
        if same and self._spoke_at is not None and report.at - self._spoke_at < HEARTBEAT:
            return
        self._spoke_at = report.at
        states, snapshot = [job.state for job in report.snapshot.jobs], report.snapshot
        log = self._log.bind(jobs_running=states.count(JobState.RUNNING), jobs_pending=states.count(JobState.PENDING))
        log = log.bind(nodes=len(snapshot.nodes), waiting_preemptors=len(report.waiting))
        flags = {name: getattr(report, name) or None for name in ("paused", "halted", "stopped", "standby")}
        skipped = len(snapshot.skipped) or None
        log.info(
            "cycle", open_evictions=len(report.open_evictions), **flags, skipped_records=skipped, seconds=report.seconds
        )

    @write.register
    def _cycle_cut(self, event: events.CycleCut) -> None:
        self._log.warning("cycle ended early", why=str(event.error))

    @write.register
    def _cycle_failed(self, event: events.CycleFailed) -> None:
        """The first failure of its kind has a line; while it lasts, one every few minutes."""
        error, now = event.error, self._clock.now()
        text = f"{type(error).__name__}: {error}"
        kind = _NUMBER.sub("#", text)
        before, told_at, count = self._failure or ("", now, 0)
        same, count = before == kind, count + 1
        if same and now - told_at < HEARTBEAT:
            self._failure = (kind, told_at, count)
            return
        self._failure = (kind, now, count)
        # What is raised on purpose says all in one line; anything else is a bug, and needs its traceback.
        trace = None if isinstance(error, ClearwayError) or same else error
        self._log.error("cycle failed", error=text, failures=count, exc_info=trace)

    @write.register
    def _handling_failed(self, event: events.HandlingFailed) -> None:
        """The traceback comes once: the same subject fails again with the same error."""
        failed = event.quarantined
        log = self._log.bind(what=failed.subject.value, id=failed.ident, error=failed.why, times=failed.times)
        again = failed.until.isoformat(timespec="seconds")
        log.error("handling failed", again=again, exc_info=event.error if failed.times == 1 else None)

    @write.register
    def _checkpointed(self, record: CheckpointRecord) -> None:
        """One that failed has a line of its own: its user and application may need help."""
        if record.outcome in (CheckpointOutcome.FAILED, CheckpointOutcome.LATE):
            self._log.warning("checkpoint failed", **_of_job(record), outcome=record.outcome.value)

    @write.register
    def _restarted(self, record: RestartRecord) -> None:
        if record.restart is not Restart.OK:
            self._log.warning("restart fell back", **_of_job(record), restart=record.restart.value)

    @write.register
    def _rolled(self, event: events.RollingProgress) -> None:
        """A line for each node that is skipped, and one when the order has ended."""
        after, missed = event.after, newly_skipped(event.before, event.after)
        log = self._log.bind(rolling_drain=after.rolling_id)
        for turn in _some(missed, log, "more were skipped"):
            log.warning("node skipped", node=turn.node, why=turn.note)
        if after.state.terminal:
            log.info("rolling drain finished", state=after.state.value, outcome=after.outcome)

    def _tell_unread(self, report: CycleReport) -> None:
        found = {(f"{item.kind} record", item.ident): item.why for item in report.snapshot.skipped}
        for job in report.snapshot.jobs:
            if CLAIM in job.comment and (error := read_claims(job)[1]):
                found["comment", job.display_id] = error
        fresh = sorted(found.keys() - self._unread)
        for what, ident in _some(fresh, self._log, "more could not be read"):
            event = "comment not understood" if what == "comment" else "record skipped"
            self._log.warning(event, what=what, id=ident, why=found[what, ident])
        self._unread = frozenset(found)

    def _tell_waiting(self, waiting: tuple[Waiting, ...]) -> None:
        """A line when a preemptor appears, and when what becomes of it changes (the numbers in it always do)."""
        now: dict[str, tuple[int | None, str]] = {}
        for each in waiting:
            job = each.preemptor.job
            now[job.job_id] = (each.eviction_id, _NUMBER.sub("#", each.why))
            if self._waiting.get(job.job_id) != now[job.job_id]:
                log = self._log.bind(job=job.display_id, user=job.user, nodes=job.num_nodes, rule=each.preemptor.rule)
                deadline = each.preemptor.deadline.isoformat(timespec="seconds")
                log.info("preemptor waits", deadline=deadline, eviction=each.eviction_id, why=each.why)
        for job_id in self._waiting.keys() - now.keys():
            self._log.info("preemptor waits no more", job=job_id)
        self._waiting = now

    def _tell_evictions(self, report: CycleReport) -> None:
        acted, self._acted = self._acted, False
        for eviction in report.open_evictions:
            known = self._evictions.get(eviction.eviction_id)
            if known is None or known != eviction or (acted and eviction.state.acting):
                self._tell_steps(eviction.eviction_id)
            if known is not None and known.state is not eviction.state:
                log = self._log.bind(eviction=eviction.eviction_id, state=eviction.state.value)
                log.info("eviction", before=known.state.value, job=eviction.subject.job_id)
        self._evictions = {eviction.eviction_id: eviction for eviction in report.open_evictions}
        self._told_step = {number: step for number, step in self._told_step.items() if number in self._evictions}

    def _tell_steps(self, eviction_id: int) -> None:
        """Steps and events since the last look; those of an earlier daemon's life have been told."""
        told = self._told_step.get(eviction_id, 0)
        for step in self._steps(eviction_id):
            if step.step_id <= told or step.intended_at < self._since:
                continue
            told = step.step_id
            log = self._log.bind(eviction=eviction_id, job=step.job_id)
            tell = log.info if step.result == "ok" else log.warning
            if step.kind == "event":
                tell("event", text=step.detail)
            else:
                tell("step", kind=step.kind, result=step.result or "unknown", detail=step.detail or None)
        self._told_step[eviction_id] = told

    @write.register
    def _calendar(self, event: events.CalendarRead) -> None:
        """Each complaint when it is new."""
        fresh = [each for each in event.complaints if each not in self._complaints]
        for each in _some(fresh, self._log, "more in the calendar cannot be followed"):
            self._log.warning("calendar", text=each)
        self._complaints = frozenset(event.complaints)

    @write.register
    def _planned(self, event: events.PlanMade) -> None:
        eviction, plan = event.operation, event.operation.plan
        log = self._log.bind(eviction=eviction.eviction_id, mode=eviction.mode, state=eviction.state.value)
        log = log.bind(job=eviction.subject.display_id, nodes=plan.nodes_needed)
        log.info(
            "eviction planned",
            switch=eviction.plan.switch or None if isinstance(eviction, Eviction) else None,
            deadline=plan.deadline.isoformat(timespec="seconds"),
            preemptees=",".join(job.display_id for job in plan.preemptees) or None,
            lost_work_node_s=plan.chosen.lost_work_node_s,
            checkpoint_s=plan.chosen.checkpoint_s,
            seconds=event.seconds,
            note=eviction.outcome or None,
        )

    @write.register
    def _explained(self, event: events.PlanExplained) -> None:
        told, number = event.explanation, event.operation.eviction_id
        losses = {
            f"{each.rule.replace('-', '_')}_node_s": each.cost.lost_work_node_s if each.cost else None
            for each in told.rules
        }
        log = self._log.bind(eviction=number, lost_work_node_s=told.cost.lost_work_node_s, **losses)
        log.info("eviction explained", complete=told.complete)

    @write.register
    def _command(self, _: events.CommandGiven) -> None:  # the store tells steps with all their details
        self._acted = True

    @write.register
    def _left(self, event: events.JobLeft) -> None:
        p, job = event.preemption, event.preemption.job
        log = self._log.bind(job=job.display_id, user=job.user, action=p.action.value, partition=event.partition)
        log.info("job has left its nodes", lost_work_node_s=p.actual_lost_node_s, checkpoint_s=p.actual_checkpoint_s)

    @write.register
    def _measured(self, event: events.LossMeasured) -> None:
        p = event.preemption
        log = self._log.bind(job=p.job.display_id, user=p.job.user, eviction=event.operation.eviction_id)
        log.info("loss measured", restart=p.restart and p.restart.value, lost_work_node_s=p.actual_lost_node_s)

    @write.register
    def _ended(self, event: events.OperationFinished) -> None:
        eviction = event.operation
        self._tell_steps(eviction.eviction_id)
        log = self._log.bind(eviction=eviction.eviction_id, state=eviction.state.value, job=eviction.subject.display_id)
        log.info("eviction finished", outcome=eviction.outcome or None, lost_work_node_s=eviction.actual_lost_node_s)


def _of_job(record: CheckpointRecord | RestartRecord) -> dict[str, str]:
    return {"job": record.job_id, "user": record.user, "app": record.app, "checkpointer": record.checkpointer}


def _some(found: Sequence[T], log: FilteringBoundLogger, more: str) -> Iterator[T]:
    """The first of these; how many are left out is told after them."""
    yield from found[:_MOST_LINES]
    if len(found) > _MOST_LINES:
        log.warning(more, count=len(found) - _MOST_LINES)
