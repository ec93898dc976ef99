"""The operations that are open: read from the store once a cycle, and kept in step with it by every write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from clearway.config.access import BudgetConfig
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.errors import UnknownEvictionError
from clearway.model.notice import Notice
from clearway.model.operations import Drain, Eviction, EvictionState, O, Operation, Promise, Relocation
from clearway.model.orders import RollingDrain
from clearway.model.outcome import PLANNED_ANEW
from clearway.model.records import StepLog, Taking, Usage
from clearway.store.repository import CycleState, Judgement, Store

_HOUR = timedelta(hours=1)

Ordered = TypeVar("Ordered", Drain, Relocation, Promise)


class Outbox(Protocol):
    """Says what must be told of a change (``notify.dispatch``); it is stored in one transaction with the change."""

    def notices(
        self, before: Operation | None, after: Operation, given: AbstractSet[str], now: datetime
    ) -> Sequence[Notice]:
        """``before`` None: it is new. ``given``: ids of the jobs whose commands Slurm has just taken."""

    def stored(self) -> None: ...


class OpenOperations:
    """A copy of the store's open operations, and of what they have cost. A write that fails leaves it alone."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox
        self._now: datetime | None = None  # of this cycle
        self._open: dict[int, Operation] = {}
        self._rolling: dict[int, RollingDrain] = {}
        self._usage: tuple[datetime, Usage] | None = None
        self._takings: tuple[datetime, tuple[Taking, ...]] | None = None
        self._counts: dict[str, int] = {}  # as far as they were asked for in this cycle
        self._id_taken: frozenset[int] = frozenset()  # evictions for a job whose id another one has by now

    def refresh(self, now: datetime, *names: str) -> CycleState:
        """Read all of them again, with the small values of these names; a ``StoreError`` leaves the copy as it was."""
        state = self._store.cycle_state(now - _HOUR, names)
        self._now, self._usage, self._counts = now, (now, state.usage), {}
        self._open = {operation.eviction_id: operation for operation in state.operations}
        self._rolling = {rolling.rolling_id: rolling for rolling in state.rolling_drains}
        return state

    def all(self) -> tuple[Operation, ...]:
        return tuple(self._open.values())

    def others(self, operation: Operation) -> tuple[Operation, ...]:
        return tuple(each for each in self._open.values() if each.eviction_id != operation.eviction_id)

    def by_preemptor(self) -> dict[str, Eviction]:
        """The eviction for each waiting job, by the job's id. Of an array those tasks that still wait when others have
        started are planned for anew, as is a job whose eviction was called off so that an operator looks.
        """
        gone = (EvictionState.STARTED, EvictionState.RETURNING)
        return {
            each.preemptor.job_id: each
            for each in self._open.values()
            if isinstance(each, Eviction)
            and each.outcome_code not in PLANNED_ANEW
            and each.eviction_id not in self._id_taken
            and (each.preemptor.pending_tasks == 1 or each.state not in gone)
        }

    def without_strangers(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot without jobs that have the id of another one which an operation still has to do with.

        That one is gone. A stranger keeps its nodes, and is left alone until no operation looks for its id any more.
        """
        self._id_taken, taken = frozenset(), set[str]()
        for each in self.all():
            taken.update(p.job_id for p in each.preemptions if not p.state.terminal and _is_gone(p.job, snapshot))
            if isinstance(each, Eviction) and _is_gone(each.preemptor, snapshot):
                self._id_taken |= {each.eviction_id}
                taken.update([each.preemptor.job_id] * (not each.state.undoing))
        if not taken:
            return snapshot
        strangers = [job for job in snapshot.holders if job.job_id in taken]
        apart = [replace(job, job_id=f"{job.job_id} (another job)", state=JobState.UNKNOWN) for job in strangers]
        return replace(snapshot, jobs=(*(job for job in snapshot.jobs if job.job_id not in taken), *apart))

    def of_request(self, kind: type[Ordered], request_id: int) -> Ordered | None:
        ordered = (each for each in self._open.values() if isinstance(each, kind))
        return next((each for each in ordered if each.order.request_id == request_id), None)

    def get(self, operation_id: int) -> Operation:
        """An open one from the copy, an ended one from the store; raises ``UnknownEvictionError``."""
        known = self._open.get(operation_id)
        return self._store.eviction(operation_id) if known is None else known

    def newest_begun(self, preemptor: Job) -> Eviction | None:
        """The newest eviction for a job of this id that jobs have left for; None: there is none."""
        number = self._store.newest_begun(preemptor.job_id)
        found = None if number is None else self.get(number)
        return found if isinstance(found, Eviction) else None

    def find(self, operation_id: int) -> Operation | None:
        try:
            return self.get(operation_id)
        except UnknownEvictionError:
            return None

    def create(self, operation: O, judge: Callable[[Usage], O] | None = None) -> O:
        """Store a new one; returns it with its id, greater than all before. ``judge``: see ``Judgement``."""
        judgement = None if judge is None else Judgement(operation.created_at - _HOUR, judge)
        told: list[Notice] = []

        def tell(made: O) -> Sequence[Notice]:
            told[:] = self._outbox.notices(None, made, frozenset(), made.created_at)
            return told

        created = self._store.create_eviction(operation, judgement, tell)
        self._keep(created)
        if told:
            self._outbox.stored()
        return created

    def save(
        self, operation: Operation, given: AbstractSet[str] = frozenset(), log: StepLog | None = None
    ) -> tuple[int, ...]:
        """``given``: see ``Outbox``; ``log`` and what is returned: see ``Store.save_eviction``."""
        before, now = self._open.get(operation.eviction_id), self._now or operation.state_since
        notices = self._outbox.notices(before, operation, given, now)
        begun = self._store.save_eviction(operation, notices, log)
        self._keep(operation)
        if notices:
            self._outbox.stored()
        return begun

    def keep_loss(self, before: Operation, after: Operation) -> None:
        """Store what a job has lost, also of an operation that has ended."""
        if after.eviction_id in self._open:
            self.save(after)
            return
        notices = self._outbox.notices(before, after, frozenset(), self._now or after.state_since)
        self._store.keep_loss(after, notices)
        self._usage = self._takings = None
        if notices:
            self._outbox.stored()

    def replace_proposal(self, operation: Operation) -> None:
        """Store a proposal whose plan was made anew; nothing is kept of its plans before."""
        self.save(operation)
        self._store.forget_plans(operation.eviction_id, operation.revision)

    def _keep(self, operation: Operation) -> None:
        self._usage = self._takings = None
        if operation.state.terminal:
            self._open.pop(operation.eviction_id, None)
        else:
            self._open[operation.eviction_id] = operation

    def rolling_drains(self) -> tuple[RollingDrain, ...]:
        return tuple(self._rolling.values())

    def create_rolling_drain(self, rolling: RollingDrain) -> RollingDrain:
        created = self._store.create_rolling_drain(rolling)
        self._rolling[created.rolling_id] = created
        return created

    def save_rolling_drain(self, rolling: RollingDrain) -> None:
        self._store.save_rolling_drain(rolling)
        if rolling.state.terminal:
            self._rolling.pop(rolling.rolling_id, None)
        else:
            self._rolling[rolling.rolling_id] = rolling

    def usage_beside(self, operation: Operation, now: datetime) -> Usage:
        """As ``usage``, without what this operation itself intends."""
        return self._store.usage_since(now - _HOUR, operation.eviction_id)

    def usage(self, now: datetime) -> Usage:
        """What was taken from jobs within the last hour, in this cycle included, and what is intended."""
        if self._usage is None or self._usage[0] != now:
            self._usage = now, self._store.usage_since(now - _HOUR)
        return self._usage[1]

    def takings(self, now: datetime) -> tuple[Taking, ...]:
        """What each eviction has taken from jobs within the last hour, or intends to, and for whom."""
        if self._takings is None or self._takings[0] != now:
            self._takings = now, self._store.takings(now - _HOUR)
        return self._takings[1]

    def preemption_counts(self, jobs: Iterable[Job]) -> Mapping[str, int]:
        """How often each was preempted before this cycle, if at all; each is looked for once a cycle."""
        asked = {job.job_id: job for job in jobs}
        if unknown := asked.keys() - self._counts.keys():
            found = self._store.preemption_counts([asked[job_id] for job_id in unknown])
            self._counts |= dict.fromkeys(unknown, 0) | found
        return {job_id: count for job_id in asked if (count := self._counts[job_id])}


def _is_gone(job: Job, snapshot: ClusterSnapshot) -> bool:
    return snapshot.is_another(job.job_id, job.submission)


def over_budget(jobs: int, lost_node_s: float, usage: Usage, budget: BudgetConfig) -> str:
    """Why so many more jobs, or so much lost work, would exceed it, with what is intended; empty where they do not."""
    jobs += usage.jobs + usage.intended_jobs
    if budget.jobs_per_hour is not None and jobs > budget.jobs_per_hour:
        beside = f" ({usage.intended_jobs} of them for what is under way)" if usage.intended_jobs else ""
        return f"{jobs} jobs would be preempted within an hour{beside}, {budget.jobs_per_hour} are allowed"
    lost_h = (usage.lost_node_s + usage.intended_lost_node_s + lost_node_s) / 3_600
    limit = budget.lost_node_hours_per_hour
    if limit is not None and lost_h > limit:
        return f"{lost_h:.1f} node-hours would be lost within an hour, {limit:g} are allowed"
    return ""
