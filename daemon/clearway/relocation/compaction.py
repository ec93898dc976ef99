"""Compaction: jobs leave the emptiest nodes, so that whole nodes become empty. Pure.

Model: Algorithm 1 of the Slurm+DMTCP paper. It takes nodes that are partly used, the emptiest first, and moves their
jobs onto others that are partly used. Here a node is emptied only when every part on it has a place, found by a search
of all placements, and when that gains more than it costs:

- gain: the node-seconds during which nodes are held, by the jobs' expected ends and with no job to come, before less
  after. The node would have been held until the last of its jobs ends, and is now until the last one is saved; nodes
  that take jobs in are held longer where these end later, by the time that their move takes too. Of all placements the
  one of the largest gain is taken.
- cost: see ``moves``.

No job is moved onto an empty node, so each emptied node is one partly used node less. Which nodes are emptied goes by
the paper's order, not by search: another set of nodes may gain more.

Only for times when no job waits that Slurm could place: the caller sees to that, as Slurm fills gaps by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clearway.relocation.moves import Host, Limits, Move, MovePlan, Part, Resident, cost_node_s, free_processors


@dataclass(frozen=True, slots=True)
class _Emptying:
    """One node and all jobs on it, with a place for each of their parts."""

    source: str
    jobs: tuple[Resident, ...]
    moves: tuple[Move, ...]  # in the order of the jobs
    ends: Mapping[str, float]  # until when each node is held afterwards
    gain_node_s: float
    cost_node_s: float


def plan_compaction(hosts: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
    """Which jobs go where; a plan without moves when nothing is worth it."""
    processors = {host.name: host.processors for host in hosts}
    free = free_processors(hosts, residents)
    jobs_on: dict[str, list[Resident]] = {name: [] for name in processors}
    ends = dict.fromkeys(processors, 0.0)  # until when it is held; for ever where that is not known
    for resident in sorted(residents, key=lambda each: each.job_id):
        for name in sorted(resident.nodes & processors.keys()):
            jobs_on[name].append(resident)
            ends[name] = max(ends[name], float("inf") if resident.remaining_s is None else resident.remaining_s)
    done: list[_Emptying] = []
    moved: set[str] = set()
    taking: set[str] = set()
    waited_s, exact = 0.0, True
    for source in _emptiest_first(processors, free):
        jobs = jobs_on[source]
        if source in taking or not all(job.movable and job.job_id not in moved for job in jobs):
            continue
        if len(moved) + len(jobs) > limits.jobs:
            continue
        targets = [name for name in processors if name != source and 0 < free[name] < processors[name]]
        search = _Search(source, jobs, targets, free, ends, limits.tries)
        exact &= search.complete
        found = search.emptying(processors, waited_s)
        if found is None or found.gain_node_s <= limits.worth * found.cost_node_s:
            continue
        done.append(found)
        taking.update(move.target for move in found.moves)
        ends.update(found.ends)
        free[source] = processors[source]
        for job, move in zip(found.jobs, found.moves, strict=True):
            free[move.target] -= move.processors
            moved.add(job.job_id)
            waited_s += job.move_s or 0.0
    return MovePlan(
        moves=tuple(move for each in done for move in each.moves),
        emptied=tuple(each.source for each in done),
        gain_node_s=sum(each.gain_node_s for each in done),
        cost_node_s=sum(each.cost_node_s for each in done),
        exact=exact,
    )


class _Search:
    """All placements of the parts on one node, largest parts first; the least that others are held longer wins."""

    def __init__(
        self,
        source: str,
        jobs: Sequence[Resident],
        targets: Sequence[str],
        free: Mapping[str, int],
        ends: Mapping[str, float],
        tries: int,
    ) -> None:
        self._source = source
        self._jobs = sorted(jobs, key=lambda job: (-_part_on(job, source).processors, -_end_s(job), job.job_id))
        self._targets = targets
        self._free = {name: free[name] for name in targets}
        self._source_end_s = ends[source]
        self._ends = {name: end_s for name, end_s in ends.items() if name != source}
        self._longer_s = 0.0
        # A job's parts elsewhere stay where they are, and end later too.
        for job in self._jobs:
            for name in sorted(job.nodes & self._ends.keys()):
                if _end_s(job) > self._ends[name]:
                    self._longer_s += _end_s(job) - self._ends[name]
                    self._ends[name] = _end_s(job)
        self._needed = sum(_part_on(job, source).processors for job in jobs)
        self._tries = tries
        self._best_s = float("inf")
        self._best: tuple[list[str], dict[str, float]] | None = None
        self._chosen: list[str] = []
        choosy = [job for job in self._jobs if job.may_use is not None or len(job.parts) > 1]
        # Nodes alike in this are interchangeable, whatever their names.
        self._alike = {
            name: (tuple(_suits(job, name) for job in choosy), self._free[name], self._ends[name]) for name in targets
        }
        self._seen: dict[tuple[object, ...], float] = {}
        if self._needed <= sum(self._free.values()):
            self._place(0.0)

    @property
    def complete(self) -> bool:
        return self._tries > 0

    def emptying(self, processors: Mapping[str, int], waited_s: float) -> _Emptying | None:
        """The best placement found; ``waited_s``: until the first of these jobs is saved, for others are before it."""
        if self._best is None:
            return None
        targets, ends = self._best
        saved_s = waited_s + sum(job.move_s or 0.0 for job in self._jobs)
        return _Emptying(
            self._source,
            jobs=tuple(self._jobs),
            moves=tuple(
                Move(job.job_id, self._source, target, _part_on(job, self._source).processors)
                for job, target in zip(self._jobs, targets, strict=True)
            ),
            ends={**ends, self._source: 0.0},
            gain_node_s=self._source_end_s - saved_s - self._longer_s - self._best_s,
            cost_node_s=sum(cost_node_s(job, processors) for job in self._jobs),
        )

    def _place(self, longer_s: float) -> None:
        changed = sorted((self._alike[name], self._free[name], self._ends[name]) for name in set(self._chosen))
        reached = (len(self._chosen), *changed)
        if longer_s >= min(self._best_s, self._seen.get(reached, float("inf"))):
            return
        self._seen[reached] = longer_s
        if len(self._chosen) == len(self._jobs):
            self._best_s, self._best = longer_s, (list(self._chosen), dict(self._ends))
            return
        job = self._jobs[len(self._chosen)]
        size = _part_on(job, self._source).processors
        fitting = [name for name in self._targets if self._free[name] >= size and _suits(job, name)]
        # What is held longer the least first, then the fullest: the first descent is often the best.
        fitting.sort(key=lambda name: (max(0.0, _end_s(job) - self._ends[name]), self._free[name], name))
        for name in fitting:
            if not self.complete:
                return
            self._tries -= 1
            end_s = self._ends[name]
            self._ends[name] = max(end_s, _end_s(job))
            self._free[name] -= size
            self._chosen.append(name)
            # Neither is subtracted where it is the same, for the end may be infinite.
            self._place(longer_s + (self._ends[name] - end_s if self._ends[name] > end_s else 0.0))
            self._chosen.pop()
            self._free[name] += size
            self._ends[name] = end_s


def _emptiest_first(processors: Mapping[str, int], free: Mapping[str, int]) -> list[str]:
    """The nodes that are partly used."""
    partly = [name for name, count in processors.items() if 0 < free[name] < count]
    return sorted(partly, key=lambda name: (processors[name] - free[name], name))


def _part_on(job: Resident, node: str) -> Part:
    return next(part for part in job.parts if part.node == node)


def _suits(job: Resident, node: str) -> bool:
    """Whether a part may go there if it has room: the job keeps its shape, so never two of its parts on one node."""
    return node not in job.nodes and job.may_go_to(node)


def _end_s(job: Resident) -> float:
    """Of a movable job that is moved."""
    return (job.remaining_s or 0.0) + (job.move_s or 0.0)
