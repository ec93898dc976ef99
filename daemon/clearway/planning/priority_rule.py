"""What the rules of today's schedulers have in common: jobs leave in some order until enough nodes are free.

Model, once for each deadline: the jobs that can leave in time are sorted by the rule's key, ties by job_id. Each in
turn leaves by one of its options for which there is time left, or is passed over when there is none: by the first
action in ``prefer`` that it offers, else by the option that loses least, then takes least time. It ends when enough
nodes are free. With ``prune`` a backward pass then spares, beginning with the job that was taken last, every job
without which the others still free enough. A job that frees nothing is spared in any case. With ``again`` the search is
repeated so often in another order: the job that was taken last first, then the others that were taken, most nodes
first, then the rest.

Such a rule never trades one job for another, so it may find no plan where there is one. Jobs that end by themselves
count as freed as ``windows`` says.

Cost: O(T N log N) time for T deadlines, O(N) memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from clearway.model.plan import Curve
from clearway.model.problem import ACTION_ORDER, Action, Candidate, EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.formulation.node_count import NodeCount
from clearway.planning.formulation.windows import Contest, Taken, Way, Window

Key = Callable[[Candidate, Sequence[Way]], float | tuple[float, ...]]  # of a job and its options: the least goes first


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
            return partial(self._take, contest, window, NodeCount(window), offered_ways(contest, window))

        return Curve(self.name, contest.points(contest.windows(), plans), exact=False)

    def _take(
        self, contest: Contest, window: Window, count: NodeCount, offered: Mapping[int, Sequence[Way]], deadline: int
    ) -> Taken | None:
        """None where it finds no plan."""
        count.begin()
        in_time = {rank: [way for way in offered[rank] if way.steps <= deadline] for rank in count.jobs}
        keys = {rank: self.key(contest.candidates[rank], ways) for rank, ways in in_time.items() if ways}
        order = sorted(keys, key=lambda rank: (keys[rank], rank))

        search = _Search(window.missing, deadline, count, in_time, self._preference)
        taken = search.until_enough(order)
        for _ in range(self.again if search.enough else 0):
            if len(taken) < 2:
                break
            order = _reordered(order, taken, contest)
            for way in taken:
                count.leave_not(way.rank)
            taken = search.until_enough(order)
        if not search.enough:
            return None
        if self.prune:
            search.prune(taken)
        return Taken.of([way for way in taken if count.frees(way.rank)], count.freed)

    def _preference(self, way: Way) -> tuple[int, ...]:
        wanted = [ACTION_ORDER[action] for action in self.prefer]
        place = wanted.index(way.order) if way.order in wanted else len(wanted)
        return (place, *by_cost(way))


@dataclass(frozen=True, slots=True)
class _Search:
    """Of enough nodes for one deadline; ``count`` is told of every job that leaves."""

    missing: int
    deadline: int
    count: NodeCount
    in_time: Mapping[int, Sequence[Way]]
    preference: Callable[[Way], tuple[int, ...]]

    @property
    def enough(self) -> bool:
        return self.count.freed >= self.missing

    def until_enough(self, order: Sequence[int]) -> list[Way]:
        """The ways of the jobs that leave."""
        taken: list[Way] = []
        left = self.deadline
        for rank in order:
            if self.enough:
                break
            ways = [way for way in self.in_time[rank] if way.steps <= left]
            if ways:
                taken.append(min(ways, key=self.preference))
                left -= taken[-1].steps
                self.count.leave(rank)
        return taken

    def prune(self, taken: list[Way]) -> None:
        """Spares the jobs without which the others free enough, the last one first."""
        for way in reversed(taken):
            self.count.leave_not(way.rank)
            if self.enough:
                taken.remove(way)
            else:
                self.count.leave(way.rank)


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
