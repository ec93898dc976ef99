"""What the API answers of a plan: its trade-off curve, the reason for every job, and what the alternatives cost."""

from datetime import datetime
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from clearway.model.plan import Choice
from clearway.model.problem import Action
from clearway.slurm.parse.hostlist import compress

FOLDED = ", as a host list: n[1-100]; empty: none"
# A large eviction has thousands of nodes; Slurm's tools and ClusterShell read a folded list.
HostList = Annotated[str, BeforeValidator(lambda nodes: nodes if isinstance(nodes, str) else compress(nodes))]


class Answer(BaseModel):
    """Records with the same fields (``Curve``, ``Verdict``, ``StepRecord`` ...) are taken as they are."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class ActionView(Answer):
    job_id: str
    display_id: str = Field(description="the id as users know it, such as 123_4")
    action: Action = Field(
        description="how the job leaves; end: its own time limit ends it in time; kill: requeue without checkpoint"
    )
    lost_work_node_s: float = Field(description="work that is lost, node-seconds")
    checkpoint_s: int = Field(description="time on the shared file system, seconds, in whole steps")
    ready_s: int = Field(description="end only: latest time at which its nodes are empty, seconds from the plan")
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
