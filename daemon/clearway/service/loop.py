"""Repeats cycles, and explains plans in the pauses between them. A cycle that fails costs that cycle, nothing else."""

import contextlib
import gc
import importlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from clearway.api.views import MOST_WAITING, preemptor_view
from clearway.config.configuration import Config, Mode
from clearway.execution.cycle_context import CycleContext
from clearway.model.clock import Clock
from clearway.model.errors import ClearwayError, CycleEndedError, LeaseLostError, StoreError
from clearway.model.events import CycleFailed, Emit, PlanExplained
from clearway.model.operations import Operation
from clearway.model.records import STATUS
from clearway.model.report import CycleReport
from clearway.planning.base import Planner
from clearway.preemption.explanation import Explaining
from clearway.service.cycle import Cycle, Parts
from clearway.service.leadership import ClockWatch, Leadership
from clearway.store.repository import Store

LOOKS_EVERY_S = 0.1
_SENTENCES_EVERY_S = 5.0
_SETTLES_EVERY_S = 3600.0
_YOUNG = 100_000  # objects
_LOOKS_BACK = timedelta(hours=1)  # older plans are history: no explanation of them is expected


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """The garbage collector looks at what is new alone: with 60,000 jobs it took 0.5 s of a cycle that plans."""
    # Records are no part of a circle of references, so they go all the same.
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG, 1_000, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class WakeFile:
    """Tells of changes of a file that job_submit.lua of slurmctld writes to when an urgent job is submitted, so that it
    is seen before the pause is over. What it says is not read: whoever can write to it can make the daemon look sooner.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._seen = self._stamp()

    def changed(self) -> bool:
        seen, self._seen = self._seen, self._stamp()
        return self._seen is not None and self._seen != seen

    def _stamp(self) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):
            found = None if self.path is None else self.path.stat()
            return found and (found.st_mtime_ns, found.st_size, found.st_ino)
        return None


@dataclass(slots=True)
class StatusRecord:
    """What `clearway status` shows beside operations, also where the daemon does not answer. Written at once where
    another mode holds or other jobs wait; for other sentences at most every few seconds.
    """

    store: Store
    clock: Clock
    _written: dict[str, Any] = field(default_factory=dict)
    _written_at: float = 0.0  # by the monotonic clock

    def note(self, report: CycleReport, mode: Mode, backend_why: str) -> None:
        """A database that does not answer, or is another daemon's now, is no failure of this cycle."""
        shown = (preemptor_view(waiting, report) for waiting in report.waiting[:MOST_WAITING])
        waiting = [each.model_dump(mode="json", exclude={"left_s"}) for each in shown]
        value = {
            "mode": mode.value,
            "backend_why": backend_why,
            "slurm_version": report.snapshot.slurm_version,
            "only_observes": report.only_observes,
            "refused_rules": report.refused_rules,
            "waiting": waiting,
            "waiting_preemptors": len(report.waiting),
            "left_to_slurm": dict(sorted(Counter(report.left_to_slurm).items())),
        }
        now_s = self.clock.monotonic()
        soon = now_s - self._written_at < _SENTENCES_EVERY_S
        if value == self._written or (soon and _facts(value) == _facts(self._written)):
            return
        with contextlib.suppress(StoreError, LeaseLostError):
            self.store.set_value(STATUS, value)
            self._written, self._written_at = value, now_s


def _facts(value: dict[str, Any]) -> tuple[Any, ...]:
    waiting = [(each["job_id"], each["eviction_id"], each["deadline"]) for each in value.get("waiting", ())]
    return *(
        value.get(key) for key in ("mode", "only_observes", "refused_rules", "slurm_version", "waiting_preemptors")
    ), waiting


