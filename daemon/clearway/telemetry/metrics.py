"""What Prometheus reads, in a registry of its own. Labels take few values: never a job id or a user's name.

Counters start at 0 with the daemon, as Prometheus expects. What is counted stands in the module of its subject.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import singledispatchmethod

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest

import clearway
from clearway.config.configuration import Config, Mode
from clearway.model.claims import CLAIM, read_claims
from clearway.model.clock import Clock, SystemClock
from clearway.model.events import CommandGiven, CycleCut, CycleFailed, Event, HandlingFailed
from clearway.model.report import CycleReport
from clearway.telemetry.event_metrics import AccountMetrics, NoticeMetrics, OperationMetrics, WorkMetrics
from clearway.telemetry.families import CUTS, FAILURES, RECORDS, Families

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which is never read


class Metrics:
    """All metrics of one daemon. ``clock`` is the loop's; times of day that are shown come from the wall's."""

    def __init__(
        self, clock: Clock, *, backend: str = "", wall: Clock | None = None, checkpointers: Iterable[str] = ()
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        build = Info("clearway_build", "Version of the daemon.", registry=self.registry)
        build.info({"version": clearway.__version__, "python": platform.python_version()})
        Info("clearway_backend", "How the daemon talks to Slurm.", registry=self.registry).info({"name": backend})
        self._restarts: Callable[[], int] = lambda: 0
        self.registry.register(self)
        families = Families(self.registry)
        self._daemon = _DaemonMetrics(families, wall or SystemClock())
        self._work = WorkMetrics(families, checkpointers)
        self.notices = NoticeMetrics(families)
        self._accounts = AccountMetrics(families)
        self._parts = (self._daemon, self._work, OperationMetrics(families, clock.now()), self._accounts)

    def configured(self, config: Config) -> None:
        """Show mode and limits, and name accounts or not."""
        self._daemon.configured(config)
        self._work.configured(config)
        self._accounts.configured(config)

    def count_restarts(self, restarts: Callable[[], int]) -> None:
        """Show how often the backend's own process had to be started again; 0 for one without such a process."""
        self._restarts = restarts

    def collect(self) -> Iterator[Metric]:
        """The backend's own count, read when Prometheus asks."""
        text = "Times that the backend's own process was started again; always 0 for one without such a process."
        yield CounterMetricFamily("clearway_backend_restarts", text, value=self._restarts())

    def record(self, event: Event) -> None:
        """Count one event, whatever its type."""
        for part in self._parts:
            part.record(event)

    def count_refusal(self, lane: str) -> None:
        """A REST request found no place in its lane."""
        self._daemon.count_refusal(lane)

    def count_refused_login(self, reason: str) -> None:
        """A REST request had a token that is not good, or a role that does not suffice."""
        self._daemon.count_refused_login(reason)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class _DaemonMetrics:
    """Cycles, what the daemon could not read, and what it is set to; ``wall`` gives the times of day."""

    def __init__(self, families: Families, wall: Clock) -> None:
        self._families = families
        self._wall = wall
        self._skipped: frozenset[tuple[str, str]] = frozenset()

    def configured(self, config: Config) -> None:
        for mode in Mode:
            self._families.set("mode", mode is config.daemon.mode, mode.value)
        self._families.set("database_limit_bytes", config.daemon.database_limit_mib * 2**20)

    def count_refusal(self, lane: str) -> None:
        self._families.add("rest_refusals", 1, lane)

    def count_refused_login(self, reason: str) -> None:
        self._families.add("refused_logins", 1, reason)

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
        self._families.set("stopped", bool(report.stopped))
        self._families.set("halted", bool(report.halted))
        self._families.set("only_observes", bool(report.only_observes))
        self._families.set("standby", report.standby)
        self._families.set("database_bytes", report.database_bytes)
        self._families.set_tally("quarantined", (each.subject.value for each in report.quarantined))
        self._families.set("clock_doubted", bool(report.clock_doubt))
        self._families.set("lease_epoch", report.epoch or 0)
        self._families.set(
            "unreadable_claims", sum(1 for job in snapshot.jobs if CLAIM in job.comment and read_claims(job)[1])
        )
        self._families.set_tally("unreadable_records", (_record(item.kind) for item in snapshot.skipped))
        skipped = frozenset((item.kind, item.ident) for item in snapshot.skipped)
        for kind, _ in skipped - self._skipped:
            self._families.add("skipped_records", 1, _record(kind))
        self._skipped = skipped

    @record.register
    def _cycle_failed(self, event: CycleFailed) -> None:
        self._families.add("cycle_failures", 1, failure_kind(event.error))

    @record.register
    def _handling_failed(self, event: HandlingFailed) -> None:
        self._families.add("handling_failures", 1, event.quarantined.subject.value)

    @record.register
    def _cycle_cut(self, event: CycleCut) -> None:
        self._families.add("cycles_cut", 1, next(kind for sort, kind in CUTS.items() if isinstance(event.error, sort)))

    @record.register
    def _command(self, event: CommandGiven) -> None:
        self._families.add("slurm_steps", 1, event.kind, event.result)


def failure_kind(error: BaseException) -> str:
    """The label of a failed cycle."""
    return next(kind for sort, kind in FAILURES.items() if isinstance(error, sort))


def _record(kind: str) -> str:
    return kind if kind in RECORDS else "job"
