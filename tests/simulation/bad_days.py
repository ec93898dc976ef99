"""Slurm on a bad day, on a busy simulated cluster."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from clearway.model.cluster import ClusterSnapshot, JobState, Skipped
from clearway.model.errors import ClearwayError, SlurmError
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World


class WrappedBackend(SimulatedBackend):
    """Slurm on a bad day: calls that fail, records that cannot be read."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failing: dict[str, SlurmError] = {}
        self.calls: list[str] = []
        self.skipped: tuple[Skipped, ...] = ()
        self.after_snapshot: Callable[[], None] = lambda: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or name in ("after_snapshot", "fenced_by"):
            return found
        self.calls.append(name)
        if name in self.failing:
            error = self.failing[name]

            def fail(*_: object, **__: object) -> None:
                raise error

            return fail
        return found

    def snapshot(self) -> ClusterSnapshot:
        found = replace(super().snapshot(), skipped=self.skipped)
        self.after_snapshot()
        return found


def wrapped(world: World) -> WrappedBackend:
    backend = WrappedBackend(world.cluster, world.clock)
    world.start_daemon(backend=backend)
    return backend


def busy(world: World, program: Program | None = None, comment: str = SAVES) -> list[str]:
    """Eight nodes, eight jobs; the first has lost least."""
    program = program or Program(save_s=3.0)
    return [world.submit(program, on=(f"n{n}",), ran_s=300.0 * n, comment=comment) for n in range(1, 9)]


def untouched(world: World, jobs: list[str]) -> bool:
    """Whether every job still is in its first run and nothing of ours is on the cluster."""
    running = all(
        world.state(job_id) is JobState.RUNNING and len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs
    )
    return running and not world.leftovers()


def try_cycle(world: World, seconds: float = 0.5) -> ClearwayError | None:
    """One cycle as ``Loop.run`` would have it: what it dies of costs that cycle."""
    try:
        world.tick(seconds)
    except ClearwayError as error:
        return error
    return None


def finish(world: World, urgent: str) -> None:
    """From here on all is well: the urgent job starts, the others return, nothing stays behind."""
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    assert not world.leftovers()