class Explainer:
    """Explains evictions in the pauses between cycles, so that no cycle waits for an explanation. The oldest first, one
    solution at a time, until the pause is over, the loop is woken, or the plan has had its share of time; then what was
    found is stored. A plan whose explanation fails is not tried again before the next start.
    """

    def __init__(self, store: Store, planner: Planner, clock: Clock, emit: Emit) -> None:
        self._store, self._planner, self._clock, self._emit = store, planner, clock, emit
        self._at: tuple[Operation, Explaining] | None = None
        self._spent_s = 0.0
        self._begun: set[tuple[int, int]] = set()  # eviction id, revision

    def work(self, now: datetime, limit_s: float, go_on: Callable[[], bool]) -> None:
        """Explain while ``go_on`` says so; ``limit_s`` is what one plan may take altogether (0: none is explained)."""
        while limit_s > 0 and go_on():
            self._at = self._at or self._next(now)
            if self._at is None:
                return
            eviction, explaining = self._at
            began = self._clock.monotonic()
            try:
                more = explaining.step()
            except BaseException:
                self._at = None
                raise
            self._spent_s += self._clock.monotonic() - began
            if not more or self._spent_s >= limit_s:
                self._at = None
                explanation = explaining.result()
                self._store.explain_plan(eviction.eviction_id, eviction.revision, explanation)
                self._emit(PlanExplained(eviction, explanation))

    def unexplained(self, now: datetime) -> tuple[int, ...]:
        return self._store.unexplained(now - _LOOKS_BACK)

    def _next(self, now: datetime) -> tuple[Operation, Explaining] | None:
        for eviction_id in self.unexplained(now):
            eviction = self._store.eviction(eviction_id)
            key = (eviction_id, eviction.revision)
            if key not in self._begun:
                self._begun.add(key)
                self._spent_s = 0.0
                return eviction, Explaining(eviction.plan, self._planner)
        return None


