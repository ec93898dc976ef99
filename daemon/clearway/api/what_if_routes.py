"""What would be done for an urgent job of K nodes, on the newest snapshot: the daemon's own decision, and no act.

Changes nothing. One plan is made at a time, and the input is bounded by the cluster's size.
"""

from math import ceil
from typing import Annotated, Self

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from clearway.api import schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon, Report
from clearway.api.sight import Seen
from clearway.eligibility.urgent import matching_rule
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.durations import Duration
from clearway.model.plan import NoPlan
from clearway.model.requests import Role
from clearway.preemption.detection import imagined, imagined_job, max_delay_of
from clearway.preemption.plan import decide
from clearway.preemption.validation import over_budget
from clearway.slurm.parse.jobs import even_cpus

router = APIRouter(tags=["what-if"], dependencies=[needs(Role.USER)])

LONGEST_DELAY_S = 7 * 86_400.0


class WhatIf(BaseModel):
    """An urgent job that does not exist. Without what it asks of each node it asks for whole nodes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: int | None = Field(
        None, ge=1, description="number of nodes that the job asks for; null: as many as its tasks need"
    )
    max_delay: (
        Annotated[
            Duration,
            Field(le=LONGEST_DELAY_S),
            WithJsonSchema(
                {
                    "anyOf": [
                        {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY_S},
                        {"type": "string", "pattern": r"^\s*([0-9]{1,9}(\.[0-9]{1,6})?|([0-9]{1,9}[dhms])+)\s*$"},
                    ],
                    "examples": ["10m", 600],
                }
            ),
        ]
        | None
    ) = Field(
        None,
        description="how long the job may wait: seconds, or 90s, 10m, 1h30m; at most 7 days; null: as the rule says "
        "that makes such a job urgent",
    )
    partition: str | None = Field(
        None, max_length=255, description="partition of the job; null: any partition of the cluster"
    )
    tasks: int = Field(0, ge=0, le=10_000_000, description="number of tasks; 0: whole nodes")
    cpus_per_task: int = Field(1, ge=1, le=100_000, description="processors of each task")
    memory_mib: int = Field(0, ge=0, le=2**40, description="memory that it asks for on each node, MiB; 0: not known")
    gpus: dict[Annotated[str, Field(max_length=64)], Annotated[int, Field(ge=1, le=10_000)]] = Field(
        {}, max_length=16, description='GPUs that it asks for on each node, by type; "": of any type'
    )
    exclusive: bool = Field(False, description="whether it wants whole nodes, whatever its tasks need")
    constraint: str = Field("", max_length=1_024, description="features that its nodes must have, joined by &")
    qos: str = Field("", max_length=255, description="QoS of the job; empty: none in particular")
    account: str = Field("", max_length=255, description="account of the job; empty: none in particular")
    job_name: str = Field("", max_length=1_024, description="name of the job")
    comment: str = Field("", max_length=1_024, description="Comment of the job, with its claims")

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if self.nodes is None and not self.tasks:
            raise ValueError("nodes or tasks must be given")
        return self


@router.post("/what-if")
def what_if(daemon: Daemon, seen: Seen, report: Report, question: WhatIf) -> schemas.WhatIfView:
    """The trade-off curve, the plan and the reasons, as if the asker had just submitted such a job."""
    snapshot, config = report.snapshot, daemon.config()
    job = _job(question, seen.asker.name, snapshot)
    rule = matching_rule(job, config.preemptors)
    max_delay_s = question.max_delay
    if max_delay_s is None and rule is not None:
        max_delay_s = min(LONGEST_DELAY_S, max_delay_of(job, rule))
    named = "" if rule is None else rule.name or f"rule {config.preemptors.index(rule) + 1}"
    about = {"rule": named, "max_delay_s": max_delay_s}
    if max_delay_s is None:
        none = NoPlan("no rule makes such a job urgent, so it would wait for its turn; name a max_delay to plan for it")
        return views.what_if_view(snapshot.taken_at, none).model_copy(update=about)
    preemptor = imagined(job.num_nodes, max_delay_s, job.partitions, snapshot.taken_at, job)
    decision = decide(preemptor, daemon.planning_context(report), daemon.planner)
    budget = "" if isinstance(decision, NoPlan) else over_budget(decision, report.usage, config.budget)
    answer = views.what_if_view(snapshot.taken_at, decision, budget=budget).model_copy(update=about)
    return seen.of_snapshot(snapshot).what_if(answer)


def _job(question: WhatIf, user: str, snapshot: ClusterSnapshot) -> Job:
    """The job as Slurm would show it while it waits."""
    known = sorted({partition for node in snapshot.nodes for partition in node.partitions})
    if question.partition is not None and question.partition not in known:
        raise HTTPException(422, f"partition: there is none of this name; there are {', '.join(known[:20])}")
    partitions = tuple(known) if question.partition is None else (question.partition,)
    cpus = question.tasks * question.cpus_per_task
    largest = max((node.cpus for node in snapshot.nodes if set(partitions) & set(node.partitions)), default=1)
    nodes = question.nodes or ceil(cpus / max(1, largest))
    if nodes > len(snapshot.nodes):
        raise HTTPException(422, f"nodes: the cluster has {len(snapshot.nodes)}")
    even = even_cpus(question.tasks, question.cpus_per_task, nodes)
    return imagined_job(
        nodes,
        partitions,
        snapshot.taken_at,
        user=user,
        qos=question.qos,
        account=question.account,
        name=question.job_name,
        comment=question.comment,
        features=question.constraint,
        memory_mib=question.memory_mib,
        gpus=tuple(sorted(question.gpus.items())),
        exclusive=question.exclusive or not question.tasks,
        cpus=even * nodes,
        even_cpus=even,
        cpus_per_node=even,
    )
