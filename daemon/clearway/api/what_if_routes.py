"""What would be done for an urgent job of K nodes, on the newest snapshot: the daemon's own decision, and no act.

Changes nothing. One plan is made at a time, and the input is bounded by the cluster's size.
"""

from typing import Annotated

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from clearway.api import schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon, Report
from clearway.api.sight import Seen
from clearway.model.durations import Duration
from clearway.model.identity import Role
from clearway.model.plan import NoPlan
from clearway.preemption.detection import imagined
from clearway.preemption.plan import decide
from clearway.preemption.validation import over_budget

router = APIRouter(tags=["what-if"], dependencies=[needs(Role.USER)])

LONGEST_DELAY_S = 7 * 86_400.0


class WhatIf(BaseModel):
    """An urgent job that does not exist."""

    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: int = Field(ge=1, description="number of whole nodes that the job asks for")
    max_delay: Annotated[
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
    ] = Field(description="how long the job may wait: seconds, or 90s, 10m, 1h30m; at most 7 days")
    partition: str | None = Field(
        None, max_length=255, description="partition of the job; null: any partition of the cluster"
    )


@router.post("/what-if")
def what_if(daemon: Daemon, seen: Seen, report: Report, question: WhatIf) -> schemas.WhatIfView:
    """The trade-off curve, the plan and the reasons, as if such a job had just been submitted."""
    snapshot = report.snapshot
    known = sorted({partition for node in snapshot.nodes for partition in node.partitions})
    if question.partition is not None and question.partition not in known:
        raise HTTPException(422, f"partition: there is none of this name; there are {', '.join(known[:20])}")
    if question.nodes > len(snapshot.nodes):
        raise HTTPException(422, f"nodes: the cluster has {len(snapshot.nodes)}")
    partitions = tuple(known) if question.partition is None else (question.partition,)
    preemptor = imagined(question.nodes, question.max_delay, partitions, snapshot.taken_at)
    decision = decide(preemptor, daemon.planning_context(report), daemon.planner)
    budget = "" if isinstance(decision, NoPlan) else over_budget(decision, report.usage, daemon.config().budget)
    return seen.of_snapshot(snapshot).what_if(views.what_if_view(snapshot.taken_at, decision, budget=budget))
