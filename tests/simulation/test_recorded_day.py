"""A day that a real Slurm 22.05 and a real daemon lived, as slurmdbd recorded it: each case again, as it was then.

``docs/explanation/replay.md`` tells what is compared, and how far the replay is from what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearway.config.configuration import Config
from clearway.model.report import CycleReport
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.site_replay import SiteReplay
from clearway.simulation.traces.site_files import read_folder, read_site
from tests.simulation.world import World

FOLDER = Path(__file__).with_name("recorded_day")
RIGHT = 20  # of 25; it is 21
POLL_S = 1.0
FLOOR_S = POLL_S + 1.0  # the daemon looks once a second, and Slurm's times are whole seconds
EXIT_S = 0.88
CONFIG = Config.model_validate(
    {
        "daemon": {"mode": "automatic", "poll_interval": POLL_S, "active_interval": 0.5, "halt_file": None},
        "preemptors": [{"name": "urgent", "partition": ["urgent"], "max_delay": "60s"}],
        "candidates": {"min_runtime": 5},
        "costs": {"checkpoint_overhead": 0},  # the daemon had learned how long checkpoints take in all
        "execution": {"kill_allowance": 6, "concurrent_checkpoints": 8},
        "budget": {"user_evictions_per_hour": None, "user_jobs_per_hour": None},
    }
)


class _StartedError(Exception):
    """The case is decided."""


def test_most_cases_start_when_they_did(make_world: Callable[..., World]) -> None:
    site = read_site(read_folder(FOLDER), "day")
    cases: list[tuple[float, float]] = []
    for job in site.record.jobs:
        if job.partition != "urgent":
            continue
        replay = SiteReplay(site.record.as_of(job.job_id), site.nodes, CONFIG, site.tiers, EXIT_S)
        world = make_world(config=CONFIG)
        world.start_daemon(backend=SimulatedBackend(replay.cluster, replay.clock), clock=replay.clock)

        def cycle(world: World = world) -> CycleReport:
            return world.loop.cycle()

        def look(_: Any, starts: Any = replay.cluster.first_starts, job_id: str = str(job.job_id)) -> None:
            if job_id in starts:
                raise _StartedError

        with suppress(_StartedError):
            replay.run(cycle, look)
        predicted_s = (replay.cluster.first_starts[str(job.job_id)] - job.submit).total_seconds()
        cases.append(((job.runs[0].start - job.submit).total_seconds(), predicted_s))
    right = [abs(real - predicted) <= max(FLOOR_S, 0.1 * real) for real, predicted in cases]
    print([(real, round(predicted, 1)) for real, predicted in cases])
    assert len(cases) == 25
    assert sum(right) >= RIGHT