class Loop:
    """``assemble`` makes the cycle of a configuration. All that matters is in the store and on the cluster."""

    def __init__(
        self, parts: Parts, config: Config, assemble: Callable[[Config, Parts, Leadership], Cycle], explainer: Explainer
    ) -> None:
        self.parts = parts
        self.leadership = Leadership(parts.store, parts.clock, parts.owner, config.daemon)
        parts.backend.fenced_by(self.leadership)
        self.explainer = explainer
        self._assemble = assemble
        self._next_config: Config | None = None
        self._wake = threading.Event()
        self._wake_file = WakeFile(config.daemon.wake_file)
        self._file_wakes_from_s = 0.0  # of the clock's monotonic: before, it ends no pause
        self._woken_by_file = False  # since the newest cycle
        self._clock_watch = ClockWatch(parts.clock, parts.store.server_time)
        self._status = StatusRecord(parts.store, parts.clock)
        self.config = config
        self.report: CycleReport | None = None
        self.in_cycle = False
        self._alive: Callable[[], None] = lambda: None
        self._cycle = assemble(config, parts, self.leadership)
        self._settled: tuple[bool, float] | None = None  # whether jobs were known, and when

    def reconfigure(self, config: Config) -> None:
        self._next_config = config
        self.parts.reload_waits.set()
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def cycle(self) -> CycleReport:
        self.parts.reload_waits.clear()
        config, self._next_config = self._next_config, None
        if config is not None:
            self._cycle = self._assemble(config, self.parts, self.leadership)
            self.config = config
            self._wake_file = WakeFile(config.daemon.wake_file)
        self.report = self._cycle.run(self.report, self._alive, self._clock_watch)
        part = self._cycle.quarantine.attempt_part
        part("telling of a cycle", self.parts.emit, self.report)
        if self.report.epoch is not None:
            part("status", self._status.note, self.report, self.config.daemon.mode, self.parts.backend_why)
        return self.report

    def run(
        self, stop: threading.Event, beat: Callable[[], None] = lambda: None, alive: Callable[[], None] = lambda: None
    ) -> None:
        """``beat``: after each cycle that succeeded; ``alive``: between any two pieces of work within one."""
        self._alive = alive
        self.settle()
        while not stop.is_set():
            try:
                self.in_cycle = True
                with undisturbed():
                    report = self.cycle()
                self.in_cycle = False  # what follows gives way to what is asked
                pause_s = self._pause_after(report)
                beat()
                self._file_wakes_from_s = self.parts.clock.monotonic() + self.config.daemon.active_interval
                pause_ends = self.parts.clock.monotonic() + pause_s
                self.settle()
                self.look_ahead(pause_ends)
                self.explain(pause_ends)
            except (Exception, CycleEndedError) as error:  # noqa: BLE001 - whatever makes one fail, the next must run
                self.parts.emit(CycleFailed(error))
                pause_ends = self.parts.clock.monotonic() + self._pause_s
            finally:
                self.in_cycle = False
            self._pause(pause_ends)

    def settle(self) -> None:
        """Tell the garbage collector what stays: the code, and the records of a whole cluster. What is left over of
        these in circles of references is found every hour. The solver's code is loaded as well, which takes 0.4 s.
        """
        now, known = self.parts.clock.monotonic(), self.report is not None
        if self._settled is not None and self._settled[0] == known and now - self._settled[1] < _SETTLES_EVERY_S:
            return
        self._settled = known, now
        importlib.import_module("scipy.optimize")
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def look_ahead(self, until: float) -> None:
        """Look at running jobs before an urgent job comes, for a moment at a time, but no longer than ``until``."""
        if self.report is not None and self._acts:
            context = CycleContext(self.report.snapshot, self.config, self.parts.clock.now())
            ends = min(until, self.parts.clock.monotonic() + LOOKS_EVERY_S)  # no longer than the wake file can wait
            self._cycle.look_ahead(context, lambda: self.parts.clock.monotonic() < ends and not self._wake.is_set())

    def _pause(self, ends: float) -> None:
        """Wait, and keep the lease meanwhile: ``daemon.poll_interval`` may be longer than it lasts."""
        left_s = max(0.0, ends - self.parts.clock.monotonic())
        looks_every_s = self.leadership.standby_pause_s
        if self._wake_file.path is not None:
            looks_every_s = min(looks_every_s, LOOKS_EVERY_S)
        while left_s > 0 and not self._woken():
            part_s = min(left_s, looks_every_s)
            self._wake.wait(part_s)
            left_s -= part_s
            try:
                if not self._wake.is_set() and not self.leadership.kept():
                    break
            except ClearwayError:
                break  # the next cycle begins at once
        self._wake.clear()

    def _woken(self) -> bool:
        if self.parts.clock.monotonic() >= self._file_wakes_from_s and self._wake_file.changed():
            self._woken_by_file = True
            self._wake.set()
        return self._wake.is_set()

    def _pause_after(self, report: CycleReport) -> float:
        """None at all while commands wait. The file may change before the job can be seen: then a short one."""
        again_soon, self._woken_by_file = self._woken_by_file, False
        if report.in_arrears:
            return 0.0
        return min(self._pause_s, self.config.daemon.active_interval) if again_soon else self._pause_s

    @property
    def in_force(self) -> Config:
        return self._cycle.in_force

    @property
    def _acts(self) -> bool:
        return self.leadership.epoch is not None and not self.leadership.observes

    @property
    def _pause_s(self) -> float:
        if self.leadership.epoch is None:
            return min(self.config.daemon.poll_interval, self.leadership.standby_pause_s)
        acting = self.report is not None and any(e.state.acting for e in self.report.open_evictions)
        return self.config.daemon.active_interval if acting else self.config.daemon.poll_interval

    def explain(self, until: float) -> None:
        if self.report is not None and self._acts:
            self.explainer.work(
                self.parts.clock.now(),
                self.config.planning.explanation_time,
                lambda: self.parts.clock.monotonic() < until and not self._woken() and self.leadership.kept(),
            )
