"""What one cycle saw and did. Frozen data."""

from dataclasses import dataclass, field
from datetime import datetime

from clearway.model.cluster import ClusterSnapshot
from clearway.model.obstacle import ObstacleCode
from clearway.model.operations import Operation, Usage
from clearway.model.plan import Preemptor
from clearway.model.quarantine import Quarantined
from clearway.model.rolling import RollingDrain


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
