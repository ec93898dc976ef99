"""What the store keeps beside operations, or finds in them; cases are what the report (``api.report``) is made of."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from clearway.model.claims import Restart
from clearway.model.cluster import Job
from clearway.model.operations import EvictionState, OperationKind, Preemption, Subject
from clearway.model.problem import Action

# Names of small values that the store keeps.
HALTED = "halted"  # who has halted the daemon; empty where it is not halted
PAUSED = "paused"
BACKEND = "backend"
CLUSTER = "cluster"  # the one that the database belongs to, as ``store.cluster`` writes it
STATUS = "status"  # mode and waiting urgent jobs, as ``service.loop.StatusRecord`` writes them
LARGEST_ID = 2**31 - 1  # what every database's integer holds


class Key(NamedTuple):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One thing done or noticed. ``finished_at`` None: intended, and not known to have been done."""

    step_id: int
    eviction_id: int
    job_id: str | None  # the preemptee, or None when it concerns the eviction as a whole
    kind: str  # create_placement, attach, ask_checkpoint, requeue, ..., or "event"
    intended_at: datetime
    finished_at: datetime | None = None
    result: str = ""  # ok, refused, error
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to be stored: an intent, or something noticed (kind "event"), which is finished at once."""

    job_id: str | None
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndedStep:
    """What has become of a step that was stored as an intent; an empty detail leaves what was said then."""

    step_id: int
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """What is stored of steps in the transaction that stores where their operation stands."""

    at: datetime
    begun: tuple[NewStep, ...] = ()
    ended: tuple[EndedStep, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Involvement:
    """An operation as it concerns one job: it serves the job, or the job leaves for it."""

    eviction_id: int
    kind: OperationKind
    mode: str
    state: EvictionState
    state_since: datetime
    created_at: datetime
    deadline: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    rule: str  # that made the preemptor urgent; empty: not kept
    subject: Subject
    preemption: Preemption | None  # the job's newest one in it; None: it is the job that the operation serves


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Jobs that have left within the hour, or are intended to, and the work that this loses (node-seconds)."""

    user: str  # of the urgent job, like the next two
    account: str
    rule: str
    jobs: int
    lost_node_s: float


@dataclass(frozen=True, slots=True)
class Loop:
    """Jobs leave again and again without an end to it; ``user`` is None where it concerns several users."""

    user: str | None
    why: str  # half a sentence


class LeaderEnd(StrEnum):
    RELEASED = "released"  # in order: no command of that daemon is under way any more
    EXPIRED = "expired"  # it has not renewed its lease in time, or its process was seen to be gone
    FORCED = "forced"  # an operator took the lease from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who holds the lease, as seen by the daemon that asked for it."""

    owner: str
    epoch: int
    renewed_at: datetime | None = None  # None: by this very call
    lasts_s: float = 0.0  # after each renewal, as its holder has it
    orderly: bool = True  # the one before gave it up itself; else a command of that daemon may still be under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A daemon's time as the one that acts. ``epoch`` is greater than those of all before."""

    epoch: int
    owner: str  # host, process id, and what tells processes of one host name apart
    began_at: datetime
    ended_at: datetime | None = None  # None: nothing is known of its end
    ended: LeaderEnd | None = None
    ended_by: str = ""  # the operator, where one took the lease from it


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseJob:
    """A job that the plan lets leave. Times are None until they happen, or where they are not known."""

    job_id: str
    display_id: str
    user: str
    num_nodes: int
    nodes: tuple[str, ...]
    action: Action
    started_at: datetime | None
    predicted_lost_node_s: float
    predicted_checkpoint_s: float
    left_at: datetime | None = None  # seen off its nodes; up to a cycle late
    preempted: bool = False  # by Clearway
    actual_lost_node_s: float | None = None
    actual_checkpoint_s: float | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What Slurm's own rule costs for the plan's problem, in node-seconds of lost work; None: no plan is in time."""

    slurm_node_s: float | None
    at: datetime  # if its jobs left then; that many node-seconds more with each second later
    unsaved_nodes: int

    def slurm_node_s_at(self, at: datetime) -> float | None:
        if self.slurm_node_s is None:
            return None
        return max(0.0, self.slurm_node_s + self.unsaved_nodes * (at - self.at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """(job_id, began_at) is unique. The plan is the first one, or that which was carried out."""

    job_id: str
    began_at: datetime  # first plan
    display_id: str
    user: str
    submitted_at: datetime
    restarts: int = 0  # with ``submitted_at``: which of the jobs that have had this id
    num_nodes: int
    eviction_id: int
    mode: str  # observe, approve or automatic
    planned_at: datetime
    deadline: datetime
    expected_start: datetime  # when the plan has freed all nodes
    nodes: tuple[str, ...]  # that the plan gives to the urgent job
    jobs: tuple[CaseJob, ...]
    begins_in_s: float = 0.0  # that the plan counted on until it was begun
    unlisted: int = 0  # further jobs that are not kept
    unlisted_node_s: float = 0.0  # what these would lose, or have lost
    acted: bool = False  # the plan was carried out, wholly or in part
    called_off: bool = False  # of such a plan: it came to its end, or is being undone, before the urgent job started
    over: bool = False  # of a plan that was carried out: it has come to its end
    outcome: str = ""  # in sentences for people
    beside: Beside | None = None  # None: not known (yet)
    started_at: datetime | None = None  # the urgent job, as Slurm says
    gone_at: datetime | None = None  # it left the queue, and was not seen to start
    closed_at: datetime | None = None  # None: still followed


MOST_CASES = 1_000  # in one report


class Ending(StrEnum):
    """What became of an urgent job."""

    SERVED = "served"  # the plan was carried out, and the job has started
    CALLED_OFF = "called_off"  # the plan was begun, and called off or failed, whatever the job did then
    SOONER = "sooner"  # the plan was not carried out; with it the job would have started sooner
    NOT_NEEDED = "not_needed"  # the plan was not carried out; the job started no later than with it
    WAITS = "waits"  # it still waits
    GONE = "gone"  # it left the queue and was not seen to start


@dataclass(frozen=True, slots=True)
class Usage:
    """What preemption has cost lately, and what is intended beside, for budgets."""

    jobs: int = 0
    lost_node_s: float = 0.0
    intended_jobs: int = 0  # that operations under way have not made to leave yet, but shall
    intended_lost_node_s: float = 0.0
