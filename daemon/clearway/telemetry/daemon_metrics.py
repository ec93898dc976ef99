"""Cycles, what the daemon could not read, and what it is set to, for Prometheus."""

from functools import singledispatchmethod

from clearway.config.configuration import Config, Mode
from clearway.model.claims import read_claims
from clearway.model.clock import Clock
from clearway.model.events import CommandGiven, CycleFailed, Event
from clearway.model.report import CycleReport
from clearway.telemetry.families import FAILURES, RECORDS, Families


class DaemonMetrics:
    """``wall`` gives the times of day that are shown."""

    def __init__(self, families: Families, wall: Clock) -> None:
        self._families = families
        self._wall = wall
        self._skipped: frozenset[tuple[str, str]] = frozenset()

    def configured(self, config: Config) -> None:
        for mode in Mode:
            self._families.set("mode", mode is config.daemon.mode, mode.value)

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        snapshot = report.snapshot
        self._families.add("cycles")
        self._families.observe("cycle_duration_seconds", report.seconds)
        self._families.set("last_cycle_timestamp_seconds", self._wall.now().timestamp())
        self._families.add("slurm_queries", snapshot.queries)
        self._families.set("paused", report.paused)
        self._families.set("standby", report.standby)
        self._families.set("unreadable_claims", sum(1 for job in snapshot.jobs if read_claims(job)[1]))
        self._families.set_tally("unreadable_records", RECORDS, (_record(item.kind) for item in snapshot.skipped))
        skipped = frozenset((item.kind, item.ident) for item in snapshot.skipped)
        for kind, _ in skipped - self._skipped:
            self._families.add("skipped_records", 1, _record(kind))
        self._skipped = skipped

    @record.register
    def _cycle_failed(self, event: CycleFailed) -> None:
        self._families.add("cycle_failures", 1, failure_kind(event.error))

    @record.register
    def _command(self, event: CommandGiven) -> None:
        self._families.add("slurm_steps", 1, event.kind, event.result)


def failure_kind(error: BaseException) -> str:
    """The label of a failed cycle."""
    return next(kind for sort, kind in FAILURES.items() if isinstance(error, sort))


def _record(kind: str) -> str:
    return kind if kind in RECORDS else "job"
