"""The good greedy rule: least lost work per node first, and those that are not needed are spared afterwards.

Method: the density rule for knapsack problems. A job's price is what its cheapest option that fits into the
deadline loses per node that it frees, then the checkpoint time of that option per node. The cheapest jobs go,
each by its cheapest option that still fits, and a backward pass spares what is not needed. No scheduler does this;
it is the strongest simple rule, and so the one that an exact planner must be compared with.

Cost: see ``in_order``.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearway.model.plan import Curve
from clearway.model.problem import Candidate, EvictionProblem
from clearway.planning.in_order import Rule, by_cost
from clearway.planning.windows import Way


class LossPerNodePrune:
    """Lets the jobs go that lose least per node."""

    name = "loss-per-node-prune"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(_price_per_node, prune=True).solve(self.name, problem)


def _price_per_node(candidate: Candidate, ways: Sequence[Way]) -> tuple[float, float]:
    cheapest = min(ways, key=by_cost)
    nodes = max(1, candidate.nodes)
    return (cheapest.lost / nodes, cheapest.steps / nodes)
