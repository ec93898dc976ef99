"""kill -9 of a simulated daemon between any two of its effects.

An effect is a commit to the database or a call that changes the cluster. The daemon is "killed" before and after
each of them in turn; a fresh daemon with the same database goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from clearway.config.configuration import Config
from clearway.simulation.backend import SimulatedBackend
from tests.simulation.world import World, config

End = dict[str, Any]

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
        world.start_daemon(
            backend=_Fuse(SimulatedBackend(world.cluster, world.clock), self._changes, self),
            fuse=lambda store: _Fuse(store, self._writes, self),
        )

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


class Interruption:
    """A scenario that comes to the same end wherever its daemon is killed: a test file derives a class from it."""

    end: ClassVar[End]  # of the run without a kill, as far as it is the same for everybody who reads the test
    least_effects: ClassVar[int]  # fewer: the fuse sees nothing
    every: ClassVar[int] = 2  # only before each effect, as nothing changes until the next; 1: after each as well
    first: ClassVar[int] = 0
    nodes: ClassVar[int] = 8
    changes: ClassVar[Sequence[str]] = CHANGES
    writes: ClassVar[Sequence[str]] = WRITES

    def settings(self) -> Config:
        return config()

    def furnish(self, world: World) -> None:
        """What the cluster has that others have not."""

    def play(self, world: World, daemon: MortalDaemon) -> End:
        raise NotImplementedError

    def _played(self, world: World, blow_at: int | None) -> tuple[int, End]:
        self.furnish(world)
        daemon = MortalDaemon(world, blow_at, self.changes, self.writes)
        end = self.play(world, daemon)
        return daemon.effects, end

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, End]:
        """How many effects the daemon has, and the end."""
        store, each = tmp_path_factory.mktemp("undisturbed") / "store.sqlite", cls()
        return each._played(World(f"sqlite:///{store}", config=each.settings(), node_count=each.nodes), None)

    def test_undisturbed_run_is_what_the_others_are_compared_with(self, undisturbed: tuple[int, End]) -> None:
        effects, end = undisturbed
        assert effects > self.least_effects
        assert {name: end[name] for name in self.end} == self.end

    @pytest.mark.parametrize("part", range(8))
    def test_killed_at_every_effect(
        self, make_world: Callable[..., World], undisturbed: tuple[int, End], part: int
    ) -> None:
        effects, end = undisturbed
        for blow_at in range(self.first + self.every * part, effects, self.every * 8):
            world = make_world(config=self.settings(), node_count=self.nodes)
            _, found = self._played(world, blow_at)
            assert found == end, f"killed at effect {blow_at}: {world.describe()}"
