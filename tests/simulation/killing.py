"""kill -9 of a simulated daemon between any two of its effects.

An effect is a commit to the database or a call that changes the cluster. The daemon is "killed" before and after
each of them in turn; a fresh daemon with the same database goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearway.slurm.simulated import SimulatedBackend
from tests.simulation.world import World

CHANGES = (
    "requeue", "cancel", "signal", "start_now", "attach", "detach",
    "create_reservation", "update_reservation", "extend_reservation", "delete_reservation", "suspend", "resume",
    "drain", "undrain", "first_in_queue", "usual_priority",
)  # fmt: skip
WRITES = (
    "create_eviction", "save_eviction", "begin_step", "finish_step", "add_event", "finish_request", "set_value",
    "record_checkpoint", "record_restart",
)  # fmt: skip


class _Killed(BaseException):
    """Not an Exception: nothing in the daemon may catch it, as nothing catches SIGKILL."""


class _Fuse:
    """Tells of the calls with these names, before and after each."""

    def __init__(self, target: Any, names: Sequence[str], daemon: MortalDaemon) -> None:
        self._target, self._names, self._daemon = target, names, daemon

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name not in self._names:
            return attribute

        def fused(*args: Any, **kwargs: Any) -> Any:
            self._daemon.effect()
            result = attribute(*args, **kwargs)
            self._daemon.effect()
            return result

        return fused


class MortalDaemon:
    """A world's daemon that dies at one effect, once, and is started anew; ``blow_at`` None: it never dies."""

    def __init__(
        self, world: World, blow_at: int | None, changes: Sequence[str] = CHANGES, writes: Sequence[str] = WRITES
    ) -> None:
        self.effects = 0
        self._world, self._blow_at, self._changes, self._writes = world, blow_at, changes, writes
        self._start()

    def _start(self) -> None:
        world = self._world
        world.store.close()
        world.start_daemon()
        world.loop.backend = _Fuse(SimulatedBackend(world.cluster, world.clock), self._changes, self)  # type: ignore[assignment]
        world.loop.store = _Fuse(world.store, self._writes, self)  # type: ignore[assignment]
        world.loop.__post_init__()

    def effect(self) -> None:
        self.effects += 1
        if self.effects - 1 == self._blow_at:
            raise _Killed

    def tick(self, seconds: float = 0.5) -> None:
        """One cycle, or the part of it before the daemon was killed."""
        try:
            self._world.tick(seconds)
        except _Killed:
            self._start()
