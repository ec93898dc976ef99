"""Urgent jobs that Clearway has planned for: what was planned, what happened, and the report that is made of them.

Frozen data; ``telemetry.report`` makes the report.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

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
class JobOutcome:
    job: CaseJob
    pays: bool  # it was preempted, or would have been
    lost_node_s: float | None  # as measured of a job that was preempted, else as predicted; None: not measured yet
    ended_soon: bool  # it left its nodes by itself within ``SOON`` of when it would have been preempted


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    case: Case
    ending: Ending
    in_time: bool | None  # whether the job started by its deadline; None: it did not start
    wait_s: float | None  # from submission to the start; None: it did not start
    sooner_s: float  # how much sooner it would have started at least; 0 where the plan was carried out
    lost_node_s: float  # measured, of a plan that was carried out
    would_lose_node_s: float  # predicted, of a plan that was not
    saved_node_s: float | None  # that Clearway's plan loses less than Slurm's rule; None: not compared
    jobs: tuple[JobOutcome, ...]


@dataclass(frozen=True, slots=True)
class UserShare:
    user: str
    jobs: int
    lost_node_s: float
    would_lose_node_s: float
    ended_soon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How far predictions held, in plans that were carried out. Medians are None where there is nothing to compare."""

    checkpoints: int
    checkpoints_within: int  # that took no longer than predicted
    checkpoint_ratio: float | None  # median of actual over predicted time
    starts: int
    starts_in_time: int  # by the deadline
    start_error_s: float | None  # median of actual minus predicted start
    losses: int  # jobs whose loss was measured
    predicted_lost_node_s: float  # of these
    actual_lost_node_s: float  # of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    cases: int
    urgent_jobs: int  # that these plans are for
    by_ending: dict[str, int]
    in_time: int
    lost_node_s: float
    would_lose_node_s: float
    sooner_s: float
    compared: int  # cases in which both rules have a plan
    plan_node_s: float  # of these
    slurm_node_s: float  # of these
    saved_node_s: float  # slurm_node_s - plan_node_s
    slurm_without_plan: int  # cases in which Slurm's rule has no plan in time
    not_compared: int  # cases whose plan has no explanation
    unlisted: int  # jobs of plans that are not listed; their loss is in the sums, and in no user's share
    unlisted_node_s: float  # what these lost or would lose
    ended_soon: int  # jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    since: datetime
    until: datetime
    more: bool  # there are older cases in this time that are left out
    sums: Sums
    held: Held
    users: tuple[UserShare, ...]  # those whose jobs paid or would have, the largest loss first
    cases: tuple[CaseOutcome, ...]  # newest first
