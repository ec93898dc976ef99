"""What the API answers of a job: what Clearway has to do with it, and what it would lose."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from clearway.api.schemas import Answer, HostList, PreemptionView, PreemptorView, VerdictView
from clearway.eligibility.saving import SavingWay
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, OperationKind
from clearway.model.problem import Action
from clearway.model.records import SaveTestEnd

JOB_ID = r"^[0-9]{1,10}([_+][0-9]{1,10})?$"


class JobRole(StrEnum):
    """A job's part in an operation."""

    PREEMPTOR = "preemptor"  # it waits, or waited, for nodes that others leave
    PREEMPTEE = "preemptee"  # it leaves, or left
    CANDIDATE = "candidate"  # it was looked at, and stays
    RESIDENT = "resident"  # it runs on a node that is being emptied, and is left alone


Seconds = Annotated[float, AfterValidator(lambda value: round(value, 3))]


class SavingView(Answer):
    way: SavingWay = Field(
        description="what the job says: signal (saves itself when it is asked), interval (at its own pace), none (says "
        "that it cannot be saved), nothing"
    )
    possible: bool = Field(description="whether Clearway would have it save itself before it leaves")
    why_not: str = Field(description="why not, half a sentence; empty where it is possible")
    checkpointer: str = Field(description="name of its checkpointer; empty: it says nothing")
    app: str = Field(description="what its program is called in Clearway's history")
    last_at: datetime | None = Field(description="its newest checkpoint in this run; null: none that can be believed")
    expected_s: Seconds | None = Field(
        description="time until it would be saved, seconds, with the wait for a job at its own pace; null: not "
        "possible, or it does not run"
    )
    advice: str = Field(description="what its owner can do to lose less, in one sentence")
    began: str = Field(
        description="whether this run went on from a checkpoint, in one sentence; empty: it is the job's first run, or "
        "only the program knows"
    )


class WayView(Answer):
    action: Action = Field(description="how it would leave; kill: requeue without a checkpoint")
    lost_work_node_s: Seconds = Field(description="work that would be lost, node-seconds; 0: none")
    checkpoint_s: Seconds = Field(description="time until it is saved, seconds; 0: it is not saved")
    return_node_s: int = Field(description="expected queueing and restart x its nodes, node-seconds")


class IfUrgentView(Answer):
    """What would become of a running job if an urgent job needed its nodes now. Nothing is planned."""

    may_leave: bool = Field(description="whether policy lets it leave, and there is a way")
    code: str = Field(description="short and stable word for what protects it; empty: nothing does")
    why: str = Field(description="what protects it, half a sentence; empty: nothing does")
    ways: tuple[WayView, ...] = Field(description="in which it can leave; empty: it would stay")
    lost_work_node_s: Seconds = Field(
        description="work that a requeue without a checkpoint would lose now, node-seconds, also where it would stay"
    )
    sentence: str = Field(description="all of this in one sentence")


class SparingView(Answer):
    """What another decision about the job would have cost. An eviction is explained some seconds after its plan."""

    known: bool = Field(description="false: not worked out (yet), or there was no time")
    possible: bool = Field(description="whether there is such a plan that is in time")
    more_lost_work_node_s: float | None = Field(
        description="work that the best other plan loses more, node-seconds; null: not known, or there is none"
    )
    sentence: str = Field(description="the same as a sentence; empty: not known")


class JobOperationView(Answer):
    eviction_id: int = Field(description="number of the eviction, drain or relocation")
    kind: OperationKind
    role: JobRole = Field(description="the job's part in it")
    state: EvictionState
    state_since: datetime
    mode: str = Field(description="mode of the daemon when it was planned; observe: nothing was done")
    created_at: datetime = Field(description="when it was planned")
    deadline: datetime = Field(description="when the preemptor should run, or the nodes be empty, at the latest")
    started_at: datetime | None = Field(description="when the preemptor started, or the nodes were empty")
    finished_at: datetime | None
    outcome: str = Field(description="its state or end, as a sentence")
    rule: str = Field(description="the configuration's rule that made the preemptor urgent; empty: none, or not kept")
    for_job_id: str | None = Field(description="the job that it serves; null: a drain or relocation serves none")
    for_display_id: str | None = Field(description="the same as users know it")
    for_user: str = Field(description="that job's user; of a drain or relocation who asked for it")
    nodes: HostList = Field(description="the job's own nodes that a drain or relocation empties; empty: none")
    preemption: PreemptionView | None = Field(
        description="how it leaves or left: planned, asked, saved, lost; null unless its role is preemptee"
    )
    verdict: VerdictView | None = Field(
        description="of the present plan: why it leaves or stays; null: it is over, or says nothing of the job"
    )
    sparing: SparingView | None = Field(
        description="what sparing it would have cost, or taking it where it is spared; null: nothing to compare"
    )
    runs_again_at: datetime | None = Field(description="when it is expected to run again; null: not known, or it runs")
    runs_again_why: str = Field(
        description="what that goes by, as a sentence; empty: it runs, is over, or has not left"
    )


