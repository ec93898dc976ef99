"""What the API answers. Units are in the names: ``_s`` seconds, ``_node_s`` node-seconds; times are aware UTC."""

from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field

from clearway.api.plan_schemas import FOLDED, Answer, CurveView, HostList, PlanView, VerdictView, WholePlanView
from clearway.config.configuration import Mode
from clearway.model.claims import Restart
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.orders import MoveKind, Parallel, RollingState, TurnState
from clearway.model.plan import ObstacleCode
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, LeaderEnd
from clearway.model.requests import RequestResult


class Problem(Answer):
    """Every error has this form: RFC 9457, of the type about:blank."""

    title: str = Field(description="what the status means, in HTTP's words")
    status: int = Field(description="the answer's own status")
    detail: str = Field(description="what was wrong, in one line")


class NodeCounts(Answer):
    total: int = Field(description="nodes in the newest snapshot")
    available: int = Field(description="nodes on which Slurm would start a job once they are empty")
    free: int = Field(description="available nodes without any job")
    occupied: int = Field(description="nodes that some job holds, available or not")
    unavailable: int = Field(description="nodes that are down, drained, failing ...")
    reserved: int = Field(description="nodes that an active Slurm reservation covers, placements included")


class SkippedRecord(Answer):
    kind: str = Field(description="job, node or reservation")
    ident: str = Field(description="as much of its id as could be read")
    why: str = Field(description="what could not be read")


class BudgetUsage(Answer):
    jobs: int = Field(description="jobs preempted in the last hour")
    jobs_limit: int | None = Field(description="maximum number of jobs preempted in an hour; null: no limit")
    lost_node_s: float = Field(description="work lost in the last hour, node-seconds")
    lost_node_s_limit: float | None = Field(description="maximum work lost in an hour, node-seconds; null: no limit")


class ClusterView(Answer):
    taken_at: datetime = Field(description="when the newest snapshot was taken")
    backend: str = Field(description="how the daemon talks to Slurm: cli, pyslurm or simulated")
    mode: Mode = Field(description="what the daemon may do")
    paused: bool = Field(description="whether an operator has paused the daemon")
    halted: str = Field(description="why no command is given to Slurm; empty: commands are given")
    standby: bool = Field(description="whether another daemon acts on this database")
    nodes: NodeCounts
    jobs: dict[str, int] = Field(description="number of jobs in each state")
    waiting_preemptors: int = Field(description="preemptors that wait")
    open_evictions: dict[str, int] = Field(description="number of evictions in each open state")
    budget: BudgetUsage
    skipped_records: int = Field(description="records that could not be read, and are never acted upon")
    skipped: tuple[SkippedRecord, ...] = Field(description="the first 50 of them")
    unreadable_claims: int = Field(description="jobs with a clearway: Comment that cannot be read, and counts as none")
    cycle_s: float = Field(description="time that the last cycle took, seconds")


class PreemptorView(Answer):
    job_id: str = Field(description="Slurm's own numeric id")
    display_id: str = Field(description="the id as users know it, such as 123_4")
    user: str
    name: str
    partitions: tuple[str, ...] = Field(description="partitions that the job may run in")
    nodes: int = Field(description="nodes that the job asks for; of an array, all tasks that may start at once")
    tasks: int = Field(description="tasks of an array that may start at once; 1: no array")
    rule: str = Field(
        description="the configuration's rule that makes it a preemptor; for an ordinary job: eternal jobs make room"
    )
    submit_time: datetime
    max_delay_s: float = Field(description="how long the job may wait, seconds")
    deadline: datetime = Field(description="when the job should run at the latest")
    left_s: float = Field(description="from the snapshot to the deadline, seconds; negative: it has passed")
    eviction_id: int | None = Field(description="the eviction planned for it, if any")
    left_to_slurm: ObstacleCode | None = Field(
        default=None, description="why no plan is made for the job, as a code; null: one is made"
    )
    why: str = Field(description="what is done for the job, or why nothing can be done")


class PreemptorList(Answer):
    taken_at: datetime = Field(description="when the newest snapshot was taken")
    items: tuple[PreemptorView, ...] = Field(description="most pressing first")


