"""What is answered of the present: the daemon as its database knows it, and the newest cycle, for pages."""

from datetime import datetime

from pydantic import Field

from clearway.api import schemas as s
from clearway.api.plan_schemas import Answer
from clearway.api.schemas import EvictionSummary, PreemptorView, RollingView
from clearway.config.configuration import Mode
from clearway.model.operations import OperationKind, PreemptionState
from clearway.model.plan import ObstacleCode
from clearway.model.problem import Action
from clearway.model.requests import Role


class StatusView(Answer):
    running: bool = Field(description="whether a daemon leads, and has shown itself within daemon.lease")
    not_running_since: datetime | None = Field(
        description="when a daemon that led has last shown itself; null: one leads, or none ever has"
    )
    mode: Mode | None = Field(description="what the daemon that led last may do; null: none has led yet")
    leader: str | None = Field(description="host and process of the daemon that leads; null: none does")
    last_heartbeat: datetime | None = Field(description="when a daemon has last renewed its lease; null: none has yet")
    heartbeat_age_s: float | None = Field(description="time since then, seconds")
    backend: str | None = Field(description="how it talks to Slurm: cli, pyslurm or simulated; null: none has led yet")
    backend_why: str = Field(description="why it talks to Slurm in this way, and why in no other one that it tried")
    slurm_version: str = Field(description="version of slurmctld; empty: not known")
    only_observes: str = Field(
        description="why it begins nothing with this release of Slurm; empty: what its mode says is done"
    )
    paused: bool = Field(description="whether an operator has paused the daemon")
    halted: str = Field(description="why no command is given to Slurm; empty: commands are given")
    stopped: str = Field(description="why no job is made to leave until an operator resumes; empty: jobs may be")
    waiting_preemptors: int = Field(description="urgent jobs that waited in its last cycle")
    waiting: tuple[PreemptorView, ...] = Field(description="the first 100 of them, most pressing first")
    left_to_slurm: dict[ObstacleCode, int] = Field(
        description="how many of all that waited no plan is made for, by reason; empty: none"
    )
    open_evictions: tuple[EvictionSummary, ...] = Field(description="what is planned or under way, by number")
    rolling_drains: tuple[RollingView, ...] = Field(description="rolling drains that have not ended, by number")


class IdentityView(Answer):
    name: str = Field(description="user, or name of the token; empty: an asker without a token")
    role: Role = Field(description="user, viewer, operator or admin; each may do what those before it may")
    sees_all_jobs: bool = Field(description="whether jobs of all users are shown to this asker")
    may_request_drains: bool = Field(description="whether a request for a drain is taken from this asker at all")
    own_approvals: bool = Field(description="whether an operator may approve what makes room for an own job")


class NodeMap(Answer):
    """One character for each node, in the order of ``names``."""

    names: str = Field(description="the nodes as a folded host list, such as n[1-9]")
    states: str = Field(
        description="f: free; p: partly occupied; b: occupied; u: unavailable (down, drained, failing); "
        "s: Slurm waits for the node's answer"
    )
    uses: str = Field(
        description="what Clearway does with it. -: nothing; w: a plan that waits would empty it; l: jobs leave it; "
        "h: it is held for an urgent job; r: an urgent job runs there for which room was made; d: it is drained; "
        "m: jobs move off it"
    )


class JobProgress(Answer):
    job_id: str
    display_id: str = Field(description="the id as users know it, such as 123_4")
    user: str
    name: str
    nodes: int = Field(description="number of nodes that it held")
    action: Action
    state: PreemptionState
    asked_at: datetime | None = Field(description="when the job was asked to save itself, or waiting for that began")
    checkpointed_at: datetime | None = Field(description="when the job says that it has saved itself")
    requeued_at: datetime | None = Field(description="the point of no return: requeue or cancellation was intended")
    vacated_at: datetime | None = Field(description="when the job was seen off its nodes")
    returned_at: datetime | None = Field(description="when the job was seen running again")
    predicted_checkpoint_s: float = Field(description="seconds")
    predicted_lost_work_node_s: float = Field(description="node-seconds")
    actual_lost_work_node_s: float | None = Field(
        description="node-seconds; null until it leaves; of a job that was saved: if it goes on from its checkpoint"
    )


class OperationNow(s.EvictionSummary):
    kind: OperationKind = Field(description="eviction, drain, relocation or promise")
    predicted_nodes_free_at: datetime = Field(description="when the plan expects all nodes to begin to empty")
    jobs: tuple[JobProgress, ...] = Field(description="the jobs that leave, as far as they are shown to the asker")


class NowView(Answer):
    """The newest cycle."""

    health: s.Health
    leads: bool = Field(description="whether this daemon is the one that acts on its database")
    at: datetime = Field(description="when the cycle began")
    clock_doubt: str = Field(description="why nothing is done by the time that the clock shows; empty: it is believed")
    cluster: s.ClusterView
    nodes: NodeMap | None = Field(description="null: Slurm's PrivateData hides nodes from the asker")
    waiting: tuple[s.PreemptorView, ...] = Field(description="urgent jobs that wait, most pressing first")
    operations: tuple[OperationNow, ...] = Field(description="what is planned and under way, by number")
