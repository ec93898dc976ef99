"""What the API answers of plans, evictions and requests. ``_s``: seconds, ``_node_s``: node-seconds; times: UTC."""

from datetime import datetime
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from clearway.model.claims import Restart
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.orders import MoveKind, Parallel, RollingState, TurnState
from clearway.model.plan import Choice, ObstacleCode
from clearway.model.problem import Action
from clearway.model.requests import RequestResult
from clearway.slurm.parse.hostlist import compress

FOLDED = ", as a host list: n[1-100]; empty: none"
# A large eviction has thousands of nodes; Slurm's tools and ClusterShell read a folded list.
HostList = Annotated[str, BeforeValidator(lambda nodes: nodes if isinstance(nodes, str) else compress(nodes))]


class Answer(BaseModel):
    """Records with the same fields (``Curve``, ``Verdict``, ``StepRecord`` ...) are taken as they are."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Problem(Answer):
    """Every error has this form: RFC 9457, of the type about:blank."""

    title: str = Field(description="what the status means, in HTTP's words")
    status: int = Field(description="the answer's own status")
    detail: str = Field(description="what was wrong, in one line")


class ActionView(Answer):
    job_id: str
    display_id: str = Field(description="the id as users know it, such as 123_4")
    action: Action = Field(
        description="how the job leaves; end: its own time limit ends it in time; kill: requeue without checkpoint"
    )
    lost_work_node_s: float = Field(description="work that is lost, node-seconds")
    checkpoint_s: int = Field(description="time on the shared file system, seconds, in whole steps")
    ready_s: int = Field(description="end, and no answer: latest time at which its nodes are empty, seconds")
    file_system_s: float | None = Field(
        description="time of its checkpoint with the whole file system, seconds; null: others wait for it"
    )
    return_node_s: int = Field(description="expected queueing and restart of the job x its nodes, node-seconds")


class CurvePointView(Answer):
    max_delay_s: int = Field(description="delay of this point, seconds from the plan")
    feasible: bool = Field(description="whether enough nodes can be freed within this delay")
    lost_work_node_s: float | None = Field(description="least work lost, node-seconds; null: not feasible")
    checkpoint_s: int | None = Field(description="time on the shared file system, seconds; null: not feasible")
    nodes_freed: int | None = Field(description="nodes that this frees; null: not feasible")
    preemptees: int = Field(description="jobs that are preempted")
    return_node_s: int = Field(description="cost of the return of all these jobs, node-seconds")


class ChosenPointView(CurvePointView):
    actions: tuple[ActionView, ...] = Field(description="the jobs that leave, with their actions")


class CurveView(Answer):
    planner: str = Field(description="which planner made it")
    exact: bool = Field(description="whether it is proven, to the second, that no plan loses less")
    complete: bool = Field(True, description="false: further points are being worked out, in the pauses between cycles")
    gap_ratio: float = Field(
        validation_alias=AliasChoices("gap", "gap_ratio"),  # a curve has the first, an answer the second
        description="unless exact: share of a point's lost work that may be needless; 0: not known",
    )
    points: tuple[CurvePointView, ...] = Field(description="by delay; at first the one that is carried out alone")


class VerdictView(Answer):
    job_id: str
    choice: Choice = Field(description="chosen, spared (not needed) or exempt (protected by policy)")
    code: str = Field(description="short and stable word for the reason")
    reason: str = Field(description="the reason as a sentence")


class VerdictList(Answer):
    items: tuple[VerdictView, ...] = Field(description="by job_id, those that were chosen first")
    next_offset: int | None = Field(description="offset of the next page; null: this was the last")


class PlanView(Answer):
    made_at: datetime
    deadline: datetime = Field(description="when the preemptor should run at the latest")
    nodes_needed: int = Field(description="nodes that the preemptor asks for")
    nodes_to_free: int = Field(description="nodes that had to be freed, without the free ones")
    free_nodes: HostList = Field(description=f"nodes that were free or on their way out{FOLDED}")
    placement_nodes: HostList = Field(description=f"nodes that the preemptor is given{FOLDED}")
    switch: str | None = Field(
        description="leaf switch of these nodes; null: the preemptor does not ask for one switch"
    )
    chosen: ChosenPointView
    predicted_nodes_free_at: datetime = Field(description="when the plan expects all nodes to begin to empty")
    curve: CurveView
    jobs_by_choice: dict[Choice, int] = Field(
        description="running jobs that were chosen, spared and exempt, in numbers; /evictions/{id}/verdicts says why"
    )
    together: tuple[str, ...] = Field(description="job_ids of the preemptors that were planned together with this one")
    note: str = Field(
        description='"it was ...": that it is late; what is not proven of how it was planned beside others; or nothing'
    )


class WholePlanView(PlanView):
    verdicts: tuple[VerdictView, ...] = Field(description="why each running job leaves or stays")


class CostView(Answer):
    lost_work_node_s: float = Field(description="work lost, node-seconds")
    return_node_s: int = Field(description="cost of the return of the preempted jobs, node-seconds")
    checkpoint_s: int = Field(description="time on the shared file system, seconds")
    preemptees: int = Field(description="jobs preempted")


class AlternativeView(Answer):
    job_id: str
    choice: Choice = Field(description="what the plan does with it: chosen or spared")
    nodes: int = Field(description="nodes that it runs on")
    action: Action | None = Field(
        description="how it leaves, or would leave at the least loss; null: unknown, or in no way in time"
    )
    own_lost_work_node_s: float | None = Field(description="its own work that is lost by that, node-seconds")
    known: bool = Field(description="false: there was no time to find out")
    cost: CostView | None = Field(
        description="of the best plan that spares it (chosen) or preempts it (spared); null: unknown, or there is none"
    )
    more_lost_work_node_s: float | None = Field(description="work that this loses more than the plan, node-seconds")


class LaterView(Answer):
    max_delay_s: int = Field(description="delay instead of the plan's, seconds from the plan")
    cost: CostView = Field(description="cost of the best plan for this delay")


class RuleOutcomeView(Answer):
    rule: str = Field(description="name of the rule, also that of a planner")
    cost: CostView | None = Field(description="cost of its plan; null: it frees the nodes in no way in time")
    more_lost_work_node_s: float | None = Field(description="work that this loses more than the plan, node-seconds")


class ExplanationView(Answer):
    eviction_id: int = Field(description="number of the eviction; 0: of a plan that nothing follows from")
    planner: str = Field(description="which planner made the plan and answered for the alternatives")
    exact: bool = Field(description="whether its answers are proven to be the cheapest")
    gap_ratio: float = Field(description="unless exact: share of the lost work that may be needless; 0: not known")
    complete: bool = Field(description="whether there was time for every alternative")
    cost: CostView = Field(description="of the plan itself")
    alternatives: tuple[AlternativeView, ...] = Field(description="one for each candidate that can be preempted")
    later: tuple[LaterView, ...] = Field(description="what a longer delay would save, up to twice the plan's")
    rules: tuple[RuleOutcomeView, ...] = Field(description="plans of simple rules in the same situation")


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
    requeued_at: datetime | None = Field(description="its requeue or cancellation was begun; null: nothing came of it")
    vacated_at: datetime | None = Field(description="when the job was seen off its nodes")
    returned_at: datetime | None = Field(description="when the job was seen running again")
    predicted_lost_work_node_s: float = Field(description="node-seconds")
    actual_lost_work_node_s: float | None = Field(
        description="node-seconds, its restart included; null until it leaves; of a job that was saved: if it goes on "
        "from its checkpoint, until its next run says how it went on"
    )
    loss_measured: bool = Field(
        description="whether the loss was seen, and rests on no checkpoint that is not tried yet"
    )
    loss: str = Field(description="what it lost, in sentences; empty: it has not left, or nothing could be lost")
    restart: Restart | None = Field(description="how the job says that it went on; null: not known")
    restart_s: float | None = Field(description="how long its restart took, seconds; null: not known")
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
    unsaved_nodes: int = Field(description="of jobs that leave unsaved: the loss grows by so many node-hours an hour")
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
