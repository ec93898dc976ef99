"""The rules of today's schedulers and of a paper: jobs leave in some order until enough nodes are free.

Model, once for each deadline: the jobs that can leave in time, by the rule's key, then by job_id, leave one by one
until enough nodes are free: each by the first action in ``prefer`` for which there is time, else by the option that
loses least, then takes least time. With ``prune`` every job is then spared, the last one first, without which the
others free enough. A job that frees nothing is spared in any case. With ``again`` the search is repeated so often: the
job that was taken last first, then the others that were taken, most nodes first, then the rest. Such a rule never
trades one job for another, so it may find no plan where there is one.

Sources: of slurm-default and youngest-first the manual of slurm.conf, PreemptType and PreemptParameters, and what Slurm
22.05 did (tests/slurm); of youngest-prune OpenPBS's preempt_sort = min_time_since_start and preempt_order SCR; of
loss-per-node-prune the density rule for knapsack problems; of ujfb the UJFB paper, section IV-B, ``selectJobs`` of its
Algorithm 1. Slurm spares a job that holds none of the nodes that the urgent job gets; which these are is not decided
here.

Cost: O(T N log N) time for T deadlines.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import add, sub

from clearway.model.plan import Curve
from clearway.model.problem import ACTION_ORDER, Action, Candidate, EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.formulation.partial_nodes import Vector
from clearway.planning.formulation.windows import Contest, Taken, Way, Window

Key = Callable[[Candidate, Sequence[Way]], float | tuple[float, ...]]  # of a job and its options: the least goes first


class NodeCount:
    """The nodes that are ``freed`` by the jobs that have left: a demand is met once they gave back what is missing."""

    def __init__(self, window: Window) -> None:
        self._needed = window.missing
        self._nodes = list(window.demands.values())
        self.demands = list(window.demands)
        self._held_by: dict[int, list[tuple[int, Vector]]] = defaultdict(list)
        for number, demand in enumerate(self.demands):
            for rank, amounts in demand.held:
                self._held_by[rank].append((number, amounts))
        self.jobs = sorted(self._held_by)
        self.begin()

    def begin(self) -> None:
        """No job has left."""
        self.freed = 0
        self._missing = [demand.missing for demand in self.demands]  # less what was given back; <= 0: it is free

    @property
    def enough(self) -> bool:
        return self.freed >= self._needed

    def leave(self, rank: int) -> None:
        self.freed += self.moved(self._missing, rank, sub)

    def leave_not(self, rank: int) -> None:
        """Undoes ``leave``."""
        self.freed += self.moved(self._missing, rank, add)

    def frees(self, rank: int) -> bool:
        """Whether any node is free because this job, maybe among others, has left."""
        return any(max(self._missing[index]) <= 0 for index, _ in self._held_by[rank])

    def moved(self, short: list[Vector], rank: int, change: Callable[[int, int], int]) -> int:
        """What the job holds changes what the demands are short of; how many nodes more are short of nothing then."""
        more = 0
        for index, amounts in self._held_by[rank]:
            before = short[index]
            short[index] = after = tuple(map(change, before, amounts))
            free = max(after) <= 0
            if free is not (max(before) <= 0):
                more += self._nodes[index] if free else -self._nodes[index]
        return more


@dataclass(frozen=True, slots=True)
class Rule(PlainPlanner):
    """A planner: which job goes first, and how a job goes."""

    name: str
    key: Key
    prefer: tuple[Action, ...] = ()
    prune: bool = False
    again: int = 0

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)

        def plans(window: Window) -> Callable[[int], Taken | None]:
            return partial(self._take, contest, NodeCount(window), offered_ways(contest, window))

        return Curve(self.name, contest.points(contest.windows(), plans), exact=False)

    def _take(
        self, contest: Contest, count: NodeCount, offered: Mapping[int, Sequence[Way]], deadline: int
    ) -> Taken | None:
        """None where it finds no plan."""
        in_time = {rank: [way for way in offered[rank] if way.steps <= deadline] for rank in count.jobs}
        keys = {rank: self.key(contest.candidates[rank], ways) for rank, ways in in_time.items() if ways}
        order = sorted(keys, key=lambda rank: (keys[rank], rank))

        taken = self._until_enough(order, in_time, deadline, count)
        for _ in range(self.again if count.enough else 0):
            order = _reordered(order, taken, contest)
            taken = self._until_enough(order, in_time, deadline, count)
        if not count.enough:
            return None
        if self.prune:
            _prune(taken, count)
        return Taken.of([way for way in taken if count.frees(way.rank)], count.freed)

    def _until_enough(
        self, order: Sequence[int], in_time: Mapping[int, Sequence[Way]], left: int, count: NodeCount
    ) -> list[Way]:
        """The ways of the jobs that leave, none having left before."""
        count.begin()
        taken: list[Way] = []
        place = {ACTION_ORDER[action]: number for number, action in enumerate(self.prefer)}
        for rank in order:
            if count.enough:
                break
            ways = [way for way in in_time[rank] if way.steps <= left]
            if ways:
                taken.append(min(ways, key=lambda way: (place.get(way.order, len(place)), *by_cost(way))))
                left -= taken[-1].steps
                count.leave(rank)
        return taken


def _prune(taken: list[Way], count: NodeCount) -> None:
    """Spares the jobs without which the others free enough, the last one first."""
    for way in reversed(taken):
        count.leave_not(way.rank)
        if count.enough:
            taken.remove(way)
        else:
            count.leave(way.rank)


def _reordered(order: Sequence[int], taken: Sequence[Way], contest: Contest) -> list[int]:
    """The job that was taken last, the others that were taken, most nodes first, and the rest."""
    *others, last = [way.rank for way in taken]
    others.sort(key=lambda rank: -contest.candidates[rank].nodes)
    return [last, *others, *[rank for rank in order if rank != last and rank not in others]]


def by_cost(way: Way) -> tuple[int, int, int, int]:
    """The order of a job's options, the cheapest first."""
    return (way.lost, way.steps, way.order, way.ready_step)


