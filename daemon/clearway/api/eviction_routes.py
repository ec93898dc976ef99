"""Evictions planned, active and past, with plan, reasons, curve and steps; and what operators ask.

What is asked is written to the store, under the name of the identity; the loop reads it in its next cycle and writes
the result. Nothing here calls Slurm.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Response

from clearway.api import plan_schemas, schemas, views
from clearway.api.authorization import Actor, needs
from clearway.api.context import Daemon
from clearway.api.forms import NOT_FOUND, JobFilter, UserFilter
from clearway.api.sight import Seen
from clearway.model.operations import STATE_GROUPS, EvictionState
from clearway.model.records import LARGEST_ID
from clearway.model.requests import RequestKind, Role
from clearway.telemetry.log import get_logger

router = APIRouter(prefix="/evictions", tags=["evictions"], dependencies=[needs(Role.USER)])

# The store loads evictions with their plans, a big one of which takes some 10 MB; only summaries are kept.
_LOADED_AT_ONCE = 5

EvictionId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the eviction")]

StateFilter = StrEnum("StateFilter", [*STATE_GROUPS, *(state.value for state in EvictionState)])  # type: ignore[misc]


@router.get("")
def evictions(
    daemon: Daemon,
    seen: Seen,
    state: Annotated[
        StateFilter | None,
        Query(description="planned (proposed, awaiting approval or scheduled), active (under way), past, or one state"),
    ] = None,
    job_id: JobFilter = None,
    user: UserFilter = None,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of evictions")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest evictions to skip")] = 0,
) -> schemas.EvictionList:
    """Evictions, newest first. One concerns the job or the user that it serves, and those that leave for it."""
    states = None if state is None else STATE_GROUPS.get(state.value) or (EvictionState(state.value),)
    found: dict[int, schemas.EvictionSummary] = {}  # by id: one that is planned meanwhile shifts the others
    own = seen.own_alone
    for start in range(offset, offset + limit + 1, _LOADED_AT_ONCE):
        page = daemon.store.evictions(
            states=states, user=user, job=job_id, own=own, limit=_LOADED_AT_ONCE, offset=start
        )
        for each in page:
            summary = views.eviction_summary(each, schemas.EvictionSummary)
            found[each.eviction_id] = seen.of_operation(each).summary(summary)
        if len(page) < _LOADED_AT_ONCE:
            break
    items = tuple(found.values())
    return schemas.EvictionList(items=items[:limit], next_offset=offset + limit if len(items) > limit else None)


@router.get("/{eviction_id}", responses=NOT_FOUND)
def eviction(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.EvictionView:
    """One eviction: its plan with its curve, its preemptions with their times, predicted and actual."""
    found = daemon.store.eviction(eviction_id)
    return seen.eviction(found).eviction(views.eviction_view(found, daemon.store))


@router.get("/{eviction_id}/verdicts", responses=NOT_FOUND)
def verdicts(
    daemon: Daemon,
    seen: Seen,
    eviction_id: EvictionId,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of jobs")] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of jobs to skip")] = 0,
) -> plan_schemas.VerdictList:
    """Why each running job leaves or stays, by its present plan; those that leave come first."""
    found = daemon.store.eviction(eviction_id)
    items, end = seen.eviction(found).verdicts(views.verdict_views(found)), offset + limit
    return plan_schemas.VerdictList(items=items[offset:end], next_offset=end if len(items) > end else None)


@router.get("/{eviction_id}/steps", responses=NOT_FOUND)
def steps(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.StepList:
    """Everything that was done or noticed, in order."""
    own = seen.eviction(daemon.store.eviction(eviction_id))
    found = (schemas.StepView.model_validate(step) for step in daemon.store.steps(eviction_id))
    return schemas.StepList(items=own.steps(found))


@router.get("/{eviction_id}/explanation", responses=NOT_FOUND)
def explanation(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> plan_schemas.ExplanationView:
    """The cost of sparing each chosen job, preempting each spared job, waiting longer, or following simple rules."""
    found = daemon.store.eviction(eviction_id)
    own = seen.eviction(found)
    explained = daemon.store.explanation(eviction_id)
    if explained is None:
        raise HTTPException(404, f"eviction {eviction_id} is not explained yet")
    whole = views.explanation_view(eviction_id, found.plan, explained)
    return whole.model_copy(update={"alternatives": tuple(a for a in whole.alternatives if own.has(a.job_id))})


@router.get("/{eviction_id}/plans", responses=NOT_FOUND)
def plans(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.PlanList:
    """Every plan that it has had: it is planned anew when a job does not leave in time."""
    own = seen.eviction(daemon.store.eviction(eviction_id))
    found = daemon.store.plans(eviction_id)
    return schemas.PlanList(items=tuple(own.plan(views.plan_view(plan, plan_schemas.WholePlanView)) for plan in found))


requests = APIRouter(tags=["requests"])
log = get_logger()

OPERATOR = needs(Role.OPERATOR)


@dataclass(frozen=True)
class Asking:
    """Stores a request for the loop, and wakes it. The route that takes it names the role that this needs."""

    daemon: Daemon
    actor: Actor
    response: Response

    def __call__(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> schemas.RequestView:
        store, now = self.daemon.store, self.daemon.clock.now()
        request_id = store.add_request(kind, eviction_id, self.actor, now, document, rolling_id)
        log.info("request", request=request_id, kind=kind, eviction=eviction_id, actor=self.actor)
        self.daemon.wake()
        self.response.headers["Location"] = f"/api/v1/requests/{request_id}"
        asked = {"kind": kind, "eviction_id": eviction_id, "rolling_id": rolling_id, "created_at": now}
        return views.view(
            schemas.RequestView, self, request_id=request_id, **asked, handled_at=None, code=None, result=""
        )


Ask = Annotated[Asking, Depends()]


@requests.post("/evictions/{eviction_id}/approve", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def approve(ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Let an eviction that awaits approval be carried out."""
    return ask(RequestKind.APPROVE, eviction_id)


@requests.post("/evictions/{eviction_id}/cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel(ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Undo what can be undone: jobs that have not passed their point of no return stay."""
    return ask(RequestKind.CANCEL, eviction_id)


@requests.post("/pause", status_code=202, dependencies=[OPERATOR])
def pause(ask: Ask) -> schemas.RequestView:
    """Begin nothing new; what has passed its point of no return is followed to its end."""
    return ask(RequestKind.PAUSE)


@requests.post("/resume", status_code=202, dependencies=[OPERATOR])
def resume(ask: Ask) -> schemas.RequestView:
    """End a pause."""
    return ask(RequestKind.RESUME)


@requests.post("/halt", status_code=202, dependencies=[OPERATOR])
def halt(ask: Ask) -> schemas.RequestView:
    """Give Slurm no command any more, from this moment on, also in the middle of a cycle."""
    return ask(RequestKind.HALT)


@requests.post("/unhalt", status_code=202, dependencies=[OPERATOR])
def unhalt(ask: Ask) -> schemas.RequestView:
    """End a halt. One by the file `daemon.halt_file` lasts until the file is removed."""
    return ask(RequestKind.UNHALT)


@requests.get("/requests/{request_id}", dependencies=[needs(Role.USER)], responses=NOT_FOUND)
def request(
    daemon: Daemon,
    seen: Seen,
    request_id: Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the request")],
) -> schemas.RequestView:
    """The result of a request, for viewers and for whoever has asked it."""
    found = daemon.store.request(request_id)
    if found is None or (seen.asker.name != found.actor and not seen.asker.role.includes(Role.VIEWER)):
        raise HTTPException(404, f"no request {request_id}")
    return schemas.RequestView.model_validate(found)
