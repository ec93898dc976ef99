"""What is answered of the daemon and its cluster: the present, what was learned, and the past with its audit trail."""

from datetime import datetime
from typing import Any

from pydantic import Field

from clearway.api.schemas import Answer, EvictionSummary, HostList, PreemptorView, RollingView
from clearway.config.configuration import Mode
from clearway.model.audit import AuditKind
from clearway.model.claims import Restart
from clearway.model.operations import OperationKind, PreemptionState
from clearway.model.plan import ObstacleCode
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, Ending, LeaderEnd
from clearway.model.requests import Role


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
    refused_rules: str = Field(description="rules by which no job is urgent on this site, and why; empty: all hold")
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
    requeued_at: datetime | None = Field(
        description="requeue or cancellation was intended: the point of no return; null where nothing came of it"
    )
    vacated_at: datetime | None = Field(description="when the job was seen off its nodes")
    returned_at: datetime | None = Field(description="when the job was seen running again")
    predicted_checkpoint_s: float = Field(description="seconds")
    predicted_lost_work_node_s: float = Field(description="node-seconds")
    actual_lost_work_node_s: float | None = Field(
        description="node-seconds, its restart included; null until it leaves; of a job that was saved: if it goes on "
        "from its checkpoint, until its next run says how it went on"
    )


class OperationNow(EvictionSummary):
    kind: OperationKind = Field(description="eviction, drain, relocation or promise")
    predicted_nodes_free_at: datetime = Field(description="when the plan expects all nodes to begin to empty")
    jobs: tuple[JobProgress, ...] = Field(description="the jobs that leave, as far as they are shown to the asker")


class NowView(Answer):
    """The newest cycle."""

    health: Health
    leads: bool = Field(description="whether this daemon is the one that acts on its database")
    at: datetime = Field(description="when the cycle began")
    clock_doubt: str = Field(description="why nothing is done by the time that the clock shows; empty: it is believed")
    cluster: ClusterView
    nodes: NodeMap | None = Field(description="null: Slurm's PrivateData hides nodes from the asker")
    waiting: tuple[PreemptorView, ...] = Field(description="urgent jobs that wait, most pressing first")
    operations: tuple[OperationNow, ...] = Field(description="what is planned and under way, by number")


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


class ReportJob(Answer):
    """A job of the plan."""

    job_id: str
    display_id: str = Field(description="the id as users know it, such as 123_4")
    user: str
    num_nodes: int = Field(description="nodes that it holds")
    nodes: HostList = Field(description="these nodes, as a host list")
    action: Action = Field(description="how it leaves; end: it ends by itself in time and pays nothing")
    pays: bool = Field(description="whether it was preempted; of a plan that was not carried out: would have been")
    started_at: datetime | None = Field(description="start of its run")
    left_at: datetime | None = Field(description="when it was seen off its nodes; null: not yet, or not followed")
    ended_soon: bool = Field(description="whether it left by itself within an hour of the planned start")
    lost_node_s: float | None = Field(
        description="lost work, node-seconds: measured where the plan was carried out, else predicted; null: not known"
    )
    predicted_checkpoint_s: float = Field(description="predicted time of its checkpoint, seconds; 0: none")
    actual_checkpoint_s: float | None = Field(description="actual time, seconds; null: none was written")


class ReportCase(Answer):
    """One plan for an urgent job, and what happened."""

    job_id: str
    display_id: str = Field(description="the id as users know it")
    user: str
    num_nodes: int = Field(description="nodes that it asks for")
    mode: str = Field(description="mode of the daemon: observe, approve or automatic")
    acted: bool = Field(description="whether the plan was carried out")
    ending: Ending = Field(
        description="served: the plan was carried out and the job started; sooner: not carried out, with it the job "
        "would have started sooner; not_needed: it started no later without; called_off: the plan was "
        "begun, and called off or failed; waits: it has not started yet; gone: it "
        "left the queue and was not seen to start"
    )
    submitted_at: datetime = Field(description="when the job was submitted")
    planned_at: datetime = Field(description="time of the first plan, or of the one that was carried out")
    deadline: datetime = Field(description="by when the job has to start")
    expected_start: datetime = Field(description="when the job starts by the plan")
    started_at: datetime | None = Field(description="when it did start; null: it was not seen to")
    gone_at: datetime | None = Field(description="when it left the queue without being seen to start; null: it did not")
    in_time: bool | None = Field(description="whether it started by its deadline; null: it was not seen to start")
    wait_s: float | None = Field(description="from submission to start, seconds; null: it was not seen to start")
    sooner_s: float = Field(description="how much sooner it would have started by the plan, seconds; 0: no sooner")
    lost_node_s: float = Field(description="measured lost work of a plan that was carried out, node-seconds")
    would_lose_node_s: float = Field(description="predicted lost work of a plan that was not, node-seconds")
    plan_node_s: float | None = Field(
        description="lost work by Clearway's plan, measured if carried out, node-seconds; null: not compared"
    )
    slurm_node_s: float | None = Field(
        description="lost work by Slurm's own rule at the same moment, node-seconds; null: not compared, or no plan"
    )
    saved_node_s: float | None = Field(description="difference of the two, node-seconds; null: not compared")
    nodes: HostList = Field(description="nodes of the plan, as a host list")
    jobs: tuple[ReportJob, ...] = Field(description="jobs that leave by the plan")
    unlisted: int = Field(description="further jobs of the plan that are not listed; 0: none")
    unlisted_node_s: float = Field(description="what these lost or would lose, node-seconds; it is in the case's loss")
    outcome: str = Field(description="what became of the plan, in a sentence; empty: nothing to say")