def offered_ways(contest: Contest, window: Window) -> Mapping[int, Sequence[Way]]:
    """Every option of the jobs that can be preempted within a window, dominated ones too: rules have their habits."""
    return {rank: [way for way in contest.ways[rank] if way.ready_step <= window.first_step] for rank in window.ways}


_REPETITIONS = 2  # of Slurm's search
_SUSPEND = (Action.SUSPEND,)
_PBS_ORDER = (Action.SUSPEND, Action.SYS_CHECKPOINT, Action.APP_CHECKPOINT, Action.KILL)


def _youngest(candidate: Candidate, _ways: Sequence[Way]) -> float:
    return candidate.ran_s


def _loss_per_node(candidate: Candidate, ways: Sequence[Way]) -> tuple[float, float]:
    cheapest, nodes = min(ways, key=by_cost), max(1, candidate.nodes)
    return (cheapest.lost / nodes, cheapest.steps / nodes)


# What the entry points name: called, each makes its rule.
slurm_default = partial(
    Rule,
    "slurm-default",
    lambda each, _: (each.preempt_priority, each.job_nodes or each.nodes),  # the lowest, and of these the smallest
    prefer=(Action.KILL,),
    again=_REPETITIONS,
)
youngest_first = partial(Rule, "youngest-first", _youngest, prefer=(Action.KILL,), again=_REPETITIONS)
youngest_prune = partial(Rule, "youngest-prune", _youngest, prefer=_PBS_ORDER, prune=True)
loss_per_node_prune = partial(Rule, "loss-per-node-prune", _loss_per_node, prune=True)
ujfb = partial(Rule, "ujfb", lambda each, _: -inf if each.remaining_s is None else -each.remaining_s, prefer=_SUSPEND)

SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE = slurm_default(), youngest_first(), youngest_prune()
LOSS_PER_NODE_PRUNE, UJFB = loss_per_node_prune(), ujfb()