class PreemptionView(Answer):
    job_id: str
    display_id: str = Field(description="the id as users know it, such as 123_4")
    user: str
    name: str
    partition: str
    nodes: HostList = Field(description=f"nodes that it held{FOLDED}")
    eternal: bool = Field(
        description="whether it is an eternal job: never requeued without a checkpoint, and counted in no budget"
    )
    action: Action
    reason: str = Field(description="why this job, as a sentence")
    state: PreemptionState
    state_since: datetime | None
    attempts: int = Field(description="number of times that the command of this state was given to Slurm")
    asked_at: datetime | None = Field(description="when the job was asked to save itself, or waiting for that began")
    checkpointed_at: datetime | None = Field(description="when the job says that it has saved itself")
    requeued_at: datetime | None = Field(description="the point of no return: requeue or cancellation was intended")
    vacated_at: datetime | None = Field(description="when the job was seen off its nodes")
    returned_at: datetime | None = Field(description="when the job was seen running again")
    predicted_lost_work_node_s: float = Field(description="node-seconds")
    actual_lost_work_node_s: float | None = Field(
        description="node-seconds; null until it leaves; of a job that was saved: if it goes on from its checkpoint"
    )
    predicted_checkpoint_s: float = Field(description="seconds")
    actual_checkpoint_s: float | None = Field(description="seconds; null until there is one")
    note: str = Field(description="why it ended as it did, or why its action was changed")


class JobMoveView(Answer):
    job_id: str
    source: str = Field(description="node that it leaves")
    target: str = Field(description="node where it goes on instead")
    processors: int = Field(description="processors that it holds there; 0: not known")


class MoveView(Answer):
    kind: MoveKind = Field(description="purpose of the moves")
    moves: tuple[JobMoveView, ...] = Field(
        description="in the order in which the jobs are saved; one for each node that a job leaves"
    )
    gain_node_s: float = Field(description="gain of all moves together, node-seconds")
    cost_node_s: float = Field(description="work that the moves cost, node-seconds")
    power_down: bool = Field(description="whether nodes that become empty are powered down")


class DrainView(Answer):
    nodes: HostList = Field(description=f"nodes to empty{FOLDED}")
    actor: str = Field(description="user or token that asked for it")
    reason: str = Field(description="reason of the drain, a part of the nodes' Reason in Slurm")
    deadline: datetime | None = Field(description="when the nodes should be empty; null: as soon as possible")
    begin_at: datetime | None = Field(description="when the drain begins or began; null: at once")
    parallel: Parallel = Field(description="what is done with jobs that also run on other nodes")
    force: bool = Field(description="whether jobs that cannot be saved are requeued as well")
    move: MoveView | None = Field(
        description="moves of a compaction or promotion, whose nodes take jobs again; null: a drain"
    )
    rolling_id: int = Field(description="number of the rolling drain that this is a part of; 0: none")


class PromiseView(Answer):
    nodes: int = Field(description="how many nodes are promised")
    partition: str
    at: datetime = Field(description="from when on they shall be free")
    until: datetime = Field(description="when the promise is over")
    users: tuple[str, ...] = Field(description="users whose jobs may run on them")
    actor: str = Field(description="user or token that asked for it")
    reason: str = Field(description="why they are promised, as asked for; empty: nothing was said")
    event: str = Field(
        description="event of the calendar that it comes from: its UID, and which of its times; empty: of none"
    )
    reservation: str = Field(
        description="name of the Slurm reservation, which jobs ask for; it is there once nodes are chosen"
    )
    chosen: HostList = Field(description=f"nodes that are promised{FOLDED}; empty: they are not chosen yet")


class EvictionSummary(Answer):
    eviction_id: int
    promise: PromiseView | None = Field(
        description="what was promised; null: it is no promise, or not shown to you. A promise has no preemptor: its "
        "job_id is promise, its user is the user who asked for it, and started_at is when its nodes were free"
    )
    drain: DrainView | None = Field(
        description="what a drain was asked to do; null: it is no drain. A drain has none: its "
        "job_id is drain, its user is the user who asked for it, and started_at is when its nodes were empty"
    )
    mode: str = Field(description="mode of the daemon when the eviction was planned")
    state: EvictionState
    state_since: datetime
    created_at: datetime
    job_id: str = Field(description="the preemptor: an urgent job, or an ordinary one that eternal jobs make room for")
    display_id: str = Field(description="the preemptor's id as users know it")
    user: str = Field(description="the preemptor's user")
    nodes_needed: int = Field(description="nodes that the preemptor asks for")
    tasks: int = Field(description="tasks of an array that start on them, by this one decision; 1: no array")
    deadline: datetime = Field(description="when the preemptor should run at the latest")
    preemptees: int = Field(description="jobs that are preempted")
    placement: str = Field(
        description="name of the Slurm reservation that keeps the freed nodes; empty: none yet, or not shown to you"
    )
    revision: int = Field(description="number of times that it was planned anew while under way")
    approved_by: str = Field(description="user or token that approved it; empty: no approval was needed")
    started_at: datetime | None = Field(description="when the preemptor started")
    finished_at: datetime | None
    time_to_start_s: float | None = Field(description="from the plan to the start of the preemptor, seconds")
    start_margin_s: float | None = Field(description="from the start to the deadline, seconds; negative: too late")
    predicted_lost_work_node_s: float = Field(description="of all preemptees, node-seconds")
    actual_lost_work_node_s: float = Field(description="of all preemptees so far, node-seconds")
    outcome: str = Field(description="its state or end, as a sentence")


