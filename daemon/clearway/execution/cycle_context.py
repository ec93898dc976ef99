"""What one cycle goes by: read once, then passed down. Frozen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.history import HistoryKeeper
from clearway.execution.job_lifecycle import Command
from clearway.execution.leave_times import LeaveTimes
from clearway.execution.open_operations import OpenOperations
from clearway.execution.planning_time import Impossible, PlanningTime
from clearway.model.cluster import ClusterSnapshot, Reservation
from clearway.model.limits import Limits
from clearway.model.operations import Operation
from clearway.model.problem import Action
from clearway.model.quarantine import Attempt, unguarded
from clearway.planning.base import Planner


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


@dataclass(frozen=True, slots=True)
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
