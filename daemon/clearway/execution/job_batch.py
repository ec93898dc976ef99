"""The steps of many jobs that are taken at once, and how many those are: stored in one transaction, then acted on.
Until it is stored a batch can be dropped, as a whole or job by job: nothing of it has happened.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from clearway.config.configuration import Config
from clearway.estimates.checkpoint_load import (
    CheckpointLoad,
    CheckpointWrite,
    checkpoint_load_of,
    checkpoint_write_of,
    latest_of,
    may_begin,
    overdue_saves,
)
from clearway.estimates.costs import NO_HISTORY
from clearway.estimates.history import checkpoint_record
from clearway.estimates.learning import History
from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_lifecycle import REQUEUING, Step
from clearway.execution.progress import preemption_entered, times, with_intent, with_preemption
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Answer, O, Operation, Preemption
from clearway.model.records import CheckpointRecord, NewStep, Usage

T = TypeVar("T")

FIRST_SIZE = 20  # jobs
MOST_SIZE = 200  # names of jobs in a command, by far shorter than what a system takes
BATCH_S = 0.3
GROWS_BY = 1.5
FALLS_TO = 2 / 3
CYCLE_S = 0.5  # what the batches of a cycle take together, with what is stored of them
WHOLE_S = 0.35  # after so much of it begins no command for an operation as a whole


class Pace:
    """How many jobs go into one batch of commands, and how many batches into one cycle, which must stay short.

    A batch has as many jobs as fit into what is left of the cycle, by the time that each job of the batches before has
    taken and by what storing took. What follows Slurm's answer makes it slower: so a cycle has at most ``GROWS_BY`` as
    many jobs as the one before, and what is expected for each job falls by a third for a batch at most. However long
    storing takes, the first batch has ``BATCH_S`` for its commands. Commands for operations as a whole are given one by
    one for ``WHOLE_S``; the first that has any in a cycle is given all that it needs.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._cycle: datetime | None = None
        self._spent_s = self._asked_s = 0.0  # by the commands of this cycle, and by Slurm alone
        self._job_s = 0.0  # expected of Slurm for each job of a batch; 0: not known
        self._store_s = 0.0  # by the database for the newest batch
        self._given, self._most = 0, FIRST_SIZE  # jobs in batches of this cycle, and how many there may be
        self._waiting = False
        self._first: Hashable = None  # what has had a command as a whole in this cycle before all others

    def open(self, cycle: datetime) -> bool:
        """Whether another command may be given in the cycle of this time. Where not, its turn comes in the next."""
        self._turn_to(cycle)
        fits = not self._given or (self._given < self._most and self._job_s < self._left_s)
        self._waiting |= not fits
        return fits

    def open_for_whole(self, cycle: datetime, unit: Hashable) -> bool:
        """The same for a command for an operation as a whole; ``unit``: what can only be carried out as one."""
        self._turn_to(cycle)
        self._first = unit if self._first is None else self._first
        fits = self._spent_s < WHOLE_S or unit == self._first
        self._waiting |= not fits
        return fits

    def put_off(self, cycle: datetime) -> None:
        self._turn_to(cycle)
        self._waiting = True

    def _turn_to(self, cycle: datetime) -> None:
        if cycle != self._cycle:
            self._cycle, self._spent_s, self._asked_s = cycle, 0.0, 0.0
            self._given, self._most = 0, max(FIRST_SIZE, int(GROWS_BY * self._given))
            self._waiting, self._first = False, None

    @property
    def size(self) -> int:
        left_s = self._left_s if self._given else max(self._left_s, BATCH_S)
        most = min(MOST_SIZE, self._most - self._given)
        return max(1, most if self._job_s == 0.0 else min(most, int(left_s / self._job_s)))

    @property
    def _left_s(self) -> float:
        return max(0.0, CYCLE_S - self._spent_s - self._store_s)

    def in_arrears(self, cycle: datetime) -> bool:
        """Whether commands wait for the next cycle, which should begin at once; not where Slurm has become slow."""
        return cycle == self._cycle and self._waiting and self._asked_s < 2 * CYCLE_S

    def whole(self, work: Callable[[], T]) -> T:
        """Give a command for an operation as a whole: what it takes is missing for batches."""
        began = self._monotonic()
        try:
            return work()
        finally:
            seconds = max(0.0, self._monotonic() - began)
            self._spent_s += seconds
            self._asked_s += seconds

    def batch(self, work: Callable[[], T]) -> T:
        """Store a batch, give its commands with ``asking``, and store what came of them."""
        began, asked_s = self._monotonic(), self._asked_s
        try:
            return work()
        finally:
            seconds = max(0.0, self._monotonic() - began)
            self._spent_s += seconds
            if self._asked_s != asked_s:
                self._store_s = max(0.0, seconds - (self._asked_s - asked_s))

    def asking(self, jobs: int, work: Callable[[], T]) -> T:
        size, began = self.size, self._monotonic()
        try:
            return work()
        finally:
            seconds = max(0.0, self._monotonic() - began)
            self._given += jobs
            self._asked_s += seconds
            # A batch that was smaller than it could be takes more for each job.
            self._job_s = max(seconds / max(jobs, size), self._job_s * FALLS_TO)