class SaveTestView(Answer):
    """A test of whether the job saves itself when it is asked. Nothing is requeued."""

    request_id: int = Field(description="the request that asked for it")
    job_id: str
    actor: str = Field(description="name of the token or user that asked")
    asked_at: datetime = Field(description="when the test was asked for")
    latest: datetime = Field(description="from when on no answer counts as late")
    expected_s: Seconds = Field(description="what an eviction would expect, seconds")
    asked: bool = Field(description="whether Slurm has taken the signal; a job at its own pace needs none")
    ended_at: datetime | None = Field(description="null: it waits for the job")
    end: SaveTestEnd | None = Field(
        description="saved, failed (the job says so), late (no word in time), left (the job ended or left its nodes), "
        "not_asked (Slurm refused, or it is not known); null: it waits for the job"
    )
    took_s: Seconds | None = Field(description="time of the checkpoint, seconds; null unless it is saved")
    size_mib: int | None = Field(description="size of the checkpoint, MiB; null: not told")
    generation: int | None = Field(description="number of the checkpoint; null: not told")
    restartable: bool | None = Field(
        description="whether a restart would find the checkpoint; null: only the program knows, or there is none"
    )
    sentence: str = Field(description="what came of it; empty while it waits")


class JobRow(Answer):
    job_id: str = Field(description="Slurm's own numeric id")
    display_id: str = Field(description="the id as users know it, such as 123_4")
    user: str
    name: str
    state: JobState | None = Field(description="null: no longer in the queue")
    partitions: tuple[str, ...] = Field(description="where it runs, or may run")
    nodes: int = Field(description="number of nodes that it holds or asks for")
    started_at: datetime | None = Field(description="when this run began; null: it does not run")
    way: SavingWay = Field(description="what it says of how it is saved: signal, interval, none or nothing")
    can_be_saved: bool = Field(description="whether Clearway would have it save itself before it leaves")
    would_lose_node_s: Seconds | None = Field(
        description="work that a requeue without a checkpoint would lose now, node-seconds; null: it does not run"
    )
    eviction_id: int | None = Field(description="newest open eviction, drain or relocation about it; null: none")
    role: JobRole | None = Field(description="its part in that; null: none")
    doing: str = Field(description="what Clearway does with it now, as a sentence; empty: nothing")


class JobList(Answer):
    taken_at: datetime = Field(description="when the newest snapshot was taken")
    items: tuple[JobRow, ...] = Field(description="in the order of their ids")
    next_offset: int | None = Field(description="offset of the next page; null: this was the last")


class JobView(JobRow):
    taken_at: datetime = Field(description="when the newest snapshot was taken")
    account: str = Field(description="Slurm's account of the job")
    qos: str = Field(description="Slurm's QoS of the job; empty: none")
    node_names: HostList = Field(description="nodes that it holds; empty: none")
    time_limit_s: int | None = Field(description="seconds; null: unlimited, or not known")
    restarts: int = Field(description="number of times that Slurm has started it again")
    urgent: str = Field(description="the configuration's rule that makes it urgent; empty: it is not urgent")
    waiting: PreemptorView | None = Field(description="as an urgent job that waits; null: it is none")
    saving: SavingView | None = Field(description="how it can be saved; null: no longer in the queue")
    if_urgent: IfUrgentView | None = Field(
        description="what would become of it if an urgent job needed its nodes now; null: it does not run"
    )
    tests: tuple[SaveTestView, ...] = Field(
        description="the newest five tests of whether it saves itself, newest first"
    )
    operations: tuple[JobOperationView, ...] = Field(description="what Clearway had to do with it, newest first")
    next_offset: int | None = Field(description="offset of the next page of operations; null: this was the last")
