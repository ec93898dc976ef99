"""What one cycle saw and did, and what it passed over because its handling raised. Frozen data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Operation
from clearway.model.orders import RollingDrain
from clearway.model.plan import ObstacleCode, Preemptor
from clearway.model.records import Usage

T = TypeVar("T")


class Subject(StrEnum):
    JOB = "job"
    REQUEST = "request"  # is finished as failed, and never tried again
    OPERATION = "operation"
    PART = "part"  # of a cycle, such as its housekeeping


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One subject that is passed over."""

    subject: Subject
    ident: str
    why: str  # the type and text of the error
    times: int  # failures in a row
    until: datetime  # it is tried again then


class Attempt(Protocol):
    """Calls ``act`` for one job; None where that raised, or where the job is passed over. ``ident`` is the job's id and
    what it is looked at for: one that fails as an urgent job may end as a candidate.
    """

    def __call__(self, ident: str, act: Callable[[], T]) -> T | None: ...


def unguarded(ident: str, act: Callable[[], T]) -> T | None:  # noqa: ARG001
    """An ``Attempt`` that raises: for questions that people ask, who are told the error."""
    return act()


def described(error: BaseException) -> str:
    """One line, however long or strange the error's own text is."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, slots=True)
class Waiting:
    """A preemptor that waits, and what Clearway makes of it."""

    preemptor: Preemptor
    eviction_id: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw and did; the REST API and the metrics read the newest."""

    at: datetime
    snapshot: ClusterSnapshot
    waiting: tuple[Waiting, ...] = ()
    open_evictions: tuple[Operation, ...] = ()
    rolling_drains: tuple[RollingDrain, ...] = ()  # those that are open
    paused: bool = False
    halted: str = ""  # why no command is given to Slurm; empty where commands are given
    stopped: str = ""  # why no job is made to leave any more, until an operator has looked; empty: jobs may be
    only_observes: str = ""  # why nothing new is begun with this release of Slurm; empty: what daemon.mode says
    refused_rules: str = ""  # those by which no job is urgent on this site, and why; empty: all hold
    standby: bool = False
    database_bytes: int = 0  # 0: not asked for yet
    user_pauses: tuple[bool, ...] = ()  # one for each user: True: left alone, False: plans wait for approval
    quarantined: tuple[Quarantined, ...] = ()  # what is passed over because its handling raised
    epoch: int | None = None  # of the lease; None while another daemon holds it
    clock_doubt: str = ""  # why nothing was done by the time that the clock shows; empty: it is believed
    usage: Usage = field(default_factory=Usage)  # of the hour before
    seconds: float = 0.0
    in_arrears: bool = False  # commands wait only because this cycle has been long enough: the next begins at once

    @property
    def left_to_slurm(self) -> list[ObstacleCode]:
        """Why no plan is made, for each urgent job that waits for none."""
        found = [each.preemptor.obstacle for each in self.waiting if not each.preemptor.ordinary]
        return [obstacle.code for obstacle in found if obstacle is not None]
