"""What is answered of the past: the report on urgent jobs, and the audit trail."""

from datetime import datetime
from typing import Any

from pydantic import Field

from clearway.api.plan_schemas import Answer, HostList
from clearway.model.audit import AuditKind, AuditRow
from clearway.model.problem import Action
from clearway.model.records import Ending


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
    plan_node_s: float | None = Field(description="lost work by Clearway's plan, node-seconds; null: not compared")
    slurm_node_s: float | None = Field(
        description="lost work by Slurm's own rule for the same problem, node-seconds; null: not compared, or no plan"
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


def audit_view(row: AuditRow) -> AuditView:
    document = row.document()
    about = document.get("about")
    return AuditView(
        sequence=row.sequence,
        at=document.get("at"),
        actor=str(document.get("actor", "")),
        kind=str(document.get("kind", "")),
        about=about if isinstance(about, dict) else {},
        previous=row.previous,
        hash=row.hash,
    )
