"""What one cycle goes by: read once, then passed down."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.history import HistoryKeeper
from clearway.execution.job_lifecycle import Command
from clearway.execution.open_operations import OpenOperations
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Reservation
from clearway.model.limits import Limits
from clearway.model.operations import Operation, Preemption
from clearway.model.problem import Action
from clearway.model.report import Attempt, unguarded
from clearway.planning.base import Planner

UNDER_WAY = 0.5  # the share of the time that operations under way may use for other plans


class PlanningTime:
    """How long planning may take in a cycle, and how long it is until a plan is begun; all of it is measured. What is
    under way has up to half of the time for other plans, and comes first; new plans have what is left.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.limit_s = 0.0
        self._spent_s = 0.0
        self._since: float | None = None
        self._cycle_began = clock.monotonic()
        self._carried_out_s: float | None = None  # that plans took last, from their making to their beginning

    def begin(self, limit_s: float, cycle_began: float | None = None) -> None:
        """A cycle begins, with so much time; ``cycle_began``: on the monotonic clock, before Slurm was asked."""
        self.limit_s, self._spent_s, self._since = limit_s, 0.0, None
        self._cycle_began = self._clock.monotonic() if cycle_began is None else cycle_began

    @property
    def begins_in_s(self) -> float:
        """From the look at the cluster until a plan made now is begun: what has passed, and what plans took last."""
        passed_s = self._clock.monotonic() - self._cycle_began
        return passed_s + (passed_s if self._carried_out_s is None else self._carried_out_s)

    def carried_out(self, seconds: float) -> None:
        self._carried_out_s = max(0.0, seconds)

    def left_s(self, share: float = 1.0) -> float:
        running_s = 0.0 if self._since is None else self._clock.monotonic() - self._since
        return share * self.limit_s - self._spent_s - running_s

    def charge(self, seconds: float) -> None:
        """What is under way took so long in all, with its commands: of that counts what others can do without."""
        self._spent_s = max(self._spent_s, min(seconds, UNDER_WAY * self.limit_s))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Slurm is asked meanwhile: that is no computing, however long its commands take."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            if self._since is not None:
                self._spent_s -= self._clock.monotonic() - began

    @contextmanager
    def spending(self) -> Iterator[None]:
        if self._since is not None:
            yield
            return
        self._since = self._clock.monotonic()
        try:
            yield
        finally:
            self._spent_s += self._clock.monotonic() - self._since
            self._since = None


class Impossible:
    """What could not be planned for the cluster as it is; forgotten when that, or time, may have changed it."""

    def __init__(self) -> None:
        self._scene: object = None
        self._known: dict[str, tuple[object, str, datetime | None]] = {}

    def look(self, scene: object) -> None:
        """Go by this cycle's cluster: all that plans follow from but the time and the job that they are for."""
        if self._known and scene != self._scene:
            self._known = {}
        self._scene = scene

    def why(self, ident: str, asks: object, now: datetime) -> str | None:
        """Why there was no plan when it was last looked for; None where it should be looked for again."""
        found = self._known.get(ident)
        if found is None or found[0] != asks or (found[2] is not None and now >= found[2]):
            return None
        return found[1]

    def remember(self, ident: str, asks: object, why: str, until: datetime | None) -> None:
        """There is no plan for what this asks for before ``until``; None: whatever the time."""
        self._known[ident] = (asks, why, until)


