"""Many urgent jobs that take parts of nodes: a bound on every plan for them, and a plan, one phase after another.

Model: that of ``program``, for requests whose nodes may lie anywhere.

Bound: ``parts_program`` in parts, with all requests within the longest delay.

Plan: over the nodes that the program in parts uses, and for each phase ``SPARE`` more of each kind that cost little at
its prices. Phases are solved in whole numbers, the most pressing first; all but the last pay for a second of
checkpoints what it is worth in the bound's program, so that none takes the time that later ones need more. Where not
even parts make room for all, those are left out that the program in parts has least room for; later ones rather than
earlier ones. Where time is up before there are prices, the plan goes without, over as many more nodes as are asked.

Cost: that of the program, and about 0.1 s for each phase.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf

from clearway.planning.joint.nodes import Demand, Given, allocated
from clearway.planning.joint.parts_program import ENOUGH, USED, PhaseProgram, Priced, Served, World
from clearway.planning.joint.requests import Allocation, Best, Request, as_one, divisible, groups_of, handed_out

SPARE = 24  # nodes of each kind and phase, beyond those that the program in parts uses
FIRST_S = 0.5  # that the first phase has at least: to plan for one of its requests alone would take longer
LATER_S = 0.1  # and each later one: most take a tenth of it, once the first has decided
MOST_GROUPS = 16  # of all kinds together
_TRIES = 3  # of leaving out requests for which there is no room

_Prices = Mapping[str, tuple[float, float]]  # by job
_Found = dict[tuple[int, int], tuple[list[tuple[float, float]], float]]  # by class and kind: of its jobs, and its own


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
        program = PhaseProgram(world, _asked(left, kind_of), int(max(each.problem.max_delay_s for each in left)))
        priced = program.priced(lambda: seconds_left() / 2)
        if priced is not None:
            return _phased(world, groups_of(left, max(2, MOST_GROUPS // len(kinds))), priced, seconds_left)
        missing = program.missing([(kind_of[each.job_id], each.nodes) for each in left], seconds_left)
        left = [each for each, nodes in zip(left, missing, strict=True) if nodes <= USED] if any(missing) else []
        if not left:
            break
    return None


def _asked(requests: Sequence[Request], kind_of: Mapping[str, int]) -> dict[int, int]:
    """The nodes that are asked for, by kind."""
    asked = dict.fromkeys(sorted({kind_of[each.job_id] for each in requests}), 0)
    for each in requests:
        asked[kind_of[each.job_id]] += each.nodes
    return asked


def _phased(
    world: World, groups: Sequence[Sequence[Request]], priced: Priced, seconds_left: Callable[[], float]
) -> Best | None:
    plan = _plan(world, groups, priced, seconds_left)
    if plan is None:
        return None
    reached, later = groups[: len(plan)], groups[len(plan) :]
    waiting = frozenset(each.job_id for group in later for each in group)
    return Best(handed_out(plan, reached), False, 0.0 if later else priced.least_node_s, later=waiting)


def _plan(
    world: World, groups: Sequence[Sequence[Request]], priced: Priced, seconds_left: Callable[[], float]
) -> tuple[Allocation, ...] | None:
    """What each group is given, one phase after another, as far as there is time; None where one finds nothing."""
    merged = [as_one(group) for group in groups]
    limits = [int(each.problem.max_delay_s) for each in merged]
    kinds = [world.kind_of(each) for each in merged]
    state = Served()
    found_prices: _Found = {}
    given: list[Given] = []
    for limit_s, members in _phases(limits):
        asked = {kinds[number]: merged[number].nodes for number in members}
        second_node_s = priced.second_node_s if limit_s < limits[-1] else 0.0
        kept = _kept(world, asked, priced, _prices(world, limit_s, priced, state), state, found_prices)
        program = PhaseProgram(world, asked, limit_s, state=state, kept=kept, second_node_s=second_node_s)
        least_s, most_gap = (LATER_S, ENOUGH) if given else (FIRST_S, inf)
        found = program.solve(_at_least(least_s, seconds_left), most_gap)
        if found is None:
            if not given or not program.cut_short:
                return None
            merged = merged[: members[0]]  # in the next cycle the others may have more
            break
        leaving, nodes = found
        state.leave(leaving, members[0])
        number_of = {kinds[number]: number for number in reversed(members)}
        given += [Given(number_of[kind], names, of.asks[kind]) for kind, of, names in nodes]
        state.nodes.update(*[names for _, _, names in nodes])
    return allocated(merged, limits[: len(merged)], given, state.gone)


def _phases(limits: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Each delay and the numbers of the groups within it, the shortest first."""
    members: dict[int, list[int]] = defaultdict(list)
    for number, limit_s in enumerate(limits):
        members[limit_s].append(number)
    return sorted(members.items())


def _kept(
    world: World, asked: Mapping[int, int], priced: Priced, prices: _Prices, state: Served, known: _Found
) -> frozenset[str]:
    """The nodes that a phase may use."""
    most = SPARE if priced.used else SPARE + sum(asked.values())  # the same nodes may be the cheapest of all kinds
    return priced.used.union(*[_cheapest(world, kind, prices, state, known)[:most] for kind in asked])


def _at_least(least_s: float, seconds_left: Callable[[], float]) -> Callable[[], float]:
    return lambda: max(least_s, seconds_left())


def _prices(world: World, limit_s: float, priced: Priced, state: Served) -> _Prices:
    """What each job costs now, by node, at the prices of the program in parts."""
    prices = {}
    for job_id, job in world.jobs.items():
        least = 0.0
        if job_id not in state.gone and world.ends_s[job_id] > limit_s:
            ways = world.ways(job_id, limit_s)
            costs = [each.lost_work_node_s + priced.second_node_s * each.checkpoint_s for each in ways]
            least = min(costs, default=inf)
        prices[job_id] = (least / max(1, job.nodes), 0.0)
    return prices


def _cheapest(world: World, kind: int, prices: _Prices, state: Served, known: _Found) -> list[str]:
    """The nodes for a request of this kind, the cheapest first; ``known`` is what was found in earlier phases."""
    found = []
    for number, each in enumerate(world.classes):
        if (demand := each.asks.get(kind)) is None:
            continue
        of_jobs = [prices[job_id] for job_id, _ in demand.held]
        if (number, kind) not in known or known[number, kind][0] != of_jobs:
            known[number, kind] = of_jobs, price_of(demand, prices)[0]
        found.append((known[number, kind][1], each.names))
    return [name for _, names in sorted(found) for name in names if name not in state.nodes]


def price_of(demand: Demand, jobs: _Prices) -> tuple[float, float]:
    """What the cheapest of its jobs cost that give back enough."""
    dearest = (float("inf"), 0.0)
    order = sorted([job_id for job_id, _ in demand.held], key=lambda job_id: (jobs.get(job_id, dearest), job_id))
    gone = demand.needs_of(order[::-1]) if demand.held else []
    paid = [jobs.get(job_id, dearest) for job_id in gone]
    return sum(lost for lost, _ in paid), sum(checkpoint_s for _, checkpoint_s in paid)
