"""How many nodes by when: the program of many urgent jobs that can all use the same nodes, and a bound on every plan.

Model: requests that differ in delays and numbers of nodes alone are phases, the most pressing first: by phase p's delay
T_p so many nodes are needed as its requests and all before them ask for, N_p. No node is shared. A job j of n_j nodes
leaves at most once, by a way of cost c that takes s seconds, for a phase q; where it ends by itself, it does so by
phase e_j:

    for each p:  sum of n_j over the jobs that left for q <= p < e_j  >=  N_p - nodes of the jobs that ended by then
    for each p:  sum of s over the jobs that left for q <= p          <=  T_p

Lost work comes first; coming back, checkpoint time and preemptees count so little that they decide between plans that
lose the same. A way that takes no time is there for the first phase that it is in time for alone.

Bound: prices v_p of a node and w_p of a second, those of the program in parts. Whatever they are,

    sum of v_p N_p - w_p T_p,  and for each job the least of 0 and  c - n_j (v_q + ... up to e_j) + s (w_q + ...)

is more than no plan costs. It is computed here, not taken from the solver, and for the longest delay of each phase.

Plan: what the program in parts takes wholly, completed by what is the cheapest for its nodes at these prices. Where
that is not within ``GAP`` of the program in parts, HiGHS looks for a better one among the columns that cost little more
than the best at these prices, ``IN_DOUBT`` for each phase.

Cost: columns are jobs times ways times phases; rows are jobs and twice the phases. Prices for a thousand jobs in four
phases take HiGHS less than 0.1 s. For the plan it has half of the time that is left, and ``MOST_NODES`` of its search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clearway.model.problem import Action, Candidate, Option
from clearway.planning.joint.alike import as_one, handed_out
from clearway.planning.joint.allocated import ends_of
from clearway.planning.joint.requests import Allocation, Request, holders_of

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_LESS = 1e-4  # node-seconds that a second of checkpoints, or a preemptee, counts as
_MARGIN = 1e-11  # of all that is added up to a bound, which may nearly cancel out: for floating point
_WHOLLY = 1 - 1e-9  # as a part of a job
GAP = 2e-3  # of the cost: with so little left HiGHS looks no further
MOST_NODES = 500  # of HiGHS's search
IN_DOUBT = 40  # columns of each phase, beside those that are certain

_Numbers = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Phased(NamedTuple):
    """The plan, one allocation for each request; None without time or where there is none. And a bound on lost work."""

    allocations: tuple[Allocation, ...] | None
    least_node_s: float
    later: frozenset[str] = frozenset()  # requests that there was no time for


@dataclass(frozen=True, slots=True)
class _Columns:
    """Each way of each job for each phase; by column but for ``ended``."""

    jobs: Ints
    nodes: _Numbers
    lost: _Numbers
    cost: _Numbers  # lost work, and a little for the other keys
    seconds: _Numbers
    first: Ints  # the phase it leaves for
    last: Ints  # the first phase by which the job has ended anyway; the number of phases where it does not
    ended: _Numbers  # by phase: nodes of jobs that have ended by then
    options: list[tuple[Candidate, Option]]


def by_phases(groups: Sequence[Sequence[Request]], seconds_left: Callable[[], float]) -> Phased | None:
    """The plan for groups of requests that differ in delays and nodes alone; None where this program is none for them.

    A group has the shortest delay of its requests.
    """
    requests = [as_one(group) for group in groups]
    if not _suited(requests):
        return None
    first = requests[0]
    needed = np.cumsum([each.nodes for each in requests]) - len(first.free_nodes)
    shortest = [int(each.problem.max_delay_s) for each in requests]
    longest = [int(max(each.problem.max_delay_s for each in group)) for group in groups]
    columns = _columns(first.problem.candidates, shortest)
    taken: Ints | None = np.zeros(0, dtype=np.int64)
    least = 0.0
    if np.any(needed > columns.ended):
        rows = _rows(columns, needed, shortest)
        priced = _priced(columns, rows, len(groups), seconds_left)
        if priced is None:
            return None
        taken = _taken(columns, rows, len(groups), priced, seconds_left)
        least = _least(_columns(first.problem.candidates, longest), needed, longest, priced)
    if taken is None:
        return Phased(None, least)
    return Phased(handed_out(_allocations(columns, taken.tolist(), requests, shortest), groups), least)


def _suited(requests: Sequence[Request]) -> bool:
    """Whether all can use the same whole nodes, of which no two jobs share one, and no job is suspended."""
    first = requests[0]
    alike = all(
        each.problem.candidates == first.problem.candidates and each.free_nodes == first.free_nodes
        for each in requests[1:]
    )
    if not alike or any(each.problem.needs is not None for each in requests):
        return False
    options = (option for each in first.problem.candidates for option in each.options)
    shared = any(len(jobs) > 1 for jobs in holders_of(requests[:1]).values())
    return not shared and not any(option.action is Action.SUSPEND for option in options)


def _columns(candidates: Sequence[Candidate], limits: Sequence[int]) -> _Columns:
    phases = len(limits)
    found: list[tuple[int, int, float, float, float, int, int]] = []
    options: list[tuple[Candidate, Option]] = []
    ended = np.zeros(phases)
    for number, job in enumerate(candidates):
        ends_s = min([each.ready_s for each in job.options if each.action is Action.END], default=float("inf"))
        last = next((phase for phase, limit_s in enumerate(limits) if ends_s <= limit_s), phases)
        ended[last:] += job.nodes
        for option in job.options:
            seconds = ceil(option.checkpoint_s)
            in_time = [phase for phase in range(last) if max(seconds, option.ready_s) <= limits[phase]]
            if option.action is Action.END or not in_time:
                continue
            less = _LESS * (1 + seconds + option.return_node_s)
            for phase in in_time if seconds else in_time[:1]:
                lost = option.lost_work_node_s
                found.append((number, job.nodes, lost, lost + less, seconds, phase, last))
                options.append((job, option))
    rows = np.array(found, dtype=float).reshape(-1, 7).T
    jobs, first, leaves_by = (rows[row].astype(np.int64) for row in (0, 5, 6))
    return _Columns(jobs, rows[1], rows[2], rows[3], rows[4], first, leaves_by, ended, options)


def _rows(columns: _Columns, needed: Ints, limits: Sequence[int]) -> LinearConstraint:
    from scipy.optimize import LinearConstraint  # noqa: PLC0415 - see ``program``
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415

    phases = np.arange(len(limits))[:, np.newaxis]
    gone = columns.first <= phases
    frees = csr_array(np.where(gone & (phases < columns.last), columns.nodes, 0.0))
    takes = csr_array(np.where(gone, columns.seconds, 0.0))
    width = len(columns.jobs)
    jobs = int(columns.jobs.max(initial=-1)) + 1
    once = csr_array((np.ones(width), (columns.jobs, np.arange(width))), shape=(jobs, width))
    lower = np.concatenate([needed - columns.ended, np.full(len(limits) + once.shape[0], -np.inf)])
    upper = np.concatenate([np.full(len(limits), np.inf), np.array(limits, dtype=float), np.ones(once.shape[0])])
    return LinearConstraint(vstack([frees, takes, once], format="csr"), lower, upper)


class _Priced(NamedTuple):
    """Prices of a node and of a second, by phase, and how much of each column the program in parts takes."""

    node: _Numbers
    second: _Numbers
    parts: _Numbers


def _priced(
    columns: _Columns, rows: LinearConstraint, phases: int, seconds_left: Callable[[], float]
) -> _Priced | None:
    """None without time, or where not even parts of jobs free enough."""
    from scipy.optimize import linprog  # noqa: PLC0415

    if seconds_left() <= 0 or not len(columns.jobs):
        return None
    sign = np.concatenate([-np.ones(phases), np.ones(rows.A.shape[0] - phases)])
    limit = np.where(sign > 0, rows.ub, -rows.lb)
    limited = {"time_limit": seconds_left()}
    found = linprog(columns.cost, rows.A.multiply(sign[:, np.newaxis]).tocsr(), limit, method="highs", options=limited)
    if found.status:
        return None
    worth = np.maximum(0.0, -found.ineqlin.marginals)
    return _Priced(worth[:phases], worth[phases : 2 * phases], found.x)


def _gains(columns: _Columns, costs: _Numbers, priced: _Priced) -> tuple[_Numbers, _Numbers]:
    """By column what it costs at these prices; by job the least of that, or nothing."""
    so_far = np.concatenate([[0.0], np.cumsum(priced.node)])
    from_on = np.concatenate([np.cumsum(priced.second[::-1])[::-1], [0.0]])
    each = costs - columns.nodes * (so_far[columns.last] - so_far[columns.first])
    each += columns.seconds * from_on[columns.first]
    by_job = np.zeros(int(columns.jobs.max(initial=0)) + 1)
    np.minimum.at(by_job, columns.jobs, each)
    return each, by_job


def _least(columns: _Columns, needed: Ints, limits: Sequence[int], priced: _Priced) -> float:
    """No plan within these delays loses less, whatever the prices."""
    by_job = _gains(columns, columns.lost, priced)[1]
    asked, most_s = needed - columns.ended, np.array(limits)
    in_all = float(priced.node @ asked - priced.second @ most_s + by_job.sum())
    of_columns = columns.lost + columns.nodes * priced.node.sum() + columns.seconds * priced.second.sum()
    added = float(priced.node @ np.abs(asked) + priced.second @ most_s + of_columns.sum())
    return max(0.0, in_all - _MARGIN * added)


def _doubtful(columns: _Columns, priced: _Priced, phases: int) -> Ints:
    """The columns that may be worth it: those that cost little more than the best at these prices, of each phase."""
    each, by_job = _gains(columns, columns.cost, priced)
    more = np.round(each - by_job[columns.jobs], 3)
    kept = (priced.parts > 0) | ((more <= 0) & (by_job[columns.jobs] < 0))
    order = np.lexsort((columns.seconds / np.maximum(columns.nodes, 1), more))
    for phase in range(phases):
        kept[order[columns.first[order] == phase][:IN_DOUBT]] = True
    return np.flatnonzero(kept)


def _taken(
    columns: _Columns, rows: LinearConstraint, phases: int, priced: _Priced, seconds_left: Callable[[], float]
) -> Ints | None:
    """The columns of the best plan that was found; None without any."""
    rounded, searched = _rounded(columns, rows, phases, priced), None
    if rounded is None or columns.cost[rounded].sum() > (1 + GAP) * (columns.cost @ priced.parts):
        searched = _searched(columns, rows, phases, priced, seconds_left() / 2)
    plans = [each for each in (rounded, searched) if each is not None]
    return min(plans, key=lambda taken: float(columns.cost[taken].sum()), default=None)


def _rounded(columns: _Columns, rows: LinearConstraint, phases: int, priced: _Priced) -> Ints | None:
    """What the prices take wholly, and of the rest what is the cheapest for its nodes; nothing that is not needed."""
    each, _ = _gains(columns, columns.cost, priced)
    cells, width = rows.A.tocsc(), len(columns.jobs)
    frees, takes = cells[:phases].toarray(), cells[phases : 2 * phases].toarray()
    missing, left = rows.lb[:phases].copy(), rows.ub[phases : 2 * phases].copy()
    certain = priced.parts > _WHOLLY
    order = np.lexsort((each / np.maximum(columns.nodes, 1), ~certain))
    taken: list[int] = []
    gone: set[int] = set()
    for column in order.tolist():
        if np.all(missing <= 0):
            break
        job, own = int(columns.jobs[column]), takes[:, column]
        useful = np.any((frees[:, column] > 0) & (missing > 0))
        if job not in gone and useful and np.all(own <= left):
            taken.append(column)
            gone.add(job)
            missing -= frees[:, column]
            left -= own
    if np.any(missing > 0):
        return None
    for column in sorted(taken, key=lambda column: (-columns.cost[column], column)):
        if np.all(missing + frees[:, column] <= 0):
            taken.remove(column)
            missing += frees[:, column]
    return np.array(sorted(taken), dtype=np.int64) if width else None


def _searched(columns: _Columns, rows: LinearConstraint, phases: int, priced: _Priced, limit_s: float) -> Ints | None:
    """The plan that HiGHS finds over the columns in doubt."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    if limit_s <= 0:
        return None
    doubtful = _doubtful(columns, priced, phases)
    found = milp(
        columns.cost[doubtful],
        integrality=np.ones(len(doubtful)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(rows.A[:, doubtful], rows.lb, rows.ub),
        options={"time_limit": limit_s, "mip_rel_gap": GAP, "node_limit": MOST_NODES},
    )
    if found.x is None:
        return None
    taken = doubtful[np.flatnonzero(np.round(found.x))]
    values = np.zeros(len(columns.jobs))
    values[taken] = 1
    sums = rows.A @ values  # whole numbers: HiGHS keeps to its limits but for a rounding
    return taken if np.all(sums >= rows.lb) and np.all(sums <= rows.ub) else None


def _allocations(
    columns: _Columns, taken: Sequence[int], requests: Sequence[Request], limits: Sequence[int]
) -> list[Allocation]:
    """What each phase is given: a job leaves for the first one that uses a node of it, or not at all."""
    candidates = requests[0].problem.candidates
    leaves = {columns.options[at][0].job_id: (columns.options[at][1], int(columns.first[at])) for at in taken}
    ends = ends_of(requests[:1])
    left = {job.job_id: list(job.node_names) for job in candidates if job.job_id in {*leaves, *ends}}
    free, gone = list(requests[0].free_nodes), set[str]()
    found, written_s = [], 0
    for phase, request in enumerate(requests):
        going = [each for each in leaves.keys() - gone if leaves[each][1] <= phase]
        ending = [each for each, end in ends.items() if end.ready_s <= limits[phase] and each not in {*gone, *going}]
        going.sort(key=lambda job_id: (leaves[job_id][0].checkpoint_s, job_id))
        ending.sort(key=lambda job_id: (ends[job_id].ready_s, job_id))
        nodes, free = free[: request.nodes], free[request.nodes :]
        used, more = _used_up(left, (*sorted(gone), *going, *ending), request.nodes - len(nodes))
        nodes += more
        leaving = tuple([(job_id, leaves[job_id][0]) for job_id in sorted({*used} & {*going})])
        ended = tuple([(job_id, ends[job_id]) for job_id in sorted({*used} & {*ending})])
        gone |= {job_id for job_id, _ in leaving}
        written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
        done_s = max([written_s, *(ceil(option.ready_s) for _, option in ended)])
        found.append(Allocation(request.job_id, leaving, ended, tuple(sorted(nodes)), done_s))
    return found


def _used_up(left: dict[str, list[str]], jobs: Sequence[str], short: int) -> tuple[list[str], list[str]]:
    """So many nodes of these jobs, one job after another, which ``left`` has no more; the jobs, and the nodes."""
    used, nodes = [], list[str]()
    for job_id in jobs:
        some = left[job_id][: short - len(nodes)]
        if some:
            nodes += some
            left[job_id] = left[job_id][len(some) :]
            used.append(job_id)
    return used, nodes