_REMEMBERED = 20  # jobs
_SHARE = 0.8  # of these that had left within the time that is allowed for: a few that hung do not count
_MOST_S = 600.0  # what takes longer is a node that does not end its jobs, and no measure for others


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The cluster as it was seen, the configuration that holds, and whether an operator has paused the daemon."""

    snapshot: ClusterSnapshot
    config: Config
    now: datetime
    paused: bool = False
    database_full: bool = False  # larger than it may become by what is only proposed
    alive: Callable[[], None] = lambda: None  # called between any two pieces of work, for the watchdog
    only_observes: str = ""  # why nothing is begun with this release of Slurm; ``config`` is in observe mode then
    halted: str = ""  # why no command may be given to Slurm, half a sentence; such a cycle counts as paused too
    stopped: str = ""  # why no job may be made to leave (``execution.restraints``); such a cycle counts as paused too
    reservations: tuple[Reservation, ...] = ()  # empty when nothing under way needed them
    limits: Limits | None = None  # on the jobs that are planned for, or that others leave for; None: not asked for
    # What the executor adds for the operation that it carries on:
    others: tuple[Operation, ...] = ()  # under way beside it
    refused: frozenset[Command] = frozenset()  # commands that have just failed for it as a whole

    @property
    def late_kills(self) -> bool:
        """Whether a job whose checkpoint is late is requeued without it."""
        return self.config.execution.late_checkpoint == "kill"

    @property
    def nothing_begun(self) -> str:
        """Why nothing may be begun on request, half a sentence; empty where it may."""
        if self.only_observes:
            return f"Clearway only observes: {self.only_observes}"
        return "the daemon only observes (daemon.mode)" if self.config.daemon.mode is Mode.OBSERVE else ""

    @property
    def waits_why(self) -> str:
        stopped = self.stopped and f"stopped: {self.stopped}; clearway resume goes on"
        return self.halted or stopped or ("paused" if self.paused else "")

    def reservation(self, name: str) -> Reservation | None:
        return next((each for each in self.reservations if each.name == name), None)


class LeaveTimes:
    """How long jobs take to leave their nodes, from the requeue until they are seen in the queue (KillWait, epilog). A
    site's epilog may take longer than ``execution.kill_allowance``, the least that plans allow for, and urgent jobs
    would be late again and again. Forgotten when the daemon ends.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[object, float]] = deque(maxlen=_REMEMBERED)
        self._changed: tuple[Config, float, Config] | None = None

    def observe(self, operations: Iterable[Operation]) -> None:
        known = {which for which, _ in self._seen}
        for operation in operations:
            for p in operation.preemptions:
                which, took_s = (operation.eviction_id, p.job.run), _took_s(p)
                if took_s is not None and which not in known:
                    self._seen.append((which, took_s))

    @property
    def allowance_s(self) -> float:
        times = sorted(took_s for _, took_s in self._seen)
        return times[ceil(_SHARE * len(times)) - 1] if times else 0.0

    def allowed(self, config: Config) -> Config:
        if (allowance_s := self.allowance_s) <= config.execution.kill_allowance:
            return config
        if self._changed is None or self._changed[0] is not config or self._changed[1] != allowance_s:
            execution = config.execution.model_copy(update={"kill_allowance": allowance_s})
            self._changed = config, allowance_s, config.model_copy(update={"execution": execution})
        return self._changed[2]


def _took_s(p: Preemption) -> float | None:
    """None for a job that has not left so, or of which it is not known: it was seen again only in its next run."""
    if p.requeued_at is None or p.vacated_at is None or p.action in (Action.SUSPEND, Action.END):
        return None
    if p.vacated_at == p.returned_at:
        return None
    took_s = (p.vacated_at - p.requeued_at).total_seconds()
    return took_s if took_s <= _MOST_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningBasis:
    planner: Planner
    operations: OpenOperations
    history: HistoryKeeper
    actions: Mapping[str, Action]  # of the checkpointers that jobs may name
    time: PlanningTime  # of this cycle
    impossible: Impossible
    attempt: Attempt = unguarded  # what keeps one bad record from ending a cycle
    leave_times: LeaveTimes = field(default_factory=LeaveTimes)

    def context(self, cycle: CycleContext, under_way: UnderWay, *, counts: bool = True) -> PlanningContext:
        """``counts``: with those of earlier preemptions, which no guard of a drain asks for."""
        counted = cycle.snapshot.holders if counts else ()
        return PlanningContext(
            snapshot=cycle.snapshot,
            config=self.leave_times.allowed(cycle.config),
            now=cycle.now,
            preempted=self.operations.preemption_counts(counted),
            under_way=under_way,
            history=self.history.history(cycle.config),
            actions=self.actions,
            limits=cycle.limits,
            reservations=cycle.reservations,
            attempt=self.attempt,
            begins_in_s=self.time.begins_in_s,
        )
