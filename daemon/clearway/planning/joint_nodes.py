"""What several urgent jobs ask of each node before it serves them, and which nodes are alike in that.

Model: a node serves a party (an urgent job) when the jobs that have left give back what it lacks. A party that takes
whole nodes asks that all jobs leave, whoever's candidates they are; one with needs asks so much of each resource
(see ``partial_nodes``). A node is given to one party at most, also where it takes a part of it: what keeps it for that
party is a reservation of the whole node. Nodes on which the same jobs are, and that ask the same for the same parties,
are one class; a party's required nodes, leaf switches and rows keep theirs apart.

Cost: time in the number of (party, job, node) triples; for a party of contiguous nodes every node is its own class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from clearway.planning.partial_nodes import Vector, demands
from clearway.planning.parties import Party
from clearway.planning.places import by_switch, in_a_row


class Demand(NamedTuple):
    """What has to be given back on a node: of each resource that is short, by the jobs that hold it, by job_id."""

    held: tuple[tuple[str, Vector], ...]
    missing: Vector

    @property
    def everybody(self) -> bool:
        """Whether without any one of the jobs too little is given back."""
        return not any(self.met_by([other for other, _ in self.held if other != job_id]) for job_id, _ in self.held)

    def met_by(self, gone: Collection[str]) -> bool:
        given = [amounts for job_id, amounts in self.held if job_id in gone]
        return all(sum(each[place] for each in given) >= short for place, short in enumerate(self.missing))

    def needs_of(self, gone: Sequence[str]) -> list[str]:
        """Those of ``gone`` that suffice and cannot be fewer: the first ones are dropped first."""
        left = [job_id for job_id in gone if any(job_id == other for other, _ in self.held)]
        for job_id in tuple(left):
            rest = [other for other in left if other != job_id]
            if self.met_by(rest):
                left = rest
        return left


@dataclass(frozen=True)
class NodeClass:
    """Nodes that are alike; parties by their number."""

    names: tuple[str, ...]
    jobs: frozenset[str]  # whose nodes they are
    asks: Mapping[int, Demand]
    required_by: frozenset[int]

    @cached_property
    def takes_everybody(self) -> Mapping[int, bool]:
        """By party: whether all jobs that it counts on have to leave."""
        return {party: demand.everybody for party, demand in self.asks.items()}


class JointNodes:
    """The classes, and the places of those parties whose nodes must lie together."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._parties = parties
        self._holders: dict[str, set[str]] = defaultdict(set)
        for party in parties:
            for candidate in party.problem.candidates:
                for name in candidate.node_names:
                    self._holders[name].add(candidate.job_id)
        asks: dict[str, dict[int, Demand]] = defaultdict(dict)
        for number, party in enumerate(parties):
            for name, demand in self._asks(party).items():
                asks[name][number] = demand
        self._signs = [self._signs_of(party) for party in parties]
        alike: dict[object, list[str]] = defaultdict(list)
        for name in sorted(asks):
            signs = tuple([signs.get(name) for signs in self._signs])
            alike[frozenset(self._holders[name]), tuple(asks[name].items()), signs].append(name)
        self.classes = [
            NodeClass(
                tuple(names),
                frozenset(self._holders[names[0]]),
                asks[names[0]],
                frozenset(number for number, party in enumerate(parties) if names[0] in _required(party)),
            )
            for names in alike.values()
        ]
        self._class_of = {name: number for number, each in enumerate(self.classes) for name in each.names}

    def _asks(self, party: Party) -> dict[str, Demand]:
        problem = party.problem
        if problem.needs is None:
            named = {name for candidate in problem.candidates for name in candidate.node_names}
            whole = {name: sorted(self._holders[name]) for name in {*party.free_nodes, *named}}
            return {
                name: Demand(tuple((job_id, (1,)) for job_id in jobs), (len(jobs),) if jobs else ())
                for name, jobs in whole.items()
            }
        ids = [candidate.job_id for candidate in problem.candidates]
        return {
            node.name: Demand(tuple(sorted((ids[rank], amounts) for rank, amounts in asked.held)), asked.missing)
            for node, asked in demands(problem, problem.needs, problem.candidates)
        }

    @staticmethod
    def _signs_of(party: Party) -> dict[str, object]:
        """What keeps nodes apart that are alike otherwise."""
        needs = party.problem.needs
        if needs is None:
            return {}
        if needs.contiguous:
            return {node.name: node.name for node in party.problem.nodes}
        required = set(needs.required_nodes)
        return {
            node.name: (node.name in required, node.switch if needs.one_switch else "") for node in party.problem.nodes
        }

    def lacks_required(self, number: int) -> bool:
        """Whether the party asks for a node that can never serve it."""
        return any(
            name not in self._class_of or number not in self.classes[self._class_of[name]].asks
            for name in _required(self._parties[number])
        )

    def places(self, number: int) -> list[frozenset[int]] | None:
        """The sets of classes of which one has to hold all nodes of the party; None where they may lie anywhere."""
        party = self._parties[number]
        needs, nodes = party.problem.needs, party.problem.nodes
        if needs is None or not (needs.contiguous or needs.one_switch):
            return None
        if needs.contiguous:
            found = in_a_row(nodes, party.nodes, one_switch=needs.one_switch)
        else:
            found = list(by_switch(nodes).values())
        places = []
        for place in found:
            able = [self._class_of.get(node.name) for node in place]
            kept = frozenset(each for each in able if each is not None and number in self.classes[each].asks)
            if kept and not (needs.contiguous and len(kept) < len(able)):
                places.append(kept)
        return places


def _required(party: Party) -> Collection[str]:
    return party.problem.needs.required_nodes if party.problem.needs is not None else ()
