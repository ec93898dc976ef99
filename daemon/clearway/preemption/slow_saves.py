"""Another plan for an urgent job while a checkpoint is late, made as long as another job has time to save itself. Pure.

A checkpoint that takes longer than it was expected to may still be complete in time, so its job is waited for until
the moment after which nothing could take its place but a kill: what is left until jobs must leave, less what the other
plan needs. No job is killed for it that was not to be killed before, but itself: where no other job can take its place,
and no more is lost than one lost node costs (``pledges.within_one_node``).
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from clearway.estimates.checkpoint_load import latest_of, overdue_saves
from clearway.execution.cycle_context import CycleContext
from clearway.execution.lifecycle import E
from clearway.model.operations import Eviction
from clearway.model.plan import OperationPlan, Plan
from clearway.model.problem import Action

# Before the last moment: a cycle, and the commands of a plan, take that long on a slow day.
_EARLIER_S = 5.0
_AGAIN = timedelta(seconds=10)  # where there is no such plan: a job that could save itself may have come since
SLOW = "its checkpoint takes longer than expected"


def slow_saves(e: Eviction, cycle: CycleContext) -> dict[str, str]:
    """Jobs that may still save themselves in time, but were expected to have done so by now; what is said of each."""
    if cycle.paused or e.state is not E.PREEMPTING or cycle.now > latest_of(e, cycle.config.execution):
        return {}
    return dict.fromkeys(overdue_saves(e, cycle.others, cycle.snapshot, cycle.config, cycle.now), SLOW)


def sparing_others(e: Eviction, found: object, slow: Collection[str] = ()) -> Plan | None:
    """What was found, where that is a plan by which nobody is killed but who was to be, and ``slow``."""
    return found if isinstance(found, Plan) and _kills(found) <= _kills(e.plan) | frozenset(slow) else None


def looked_at_again(found: Plan | None, now: datetime) -> datetime | None:
    """When to look for such a plan again, ``found`` being what there is now; None: it is to be carried out at once."""
    if found is None:
        return now + _AGAIN
    left_s = found.problem.max_delay_s - found.chosen.max_delay_s - _EARLIER_S
    return now + timedelta(seconds=left_s) if left_s > 0 else None


def _kills(plan: OperationPlan) -> set[str]:
    return {each.job_id for each in plan.chosen.actions if each.action is Action.KILL}
