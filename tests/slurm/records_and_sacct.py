"""What the daemon has recorded of the jobs that left, beside Slurm's own accounting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from clearway.model.claims import Restart, last_checkpoint, read_claims
from clearway.model.operations import Operation, Preemption, PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster

NEAR = timedelta(seconds=3)  # a cycle, whole seconds, and a busy machine
FORMAT = "JobIDRaw,State,Start,End"


@dataclass(frozen=True)
class Run:
    """One run of a job, or a wait that ended in none (``start`` None)."""

    state: str
    start: datetime | None
    end: datetime | None


def runs_by_sacct(cluster: SlurmCluster, job_ids: Iterable[str]) -> dict[str, tuple[Run, ...]]:
    """All runs of each job, oldest first; a requeued run is REQUEUED."""
    asked = ("sacct", "-n", "-X", "-P", "-D", f"--jobs={','.join(job_ids)}", f"--format={FORMAT}")
    found: dict[str, list[Run]] = {}
    for line in cluster.run(*asked).stdout.splitlines():
        job_id, state, start, end = line.split("|")
        found.setdefault(job_id, []).append(Run(state.split()[0], _time(start), _time(end)))
    return {job_id: tuple(sorted(runs, key=_began)) for job_id, runs in found.items()}


def _time(text: str) -> datetime | None:
    return None if text in ("Unknown", "None") else datetime.fromisoformat(text).astimezone(UTC)


def _began(run: Run) -> datetime:
    return run.start or datetime.max.replace(tzinfo=UTC)


def disagreements(cluster: SlurmCluster, operations: Sequence[Operation], near: timedelta = NEAR) -> list[str]:
    """Where records and accounting differ; slurmdbd hears of an end some seconds later: to be asked again."""
    left = [(e, p) for e in operations for p in e.preemptions]
    runs = runs_by_sacct(cluster, {p.job_id for _, p in left}) if left else {}
    return [f"operation {e.eviction_id}, job {p.job_id}: {why}" for e, p in left for why in _of_job(p, runs, near)]


def _of_job(p: Preemption, runs: Mapping[str, Sequence[Run]], near: timedelta) -> Iterator[str]:
    run = next((each for each in runs.get(p.job_id, ()) if each.start == p.job.start_time), None)
    if run is None:
        yield f"sacct has no run that began at {p.job.start_time}"
        return
    taken = p.requeued_at is not None and p.state is not PreemptionState.SPARED
    if p.action is Action.SUSPEND:
        return
    if not taken:
        own = run.state == "REQUEUED" and p.note != "it was requeued outside Clearway"
        if own or (p.restart is None and (p.actual_lost_node_s or 0.0) > 0):
            yield f"sacct says {run.state}, and the record that it was not preempted: {p}"
        return
    expected = ("REQUEUED", "NODE_FAIL") if p.job.can_be_requeued else ("CANCELLED",)
    if run.state not in expected:
        yield f"sacct says {run.state}, and the record that it was preempted"
    if p.requeued_at is None or run.end is None or run.start is None:
        yield f"an end is not known: {p.requeued_at}, {run.end}"
        return
    if not p.requeued_at - near <= run.end:
        yield f"it ended at {run.end}, before it was requeued at {p.requeued_at}"
    if p.vacated_at is not None and p.vacated_at < run.end - near:  # later where Slurm did not answer for a while
        yield f"it ended at {run.end}, and was seen to have left at {p.vacated_at}"
    saved = p.checkpointed_at or last_checkpoint(read_claims(p.job)[0], run.start, p.requeued_at)
    if p.restart not in (None, Restart.OK):  # its launcher's word counts, which sacct does not know
        return
    lost_s = (max(0.0, (p.requeued_at - saved).total_seconds()) + (p.restart_s or 0.0)) * p.job.num_nodes
    if p.actual_lost_node_s is None or abs(p.actual_lost_node_s - lost_s) > near.total_seconds() * p.job.num_nodes:
        yield f"{p.actual_lost_node_s} node-seconds are lost, by sacct {lost_s}"


def records_agree(cluster: SlurmCluster, operations: Sequence[Operation], near: timedelta = NEAR) -> None:
    """Waits until slurmdbd has heard of everything."""
    told: list[str] = []

    def agree() -> bool:
        told[:] = disagreements(cluster, operations, near)
        return not told

    try:
        cluster.wait_for(agree, 15, "records that agree with sacct")
    except Exception as error:
        error.add_note("\n".join(told))
        raise
