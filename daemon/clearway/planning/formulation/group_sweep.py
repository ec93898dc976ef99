"""Every choice worth having among jobs that are linked by the nodes they share: label setting, job by job.

Model: a class of nodes is free once its jobs have given back what is missing (``partial_nodes``; where all jobs must
leave, each job gives back one of as many as there are). Jobs are decided one after another, class by class along the
links, so that few classes are open (begun and not yet decided) at a time. A state says what each open class still
misses. A label is a choice of jobs and ways that leads to a state; of labels in one state only those are kept that no
other replaces, in the order of ``planning.base`` (see ``node_groups``).

With a ``Guide`` (prices from ``shared_bounds``) a label goes as soon as no plan with it can cost as little as the known
plan; where more labels than ``limit`` remain, those that promise most stay and the sweep says that it is not complete.
Without one it gives up instead.

Cost: O(jobs x states x labels x ways); states grow with the classes that are open at a time, not with the group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clearway.planning.formulation.partial_nodes import Vector, minus
from clearway.planning.formulation.windows import Way, Window

Entry = Vector | None  # what an open class misses; None when nothing about it can change any more
State = tuple[Entry, ...]


class Threshold(NamedTuple):
    """So many nodes are free once the jobs on them gave back what is missing."""

    number: int  # of the class in its window
    nodes: int
    missing: Vector
    held: Mapping[int, Vector]


class Pick(NamedTuple):
    """A set of jobs that leave, with the way of each: what it frees and what it costs."""

    nodes: int
    steps: int
    lost: int
    preference: int
    ways: tuple[Way, ...]

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Smaller is better, as ``planning.base`` defines it."""
        return (self.lost, self.steps, len(self.ways), -self.preference)


class Guide(NamedTuple):
    """What plans cost at least, at some price of a node and of a step."""

    price: Callable[[Pick], float]  # of a choice of jobs: cost and steps, less the nodes that are free with them
    least: Callable[[int, Vector, Sequence[int]], float]  # of a class that misses this, which these jobs may give back
    room: float  # a choice that ends above this is in no plan that matters


class Swept(NamedTuple):
    """The picks that matter, and whether they are all; and how many labels were made for them."""

    picks: list[Pick]
    complete: bool
    labels: int


@dataclass(frozen=True, slots=True)
class _Stage:
    """One job's turn."""

    rank: int
    begun: State  # what the classes miss that open with it; they follow those that were open
    changes: list[tuple[int, Vector, int, Vector]]  # place of a class of its; it holds; nodes; others can give later
    kept: list[int]  # places of the classes that stay open
    open: list[tuple[int, tuple[int, ...], dict[Vector, float]]]  # those, their jobs not yet decided, what they cost
    unopened: list[tuple[int, Vector, tuple[int, ...]]]  # numbers of classes, what they miss, all their jobs

    def after(self, state: State, *, leaves: bool) -> tuple[State, int]:
        """The state after the job has left, or stays; and the nodes that are free with that."""
        entries = [*state, *self.begun]
        freed = 0
        for place, held, nodes, possible in self.changes:
            entry = entries[place]
            if entry is None:
                continue
            if leaves:
                entry = minus(entry, held)
                if not any(entry):
                    freed += nodes
                    entry = None
            elif any(short > most for short, most in zip(entry, possible, strict=True)):
                entry = None
            entries[place] = entry
        return tuple([entries[place] for place in self.kept]), freed

    def to_come(self, state: State, guide: Guide) -> float:
        """What the classes that are open cost at least from here on."""
        least = 0.0
        for entry, (number, jobs, known) in zip(state, self.open, strict=True):
            if entry is not None:
                if entry not in known:
                    known[entry] = guide.least(number, entry, jobs)
                least += known[entry]
        return least


def thresholds(window: Window) -> list[Threshold]:
    """The classes of a window in one form."""
    whole = [
        Threshold(number, nodes, (len(jobs),), dict.fromkeys(jobs, (1,)))
        for number, (jobs, nodes) in enumerate(window.classes.items())
    ]
    return whole + [
        Threshold(number, nodes, node.missing, dict(node.held))
        for number, (node, nodes) in enumerate(window.partial.items(), len(whole))
    ]


