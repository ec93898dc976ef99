"""What OpenPBS does: the job that started last goes first, and those that are not needed are spared afterwards.

Method: OpenPBS (preempt_sort = min_time_since_start) collects running jobs, the youngest first, until the urgent
job fits, and then goes through them once more from the last to the first to drop those without which it fits as
well. A job is suspended, else checkpointed, else requeued: the default of its preempt_order, SCR.

Cost: see ``in_order``.
"""

from __future__ import annotations

from clearway.model.plan import Curve
from clearway.model.problem import Action, EvictionProblem
from clearway.planning.in_order import Rule
from clearway.planning.youngest_first import youngest

PREEMPT_ORDER = (Action.SUSPEND, Action.SYS_CHECKPOINT, Action.APP_CHECKPOINT, Action.KILL)


class YoungestPrune:
    """Lets the youngest jobs go, but none in vain."""

    name = "youngest-prune"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(youngest, prefer=PREEMPT_ORDER, prune=True).solve(self.name, problem)
