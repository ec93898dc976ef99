"""What became of checkpoints and restarts, as it is kept. Frozen."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from clearway.model.claims import Restart
from clearway.model.problem import Action


class Key(NamedTuple):
    """What history is kept by."""

    user: str
    app: str
    checkpointer: str


class CheckpointOutcome(StrEnum):
    SAVED = "saved"
    FAILED = "failed"  # the job said so
    LATE = "late"  # it had not answered when the nodes had to begin to empty
    ENDED = "ended"  # the job left by itself before it had saved: says nothing of the checkpointer


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRun:
    """Of one run of a job."""

    job_id: str
    run: int  # the job's restart count
    user: str
    app: str
    checkpointer: str
    nodes: int

    @property
    def key(self) -> Key:
        return Key(self.user, self.app, self.checkpointer)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord(_OfRun):
    """One checkpoint that was asked for or waited for. (eviction_id, job_id, asked_at) is unique."""

    eviction_id: int
    action: Action
    asked_at: datetime
    ended_at: datetime  # when its outcome was seen
    outcome: CheckpointOutcome
    predicted_s: float
    actual_s: float | None = None  # from asking to the complete checkpoint, the wait for the application included
    write_s: float | None = None  # ... without that wait; of a late one, how long it has taken at least
    predicted_size_mib: float | None = None  # on all nodes together
    size_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord(_OfRun):
    """How one run of a job went on from a checkpoint, as it says. (job_id, started_at) is unique."""

    started_at: datetime
    restart: Restart
    predicted_s: float | None = None
    restart_s: float | None = None  # from the start of the run until the program computed again
