"""Read: evictions planned, active and past, with plan, reasons, trade-off curve, steps, predicted and actual."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query

from clearway.api import plan_schemas, schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon
from clearway.api.forms import NOT_FOUND, JobFilter, UserFilter
from clearway.api.sight import Seen
from clearway.model.operations import STATE_GROUPS, EvictionState
from clearway.model.requests import Role
from clearway.store.base import LARGEST_ID

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
