"""kill -9 of a simulated daemon between any two of its effects.

An effect is a commit to the database or a call that changes the cluster. The world splits in two (``os.fork``)
before and after each of them: in the copy the daemon is "killed" there, a fresh one with a copy of the database goes
on, and the end is reported; the original goes on to the next effect. So nothing is played twice.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from clearway.config.configuration import Config
from clearway.model.cluster import Job
from clearway.model.errors import SlurmError
from clearway.simulation.backend import SimulatedBackend
from clearway.slurm.base import Failures, JobChange
from tests.oracle.sampled import Share, share
from tests.simulation.world import World, config

PARTS = 4  # that share the effects of an interruption's scenario; each plays it once without a kill

End = dict[str, Any]

CHANGES = (
    "requeue", "run_again", "cancel", "signal", "start_now", "attach", "detach",
    "create_reservation", "update_reservation", "extend_reservation", "delete_reservation", "suspend", "resume",
    "drain", "undrain", "set_nice",
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
        if name == "change_jobs":
            return self._in_the_middle(attribute)
        if name not in self._names:
            return attribute

        def fused(*args: Any, **kwargs: Any) -> Any:
            self._daemon.effect()
            result = attribute(*args, **kwargs)
            self._daemon.effect()
            return result

        return fused

    def _in_the_middle(self, change_jobs: Callable[..., Mapping[str, SlurmError]]) -> Callable[..., Failures]:
        """A change of many jobs has an effect on each: killed in between, some have had it and others not."""

        def fused(change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
            failures: dict[str, SlurmError] = {}
            for job in jobs:
                told = change.value in self._names or ("signal" in self._names and change.value.startswith("signal"))
                if told:
                    self._daemon.effect()
                failures.update(change_jobs(change, (job,), signal))
                if told:
                    self._daemon.effect()
            return failures

        return fused


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of a world whose daemon was killed at one effect."""

    effect: int
    end: Any  # what the scenario returned
    error: str  # the scenario failed: the traceback
    world: str  # described


@dataclass
class MortalDaemon:
    """A world's daemon that is killed at every chosen effect, each time in a copy of the world."""

    world: World
    chosen: Callable[[int], bool] = lambda _: False
    changes: Sequence[str] = CHANGES
    writes: Sequence[str] = WRITES
    effects: int = 0
    kills: list[Kill] = field(default_factory=list)
    spared: int = 0  # chosen effects that left the world as it was at the one before

    def __post_init__(self) -> None:
        self._killed_at: int | None = None
        self._report = -1
        self._abandoned: Any = None
        self._seen: set[bytes] = set()
        self._start()

    def _start(self) -> None:
        world = self.world
        world.store.close()
        world.start_daemon(
            backend=_Fuse(SimulatedBackend(world.cluster, world.clock), self.changes, self),
            fuse=lambda store: _Fuse(store, self.writes, self),
        )

    def tick(self, seconds: float = 0.5) -> None:
        """One cycle, or the part of it before the daemon was killed."""
        try:
            self.world.tick(seconds)
        except _Killed:
            self._start()

    def effect(self) -> None:
        self.effects += 1
        number = self.effects - 1
        if self._killed_at is not None or not self.chosen(number):
            return
        state = self._state()
        if state in self._seen:
            self.spared += 1
            return
        self._seen.add(state)
        self._split(number)

    def _state(self) -> bytes:
        """All that a fresh daemon finds: equal states come to the same end."""
        found = blake2b(pickle.dumps((self.world.clock.now(), self.world.cluster)))
        for path in _files(self.world):
            found.update(path.read_bytes())
        return found.digest()

    def _split(self, number: int) -> None:
        """Returns in the original only; in the copy the daemon dies."""
        copy = _copied(self.world, number)
        reading, writing = os.pipe()
        gc.freeze()  # or the copy's collector would touch, and so copy, all that earlier tests have left in memory
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._killed_at, self._report = number, writing
            # Connections do not survive a fork: they are not closed either, that would touch the original's database.
            engine = self.world.store._database.engine
            self._abandoned = engine.pool
            engine.dispose(close=False)
            self.world.store_url = f"sqlite:///{copy}"
            raise _Killed
        gc.unfreeze()
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
                told = pipe.read()
        except BaseException:  # the test has run out of time
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.waitpid(child, 0)
            shutil.rmtree(copy.parent)
        assert told, f"killed at effect {number}: the copy of the world died without a word"
        self.kills.append(pickle.loads(told))

    def ended(self, play: Callable[[World, MortalDaemon], Any]) -> Any:
        """What ``play`` returns; a copy of the world reports that, and its process ends here."""
        try:
            end = play(self.world, self)
        except BaseException:
            if self._killed_at is None:
                raise
            self._tell(None, traceback.format_exc())
        if self._killed_at is not None:
            self._tell(end, "")
        return end

    def _tell(self, end: Any, error: str) -> NoReturn:
        assert self._killed_at is not None
        try:
            kill = Kill(self._killed_at, end, error, self.world.describe())
            with os.fdopen(self._report, "wb") as pipe:
                pickle.dump(kill, pipe)
        finally:
            os._exit(0)  # nothing of the tests' own process may run twice