class EvictionView(EvictionSummary):
    replaced_by: int | None = Field(
        description="of one that was superseded: the next eviction planned for the same preemptor; null: none so far"
    )
    plan: PlanView
    preemptions: tuple[PreemptionView, ...]


class EvictionList(Answer):
    items: tuple[EvictionSummary, ...] = Field(description="newest first")
    next_offset: int | None = Field(description="offset of the next page; null: this was the last")


class PlanList(Answer):
    items: tuple[WholePlanView, ...] = Field(description="every plan that the eviction has had, the first one first")


class StepView(Answer):
    step_id: int
    job_id: str | None = Field(description="the preemptee; null: it concerns the eviction as a whole")
    kind: str = Field(description="the command given to Slurm, or event: something noticed")
    intended_at: datetime
    finished_at: datetime | None = Field(description="null: intended, and not known to have been done")
    result: str = Field(description="ok, refused or error; empty while unknown")
    detail: str


class StepList(Answer):
    items: tuple[StepView, ...] = Field(description="in the order in which they were intended")


class Calibrated(Answer):
    checkpointer: str = Field(description="name of the checkpointer: application, dmtcp, criu ...")
    checkpoints: dict[CheckpointOutcome, int] = Field(description="checkpoints that were asked for, by outcome")
    restarts: dict[Restart, int] = Field(description="runs that went on from a checkpoint, by how they restarted")
    compared: int = Field(description="checkpoints with a predicted and an actual time")
    median_ratio: float | None = Field(description="actual over predicted seconds of a checkpoint; null: none")
    share_within: float | None = Field(description="share that took no longer than predicted; null: none")
    median_size_ratio: float | None = Field(description="actual over predicted size of a checkpoint; null: none")
    median_restart_ratio: float | None = Field(description="actual over predicted seconds of a restart; null: none")


class ApplicationCalibration(Calibrated):
    user: str
    app: str = Field(description="the application as the job calls it, else the job's name")
    trusted: bool = Field(description="whether such a job is asked to save itself")
    failures_in_a_row: int = Field(description="checkpoints that have failed or were late since one succeeded")
    expected_s: float | None = Field(description="what the next checkpoint on one node is expected to take, seconds")


class CalibrationView(Answer):
    checkpointers: tuple[Calibrated, ...] = Field(description="by name; as many as the limit")
    items: tuple[ApplicationCalibration, ...] = Field(description="by user, application and checkpointer")
    next_offset: int | None = Field(description="offset of the next page of items; null: this was the last")


class WalltimeAdviceView(Answer):
    user: str
    app: str = Field(description="the application as the job calls it, else the job's name")
    jobs: int = Field(description="runs that ended by themselves or at their time limit; the newest 200 count")
    asked_s: float | None = Field(description="median of their time limits, seconds; null: none has a limit")
    median_s: float = Field(description="run time that half of them did not exceed, seconds")
    most_s: float = Field(description="run time that nine in ten did not exceed, seconds")
    longest_s: float = Field(description="the longest run time, seconds")
    cut: int = Field(description="runs that lasted until their time limit")
    advice: str = Field(description="the same in one sentence")


class RequestView(Answer):
    request_id: int
    kind: str = Field(
        description="approve, cancel, pause, resume, halt, unhalt, drain, undrain, cancel_rolling, compact, promote "
        "or test_preemption"
    )
    eviction_id: int | None
    rolling_id: int | None = Field(description="the rolling drain that it is about, or has led to")
    actor: str = Field(description="name of the token or user that asked")
    created_at: datetime
    handled_at: datetime | None = Field(description="when the loop handled it; null: not yet")
    code: RequestResult | None = Field(
        description="done (or begun), refused (nothing was changed) or failed; null: not handled yet"
    )
    result: str = Field(description="the result in one line; empty while the request waits")


