"""What one cycle goes by: read once, then passed down."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.history import HistoryKeeper
from clearway.execution.job_lifecycle import Command
from clearway.execution.open_operations import OpenOperations
from clearway.execution.planning_time import Impossible, PlanningTime
from clearway.model.cluster import ClusterSnapshot, Reservation
from clearway.model.limits import Limits
from clearway.model.operations import Operation, Preemption
from clearway.model.problem import Action
from clearway.model.report import Attempt, unguarded
from clearway.planning.base import Planner

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
    stopped: str = ""  # why no job may be made to leave (``execution.breaker``); such a cycle counts as paused too
    reservations: tuple[Reservation, ...] = ()  # empty when nothing under way needed them
    limits: Limits | None = None  # on the jobs that are planned for, or that others leave for; None: not asked for
    # What the executor adds for the operation that it carries on:
    others: tuple[Operation, ...] = ()  # under way beside it
    refused: frozenset[Command] = frozenset()  # commands that have just failed for it as a whole

    @property
    def nothing_begun(self) -> str:
        """Why nothing may be begun on request, half a sentence; empty where it may."""
        if self.only_observes:
            return f"Clearway only observes: {self.only_observes}"
        return "the daemon only observes (daemon.mode)" if self.config.daemon.mode is Mode.OBSERVE else ""

    @property
    def waits_why(self) -> str:
        """Why no job is made to leave in this cycle, for people; empty where jobs may be."""
        stopped = self.stopped and f"stopped: {self.stopped}; clearway resume goes on"
        return self.halted or stopped or ("paused" if self.paused else "")

    def reservation(self, name: str) -> Reservation | None:
        return next((each for each in self.reservations if each.name == name), None)


class LeaveTimes:
    """How long jobs take to leave their nodes: what plans allow for it follows what was seen.

    From the requeue until a snapshot shows the job in the queue: until then Slurm ends its processes (KillWait), and
    its epilog runs. ``execution.kill_allowance`` is the least that is allowed for. A site's epilog may take longer,
    and urgent jobs would be late again and again. Forgotten when the daemon ends.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[object, float]] = deque(maxlen=_REMEMBERED)
        self._changed: tuple[Config, float, Config] | None = None

    def observe(self, operations: Iterable[Operation]) -> None:
        """To be called in every cycle."""
        known = {which for which, _ in self._seen}
        for operation in operations:
            for p in operation.preemptions:
                which, took_s = (operation.eviction_id, p.job.run), _took_s(p)
                if took_s is not None and which not in known:
                    self._seen.append((which, took_s))

    @property
    def allowance_s(self) -> float:
        """Within which most of them had left; 0 where none is known."""
        times = sorted(took_s for _, took_s in self._seen)
        return times[ceil(_SHARE * len(times)) - 1] if times else 0.0

    def allowed(self, config: Config) -> Config:
        """The configuration with an allowance that does for what was seen."""
        allowance_s = self.allowance_s
        if allowance_s <= config.execution.kill_allowance:
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
    """What all plans of the daemon are made with."""

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
        counted = [job.job_id for job in cycle.snapshot.holders] if counts else []
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
