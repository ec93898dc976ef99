"""Cycles, what the daemon could not read, and what it is set to, for Prometheus."""

from collections import Counter as Tally
from functools import singledispatchmethod

from clearway.config.configuration import Config, Mode
from clearway.execution.job_lifecycle import Command
from clearway.model.claims import read_claims
from clearway.model.clock import Clock
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError, StoreError
from clearway.model.events import CommandGiven, CycleFailed, Event
from clearway.model.report import CycleReport
from clearway.telemetry.families import Families

_RESULTS = ("ok", "refused", "error")
_FAILURES = ("slurm_timeout", "slurm_unavailable", "slurm_refused", "store", "internal")
_RECORDS = ("job", "node", "reservation")
_CYCLE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30)


class DaemonMetrics:
    """``wall`` gives the times of day that are shown."""

    def __init__(self, families: Families, wall: Clock) -> None:
        self._wall = wall
        self._skipped: frozenset[tuple[str, str]] = frozenset()
        self._cycles = families.counter("clearway_cycles", "Cycles that succeeded.")
        self._failures = families.counter("clearway_cycle_failures", "Cycles that failed, by cause.", kind=_FAILURES)
        self._seconds = families.histogram(
            "clearway_cycle_duration_seconds", "Duration of a cycle that succeeded.", _CYCLE_BUCKETS
        )
        self._last = families.gauge(
            "clearway_last_cycle_timestamp_seconds", "Unix time of the last cycle that succeeded; 0: none has yet."
        )
        self._queries = families.counter(
            "clearway_slurm_queries", "Queries to Slurm that snapshots of the cluster took."
        )
        self._commands = families.counter(
            "clearway_slurm_steps",
            "Commands given to Slurm, by kind and result.",
            kind=[command.value for command in Command],
            result=_RESULTS,
        )
        self._unreadable = families.gauge(
            "clearway_unreadable_records",
            "Records in the newest snapshot that could not be read; nothing is done to them. 0: all were read.",
            kind=_RECORDS,
        )
        self._skipped_total = families.counter(
            "clearway_skipped_records",
            "Records that could not be read; one that stays unreadable counts once.",
            kind=_RECORDS,
        )
        self._claims = families.gauge(
            "clearway_unreadable_claims",
            "Jobs in the newest snapshot whose Comment begins with clearway: but cannot be read; it counts as none.",
        )
        self._paused = families.gauge("clearway_paused", "1 while an operator has paused the daemon, else 0.")
        self._standby = families.gauge(
            "clearway_standby", "1 while another daemon holds the lease on the database, else 0."
        )
        self._mode = families.gauge("clearway_mode", "1 for the configured daemon.mode, 0 for the others.", mode=())

    def configured(self, config: Config) -> None:
        for mode in Mode:
            self._mode.labels(mode.value).set(mode is config.daemon.mode)

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        self._cycles.inc()
        self._seconds.observe(report.seconds)
        self._last.set(self._wall.now().timestamp())
        self._queries.inc(report.snapshot.queries)
        self._paused.set(report.paused)
        self._standby.set(report.standby)
        self._claims.set(sum(1 for job in report.snapshot.jobs if read_claims(job)[1]))
        skipped = frozenset((item.kind, item.ident) for item in report.snapshot.skipped)
        for kind, _ in skipped - self._skipped:
            self._skipped_total.labels(_record(kind)).inc()
        self._skipped = skipped
        kinds = Tally(_record(item.kind) for item in report.snapshot.skipped)
        for kind in _RECORDS:
            self._unreadable.labels(kind).set(kinds[kind])

    @record.register
    def _cycle_failed(self, event: CycleFailed) -> None:
        self._failures.labels(failure_kind(event.error)).inc()

    @record.register
    def _command(self, event: CommandGiven) -> None:
        self._commands.labels(event.kind, event.result).inc()


def failure_kind(error: BaseException) -> str:
    """The label of a failed cycle."""
    match error:
        case SlurmTimeoutError():
            return "slurm_timeout"
        case SlurmUnavailableError():
            return "slurm_unavailable"
        case SlurmRefusedError():
            return "slurm_refused"
        case StoreError():
            return "store"
        case _:
            return "internal"


def _record(kind: str) -> str:
    return kind if kind in _RECORDS else "job"
