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
    later, exact = _Later(hosts, residents), True
    for source in later.emptiest_first():
        jobs = later.jobs_on[source]
        if not later.may_empty(source) or len(later.moved) + len(jobs) > limits.jobs:
            continue
        search = _Search(source, later, limits.tries)
        exact &= search.complete
        found = search.emptying(later.processors, later.waited_s)
        if found is not None and found.gain_node_s > limits.worth * found.cost_node_s:
            later.carry_out(found)
    return MovePlan(
        moves=tuple(move for each in later.done for move in each.moves),
        emptied=tuple(each.source for each in later.done),
        gain_node_s=sum(each.gain_node_s for each in later.done),
        cost_node_s=sum(each.cost_node_s for each in later.done),
        exact=exact,
    )


class _Later:
    """The nodes as they are once what was decided so far is carried out."""

    def __init__(self, hosts: Sequence[Host], residents: Sequence[Resident]) -> None:
        self.processors = {host.name: host.processors for host in hosts}
        self.free = free_processors(hosts, residents)
        self.jobs_on: dict[str, list[Resident]] = {name: [] for name in self.processors}
        self.ends = dict.fromkeys(self.processors, 0.0)  # until when it is held; for ever where that is not known
        for resident in sorted(residents, key=lambda each: each.job_id):
            end_s = float("inf") if resident.remaining_s is None else resident.remaining_s
            for name in sorted(resident.nodes & self.processors.keys()):
                self.jobs_on[name].append(resident)
                self.ends[name] = max(self.ends[name], end_s)
        self.done: list[_Emptying] = []
        self.moved: set[str] = set()  # jobs
        self.taking: set[str] = set()  # nodes that take jobs in
        self.waited_s = 0.0  # until the next job is saved

    def emptiest_first(self) -> list[str]:
        """The nodes that are partly used now."""
        partly = [name for name, count in self.processors.items() if 0 < self.free[name] < count]
        return sorted(partly, key=lambda name: (self.processors[name] - self.free[name], name))

    def may_empty(self, source: str) -> bool:
        jobs = self.jobs_on[source]
        return source not in self.taking and all(job.movable and job.job_id not in self.moved for job in jobs)

    def targets(self, source: str) -> list[str]:
        return [n for n, count in self.processors.items() if n != source and 0 < self.free[n] < count]

    def carry_out(self, found: _Emptying) -> None:
        self.done.append(found)
        self.taking.update(move.target for move in found.moves)
        self.ends.update(found.ends)
        self.free[found.source] = self.processors[found.source]
        for job, move in zip(found.jobs, found.moves, strict=True):
            self.free[move.target] -= move.processors
            self.moved.add(job.job_id)
            self.waited_s += job.move_s or 0.0


class _Search:
    """All placements of the parts on one node, largest parts first; the least that others are held longer wins."""

    def __init__(self, source: str, later: _Later, tries: int) -> None:
        jobs, targets, ends = later.jobs_on[source], later.targets(source), later.ends
        self._source = source
        self._jobs = sorted(jobs, key=lambda job: (-_part_on(job, source).processors, -_end_s(job), job.job_id))
        self._targets = targets
        self._free = {name: later.free[name] for name in targets}
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


def _part_on(job: Resident, node: str) -> Part:
    return next(part for part in job.parts if part.node == node)


def _suits(job: Resident, node: str) -> bool:
    """Whether a part may go there if it has room: the job keeps its shape, so never two of its parts on one node."""
    return node not in job.nodes and job.may_go_to(node)


def _end_s(job: Resident) -> float:
    """Of a movable job that is moved."""
    return (job.remaining_s or 0.0) + (job.move_s or 0.0)
