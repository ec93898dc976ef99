"""Several urgent jobs one after another, the most pressing first: each gets the best plan that those before it leave.

Model: see ``several``. What earlier parties are given is gone; what their jobs leave over is free; and the time that
their checkpoints take on the file system has passed, while jobs that end by themselves do so all the same: the next
party's problem has a delay that is shorter by that time, and so have the ends in it.

Cost: one solution for each party.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from clearway.model.plan import CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.parties import Party, Share


def in_turn(parties: Sequence[Party], planner: Planner) -> tuple[Share, ...]:
    """The shares of those parties that can be served so, the most pressing first."""
    taken = _Taken(parties)
    shares = []
    for party in sorted(parties, key=lambda party: (party.problem.max_delay_s, party.job_id)):
        share = taken.serve(party, planner)
        if share is not None:
            shares.append(share)
    return tuple(shares)


class _Taken:
    """What earlier parties were given."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._holders: dict[str, set[str]] = defaultdict(set)
        for party in parties:
            for candidate in party.problem.candidates:
                for name in candidate.node_names:
                    self._holders[name].add(candidate.job_id)
        self._gone: set[str] = set()  # jobs that leave for somebody
        self._nodes: set[str] = set()  # given to somebody, or kept for a suspended job
        self._written_s = 0

    def serve(self, party: Party, planner: Planner) -> Share | None:
        problem, free = self._left_for(party)
        point = planner.solve(problem).choose(party.nodes)
        if point is None:
            return None
        ways = {candidate.job_id: candidate for candidate in party.problem.candidates}
        actions = {planned.job_id: planned.action for planned in point.actions}
        nodes = self._choose(party, problem, free, point)
        holders = {job_id for name in nodes for job_id in self._holders[name]}
        leaving, ending = [], []
        for job_id, action in sorted(actions.items()):
            option = next(option for option in ways[job_id].options if option.action is action)
            if action is not Action.END:
                leaving.append((job_id, option))
            elif job_id in holders:
                ending.append((job_id, option))
        self._written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
        self._gone |= {job_id for job_id, _ in leaving}
        self._nodes |= {*nodes, *self._kept(leaving)}
        done_s = max([self._written_s, *(ceil(option.ready_s) for _, option in ending)])
        return Share(party.job_id, tuple(leaving), tuple(ending), nodes, done_s)

    def _kept(self, leaving: Sequence[tuple[str, Option]]) -> set[str]:
        suspended = {job_id for job_id, option in leaving if option.action is Action.SUSPEND}
        return {name for name, jobs in self._holders.items() if jobs & suspended}

    def _left_for(self, party: Party) -> tuple[EvictionProblem, tuple[str, ...]]:
        """The party's problem with what is left, and the nodes that are free for it."""
        problem = party.problem
        candidates, free = [], [name for name in party.free_nodes if name not in self._nodes]
        for candidate in problem.candidates:
            names = [name for name in candidate.node_names if name not in self._nodes]
            free += [name for name in names if self._holders[name] <= self._gone]
            if candidate.job_id not in self._gone and names:
                candidates.append(_later(candidate, tuple(names), self._written_s))
        free = sorted(set(free))
        return (
            replace(
                problem,
                nodes_needed=max(0, party.nodes - len(free)),
                max_delay_s=max(0, problem.max_delay_s - self._written_s),
                candidates=tuple(candidates),
            ),
            tuple(free),
        )

    def _choose(
        self, party: Party, problem: EvictionProblem, free: tuple[str, ...], point: CurvePoint
    ) -> tuple[str, ...]:
        """Free nodes first, then those of jobs that are made to leave, then those of jobs that end by themselves."""
        actions: Mapping[str, Action] = {planned.job_id: planned.action for planned in point.actions}
        freed: dict[str, bool] = {}
        for candidate in problem.candidates:
            for name in candidate.node_names:
                if self._holders[name] <= self._gone | actions.keys():
                    freed[name] = freed.get(name, False) or actions[candidate.job_id] is Action.END
        order = [*free, *sorted(freed, key=lambda name: (freed[name], name))]
        return tuple(sorted(order[: party.nodes]))


def _later(candidate: Candidate, names: tuple[str, ...], passed_s: int) -> Candidate:
    """The candidate once so much time has passed on the file system, with the nodes that it still could free."""
    options = candidate.options
    if passed_s:
        options = tuple([replace(option, ready_s=max(0.0, option.ready_s - passed_s)) for option in options])
    return replace(candidate, nodes=len(names), node_names=names, options=options)