class TurnView(Answer):
    node: str = Field(description="its name")
    state: TurnState = Field(description="waiting, emptying, away (empty, not back yet), over or skipped")
    drain_id: Annotated[int | None, BeforeValidator(lambda number: number or None)] = Field(
        description="the newest eviction that was to empty it; null: none yet"
    )
    note: str = Field(description="why it was skipped or set back, as a sentence")


class RollingView(Answer):
    rolling_id: int = Field(description="its number")
    state: RollingState
    at_once: int = Field(description="maximum number of its nodes that are away at a time")
    actor: str = Field(description="user or token that ordered it")
    reason: str = Field(description="why, as the nodes' Reason says")
    begin_at: datetime | None = Field(description="when it begins; null: at once")
    parallel: Parallel = Field(description="what is done with jobs that also run on other nodes")
    force: bool = Field(description="whether jobs that cannot be saved are requeued as well")
    created_at: datetime
    progressed_at: datetime | None = Field(description="when the turn of some node last changed; null: not yet")
    finished_at: datetime | None
    outcome: str = Field(description="how it ended, as a sentence")
    turns: tuple[TurnView, ...] = Field(description="of each node, in their order")


class RollingList(Answer):
    items: tuple[RollingView, ...] = Field(description="newest first")
    next_offset: int | None = Field(description="offset of the next page; null: this was the last")


class BatchView(Answer):
    nodes: HostList = Field(description=f"nodes that are emptied together{FOLDED}")
    jobs: int = Field(description="number of jobs that would leave")
    checkpoint_s: float = Field(description="time to save them one after another, seconds")


class RollingWhatIf(Answer):
    taken_at: datetime = Field(description="time of the snapshot that this is based on")
    batches: tuple[BatchView, ...] = Field(description="nodes that would be emptied together, in turn")
    skipped: dict[str, str] = Field(description="nodes that could not be emptied, and why")


class WhatIfView(Answer):
    taken_at: datetime = Field(description="time of the snapshot that this is based on")
    drain: DrainView | None = Field(
        description="the drain or the moves that would be done; null: not feasible, or for an urgent job"
    )
    feasible: bool = Field(description="whether the nodes can be freed within the max delay")
    why: str = Field(description="why not, in one sentence; empty when feasible")
    budget: str = Field(description="why the plan would need an operator's approval; empty when it fits the budget")
    plan: WholePlanView | None = Field(description="what would be done; null when not feasible")
    curve: CurveView | None = Field(description="the trade-off between delay and lost work, where there is one")
    verdicts: tuple[VerdictView, ...] = Field((), description="of moves that are not feasible: why each job stays")
    rule: str = Field("", description="the configuration's rule that makes such a job urgent; empty: none does")
    max_delay_s: float | None = Field(None, description="how long the job may wait, seconds; null: not known, no job")


class LeaderView(Answer):
    """A daemon's time as the one that acts; times are the database's."""

    epoch: int = Field(description="grows with each takeover")
    owner: str = Field(description="host and process of the daemon")
    began_at: datetime = Field(description="when it took the lease")
    ended_at: datetime | None = Field(description="when its time was over; null while it leads")
    ended: LeaderEnd | None = Field(description="how its time ended; null while it leads")
    ended_by: str = Field(description="the operator that took the lease from it; empty when none did")


class LeaderList(Answer):
    items: tuple[LeaderView, ...] = Field(description="newest first")
    next_offset: int | None = Field(description="offset of the next page; null: this was the last")


class Health(Answer):
    status: str = Field(description="ok, starting (no cycle has succeeded yet) or stale")
    version: str
    backend: str
    mode: Mode
    paused: bool
    halted: str = Field(description="why no command is given to Slurm; empty: commands are given")
    stopped: str = Field(description="why no job is made to leave until an operator resumes; empty: jobs may be")
    only_observes: str = Field(description="why nothing is begun with this release of Slurm; empty: as mode says")
    standby: bool
    last_cycle_age_s: float = Field(description="time since the last successful cycle, else since the start, seconds")
    stale_after_s: float = Field(description="age from which the daemon counts as stale, seconds")
