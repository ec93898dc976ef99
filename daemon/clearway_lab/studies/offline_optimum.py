"""The best schedule that could have been made had all jobs been known in advance, for a handful of jobs.

Model (WCJS paper, DOI 10.48550/arXiv.2103.13130, section 5): rigid jobs on a machine of blocks (512 nodes each on
Mira); a job of 2**k blocks runs on 2**k neighbouring ones that begin at a multiple of it. A batch job may be
interrupted once, by any job; it goes on in the same blocks and pays its overhead twice, to be written and to be read,
and each part does at least a tenth of its work (constraint 51). Urgent jobs are never interrupted. The mean slowdown of
the batch jobs is least (objective 36) while that of the urgent ones stays within a threshold (constraint 37, as the
text says: the mean); a threshold that no schedule keeps to is loosened step by step.

The paper orders jobs by numbered sequences in each partition, which needs jobs x partitions x sequences binary
variables. Here a binary variable says for each two parts which one is first; it counts only where their blocks
overlap. That says the same with a few hundred binary variables, and needs no bound on the sequences.

Cost: a mixed-integer program solved by HiGHS, exponential in the number of jobs; five batch and two urgent jobs on
16 blocks take seconds. What is found within the time limit comes with the proven bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

LEAST_SHARE = 0.1  # of its work, in each part of an interrupted job
_LOOSEN_BY = 0.1
_INFEASIBLE = 2  # scipy's status


@dataclass(frozen=True, slots=True)
class OfflineJob:
    """A job as the optimum sees it: its run time is known. ``overhead_s`` is one write, and one read, of its image."""

    job_id: int
    blocks: int
    submit_s: float
    run_s: float
    urgent: bool
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.blocks & (self.blocks - 1):
            raise ValueError(f"job {self.job_id}: {self.blocks} blocks, which is not a power of two")
        if self.run_s <= 0 or self.submit_s < 0 or self.overhead_s < 0:
            raise ValueError(f"job {self.job_id}: run time, submit time and overhead must not be negative")


@dataclass(frozen=True, slots=True)
class Part:
    """Where and when a job, or a part of an interrupted one, has its blocks; overhead included."""

    job_id: int
    first_block: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class OfflineOptimum:
    """Mean slowdowns, the threshold that was kept, and ``bound``: no schedule has a lower batch slowdown."""

    batch_slowdown: float
    urgent_slowdown: float
    threshold: float
    bound: float
    parts: tuple[Part, ...]


def offline_optimum(
    jobs: Sequence[OfflineJob],
    blocks: int,
    *,
    threshold: float = 1.2,
    loosest: float = 10.0,
    time_limit_s: float = 60.0,
) -> OfflineOptimum | None:
    """The least mean batch slowdown with the urgent one within the first threshold that can be kept.

    None when no schedule was found up to ``loosest``, or none in time. ValueError for jobs larger than the machine.
    """
    for job in jobs:
        if job.blocks > blocks:
            raise ValueError(f"job {job.job_id} needs {job.blocks} blocks, the machine has {blocks}")
    program = _Program(sorted(jobs, key=lambda job: job.job_id), blocks)
    while threshold <= loosest:
        status, found = program.solve(threshold, time_limit_s)
        if found is not None or status != _INFEASIBLE:
            return found
        threshold = round(threshold + _LOOSEN_BY, 9)
    return None


_ONE = -1  # stands for a column that is always 1: the constant of a sum
Sum = Mapping[int, float]  # factors by column


def _sum(*terms: tuple[float, Sum]) -> dict[int, float]:
    """Of sums, each times a factor."""
    total: dict[int, float] = {}
    for factor, cells in terms:
        for column, value in cells.items():
            total[column] = total.get(column, 0.0) + factor * value
    return total


@dataclass(frozen=True, slots=True)
class _PartColumns:
    """One part in the program."""

    job: int  # index
    start: int
    length: Sum
    exists: int | None = None  # the column that says whether this part is there; None: it always is


class _Program:
    def __init__(self, jobs: Sequence[OfflineJob], blocks: int) -> None:
        self._jobs = jobs
        # Holds every part one after another, so it is as large as any difference of times.
        self._horizon = max(job.submit_s for job in jobs) + sum(job.run_s + 2 * job.overhead_s for job in jobs)
        self._columns: list[tuple[float, float, bool]] = []  # lower and upper bound, and whether it is a whole number
        self._rows: list[tuple[Sum, float]] = []  # each is at least so much
        self._places = self._all_places(blocks)
        self._parts = [part for index, job in enumerate(jobs) for part in self._parts_of(index, job)]
        for one, other in combinations(range(len(jobs)), 2):
            self._apart(one, other)

    def solve(self, threshold: float, time_limit_s: float) -> tuple[int, OfflineOptimum | None]:
        """HiGHS's status, and the schedule where there is one."""
        objective, urgent = (self._mean_slowdown(urgent=urgent) for urgent in (False, True))
        constant = objective.pop(_ONE, 0.0)
        rows = list(self._rows)
        if urgent:
            rows.append(_row(_sum((-1, urgent)), -threshold))
        lower, upper, whole = zip(*self._columns, strict=True)
        costs = np.zeros(len(self._columns))
        costs[list(objective)] = list(objective.values())
        result = milp(
            costs,
            integrality=np.array(whole, dtype=int),
            bounds=Bounds(np.array(lower), np.array(upper)),
            constraints=_constraint(rows, len(costs)),
            options={"time_limit": time_limit_s, "mip_rel_gap": 1e-6},
        )
        if result.x is None:
            return int(result.status), None
        parts = tuple(sorted(self._read(result.x), key=lambda part: (part.start_s, part.job_id)))
        ends = {part.job_id: part.end_s for part in parts}  # the later part comes later
        batch_mean, urgent_mean = (mean_slowdown(self._jobs, ends, urgent=urgent) for urgent in (False, True))
        bound = float(result.mip_dual_bound) + constant
        return int(result.status), OfflineOptimum(batch_mean, urgent_mean, threshold, bound, parts)

    def _column(self, lower: float, upper: float, *, whole: bool = False) -> int:
        self._columns.append((lower, upper, whole))
        return len(self._columns) - 1

    def _at_least(self, cells: Sum, least: float = 0.0) -> None:
        self._rows.append(_row(cells, least))

    def _all_places(self, blocks: int) -> list[dict[int, int]]:
        """For each job a column for each first block that it may have; exactly one of them is taken.

        Places over which the same larger jobs run are alike, so the first of them will do: with the largest job
        placed first, what is in use stays a beginning of the machine, and no job need leave a gap before it.
        """
        places: list[dict[int, int]] = [{} for _ in self._jobs]
        touched = 0
        for index in sorted(range(len(self._jobs)), key=lambda index: (-self._jobs[index].blocks, index)):
            size = self._jobs[index].blocks
            firsts = range(0, min(touched, blocks - size) + 1, size)
            places[index] = {first: self._column(0, 1, whole=True) for first in firsts}
            for sign in (1.0, -1.0):
                self._at_least(dict.fromkeys(places[index].values(), sign), sign)
            touched += size
        return places

    def _parts_of(self, index: int, job: OfflineJob) -> list[_PartColumns]:
        start = self._column(job.submit_s, self._horizon)
        if job.urgent:
            return [_PartColumns(index, start, {_ONE: job.run_s})]
        again = self._column(job.submit_s, self._horizon)
        interrupted = self._column(0, 1, whole=True)
        later_share = self._column(0, 1 - LEAST_SHARE)
        # An interrupted job does at least a tenth of its work in either part, another one all of it in the first.
        self._at_least({later_share: 1.0, interrupted: -LEAST_SHARE})
        self._at_least({later_share: -1.0, interrupted: 1 - LEAST_SHARE})
        overhead = {interrupted: job.overhead_s}
        first = _PartColumns(index, start, overhead | {later_share: -job.run_s, _ONE: job.run_s})
        second = _PartColumns(index, again, overhead | {later_share: job.run_s}, exists=interrupted)
        self._follows(first, second)
        return [first, second]

    def _follows(self, first: _PartColumns, then: _PartColumns, *unless: tuple[int, int]) -> None:
        """``then`` starts after ``first`` ends, but for each ``unless`` column that has the value given with it."""
        slack: list[tuple[float, Sum]] = [
            (self._horizon, {column: 1} if value else {column: -1, _ONE: 1}) for column, value in unless
        ]
        self._at_least(_sum((1, {then.start: 1, first.start: -1}), (-1, first.length), *slack))

    def _apart(self, one: int, other: int) -> None:
        """No two parts of two jobs have a block at the same time."""
        small, large = sorted((one, other), key=lambda index: self._jobs[index].blocks)
        overlap = self._column(0, 1)
        size = self._jobs[large].blocks
        for first, column in self._places[large].items():
            inside = [mine for block, mine in self._places[small].items() if first <= block < first + size]
            self._at_least({overlap: 1.0, column: -1.0} | dict.fromkeys(inside, -1.0), -1.0)
        for mine, theirs in product(*([part for part in self._parts if part.job == job] for job in (one, other))):
            mine_first = self._column(0, 1, whole=True)
            absent = [(part.exists, 0) for part in (mine, theirs) if part.exists is not None]
            self._follows(mine, theirs, (mine_first, 0), (overlap, 0), *absent)
            self._follows(theirs, mine, (mine_first, 1), (overlap, 0), *absent)

    def _mean_slowdown(self, *, urgent: bool) -> dict[int, float]:
        """Mean (end - submit) / run time of the urgent or the batch jobs; empty where there are none."""
        last = {part.job: part for part in self._parts if self._jobs[part.job].urgent == urgent}
        terms: list[tuple[float, Sum]] = []
        for index, part in last.items():
            job = self._jobs[index]
            since_submit = _sum((1, {part.start: 1}), (1, part.length), (-1, {_ONE: job.submit_s}))
            terms.append((1 / (job.run_s * len(last)), since_submit))
        return _sum(*terms)

    def _read(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Part]:
        read = []
        for part in self._parts:
            if part.exists is not None and values[part.exists] < 0.5:
                continue
            start = float(values[part.start])
            cells, constant = _row(part.length, 0.0)
            length = -constant + sum(float(values[column]) * value for column, value in cells.items())
            (place,) = (first for first, column in self._places[part.job].items() if values[column] > 0.5)
            read.append(Part(self._jobs[part.job].job_id, place, start, start + length))
        return read


def mean_slowdown(jobs: Sequence[OfflineJob], ends: dict[int, float], *, urgent: bool) -> float:
    """Mean of (end - submit) / run time over the urgent or the batch jobs; 1 where there are none."""
    slowdowns = [(ends[job.job_id] - job.submit_s) / job.run_s for job in jobs if job.urgent == urgent]
    return sum(slowdowns) / len(slowdowns) if slowdowns else 1.0


def _row(cells: Sum, least: float) -> tuple[Sum, float]:
    """A sum that is at least so much, without its constant."""
    return {column: value for column, value in cells.items() if column != _ONE}, least - cells.get(_ONE, 0.0)


def _constraint(rows: Sequence[tuple[Sum, float]], columns: int) -> LinearConstraint:
    entries = [(row, column, value) for row, (cells, _) in enumerate(rows) for column, value in cells.items()]
    at_rows, at_columns, values = zip(*entries, strict=True)
    matrix = csr_array((values, (at_rows, at_columns)), shape=(len(rows), columns))
    return LinearConstraint(matrix, lb=[least for _, least in rows])
