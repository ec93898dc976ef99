"""What is learned of jobs that were asked to save themselves and give no answer (docs/decisions/0103). Pure.

Such a job is taken for saved once it has ended, or has had its time. Its next run shows whether that was true: one that
went on from what was saved takes less than one that began anew.
"""

from collections.abc import Collection, Iterable
from statistics import median

from clearway.model.claims import unanswered_s
from clearway.model.cluster import Job
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.records import CheckpointOutcome, CheckpointRecord

ENOUGH_ALIKE = 3  # undisturbed runs, to compare a restarted one with


def outcome_unanswered(after: Preemption, *, late: bool) -> CheckpointOutcome | None:
    """``after``: as it is once it is not waited for any more. None: nothing is known, and nothing was missed."""
    if after.actual_checkpoint_s is not None:
        return CheckpointOutcome.SAVED
    if after.state in (PreemptionState.SPARED, PreemptionState.PLANNED):
        return CheckpointOutcome.LATE if late else None
    if after.state is PreemptionState.VACATING:  # where it is not needed any more, it still has its time
        return None if after.answer is None else CheckpointOutcome.LATE
    return CheckpointOutcome.ENDED


def found_out(before: Preemption, after: Preemption) -> bool:
    """Whether a job that need not leave any more, and might end all the same, has now done so or had its time."""
    waits = before.state is PreemptionState.VACATING and unanswered_s(before.job) is not None
    return waits and before.actual_checkpoint_s is None and after.actual_checkpoint_s is not None


def taken_for_saved(
    job: Job,
    left: Iterable[Preemption | None],
    checkpoints: Iterable[CheckpointRecord],
    then_s: float,
    others_s: Collection[float],
) -> CheckpointRecord | None:
    """The checkpoint before this run, where the run, which took so long, shows that there was none. ``left``: as the
    job left its nodes before.
    """
    for p in left:
        before = p is not None and p.job.restart_count == job.restart_count - 1
        if p is None or not before or p.asked_at is None or p.actual_checkpoint_s is None:
            continue
        if went_on(p.job.ran_s(p.asked_at), then_s, others_s) is False:
            asked = (p.job_id, p.asked_at)
            return next((each for each in checkpoints if (each.job_id, each.asked_at) == asked), None)
    return None


def went_on(ran_s: float, then_s: float, others_s: Collection[float]) -> bool | None:
    """Whether a run of ``then_s``, until its end, went on from one that was stopped after ``ran_s``; None: unknown.

    By what undisturbed runs of the same name take, in the middle of those that are long enough to compare with. Where
    the run before was only a small part of that, both would look alike.
    """
    if then_s < ran_s:
        return True
    alike = [each for each in others_s if each > ran_s]
    if len(alike) < ENOUGH_ALIKE:
        return None
    usual_s = median(alike)
    return None if ran_s < usual_s / 4 else then_s < usual_s - ran_s / 2
