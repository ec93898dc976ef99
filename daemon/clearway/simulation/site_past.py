"""What a daemon would have known when the replay of a record begins, from what sacct says of the runs before. Pure.

Each run that was requeued counts as a preemption by Clearway: sacct does not say who requeued it.
"""

from collections.abc import Iterator

from clearway.estimates.learning import Requeued, key_of
from clearway.model.claims import Claims, SaveState
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.simulation.traces.site_record import RecordedJob, Run, SiteRecord
from clearway.store.replay import Past

_OUTCOMES = {SaveState.SAVED: CheckpointOutcome.SAVED, SaveState.FAILED: CheckpointOutcome.FAILED}


def past_of(record: SiteRecord) -> Past:
    at = record.begins
    if at is None:
        return Past()
    checkpoints: list[CheckpointRecord] = []
    restarts: list[RestartRecord] = []
    returns: list[tuple[Run, Requeued]] = []
    preempted: dict[str, int] = {}
    for job in record.earlier:
        begun = [run for run in job.runs if run.start <= at]
        ended = [run for run in begun if run.ended_by(at)]
        if count := sum(run.requeued for run in ended):
            preempted[str(job.job_id)] = count
        checkpoints += _checkpoints(job, ended)
        restarts += _restarts(job, begun)
        for before, after in zip(ended, begun[1:], strict=False):
            if before.requeued and before.end is not None:
                away_s = (after.start - before.end).total_seconds()
                returns.append((after, Requeued(job.num_nodes, max(0.0, away_s))))
    returns.sort(key=lambda each: each[0].start, reverse=True)
    return Past(preempted, tuple(each for _, each in returns), tuple(checkpoints), tuple(restarts))


def _said(runs: list[Run]) -> Iterator[tuple[int, Run, Claims]]:
    """What each of a job's first runs said of itself."""
    for number, run in enumerate(runs):
        if (told := run.claims) is not None and told.run == number:
            yield number, run, told


def _checkpoints(job: RecordedJob, runs: list[Run]) -> Iterator[CheckpointRecord]:
    for number, run, told in _said(runs):
        outcome = None if told.state is None else _OUTCOMES.get(told.state)
        if not run.requeued or outcome is None or told.asked is None or run.end is None:
            continue
        saved = outcome is CheckpointOutcome.SAVED
        took_s = (told.last - told.asked).total_seconds() if saved and told.last is not None else None
        yield CheckpointRecord(
            eviction_id=0,
            job_id=str(job.job_id),
            run=number,
            **key_of(job.as_slurm(), told)._asdict(),
            action=Action.APP_CHECKPOINT,
            nodes=job.num_nodes,
            asked_at=told.asked,
            ended_at=run.end,
            outcome=outcome,
            predicted_s=0.0,
            actual_s=took_s,
            write_s=took_s,
            size_mib=told.size_mib if saved else None,
        )


def _restarts(job: RecordedJob, runs: list[Run]) -> Iterator[RestartRecord]:
    for number, run, told in _said(runs):
        if number > 0 and told.restart is not None:
            yield RestartRecord(
                job_id=str(job.job_id),
                run=number,
                **key_of(job.as_slurm(), told)._asdict(),
                nodes=job.num_nodes,
                started_at=run.start,
                restart=told.restart,
                restart_s=told.restart_s,
            )
