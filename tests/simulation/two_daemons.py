"""Two daemons on one simulated cluster and one database, and what can come between two effects of the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clearway.bootstrap import new_loop
from clearway.estimates.history import HistoryKeeper
from clearway.model.cluster import Job
from clearway.model.errors import SlurmError
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.service.cycle import Parts
from clearway.service.loop import Loop
from clearway.simulation.backend import SimulatedBackend
from clearway.slurm.base import Failures, JobChange
from clearway.store.repository import Store
from tests.simulation.killing import CHANGES
from tests.simulation.world import World


class Interrupted:
    """A backend or store with something that happens before each call of these names, as often as it is called."""

    def __init__(self, target: Any, names: tuple[str, ...], happens: Callable[[str], None]) -> None:
        self._target, self._names, self._happens = target, names, happens

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name == "change_jobs":
            return self._change_jobs
        if name not in self._names:
            return attribute

        def interrupted(*args: Any, **kwargs: Any) -> Any:
            self._happens(name)
            return attribute(*args, **kwargs)

        return interrupted

    def _change_jobs(self, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        """Something happens between two jobs of a list, too."""
        name, failures = change.value.partition("_batch")[0].partition("_steps")[0], dict[str, SlurmError]()
        for job in jobs:
            if name in self._names:
                self._happens(name)
            failures |= self._target.change_jobs(change, (job,), signal)
        return failures


def first_daemon(world: World, happens: Callable[[str], None], names: tuple[str, ...] = CHANGES) -> None:
    """Restart the world's daemon as ``a``; something happens before each of its changes to the cluster."""
    world.store.close()
    backend = Interrupted(SimulatedBackend(world.cluster, world.clock), names, happens)
    world.start_daemon(backend=backend, owner="a")


@contextmanager
def second_daemon(world: World, owner: str = "b") -> Iterator[Loop]:
    """Another daemon, with its own backend and its own connections."""
    store = Store(world.store_url)
    parts = Parts(
        backend=SimulatedBackend(world.cluster, world.clock),
        store=store,
        planner=EvictionDP(),
        clock=world.clock,
        emit=world.observer,
        history=HistoryKeeper(store),
        owner=owner,
    )
    try:
        yield new_loop(world.config, parts)
    finally:
        store.close()
