"""Which running jobs move where: what moves have in common, compaction and promotion. Pure.

A job holds processors on nodes, a part on each. To move a part the whole job is saved, requeued and restarted: all of
its processors stand still for ``move_s``. It keeps its shape: a part stays whole, on a node of its own. Jobs are saved
one after another, since they share a file system, and run until their turn comes.

A plan is made only when its gain in node-seconds exceeds its cost: the processors that stand still meanwhile, in nodes,
times how long they do. What is not known is not moved: neither a job without an expected end nor one that cannot be
saved. Fitting goes by processors alone; the caller names the nodes that a job may use in all other respects.

Compaction is Algorithm 1 of the Slurm+DMTCP paper: of nodes that are partly used, the emptiest first, the jobs move
onto others that are partly used. Here a node is emptied only when every part on it has a place, found by a search of
all placements. Its gain is the node-seconds during which nodes are held, with no job to come, before less after: the
node would have been held until the last of its jobs ends, and is now until the last one is saved; nodes that take jobs
in are held longer where these end later. Of all placements the one of the largest gain is taken. Which nodes are
emptied goes by the paper's order, not by search: another set of nodes may gain more. It is only for times when no job
waits that Slurm could place, as Slurm fills gaps by itself.

Promotion is "scheduling with priorities" of the same paper, which keeps the better nodes as full as possible and
empties scarce resources as soon as possible. Where a job stands is read off its worst node: worst is a scarce node that
it does not need, then the lowest rank. All parts on nodes of that standing rise together or none does; its other parts
stay. Its gain is the node-seconds of worse nodes that are given back, from when the job is saved until its expected
end. The largest gain less cost comes first. Free processors go to the job's largest part, on the best node that is free
for it, and of equally good ones the fullest. No other jobs are shifted to make room, so another choice may gain more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clearway.model.orders import JobMove


@dataclass(frozen=True, slots=True)
class Host:
    """A node that jobs may be moved off and onto; nodes that are not told of are left alone."""

    name: str
    processors: int  # at least 1
    rank: int = 0  # higher is better: the tier of its partition, or its weight
    scarce: bool = False  # has what few nodes have


@dataclass(frozen=True, slots=True)
class Part:
    node: str
    processors: int


@dataclass(frozen=True, slots=True)
class Resident:
    """A job that holds nodes, as the planning of moves sees it."""

    job_id: str
    parts: tuple[Part, ...]  # each on a node of its own
    remaining_s: float | None  # until its expected end; None: not known
    move_s: float | None  # without progress while it is saved, requeued and restarted; None: it cannot be saved
    may_use: frozenset[str] | None = None  # the nodes where it can go on; None: any
    needs_scarce: bool = False

    @property
    def movable(self) -> bool:
        return self.move_s is not None and self.remaining_s is not None and bool(self.parts)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(part.node for part in self.parts)

    def may_go_to(self, node: str) -> bool:
        return self.may_use is None or node in self.may_use


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may do at most, and when it is worth it."""

    jobs: int  # to move: what is left of this hour's
    worth: float = 1.0  # how many times the cost the gain must exceed; at least 1
    tries: int = 20_000  # of placing a part while one node is emptied

    def __post_init__(self) -> None:
        if self.jobs < 0 or self.worth < 1 or self.tries < 1:
            raise ValueError(f"limits of moves: jobs {self.jobs}, worth {self.worth}, tries {self.tries}")


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Jobs to move, in the order in which they are saved; parts of one job follow each other."""

    moves: tuple[JobMove, ...] = ()
    emptied: tuple[str, ...] = ()  # nodes that no job holds afterwards, in the order in which they become empty
    gain_node_s: float = 0.0
    cost_node_s: float = 0.0
    exact: bool = True  # False: a search was cut short, so a better placement may have been missed

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(move.job_id for move in self.moves))


def free_processors(hosts: Iterable[Host], residents: Iterable[Resident]) -> dict[str, int]:
    """By node; 0 where jobs hold more than it has."""
    free = {host.name: host.processors for host in hosts}
    for resident in residents:
        for part in resident.parts:
            if part.node in free:
                free[part.node] -= part.processors
    return {name: max(0, count) for name, count in free.items()}


def cost_node_s(resident: Resident, processors: Mapping[str, int]) -> float:
    """What stands still while a job is moved; ``processors`` by node, an unknown one counts as whole."""
    share = sum(part.processors / processors.get(part.node, part.processors) for part in resident.parts)
    return share * (resident.move_s or 0.0)


@dataclass(frozen=True, slots=True)
class _Emptying:
    """One node and all jobs on it, with a place for each of their parts."""

    source: str
    jobs: tuple[Resident, ...]
    moves: tuple[JobMove, ...]  # in the order of the jobs
    ends: Mapping[str, float]  # until when each node is held afterwards
    gain_node_s: float
    cost_node_s: float


def plan_compaction(hosts: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
    """Which jobs go where; a plan without moves when nothing is worth it."""
    later, exact = _Later(hosts, residents), True
    for source in sorted(later.partly_used(), key=lambda name: (later.processors[name] - later.free[name], name)):
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

    def partly_used(self, but: str = "") -> list[str]:
        return [name for name, count in self.processors.items() if 0 < self.free[name] < count and name != but]

    def may_empty(self, source: str) -> bool:
        jobs = self.jobs_on[source]
        return source not in self.taking and all(job.movable and job.job_id not in self.moved for job in jobs)

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
        jobs, ends = later.jobs_on[source], later.ends
        targets = later.partly_used(but=source)
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
        if sum(_part_on(job, source).processors for job in jobs) <= sum(self._free.values()):
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
                JobMove(job.job_id, self._source, target, _part_on(job, self._source).processors)
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


_Standing = tuple[bool, int]  # no scarce node that it does not need; rank


def plan_promotion(hosts: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
    """Which jobs go where; a plan without moves when nothing is worth it."""
    by_name = {host.name: host for host in hosts}
    processors = {host.name: host.processors for host in hosts}
    free = free_processors(hosts, residents)
    moves: list[JobMove] = []
    moved: set[str] = set()
    waited_s = gain_node_s = spent_node_s = 0.0
    for job in _by_gain(residents, by_name, processors):
        if len(moved) == limits.jobs:
            break
        gain, cost = _gain_node_s(job, by_name, waited_s), cost_node_s(job, processors)
        risen = _risen(job, by_name, free) if gain > limits.worth * cost else ()
        if not risen:
            continue
        moved.add(job.job_id)
        waited_s += job.move_s or 0.0
        gain_node_s += gain
        spent_node_s += cost
        moves += risen
        for move in risen:
            # What they leave is not given away yet: they hold it until they have been saved.
            free[move.target] -= move.processors
    return MovePlan(tuple(moves), _emptied(moves, residents), gain_node_s, spent_node_s)


def _emptied(moves: Sequence[JobMove], residents: Sequence[Resident]) -> tuple[str, ...]:
    held_by = Counter(part.node for resident in residents for part in resident.parts)
    held_by.update(move.target for move in moves)
    held_by.subtract(move.source for move in moves)
    return tuple(name for name in dict.fromkeys(move.source for move in moves) if held_by[name] == 0)


def _by_gain(
    residents: Sequence[Resident], by_name: Mapping[str, Host], processors: Mapping[str, int]
) -> list[Resident]:
    """Those that can be moved, by what each would gain were it the first: others wait until it has been saved."""
    movable = [resident for resident in residents if resident.movable and resident.nodes <= by_name.keys()]
    return sorted(movable, key=lambda job: (cost_node_s(job, processors) - _gain_node_s(job, by_name, 0.0), job.job_id))


def _standing(job: Resident, host: Host) -> _Standing:
    return (job.needs_scarce or not host.scarce, host.rank)


def _worst(job: Resident, by_name: Mapping[str, Host]) -> _Standing:
    return min(_standing(job, by_name[part.node]) for part in job.parts)


def _gain_node_s(job: Resident, by_name: Mapping[str, Host], waited_s: float) -> float:
    """If all parts on its worst nodes rise; ``waited_s``: until its turn to be saved."""
    worst = _worst(job, by_name)
    hosts = [(part.processors, by_name[part.node]) for part in job.parts]
    nodes = sum(count / host.processors for count, host in hosts if _standing(job, host) == worst)
    return nodes * ((job.remaining_s or 0.0) - waited_s - (job.move_s or 0.0))


def _risen(job: Resident, by_name: Mapping[str, Host], free: Mapping[str, int]) -> tuple[JobMove, ...]:
    """A better node for each part on its worst ones; empty when one of them has none."""
    worst = _worst(job, by_name)
    parts = [part for part in job.parts if _standing(job, by_name[part.node]) == worst]
    taken = set(job.nodes)
    moves = []
    for part in sorted(parts, key=lambda part: (-part.processors, part.node)):
        better = [
            host
            for host in by_name.values()
            if _standing(job, host) > worst
            and free[host.name] >= part.processors
            and host.name not in taken
            and job.may_go_to(host.name)
        ]
        if not better:
            return ()
        highest = max(_standing(job, host) for host in better)
        # Scarce nodes are for jobs that need them: even such a job leaves them alone where others are as good.
        best = min(
            (host for host in better if _standing(job, host) == highest),
            key=lambda host: (host.scarce, free[host.name], host.name),
        )
        taken.add(best.name)
        moves.append(JobMove(job.job_id, part.node, best.name, part.processors))
    return tuple(moves)