class ReportUser(Answer):
    user: str
    jobs: int = Field(description="preemptions that these jobs had, or would have had")
    lost_node_s: float = Field(description="measured lost work, node-seconds")
    would_lose_node_s: float = Field(description="predicted lost work of plans not carried out, node-seconds")
    ended_soon: int = Field(description="jobs among these that left by themselves within an hour")


class ReportHeld(Answer):
    """How far predictions held, in plans that were carried out."""

    checkpoints: int = Field(description="checkpoints with a measured time")
    checkpoints_within: int = Field(description="of these, those that took no longer than predicted")
    checkpoint_ratio: float | None = Field(description="median of actual over predicted time; null: none")
    starts: int = Field(description="urgent jobs that started")
    starts_in_time: int = Field(description="of these, those that started by their deadline")
    start_error_s: float | None = Field(description="median of actual minus predicted start, seconds; null: none")
    losses: int = Field(description="preempted jobs with a measured loss")
    predicted_lost_node_s: float = Field(description="predicted loss of these, node-seconds")
    actual_lost_node_s: float = Field(description="measured loss of these, node-seconds")


class ReportSums(Answer):
    cases: int = Field(description="plans for urgent jobs")
    urgent_jobs: int = Field(description="urgent jobs that these plans are for")
    by_ending: dict[Ending, int] = Field(description="these by what became of them")
    in_time: int = Field(description="urgent jobs that started by their deadline")
    lost_node_s: float = Field(description="measured lost work, node-seconds")
    would_lose_node_s: float = Field(description="predicted lost work of plans not carried out, node-seconds")
    sooner_s: float = Field(description="sum of how much sooner urgent jobs would have started, seconds")
    compared: int = Field(description="plans that Slurm's own rule has a plan beside")
    plan_node_s: float = Field(description="lost work by Clearway's plans, of these, node-seconds")
    slurm_node_s: float = Field(description="lost work by Slurm's own rule, of these, node-seconds")
    saved_node_s: float = Field(description="slurm_node_s - plan_node_s; below 0: Clearway loses more")
    slurm_without_plan: int = Field(description="plans where Slurm's own rule frees too few nodes in time")
    not_compared: int = Field(description="plans that were not compared, as they have no explanation")
    unlisted: int = Field(description="jobs of large plans that are not listed; 0: none")
    unlisted_node_s: float = Field(description="what these lost or would lose; in the sums, and in no user's share")
    ended_soon: int = Field(description="jobs that left by themselves within an hour")


class ReportView(Answer):
    since: datetime = Field(description="plans from then on, and older ones that are still followed")
    until: datetime = Field(description="now")
    complete: bool = Field(description="false: the asker sees the part that is own; sums are of that part")
    more: bool = Field(description="whether there are older cases that are left out; 1,000 are told")
    sums: ReportSums = Field(description="of all cases that are told")
    held: ReportHeld = Field(description="how far predictions held")
    users: tuple[ReportUser, ...] = Field(description="users that paid or would have, largest loss first")
    cases: tuple[ReportCase, ...] = Field(description="newest first")


class AuditView(Answer):
    sequence: int = Field(description="its number: 1, 2, 3 ... without a gap")
    at: datetime | None = Field(description="when it happened; null: the entry was changed and cannot be read")
    actor: str = Field(description="user, name of a token, or the daemon's own name; empty: not known")
    kind: str = Field(description=f"{', '.join(AuditKind)}; empty: the entry was changed and cannot be read")
    about: dict[str, Any] = Field(description="what was asked, changed or refused")
    previous: str = Field(description="hash of the entry before; 64 zeros: there is none")
    hash: str = Field(description="SHA-256 over the hash before, a line feed and the entry as canonical JSON")


class AuditList(Answer):
    items: tuple[AuditView, ...] = Field(description="newest first")
    next_before: int | None = Field(description="value of before for the next page; null: this was the last")


class AuditCheckView(Answer):
    intact: bool = Field(description="whether every entry is there and unchanged")
    entries: int = Field(description="number of good entries, from the first on")
    head: str = Field(description="hash of the last good entry; note it elsewhere, for a trail made anew has another")
    fault: str = Field(description="what is wrong after it, as a sentence; empty: nothing")
