"""What Prometheus reads, in a registry of its own. Labels take few values: never a job id or a user's name.

Counters start at 0 with the daemon, as Prometheus expects. What is counted stands in the module of its subject.
"""

import platform
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest

import clearway
from clearway.config.configuration import Config
from clearway.model.clock import Clock, SystemClock
from clearway.model.events import Event
from clearway.telemetry.daemon_metrics import DaemonMetrics
from clearway.telemetry.families import Families
from clearway.telemetry.operation_metrics import OperationMetrics
from clearway.telemetry.work_metrics import WorkMetrics

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
        self._daemon = DaemonMetrics(families, wall or SystemClock())
        self._work = WorkMetrics(families, checkpointers)
        self._parts = (self._daemon, self._work, OperationMetrics(families, clock.now()))

    def configured(self, config: Config) -> None:
        """Show mode and limits."""
        self._daemon.configured(config)
        self._work.configured(config)

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

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