def _files(world: World) -> list[Path]:
    """The database and, where there is one, its write-ahead log; the daemon is between two transactions."""
    database = world.store_url.removeprefix("sqlite:///")
    return [path for path in (Path(database), Path(f"{database}-wal")) if path.exists()]


def _copied(world: World, number: int) -> Path:
    first, *others = _files(world)
    folder = first.parent / f"killed-{os.getpid()}-{number}"
    folder.mkdir()
    for path in (first, *others):
        shutil.copyfile(path, folder / path.name)
    return folder / first.name


def one_in(every: int, first: int = 0, part: int = 0, parts: int = 1) -> Callable[[int], bool]:
    """Of every so many effects one; what follows an effect and what comes before the next is in the same part."""

    def chosen(number: int) -> bool:
        turn, rest = divmod(number - first, every)
        return turn >= 0 and rest == 0 and (turn + 1) // 2 % parts == part

    return chosen


def killed_everywhere(
    world: World, play: Callable[[World, MortalDaemon], Any], chosen: Callable[[int], bool], **of_daemon: Any
) -> MortalDaemon:
    """Play with a kill at every chosen effect, and without one: all come to the same end."""
    daemon = MortalDaemon(world, chosen, **of_daemon)
    end = daemon.ended(play)
    for kill in daemon.kills:
        assert not kill.error, f"killed at effect {kill.effect}:\n{kill.error}\n{kill.world}"
        assert kill.end == end, f"killed at effect {kill.effect}: {kill.world}"
    return daemon


def tried_parts(of: Share) -> list[int]:
    """All with ``tests/run --full``, otherwise one, which the commit chooses."""
    return [part for part in range(PARTS) if of.of == 1 or (part + of.turn) % PARTS == 0]


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

    @pytest.fixture
    def furnished(self, make_world: Callable[..., World]) -> World:
        world = make_world(config=self.settings(), node_count=self.nodes)
        self.furnish(world)
        return world

    def test_undisturbed_run_is_what_the_others_are_compared_with(self, furnished: World) -> None:
        daemon = MortalDaemon(furnished, changes=self.changes, writes=self.writes)
        end = self.play(furnished, daemon)
        assert daemon.effects > self.least_effects
        assert {name: end[name] for name in self.end} == self.end

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "part" in metafunc.fixturenames:
            metafunc.parametrize("part", tried_parts(share()))

    def test_killed_at_every_effect(self, furnished: World, part: int) -> None:
        chosen = one_in(self.every, self.first, part, PARTS)
        daemon = killed_everywhere(furnished, self.play, chosen, changes=self.changes, writes=self.writes)
        assert len(daemon.kills) + daemon.spared == sum(map(chosen, range(daemon.effects)))
