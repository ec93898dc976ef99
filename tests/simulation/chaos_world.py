"""A small cluster with daemons that can be killed, stopped and cut off: what a chaos schedule plays with.

Every call of a daemon to Slurm or to its database is an effect, and passes through ``ChaosDaemon``. There it is killed
(SIGKILL), or stopped (SIGSTOP): then the rest of the schedule is played inside that very call, other daemons included,
until the daemon is woken. So there are no threads, and a seed always gives the same run.

A daemon is never stopped between its fence's last look at the clock and the start of a command: in a real one that
window is some microseconds, and no program can close it. A slow command is such a window of known length.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from clearway.bootstrap import new_loop
from clearway.config.configuration import Config
from clearway.estimates.history import HistoryKeeper
from clearway.model.cluster import ClusterSnapshot, Job, Node, Skipped
from clearway.model.errors import (
    ClearwayError,
    CycleEndedError,
    LeaseLostError,
    SlurmError,
    SlurmTimeoutError,
    StoreError,
)
from clearway.model.events import CycleCut, Event, HandlingFailed
from clearway.service import leadership
from clearway.service.cycle import Parts
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.slurm.base import Failures, JobChange
from clearway.store import migrate, repository
from clearway.store.database import open_database
from clearway.store.repository import Store
from tests.builders import NOW, ManualClock
from tests.simulation.chaos_lists import ListedCommand, job_after_job
from tests.simulation.chaos_proxies import Calls, OwnClock, SlowPlanner
from tests.simulation.killing import CHANGES as _CHANGES

if TYPE_CHECKING:
    from tests.simulation.chaos_witness import Witness

NODES = 10
CHANGES = (*_CHANGES, "set_partitions")
LEASE = ("take_lease", "renew_lease", "release_lease")


class Killed(BaseException):
    """Not an Exception: nothing in the daemon may catch it, as nothing catches SIGKILL."""


@dataclass(frozen=True)
class Countdown:
    """So many effects from now; with ``call``, of that name alone."""

    left: int
    call: str = ""

    @property
    def now(self) -> bool:
        return self.left < 0

    def after(self, name: str) -> Countdown:
        return replace(self, left=self.left - 1) if self.call in ("", name) else self


NEVER = Countdown(10**9)
_GONE: set[str] = set()  # processes that others on the host know to have ended


@dataclass
class Faults:
    """What is wrong at the moment, for one daemon or for all of them."""

    failing: dict[str, SlurmError]  # calls to Slurm that fail
    lost_answers: int = 0  # so many next commands are carried out, and time out all the same
    slow_s: float = 0.0  # what each call to Slurm takes
    database_down: bool = False
    lost_commits: int = 0  # so many next writes are stored, and the answer is lost
    hidden: frozenset[str] = frozenset()  # jobs whose records cannot be read
    picky: bool = False  # some jobs of a list are refused


class ChaosDaemon:
    """One process of ``clearway serve``: it lives until it is killed, and keeps nothing but its name."""

    def __init__(self, name: str, world: ChaosWorld, config: Config) -> None:
        self.name, self.world = name, world
        self.clock = OwnClock(world.clock)
        self.faults = Faults(failing={})
        self.loop: Any = None
        self.starts = 0
        self.frozen = self.busy = False
        self.kill_in = self.freeze_in = NEVER
        self.config = config  # of the last reload
        self.errors: list[BaseException] = []
        self.saw: dict[str, str] = {}  # why Slurm would not start an urgent job, as of this daemon's last look
        self._about: tuple[str, Any] = ("", ())
        self.start()

    @property
    def alive(self) -> bool:
        return self.loop is not None

    def start(self) -> None:
        """As after a start: nothing is carried over but the database and the configuration file."""
        world = self.world
        self.starts += 1
        self.store = world.open_store()
        store = Calls(self.store, self._ask_database)
        slurm = SimulatedBackend(world.cluster, world.clock)
        slurm.before_change = self._reach_slurm
        backend = Calls(slurm, self._ask_slurm)
        parts = Parts(
            backend=backend,
            store=store,
            planner=SlowPlanner(self),
            clock=self.clock,
            emit=self._hear,
            history=HistoryKeeper(store, self._hear),
            owner=f"{self.name}.{self.starts}",
        )
        self.kill_in = self.freeze_in = NEVER
        self.loop = new_loop(self.config, parts)
        self.loop._cycle._due["prune"] = NOW + timedelta(days=1)  # takes as long as all else, and has tests of its own

    def reload(self, config: Config) -> None:
        self.config = config
        if self.loop is not None:
            self.loop.reconfigure(config)

    def _hear(self, event: Event) -> None:
        if isinstance(event, CycleCut):
            self.world.witness.came_by("lease lost" if isinstance(event.error, LeaseLostError) else "cycle cut")
        if isinstance(event, HandlingFailed):
            self.world.witness.violation(f"{self.name}: {event.quarantined.ident} raised {event.error!r}", event.error)

    def die(self) -> None:
        self.loop = None
        self.world.witness.came_by("killed")
        if not self.world.has_server:  # all on one host, where it is seen that a process has gone
            _GONE.add(f"{self.name}.{self.starts}")
        self.world.log(f"{self.name}: killed")

    def stands_back(self) -> bool:
        """By a clock in doubt, and until it has led for a while, it does nothing; while it is halted nothing new."""
        report = self.loop.report
        if report is None or self.loop.leadership.observes or report.snapshot.unreadable:
            return True
        if self.faults.failing or self.world.faults.failing:  # what holds the nodes cannot be moved
            return True
        return bool(report.clock_doubt or report.paused or report.halted or report.stopped)

    def cycle(self) -> None:
        """One cycle as ``Loop.run`` would have it, or the part of it before the daemon was killed."""
        if not self.alive or self.busy:
            return
        self.busy = True
        try:
            self.loop.cycle()
            self.loop.look_ahead(math.inf)
            if self.loop.leadership.leads and not self.stands_back():
                self.world.witness.after_cycle()
        except Killed:
            self.die()
        except (ClearwayError, CycleEndedError) as error:
            self.world.log(f"{self.name}: cycle failed: {type(error).__name__}: {error}")
            self.errors.append(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a violation
            self.world.witness.violation(f"{self.name}: a cycle died of {error!r}", error)
        finally:
            self.busy = False

    def effect(self, name: str) -> None:
        self.kill_in = self.kill_in.after(name)
        if self.kill_in.now:
            raise Killed
        self.freeze_in = self.freeze_in.after(name)
        if self.freeze_in.now:
            self.freeze_in = NEVER
            self._stand_still()
        if name in ("begin_step", "finish_step"):
            self.world.beside_a_step()

    def _stand_still(self) -> None:
        self.frozen = True
        self.world.log(f"{self.name}: stopped")
        self.world.meanwhile(self)
        self.frozen = False
        if self.kill_in.now:
            raise Killed
        self.world.log(f"{self.name}: woken")

    def _ask_database(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.effect(name)
        if self.faults.database_down or self.world.faults.database_down:
            raise StoreError("the database does not answer")
        self.world.take(self.world.store_s, self)
        if self.world.has_server and name == "server_time":
            return self.world.clock.now()
        if self.world.has_server and name in LEASE:
            args = tuple(self.world.clock.now() if isinstance(each, datetime) else each for each in args)
        if name == "create_eviction" and not args[0].mark:
            args = (replace(args[0], mark=f"{self.world.random.getrandbits(32):08x}"),)  # the seed's, not the system's
        result = call(*args, **kwargs)
        if self.faults.lost_commits > 0 and name in ("save_eviction", "create_eviction", "begin_step", "finish_step"):
            self.faults.lost_commits -= 1
            raise StoreError("server closed the connection unexpectedly")
        self.effect(name)
        return result

    def _ask_slurm(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if name == "change_jobs":
            return self._change_jobs(call.__self__, *args)  # type: ignore[attr-defined]
        self.effect(name)
        if name in CHANGES:
            self._about = name, args
        else:
            self.world.take(self._slow_s, self)
            self._fail(name)
        result = call(*args, **kwargs)
        if name in CHANGES and self.answer_is_lost():
            raise SlurmTimeoutError("no answer within 20 s")
        if name == "snapshot":
            self.saw = self.world.witness.as_seen()
            result = self._partial(result)
        self.effect(name)
        return result

    def _change_jobs(self, slurm: Any, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        self.effect("change_jobs")
        if not jobs or self.world.random.random() < 0.5:
            return job_after_job(self._ask_slurm, slurm, self, change, jobs, signal)
        result = ListedCommand(slurm, self, change, jobs, signal).run(slurm._fence, self._slow_s)
        self.effect("change_jobs")
        return result

    @property
    def _slow_s(self) -> float:
        return max(self.faults.slow_s, self.world.faults.slow_s)

    def failure(self, name: str) -> SlurmError | None:
        return self.faults.failing.get(name) or self.world.faults.failing.get(name)

    def _fail(self, name: str) -> None:
        error = self.failure(name)
        if error is not None:
            raise error

    def is_picky(self) -> bool:
        return self.faults.picky and self.world.random.random() < 0.4

    def answer_is_lost(self) -> bool:
        if self.world.deaf and self.world.random.random() < self.world.deaf:
            return True
        if self.faults.lost_answers <= 0:
            return False
        self.faults.lost_answers -= 1
        return True

    def killed_meanwhile(self, name: str) -> Killed | None:
        """Whether it dies while a command of its own is under way, which goes on."""
        self.kill_in = self.kill_in.after(name)
        return Killed() if self.kill_in.now else None

    def let_through(self, name: str) -> None:
        """The fence has let a command through: no stop switch may have been thrown by now."""
        if self.world.store.halted_by():
            self.world.witness.violation(f"{self.name}: {name} while halted")

    def _reach_slurm(self, name: str, limit_s: float) -> None:
        """A command that the fence has let through, on its way: it is carried out late, or was ended before."""
        self.let_through(name)
        about = self._about
        self.world.take(min(self._slow_s, limit_s), self)
        if self._slow_s > limit_s and self.world.random.random() < 0.5:
            raise SlurmTimeoutError(f"no answer within {limit_s:g} s")
        self._fail(name)
        if about[0] == name:
            self.world.witness.command(self, *about)
        if self._slow_s > limit_s:
            self.faults.lost_answers += 1

    def _partial(self, seen: ClusterSnapshot) -> ClusterSnapshot:
        hidden = self.faults.hidden
        if not hidden:
            return seen
        jobs = tuple(job for job in seen.jobs if job.job_id not in hidden)
        return replace(seen, jobs=jobs, skipped=tuple(Skipped("job", job_id, "?") for job_id in sorted(hidden)))


class ChaosWorld:
    """Nodes of four processors; the time, the database, and what all daemons share."""

    def __init__(
        self, folder: Path, empty: Path, witness: Callable[[ChaosWorld], Witness], random: Random, *, has_server: bool
    ) -> None:
        self.random = random
        self.has_server = has_server  # a database whose time is its own, not the caller's
        self.path = folder / "chaos.sqlite"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(empty, self.path)
        self.clock = ManualClock(NOW)
        self.cluster = SimulatedCluster(now=NOW)
        node = Node(name="", available=True, raw_state="IDLE", cpus=4, memory_mib=4_000, partitions=("batch", "urgent"))
        self.cluster.add_nodes(replace(node, name=f"n{number}") for number in range(1, NODES + 1))
        self.faults = Faults(failing={})
        self.deaf = self.plan_s = self.store_s = 0.0  # for the whole run
        self.lines: list[str] = []
        _GONE.clear()
        self.daemons: list[ChaosDaemon] = []
        self.store = self.open_store()  # as operators use it, over the command line
        self.witness = witness(self)
        self.meanwhile: Callable[[ChaosDaemon], None] = lambda _: None  # plays on while a daemon stands still
        self.take: Callable[[float, ChaosDaemon], None]  # a call that takes so many seconds
        self.beside_a_step: Callable[[], None] = lambda: None  # what comes before and after each step of a daemon
        self.between: Callable[[ChaosDaemon], None] = lambda _: None  # what comes between two jobs of a list

    def equip(self, gpus: tuple[tuple[str, int], ...]) -> None:
        """Give each node GPUs; no job may be there yet."""
        self.cluster.add_nodes([replace(node, gpus=gpus) for node in self.cluster.nodes.values()])

    def open_store(self) -> Store:
        return Store(f"sqlite:///{self.path}")

    def close(self) -> None:
        self.store.close()  # the engine is everybody's
        self.witness.close()

    def log(self, text: str) -> None:
        self.lines.append(f"{(self.clock.now() - NOW).total_seconds():7.1f} {text}")

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.advance(self.clock.now())

    def job(self, job_id: str) -> Job | None:
        entry = self.cluster.jobs.get(job_id)
        return None if entry is None else entry.job


@contextmanager
def quick_and_alone() -> Iterator[None]:
    """Nothing asks the machine, and stores leave out what takes longer than a schedule: looking for their tables, and
    making engines that know no statement yet.

    Of one URL there is one engine, however many daemons use it; each has its own connection in a call.
    """
    engines = lru_cache(maxsize=None)(open_database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "upgrade", lambda _: None)
        patch.setattr(repository, "open_database", engines)
        patch.setattr(leadership, "certainly_gone", _GONE.__contains__)
        yield
