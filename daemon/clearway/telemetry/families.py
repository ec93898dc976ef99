"""Makes metrics in one registry, together with the series that Prometheus has to see before they change."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

WAIT_BUCKETS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600)  # seconds
MARGIN_BUCKETS = (-3_600, -600, -120, -60, -30, -10, 0, 10, 30, 60, 120, 600, 3_600)  # seconds


class Families:
    """Labels are given with the values that are known beforehand; a label without any gets its values later.

    A counter must be seen at 0 before it rises: else Prometheus misses its first increase.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        """The registry's name of it ends in ``_total``."""
        return _shown(Counter(name, text, tuple(labels), registry=self._registry), labels)

    def gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        return _shown(Gauge(name, text, tuple(labels), registry=self._registry), labels)

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self._registry)


M = TypeVar("M", Counter, Gauge)


def _shown(metric: M, labels: dict[str, Iterable[str]]) -> M:
    for values in product(*labels.values()) if labels else ():
        metric.labels(*values)
    return metric
