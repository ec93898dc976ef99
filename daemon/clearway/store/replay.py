"""The database of a replay: what a daemon would have known when the replay begins stands beside what it writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clearway.estimates.learning import Requeued
from clearway.model.records import CheckpointRecord, RestartRecord
from clearway.store.repository import SqlStore


@dataclass(frozen=True, slots=True)
class Past:
    """``preempted``: how often each job was; ``requeued``: the preemptees that came back, newest first."""

    preempted: Mapping[str, int] = field(default_factory=dict)
    requeued: tuple[Requeued, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    restarts: tuple[RestartRecord, ...] = ()


class ReplayStore(SqlStore):
    def __init__(self, url: str, past: Past) -> None:
        super().__init__(url)
        self._past = past
        for checkpoint in past.checkpoints:
            self.record_checkpoint(checkpoint)
        for restart in past.restarts:
            self.record_restart(restart)

    def preemption_counts(self, job_ids: Iterable[str]) -> dict[str, int]:
        asked = set(job_ids)
        counts = {job_id: self._past.preempted[job_id] for job_id in asked & set(self._past.preempted)}
        for job_id, count in super().preemption_counts(asked).items():
            counts[job_id] = counts.get(job_id, 0) + count
        return counts

    def requeued(self) -> tuple[Requeued, ...]:
        return (*super().requeued(), *self._past.requeued)
