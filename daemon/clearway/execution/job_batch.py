"""The steps of many jobs that are taken at once: collected in memory, stored in one transaction, then acted on.

Until the batch is stored, nothing of it has happened: it can be dropped as a whole or job by job.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic

from clearway.execution.job_lifecycle import Step
from clearway.execution.progress import preemption_entered, times, with_preemption
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import O, Preemption, Usage
from clearway.model.steps import NewStep


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
        self.taken.append(TakenStep(index, p, after, step))
        self.operation = with_preemption(self.operation, index, after)

    def drop_commands(self) -> None:
        """Without what would be given to Slurm."""
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
        """What is taken from jobs by what is not stored yet, for budgets."""
        gone = [
            each.after
            for each in self.taken
            if each.after.requeued_at is not None and each.before.requeued_at is None and not each.after.eternal
        ]
        lost = (p.predicted_lost_node_s if p.actual_lost_node_s is None else p.actual_lost_node_s for p in gone)
        return Usage(len(gone), sum(lost))
