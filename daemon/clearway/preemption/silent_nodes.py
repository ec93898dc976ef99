"""Nodes that slurmctld waits for: they may be about to answer, so no job should leave because of them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from clearway.model.cluster import Node

# After a start of slurmctld all nodes are without an answer, measured 3 s for eight of them. Slurm itself calls a node
# DOWN after SlurmdTimeout (300 s), which is longer than an urgent job may wait.
MAY_BE_SILENT = timedelta(seconds=30)


class SilentNodes:
    """Since when nodes have been silent, as this daemon has seen it; forgotten when it ends."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def observe(self, nodes: Iterable[Node], now: datetime) -> None:
        """To be called in every cycle: a node that answers in between begins anew."""
        self._since = {node.name: self._since.get(node.name, now) for node in nodes if node.silent}

    def lately(self, now: datetime) -> frozenset[str]:
        """Those that have not been silent for long."""
        return frozenset(name for name, since in self._since.items() if now - since < MAY_BE_SILENT)