@dataclass(frozen=True, slots=True)
class TakenStep:
    """One job's row of the table, and the job's record before and after it. ``index``: among the preemptions."""

    index: int
    before: Preemption
    after: Preemption
    step: Step


@dataclass(slots=True)
class JobBatch(Generic[O]):
    """``operation`` is as it will be once the batch is stored; ``before`` as it is stored now."""

    operation: O
    before: O = field(init=False)
    taken: list[TakenStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = self.operation

    @property
    def commands(self) -> list[TakenStep]:
        return [each for each in self.taken if each.step.command is not None]

    def take(self, index: int, step: Step, snapshot: ClusterSnapshot, now: datetime) -> None:
        p = self.operation.preemptions[index]
        after = replace(p, note=step.note or p.note)
        if step.state is not p.state:
            changes = times(p, step, snapshot, now)
            after = preemption_entered(after, step.state, now, attempted_at=None, attempts=0, **changes)
        elif step.command in REQUEUING and p.answer is not Answer.TAKEN:
            after = replace(after, **times(p, step, snapshot, now))  # it has run on since the last attempt
        after = with_intent(after, step, snapshot.job_by_id.get(p.job_id))
        self.taken.append(TakenStep(index, p, after, step))
        self.operation = with_preemption(self.operation, index, after)

    def drop_commands(self) -> None:
        for each in self.commands:
            self.operation = with_preemption(self.operation, each.index, each.before)
        self.taken = [each for each in self.taken if each.step.command is None]

    def log(self) -> tuple[NewStep, ...]:
        """What is written down before the acts: notes, and an intent for each command."""
        found: list[NewStep] = []
        for each in self.taken:
            job = each.after.job
            if each.step.note:
                found.append(NewStep(job.job_id, "event", f"Job {job.display_id}: {each.step.note}."))
            if each.step.command is not None:
                found.append(NewStep(job.job_id, each.step.command.value))
        return tuple(found)

    def usage(self) -> Usage:
        gone = [
            each.after
            for each in self.taken
            if each.after.requeued_at is not None and each.before.requeued_at is None and not each.after.eternal
        ]
        lost = (p.predicted_lost_node_s if p.actual_lost_node_s is None else p.actual_lost_node_s for p in gone)
        return Usage(len(gone), sum(lost))


class CheckpointTurns:
    """``others`` are the other operations under way; an answer holds while none of them has changed."""

    def __init__(self, config: Config, history: Callable[[Config], History] = lambda _: NO_HISTORY) -> None:
        self._config, self._execution, self._costs = config, config.execution, config.costs
        self._history = history
        # Each step makes another operation.
        self._known: tuple[Operation, Sequence[Operation], CheckpointLoad] | None = None

    def may_ask(self, e: Operation, p: Preemption, cycle: CycleContext) -> bool:
        """Whether this checkpoint is the next over all operations, and the file system has room for it."""
        write = self._write(e, p, cycle)
        if write is None or write.own_pace:
            return True  # its claim is gone, or it saves itself at its own pace
        if self._known is None or self._known[0] is not e or self._known[1] is not cycle.others:
            load = checkpoint_load_of(
                (e, *cycle.others),
                lambda each, own: self._write(each, own, cycle),
                lambda each, own: each.its_turn(own),
                lambda each: each is e,
                cycle.now,
            )
            self._known = (e, cycle.others, load)
        bandwidth = self._execution.checkpoint_bandwidth_mib_s or self._costs.file_system_mib_s
        return may_begin(write, self._known[2], self._execution.concurrent_checkpoints, bandwidth)

    def _write(self, e: Operation, p: Preemption, cycle: CycleContext) -> CheckpointWrite | None:
        history = self._history(cycle.config)
        return checkpoint_write_of(e, p, cycle.snapshot, self._costs, self._execution, history)

    def records(
        self, before: Operation, after: Operation, snapshot: ClusterSnapshot | None, now: datetime
    ) -> Iterator[CheckpointRecord]:
        now_by_id, latest = {p.job_id: p for p in after.preemptions}, latest_of(before, self._execution)
        missed: Sequence[str] = ()  # replaced, though not at the latest moment: a little slow is no failure
        if snapshot is not None and after.revision > before.revision:
            missed = overdue_saves(before, (), snapshot, self._config, now, times=2)
        for p in before.preemptions:
            seen, then = snapshot.job_by_id.get(p.job_id) if snapshot else None, now_by_id.get(p.job_id, p)
            due = p.asked_at if p.asked_at is not None and p.job_id in missed else latest
            record = checkpoint_record(before, p, then, seen, now, latest=due, costs=self._costs)
            if record is not None:
                yield record
