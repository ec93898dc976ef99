"""An urgent job that Clearway has planned for, as the report needs it: what was planned, and what happened. Frozen."""

from dataclasses import dataclass
from datetime import datetime

from clearway.model.problem import Action


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
    """What one and the same problem costs by two rules, in node-seconds of lost work; None: no plan is in time."""

    plan_node_s: float
    slurm_node_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """(job_id, began_at) is unique. The plan is the first one, or that which was carried out."""

    job_id: str
    began_at: datetime  # first plan
    display_id: str
    user: str
    submitted_at: datetime
    num_nodes: int
    eviction_id: int
    mode: str  # observe, approve or automatic
    planned_at: datetime
    deadline: datetime
    expected_start: datetime  # when the plan has freed all nodes
    nodes: tuple[str, ...]  # that the plan gives to the urgent job
    jobs: tuple[CaseJob, ...]
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
