"""Tests of whether a running job saves itself when it is asked: what was asked, and what came of it. Frozen data."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from clearway.model.cluster import Job


class SaveTestEnd(StrEnum):
    SAVED = "saved"  # in time
    FAILED = "failed"  # the job says so
    LATE = "late"  # no word of it in time
    LEFT = "left"  # the job ended, or left its nodes, before its answer
    NOT_ASKED = "not_asked"  # Slurm refused, or it is not known whether the job was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTest:
    """One test; nothing is requeued. Times are None until they happen."""

    request_id: int  # of the request that asked for it
    job: Job  # as seen when it was asked: job.run is the run that is tested
    actor: str
    asked_at: datetime  # the intent, stored before the signal
    latest: datetime  # from when on no answer counts as late
    expected_s: float
    asked: bool = False  # Slurm has taken the signal; also where the job needs none, as it saves itself at its own pace
    ended_at: datetime | None = None
    end: SaveTestEnd | None = None
    took_s: float | None = None  # of the checkpoint, as the job says, else from the request to its end
    size_mib: int | None = None
    generation: int | None = None
    restartable: bool | None = None  # whether a restart would find it; None: only the program knows
    sentence: str = ""  # what came of it, for the job's owner; empty while it waits
