"""Outcomes of checkpoints and restarts, as the records that ``clearway.estimates.learning`` goes by. Pure.

A checkpoint's record is made when its preemption leaves the state ``checkpointing``, whatever comes next: that is
when its outcome is known. The executor stores it before it stores the new state, so a daemon that is killed in between
makes the same record again, under the same key.

A restart's record is made of what a running job says of its own start, which comes after its preemption has ended.
"""

from datetime import datetime

from clearway.config.configuration import CostsConfig
from clearway.estimates.costs import checkpoint_time_s, model_size_mib
from clearway.estimates.learning import History, key_of
from clearway.model.claims import CLOCK_SKEW, CheckpointHow, Claims, checkpointed_since, failed_since, read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.operations import Operation, Preemption, PreemptionState
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord


def checkpoint_record(
    eviction: Operation,
    before: Preemption,
    after: Preemption,
    seen: Job | None,
    now: datetime,
    *,
    latest: datetime,
    costs: CostsConfig,
) -> CheckpointRecord | None:
    """What became of the checkpoint that ``before`` was waiting for; None while it waits on, or was called off in time.

    ``seen`` is the job in the newest snapshot, None when there is none or Slurm has forgotten the job; ``latest`` is
    when its nodes had to begin to empty.
    """
    asked, waited_on = before.asked_at, after.state is PreemptionState.CHECKPOINTING and after.asked_at is not None
    if before.state is not PreemptionState.CHECKPOINTING or asked is None or waited_on:
        return None
    chosen, _ = read_claims(before.job)  # as the prediction was made from
    told = (read_claims(seen)[0] if seen is not None else None) or chosen
    if told is None:
        return None
    outcome = _outcome(before, after, told, late=now > latest)
    if outcome is None:
        return None
    saved = outcome is CheckpointOutcome.SAVED
    actual_s = max(0.0, (told.last - asked).total_seconds()) if saved and told.last is not None else None
    if told.checkpoint is CheckpointHow.INTERVAL:
        write_s = told.took_s if saved else None
    else:
        late = outcome is CheckpointOutcome.LATE
        write_s = (now - asked).total_seconds() if late else actual_s  # late: so long at least
    return CheckpointRecord(
        eviction_id=eviction.eviction_id,
        job_id=before.job_id,
        run=before.job.restart_count,
        **key_of(before.job, told)._asdict(),
        action=before.action,
        nodes=max(1, before.job.num_nodes),
        asked_at=asked,
        ended_at=now,
        outcome=outcome,
        predicted_s=_predicted_s(eviction, before),
        actual_s=actual_s,
        write_s=write_s,
        predicted_size_mib=model_size_mib(before.job, chosen, costs) or None if chosen is not None else None,
        size_mib=told.size_mib if saved else None,
    )


def restart_record(job: Job, now: datetime, history: History) -> RestartRecord | None:
    """How this run of a job went on from a checkpoint; None while it does not say, or cannot be believed.

    A requeued job still carries the words of its earlier run. Of a start that took longer than this run is old they
    are certainly not.
    """
    claims, _ = read_claims(job)
    if claims is None or claims.restart is None or job.state is not JobState.RUNNING or job.start_time is None:
        return None
    took_s = claims.restart_s
    if job.restart_count == 0 or (took_s or 0.0) > (now - job.start_time + CLOCK_SKEW).total_seconds():
        return None
    key = key_of(job, claims)
    nodes = max(1, job.num_nodes)
    predicted_s = history.restart_s(*key, nodes)
    if predicted_s is None and claims.size_mib is not None:  # reading is taken to be as quick as writing
        predicted_s = checkpoint_time_s(nodes, claims.size_mib / nodes, history.costs)
    return RestartRecord(
        job_id=job.job_id,
        run=job.restart_count,
        **key._asdict(),
        nodes=nodes,
        started_at=job.start_time,
        restart=claims.restart,
        predicted_s=predicted_s,
        restart_s=took_s,
    )


def _outcome(before: Preemption, after: Preemption, told: Claims, *, late: bool) -> CheckpointOutcome | None:
    assert before.asked_at is not None  # noqa: S101 - the caller has looked
    if checkpointed_since(told, before.asked_at):
        return CheckpointOutcome.SAVED
    if failed_since(told, before.asked_at):
        return CheckpointOutcome.FAILED
    if after.state in (PreemptionState.SPARED, PreemptionState.PLANNED):  # PLANNED: chosen anew, with another action
        return CheckpointOutcome.LATE if late else None
    if after.state is PreemptionState.VACATING:
        return CheckpointOutcome.LATE  # requeued without it
    return CheckpointOutcome.ENDED


def _predicted_s(eviction: Operation, p: Preemption) -> float:
    """As it was estimated; the plan itself has it rounded up to whole steps."""
    for candidate in eviction.plan.problem.candidates:
        if candidate.job_id == p.job_id:
            return next((each.checkpoint_s for each in candidate.options if each.action is p.action), 0.0)
    return p.predicted_checkpoint_s
