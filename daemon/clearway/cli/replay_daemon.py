"""The daemon of a replay: its own cycle, on a simulated cluster and a database of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clearway import bootstrap
from clearway.config.configuration import Config, Mode
from clearway.eligibility.urgent import matching_rule
from clearway.model.report import CycleReport
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.site_replay import SiteReplay
from clearway.simulation.traces.site_record import RecordedJob
from clearway.store.base import Store
from clearway.store.replay import Past

_PLANNING_S = 60.0  # in real seconds: what a replay foretells shall not depend on how busy this machine is


@dataclass(frozen=True, slots=True)
class ReplayDaemon:
    store: Store
    _daemon: bootstrap.Daemon

    def cycle(self) -> CycleReport:
        made = self._daemon.loop.cycle()
        self._daemon.loop.explain(float("inf"))
        return made


def is_urgent(config: Config, job: RecordedJob) -> bool:
    return matching_rule(job.as_slurm(), config.preemptors) is not None


@contextmanager
def replay_daemon(replay: SiteReplay, config: Config, past: Past) -> Iterator[ReplayDaemon]:
    with tempfile.TemporaryDirectory(prefix="clearway-replay-") as folder:
        backend = SimulatedBackend(replay.cluster, replay.clock)
        acting = _acting(config, folder)
        made = bootstrap.build(acting, origin="simulate", backend=backend, clock=replay.clock, past=past)
        try:
            yield ReplayDaemon(made.store, made)
        finally:
            made.store.close()


def _acting(config: Config, folder: str) -> Config:
    """In automatic mode, on a database of its own. What needs approval stays undone. No job is moved."""
    daemon = {"mode": Mode.AUTOMATIC, "halt_file": None}
    return config.model_copy(
        update={
            "daemon": config.daemon.model_copy(update=daemon),
            "planning": config.planning.model_copy(update={"time_per_cycle": _PLANNING_S}),
            "store": config.store.model_copy(update={"url": f"sqlite:///{folder}/clearway.sqlite"}),
            "compaction": config.compaction.model_copy(update={"enabled": False}),
            "promotion": config.promotion.model_copy(update={"enabled": False}),
        }
    )
