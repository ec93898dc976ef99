"""What is free on the simulated nodes, and which of them a waiting job gets: the first that fit, by name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from clearway.eligibility.partitions import partition_holds_back
from clearway.model.cluster import Job, JobState, Node, Reservation
from clearway.model.limits import Limits
from clearway.simulation.jobs import SimulatedJob


class FreeResources:
    """Processors and GPUs that no job holds, by node."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}
        self._all_cpus: dict[str, int] = {}
        self._gpus: dict[str, Counter[str]] = {}  # of nodes that have some

    def add(self, node: Node) -> None:
        self.cpus[node.name] = self._all_cpus[node.name] = node.cpus
        if node.gpus:
            self._gpus[node.name] = Counter(dict(node.gpus))

    def take(self, entry: SimulatedJob, nodes: Iterable[Node]) -> None:
        """For a job that starts on these nodes."""
        for node in nodes:
            self.cpus[node.name] -= self._held(entry, node.name)
            self._take_gpus(entry, node)

    def take_cpus(self, entry: SimulatedJob) -> None:
        """On the nodes that it has."""
        for name in entry.job.nodes:
            self.cpus[name] -= self._held(entry, name)

    def give_back(self, entry: SimulatedJob) -> None:
        self.give_back_cpus(entry)
        for name in entry.job.nodes:
            if name in entry.gpus:
                self._gpus[name].update(entry.gpus.pop(name))

    def give_back_cpus(self, entry: SimulatedJob) -> None:
        for name in entry.job.nodes:
            self.cpus[name] += self._held(entry, name)

    def _held(self, entry: SimulatedJob, name: str) -> int:
        return self._all_cpus[name] if entry.job.exclusive else entry.cpus_per_node

    def _take_gpus(self, entry: SimulatedJob, node: Node) -> None:
        """The GPUs that the job asks for; as Slurm does, a job that has a whole node gets all of them."""
        free = self._gpus.get(node.name)
        if free is None or not (entry.job.exclusive or entry.job.gpus):
            return
        wanted = node.gpus if entry.job.exclusive else entry.job.gpus or ()
        taken: Counter[str] = Counter()
        for gpu_type, count in wanted:
            for each in [gpu_type] if gpu_type in free else sorted(free):
                some = min(count - taken.total(), free[each] - taken[each])
                taken[each] += max(0, some)
        free.subtract(taken)
        entry.gpus[node.name] = taken

    def alloc_cpus(self, node: Node) -> int:
        return node.cpus - self.cpus[node.name]

    def alloc_gpus(self, node: Node) -> tuple[tuple[str, int], ...] | None:
        """By type; None for a node that has none."""
        if node.name not in self._gpus:
            return None
        taken = Counter(dict(node.gpus))
        taken.subtract(self._gpus[node.name])
        return tuple(sorted((gpu_type, count) for gpu_type, count in taken.items() if count))

    def fits(self, entry: SimulatedJob, node: Node, kept_mib: int) -> bool:
        """Whether the node has what the job asks for on it; suspended jobs keep ``kept_mib`` of its memory."""
        job = entry.job
        return (
            bool(set(job.partitions) & set(node.partitions))
            and self.cpus[node.name] >= (node.cpus if job.exclusive else entry.cpus_per_node)
            and kept_mib + (job.memory_mib or node.memory_mib) <= node.memory_mib
            and not (job.gpus and not self._has_gpus(entry, node.name))
        )

    def _has_gpus(self, entry: SimulatedJob, name: str) -> bool:
        free = self._gpus.get(name, Counter())
        return all(
            sum(number for each, number in free.items() if gpu_type in ("", each)) >= count
            for gpu_type, count in entry.job.gpus or ()
        )


class Kept:
    """What jobs that start now cannot have, read once for all of them: memory of suspended jobs, and reserved nodes."""

    def __init__(self, jobs: Iterable[SimulatedJob], reservations: Mapping[str, Reservation], now: datetime) -> None:
        self._now = now
        self._reservations = dict(reservations)
        self._by_limit_s: dict[float | None, frozenset[str]] = {}
        self.memory_mib: Counter[str] = Counter()
        for entry in jobs:
            if entry.job.state is JobState.SUSPENDED:
                self.memory_mib.update(dict.fromkeys(entry.job.nodes, entry.job.memory_mib))

    def open_to(self, job: Job, free: set[str]) -> set[str]:
        """Of the free nodes those of its reservation, or those of none that would begin before the job has to end."""
        if job.reservation:
            return free & set(self._reservations[job.reservation].nodes)
        limit_s = job.time_limit_s
        if limit_s not in self._by_limit_s:
            end = None if limit_s is None else self._now + timedelta(seconds=limit_s)
            early = (r.nodes for r in self._reservations.values() if end is None or end > r.start_time)
            self._by_limit_s[limit_s] = frozenset[str]().union(*early)
        return free - self._by_limit_s[limit_s]


def array_is_full(job: Job, jobs: Iterable[SimulatedJob]) -> bool:
    """Whether so many tasks of its array run as may at a time."""
    if not job.array_limit:
        return False
    tasks = (entry.job for entry in jobs if entry.job.array_job_id == job.array_job_id)
    return sum(each.state.holds_nodes for each in tasks) >= job.array_limit


def open_partitions(
    job: Job, fitting: Sequence[str], nodes: Mapping[str, Node], limits: Limits
) -> Iterator[tuple[str, Sequence[str]]]:
    """The partitions that may start the job, in its order, each with the nodes in it; "": any, of all."""
    if not limits.partitions:
        yield "", fitting
        return
    for name in job.partitions:
        partition = limits.partitions.get(name)
        if partition is None or not partition_holds_back(job, partition, None, limits):
            yield name, [each for each in fitting if name in nodes[each].partitions]


def first_fit(
    job: Job, fitting: Iterable[str], all_nodes: Sequence[str], switch_of: Mapping[str, str]
) -> Sequence[str]:
    """The nodes that the job gets of those that fit it, in the order of ``all_nodes``; empty where they are too few."""
    usable = sorted(name for name in fitting if name not in job.excluded_nodes)
    if not set(job.required_nodes) <= set(usable):
        return ()
    usable.sort(key=lambda name: (name not in job.required_nodes, name))
    rows = (row for place in _places(job, usable, switch_of) for row in _rows(job, place, all_nodes))
    return next((row for row in rows if set(job.required_nodes) <= set(row)), ())


def _places(job: Job, usable: Sequence[str], switch_of: Mapping[str, str]) -> Sequence[Sequence[str]]:
    """The usable nodes, by leaf switch where the job asks for one; without topology Slurm ignores the request."""
    if job.switches != 1 or not switch_of:
        return [usable]
    leaves = sorted(set(switch_of.values()))
    return [[name for name in usable if switch_of.get(name) == leaf] for leaf in leaves]


def _rows(job: Job, place: Sequence[str], all_nodes: Sequence[str]) -> Sequence[Sequence[str]]:
    if not job.contiguous:
        return [place[: job.num_nodes]] if len(place) >= job.num_nodes else []
    rows = [all_nodes[at : at + job.num_nodes] for at in range(len(all_nodes) - job.num_nodes + 1)]
    return [row for row in rows if set(row) <= set(place)]
