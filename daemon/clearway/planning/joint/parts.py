"""Many urgent jobs that take parts of nodes: a bound on every plan for them, and a plan, one phase after another.

See ``parts_program``.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import inf

from clearway.planning.joint.nodes import Demand, Given, allocated
from clearway.planning.joint.parts_program import ENOUGH, USED, PhaseProgram, Priced, Served, World
from clearway.planning.joint.requests import Allocation, Best, Request, as_one, divisible, groups_of, handed_out

SPARE = 24  # nodes of each kind and phase, beyond those that the program in parts uses
FIRST_S = 0.5  # that the first phase has at least: to plan for one of its requests alone would take longer
LATER_S = 0.1  # and each later one: most take a tenth of it, once the first has decided
MOST_GROUPS = 16  # of all kinds together
_TRIES = 3  # of leaving out requests for which there is no room


def by_parts(requests: Sequence[Request], seconds_left: Callable[[], float]) -> Best | None:
    """The plan for all requests, or without those for which no room is; None where this program is none for them.

    The bound is that of all requests of the plan. Where time is up, the most pressing ones have a plan, without a
    bound, and the rest is told of as ``later``.
    """
    alike_ones = groups_of(requests, 1)
    kinds = [as_one(group, group[-1].problem.max_delay_s) for group in alike_ones]
    if not all(divisible(each) for each in kinds):
        return None
    world = World.of(kinds)
    kind_of = {each.job_id: kind for kind, group in enumerate(alike_ones) for each in group}
    left = list(requests)
    for _ in range(_TRIES):
        program = PhaseProgram(world, _asked(left, kind_of), max(each.problem.max_delay_s for each in left))
        priced = program.priced(lambda: seconds_left() / 2)
        if priced is not None:
            groups = groups_of(left, max(2, MOST_GROUPS // len(kinds)))
            return _phased(world, groups, [kind_of[group[0].job_id] for group in groups], priced, seconds_left)
        missing = program.missing([(kind_of[each.job_id], each.nodes) for each in left], seconds_left)
        left = [each for each, nodes in zip(left, missing, strict=True) if nodes <= USED] if any(missing) else []
        if not left:
            break
    return None


def _phased(
    world: World,
    groups: Sequence[Sequence[Request]],
    kinds: Sequence[int],
    priced: Priced,
    seconds_left: Callable[[], float],
) -> Best | None:
    """What each group is given, one phase after another, as far as there is time; None where one finds nothing."""
    merged = [as_one(group) for group in groups]
    limits = [int(each.problem.max_delay_s) for each in merged]
    reached, state = len(groups), Served()
    given: list[Given] = []
    for limit_s, numbers in groupby(range(reached), limits.__getitem__):
        number_of = {kinds[number]: number for number in numbers}
        asked = {kind: merged[number].nodes for kind, number in number_of.items()}
        kept = _kept(world, asked, limit_s, priced, state)
        second_node_s = priced.second_node_s if limit_s < limits[-1] else 0.0
        program = PhaseProgram(world, asked, limit_s, state=state, kept=kept, second_node_s=second_node_s)
        first = min(number_of.values())
        found = program.solve(_at_least(LATER_S if given else FIRST_S, seconds_left), ENOUGH if given else inf)
        if found is None:
            if not given or not program.cut_short:
                return None
            reached = first  # in the next cycle the others may have more
            break
        leaving, nodes = found
        state.leave(leaving, first)
        given += [Given(number_of[kind], names, of.asks[kind]) for kind, of, names in nodes]
        state.nodes.update(*[names for _, _, names in nodes])
    plan = allocated(merged[:reached], limits[:reached], given, state.gone)
    return None if plan is None else _told(plan, groups, reached, priced)


def _told(plan: Sequence[Allocation], groups: Sequence[Sequence[Request]], reached: int, priced: Priced) -> Best:
    """Without those that there was no time for, where there is no bound then."""
    later = frozenset(each.job_id for group in groups[reached:] for each in group)
    return Best(handed_out(plan, groups[:reached]), False, 0.0 if later else priced.least_node_s, later=later)


def _asked(requests: Sequence[Request], kind_of: Mapping[str, int]) -> Counter[int]:
    """The nodes that are asked for, by kind."""
    return Counter([kind_of[each.job_id] for each in requests for _ in range(each.nodes)])


def _kept(world: World, asked: Mapping[int, int], limit_s: float, priced: Priced, state: Served) -> frozenset[str]:
    """The nodes that a phase may use."""
    prices = _prices(world, limit_s, priced, state)
    most = SPARE if priced.used else SPARE + sum(asked.values())  # the same nodes may be the cheapest of all kinds
    return priced.used.union(*[_cheapest(world, kind, prices, state)[:most] for kind in asked])


def _at_least(least_s: float, seconds_left: Callable[[], float]) -> Callable[[], float]:
    return lambda: max(least_s, seconds_left())


def _prices(world: World, limit_s: float, priced: Priced, state: Served) -> dict[str, float]:
    """What each job costs now, by node, at the prices of the program in parts."""
    prices = {}
    for job_id, job in world.jobs.items():
        least = 0.0
        if job_id not in state.gone and world.ends_s[job_id] > limit_s:
            ways = world.ways(job_id, limit_s)
            costs = [each.lost_work_node_s + priced.second_node_s * each.checkpoint_s for each in ways]
            least = min(costs, default=inf)
        prices[job_id] = least / max(1, job.nodes)
    return prices


def _cheapest(world: World, kind: int, prices: Mapping[str, float], state: Served) -> list[str]:
    """The nodes for a request of this kind, the cheapest first."""
    found = []
    for number, each in enumerate(world.classes):
        if (demand := each.asks.get(kind)) is None:
            continue
        of_jobs = [prices[job_id] for job_id, _ in demand.held]
        if (number, kind) not in state.prices or state.prices[number, kind][0] != of_jobs:
            state.prices[number, kind] = of_jobs, _price_of(demand, prices)
        found.append((state.prices[number, kind][1], each.names))
    return [name for _, names in sorted(found) for name in names if name not in state.nodes]


def _price_of(demand: Demand, prices: Mapping[str, float]) -> float:
    """What the cheapest of its jobs cost that give back enough."""
    dearest_first = sorted([job_id for job_id, _ in demand.held], key=lambda job_id: (-prices[job_id], job_id))
    return sum(prices[job_id] for job_id in demand.needs_of(dearest_first))