def sweep(
    classes: Sequence[Threshold],
    ways: Mapping[int, Sequence[tuple[Way, int]]],
    window: Window,
    limit: int,
    guide: Guide | None = None,
) -> Swept:
    """The picks of classes that are linked by jobs; ``ways`` are those of the jobs, with the preference of each.

    Without a guide nothing is found when there are too many labels.
    """
    labels: dict[State, list[Pick]] = {(): [Pick(0, 0, 0, 0, ())]}
    complete, made = True, 0
    for stage in _stages(classes):
        grown = _grown(labels, stage, ways[stage.rank], window.last_step)
        made += sum(map(len, grown.values()))
        labels = {
            state: picks if len(picks) < 2 else undominated(picks, window.last_step, window.missing)
            for state, picks in grown.items()
        }
        if guide is not None:
            labels = _promising(labels, stage, guide)
        if sum(map(len, labels.values())) > limit:
            if guide is None:
                return Swept([], complete=False, labels=made)
            labels, complete = _best(labels, stage, guide, limit), False
    return Swept([pick for picks in labels.values() for pick in picks if pick.nodes], complete, made)


def _grown(
    labels: Mapping[State, list[Pick]], stage: _Stage, ways: Sequence[tuple[Way, int]], last_step: int
) -> dict[State, list[Pick]]:
    """The labels after the job has stayed, or left in one of its ways."""
    grown: dict[State, list[Pick]] = defaultdict(list)
    for state, picks in labels.items():
        stays, _ = stage.after(state, leaves=False)
        goes, freed = stage.after(state, leaves=True)
        grown[stays] += picks
        if goes == stays and not freed:
            continue
        grown[goes] += [
            Pick(nodes + freed, steps + way.steps, lost + way.lost, preference + bit, (*taken, way))
            for nodes, steps, lost, preference, taken in picks
            for way, bit in ways
            if steps + way.steps <= last_step
        ]
    return grown


def undominated(picks: Iterable[Pick], last_step: int, enough: int) -> list[Pick]:
    """Those picks that an optimal plan may need; freeing more than is missing counts as just enough."""
    by_step: list[tuple[int, int, int, int] | None] = [None] * (last_step + 1)
    kept: list[Pick] = []
    for pick in sorted(picks, key=lambda pick: (-min(pick.nodes, enough), pick.key)):
        if pick.steps > last_step:
            continue
        key = pick.key
        best = by_step[pick.steps]
        if best is not None and best <= key:
            continue
        kept.append(pick)
        for step in range(pick.steps, last_step + 1):
            known = by_step[step]
            if known is not None and known <= key:
                break  # later ones are no worse
            by_step[step] = key
    return kept


def _stages(classes: Sequence[Threshold]) -> Iterator[_Stage]:
    """The jobs in turn: along the links, those first that the class nearest to being decided still waits for."""
    undecided = [sorted(of_class.held) for of_class in classes]
    classes_of: dict[int, list[int]] = defaultdict(list)
    for index, of_class in enumerate(classes):
        for rank in of_class.held:
            classes_of[rank].append(index)
    begun: set[int] = set()
    frontier: list[int] = []
    left = set(range(len(classes)))
    while left:
        nearest = min(left, key=lambda index: (index not in begun, len(undecided[index]), index))
        for rank in list(undecided[nearest]):
            new = [index for index in classes_of[rank] if index not in begun]
            begun.update(new)
            frontier += new
            changes = []
            for place, index in enumerate(frontier):
                if rank in classes[index].held:
                    undecided[index].remove(rank)
                    _, nodes, missing, held = classes[index]
                    later = [held[other] for other in undecided[index]]
                    possible = tuple(map(sum, zip(*later, strict=True))) if later else (0,) * len(missing)
                    changes.append((place, held[rank], nodes, possible))
            kept = [place for place, index in enumerate(frontier) if undecided[index]]
            frontier = [frontier[place] for place in kept]
            yield _Stage(
                rank,
                tuple(classes[index].missing for index in new),
                changes,
                kept,
                [(classes[index].number, tuple(undecided[index]), {}) for index in frontier],
                [
                    (of_class.number, of_class.missing, tuple(of_class.held))
                    for index, of_class in enumerate(classes)
                    if index not in begun
                ],
            )
        left.remove(nearest)


def _promising(labels: Mapping[State, list[Pick]], stage: _Stage, guide: Guide) -> dict[State, list[Pick]]:
    room = guide.room - sum([guide.least(*of_class) for of_class in stage.unopened])
    kept = {}
    for state, picks in labels.items():
        most = room - stage.to_come(state, guide)
        left = [pick for pick in picks if guide.price(pick) <= most]
        if left:
            kept[state] = left
    return kept


def _best(labels: Mapping[State, list[Pick]], stage: _Stage, guide: Guide, limit: int) -> dict[State, list[Pick]]:
    rated = []
    for state, picks in labels.items():
        to_come = stage.to_come(state, guide)
        rated += [(guide.price(pick) + to_come, pick.key, state, pick) for pick in picks]
    kept: dict[State, list[Pick]] = defaultdict(list)
    for _, _, state, pick in sorted(rated, key=lambda rating: rating[:2])[:limit]:
        kept[state].append(pick)
    return kept
