"""The simulator's schedulers again, second by second and with nothing remembered that can be counted anew.

Slow, and written from the definitions: a machine is a number of nodes, time goes 0, 1, 2 ..., and at every second
each rule looks at all jobs. Only for a few jobs and small times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from clearway_lab.traces.trace import TraceJob

Swap = Callable[[int], tuple[int, int]]  # job_id: seconds out and in


@dataclass
class Slow:
    job: TraceJob
    start: int | None = None
    place: int | None = None  # where conservative backfilling has put it
    # of UJFB: what it has computed, where it is, and what it spends before it computes
    done: int = 0
    end: int | None = None
    status: str = "waiting"
    nodes: list[int] = field(default_factory=list)
    until: int = 0  # swapping until then
    back_s: int = 0

    @property
    def size(self) -> int:
        return self.job.size

    @property
    def limit(self) -> int:
        return self.job.limit_s


Rule = Callable[[int, list[Slow], list[Slow], int], list[Slow]]


def starts(jobs: Sequence[TraceJob], nodes: int, rule: Rule) -> dict[int, int]:
    """When each job starts, by job_id."""
    slow = [Slow(job) for job in jobs]
    now = 0
    while any(each.start is None for each in slow):
        waiting = [each for each in slow if each.start is None and each.job.submit_s <= now]
        running = [each for each in slow if each.start is not None and now < each.start + each.job.run_s]
        for each in rule(now, waiting, running, nodes):
            each.start = now
        now += 1
    return {each.job.job_id: each.start for each in slow if each.start is not None}


def fcfs(_now: int, waiting: list[Slow], running: list[Slow], nodes: int) -> list[Slow]:
    free, started = nodes - sum(each.size for each in running), []
    for each in waiting:
        if each.size > free:
            break
        free -= each.size
        started.append(each)
    return started


def ujf(now: int, waiting: list[Slow], running: list[Slow], nodes: int) -> list[Slow]:
    return fcfs(now, sorted(waiting, key=lambda each: not each.job.urgent), running, nodes)


def easy(now: int, waiting: list[Slow], running: list[Slow], nodes: int) -> list[Slow]:
    return _backfilled(now, waiting, running, nodes, lambda rest: rest)


def sjf_backfill(now: int, waiting: list[Slow], running: list[Slow], nodes: int) -> list[Slow]:
    return _backfilled(now, waiting, running, nodes, lambda rest: sorted(rest, key=lambda each: each.limit))


def _backfilled(
    now: int, waiting: list[Slow], running: list[Slow], nodes: int, order: Callable[[list[Slow]], list[Slow]]
) -> list[Slow]:
    """Who overtakes must leave the first job's start, as far as limits tell, where it is."""
    started = fcfs(now, waiting, running, nodes)
    rest = waiting[len(started) :]
    if not rest:
        return started
    ends = [(each.size, (now if each.start is None else each.start) + each.limit) for each in [*running, *started]]

    def head_starts(holders: list[tuple[int, int]]) -> int:
        second = now
        while nodes - sum(size for size, end in holders if end > second) < rest[0].size:
            second += 1
        return second

    for each in order(rest[1:]):
        fits = each.size <= nodes - sum(size for size, end in ends)
        if fits and head_starts([*ends, (each.size, now + each.limit)]) <= head_starts(ends):
            ends.append((each.size, now + each.limit))
            started.append(each)
    return started


class Conservative:
    """Places are kept; when a job has ended before its limit each in turn is moved to the earliest that it finds."""

    def __init__(self) -> None:
        self.known: list[Slow] = []

    def __call__(self, now: int, waiting: list[Slow], running: list[Slow], nodes: int) -> list[Slow]:
        holders = [(each.start or 0, (each.start or 0) + each.limit, each.size) for each in running]
        gone = [each for each in self.known if each not in running]
        early = any((each.start or 0) + each.limit > now for each in gone)
        moved = [each for each in waiting if early and each.place is not None]
        for each in [*moved, *(each for each in waiting if each.place is None)]:
            each.place = _earliest(now, each, holders + _places(waiting, each), nodes)
        begun = [each for each in waiting if each.place == now]
        self.known = [*running, *begun]
        return begun


def _places(waiting: list[Slow], but: Slow) -> list[tuple[int, int, int]]:
    placed = [each for each in waiting if each is not but and each.place is not None]
    return [(each.place or 0, (each.place or 0) + each.limit, each.size) for each in placed]


def _earliest(now: int, job: Slow, holders: list[tuple[int, int, int]], nodes: int) -> int:
    second = now
    while any(
        nodes - sum(size for begin, end, size in holders if begin <= at < end) < job.size
        for at in range(second, second + job.limit)
    ):
        second += 1
    return second


def ujfb(jobs: Sequence[TraceJob], nodes: int, swap: Swap) -> dict[int, tuple[int, int]]:
    """First start and end of each job, by job_id; limits are exact."""
    slow = [Slow(job) for job in jobs]
    kept: dict[int, Slow] = {}
    kept_free: list[int] = []
    free = list(range(nodes))
    urgent: list[Slow] = []
    now = 0
    while any(each.end is None for each in slow):
        for each in slow:
            if each.status == "running" and now - each.until >= each.job.run_s - each.done:
                each.status, each.end = "ended", now
                for node in each.nodes:
                    (kept_free if node in kept else free).append(node)
            elif each.status == "leaving" and each.until == now:
                each.status = "suspended"
                kept |= dict.fromkeys(each.nodes, each)
                kept_free += each.nodes
        urgent += [each for each in slow if each.job.urgent and each.job.submit_s == now]
        urgent.sort(key=lambda one: (one.limit, one.job.job_id))
        while urgent and urgent[0].size <= len(free) + len(kept_free):
            first = urgent.pop(0)
            _begin(first, now, [(kept_free or free).pop(0) for _ in range(first.size)])
        wanted = 0
        for each in urgent:
            wanted += each.size
            leaving = sum(other.size for other in slow if other.status == "leaving")
            missing = wanted - len(free) - len(kept_free) - leaving
            regular = [other for other in slow if other.status == "running" and not other.job.urgent]
            if missing > sum(other.size for other in regular):
                break
            for other in sorted(regular, key=lambda one: (-_left(one, now), -one.job.job_id)):
                if missing > 0:
                    missing -= other.size
                    out_s, other.back_s = swap(other.job.job_id)
                    other.done += max(0, now - other.until)
                    other.status, other.until = "leaving", now + out_s
        if not urgent and not any(each.status == "leaving" for each in slow):
            for each in slow:
                if each.status == "suspended" and all(node in kept_free for node in each.nodes):
                    for node in each.nodes:
                        kept_free.remove(node)
                        del kept[node]
                    _begin(each, now, each.nodes)
            waiting = [e for e in slow if e.status == "waiting" and not e.job.urgent and e.job.submit_s <= now]
            places = _holders(slow, kept, now)
            for each in waiting:
                second = _earliest(now, each, places, nodes)
                places.append((second, second + each.limit, each.size))
                if second == now:
                    _begin(each, now, [free.pop(0) for _ in range(each.size)])
        now += 1
    return {each.job.job_id: (each.start or 0, each.end or 0) for each in slow}


def clearway(
    jobs: Sequence[TraceJob], nodes: int, swap: Swap, *, shortest_overtakes: bool
) -> dict[int, tuple[int, int]]:
    """First start and end of each job, by job_id; limits are exact. All is looked at whenever something happens."""
    slow = [Slow(job) for job in jobs]
    free = list(range(nodes))
    favoured: Slow | None = None  # the urgent job that others leave for
    leavers: list[Slow] = []  # who they are
    now = 0
    while any(each.end is None for each in slow):
        happened = any(each.job.submit_s == now for each in slow)
        for each in slow:
            if each.status == "running" and now - each.until >= each.job.run_s - each.done:
                each.status, each.end, happened = "ended", now, True
            elif each.status == "leaving" and each.until == now:
                each.status, happened = "suspended", True
        if happened:
            favoured, leavers = _clearway_at(now, slow, free, favoured, leavers, swap, shortest_overtakes)
        now += 1
    return {each.job.job_id: (each.start or 0, each.end or 0) for each in slow}


def _clearway_at(
    now: int,
    slow: list[Slow],
    every: list[int],
    favoured: Slow | None,
    leavers: list[Slow],
    swap: Swap,
    shortest_overtakes: bool,
) -> tuple[Slow | None, list[Slow]]:
    def here(*statuses: str) -> list[Slow]:
        return [each for each in slow if each.status in statuses]

    def free() -> list[int]:
        used = {node for each in here("running", "leaving", "suspended") for node in each.nodes}
        return [node for node in every if node not in used]

    def left_behind() -> list[int]:
        """Of those who left for the favoured job: what nobody computes on."""
        used = {node for each in here("running", "leaving") for node in each.nodes}
        return [node for each in leavers if each.status == "suspended" for node in each.nodes if node not in used]

    def waiting_urgent() -> list[Slow]:
        there = [each for each in here("waiting") if each.job.urgent and each.job.submit_s <= now]
        return sorted(there, key=lambda one: (one is not favoured, one.limit, one.job.job_id))

    while (urgent := waiting_urgent()) and urgent[0].size <= len(free()) + len(left_behind()):
        _begin(urgent[0], now, [*left_behind(), *free()][: urgent[0].size])
        favoured, leavers = None, []
    if favoured is not None:
        if here("leaving"):
            return favoured, leavers
        favoured, leavers = None, []
    for each in sorted(here("suspended"), key=lambda one: (one.until, one.job.job_id)):
        used = {node for other in here("running") for node in other.nodes}
        if not used & set(each.nodes):
            _begin(each, now, each.nodes)
    _overtake(now, slow, waiting_urgent(), free, shortest_overtakes)
    urgent = waiting_urgent()
    regular = [each for each in here("running") if not each.job.urgent]
    wanted = sum(each.size for each in urgent)
    if not urgent or wanted > len(free()) + sum(each.size for each in regular):
        return None, []
    # The nodes of jobs on their way out are as good as free: the job that they left for has started elsewhere.
    missing = urgent[0].size - len(free()) - sum(each.size for each in here("leaving"))
    enough = (
        chosen
        for count in range(len(regular) + 1)
        for chosen in combinations(regular, count)
        if sum(each.size for each in chosen) >= missing
    )
    best = min(enough, key=lambda chosen: (len(chosen), sorted(str(each.job.job_id) for each in chosen)))
    for each in best:
        out_s, each.back_s = swap(each.job.job_id)
        each.done += max(0, now - each.until)
        each.status, each.until = "leaving", now + out_s
    return urgent[0], list(best)


def _overtake(
    now: int, slow: list[Slow], urgent: list[Slow], free: Callable[[], list[int]], shortest_overtakes: bool
) -> None:
    """Backfilling around the first job of the queue, urgent jobs before all others."""
    regular = [e for e in slow if e.status == "waiting" and not e.job.urgent and e.job.submit_s <= now]
    queue = [*urgent, *regular]
    while queue and queue[0].size <= len(free()):
        first = queue.pop(0)
        _begin(first, now, free()[: first.size])
    if not queue:
        return
    head, rest = queue[0], queue[1:]
    if shortest_overtakes:
        rest.sort(key=lambda one: (not one.job.urgent, one.limit))

    def head_starts(more: Sequence[tuple[int, int]] = ()) -> int:
        second = now
        ends = [(end, size) for _, end, size in _all_holders(slow, now)] + list(more)
        while len(free()) + sum(size for end, size in ends if end <= second) - sum(s for _, s in more) < head.size:
            second += 1
        return second

    for each in rest:
        if each.size <= len(free()) and head_starts([(now + each.limit, each.size)]) <= head_starts():
            _begin(each, now, free()[: each.size])


def _all_holders(slow: list[Slow], now: int) -> list[tuple[int, int, int]]:
    """Who holds how many nodes until when; those on the nodes of a suspended job, or of one on its way out, do not."""
    away = [each for each in slow if each.status in {"suspended", "leaving"}]
    kept = {node: each for each in slow if each.status == "suspended" for node in each.nodes}
    running = [each for each in slow if each.status == "running"]
    holders = [(now, now + _left(each, now), sum(node not in kept for node in each.nodes)) for each in running]
    for each in away:
        back = max((now + _left(one, now) for one in running if set(one.nodes) & set(each.nodes)), default=now)
        done = each.done
        holders.append((now, back + each.back_s + each.job.run_s - done, each.size))
    return holders


def _begin(each: Slow, now: int, nodes: list[int]) -> None:
    each.status, each.nodes, each.until = "running", nodes, now + each.back_s
    each.start = now if each.start is None else each.start


def _left(each: Slow, now: int) -> int:
    """Until its end, with what it still swaps."""
    return max(each.until, now) - now + each.job.run_s - each.done - max(0, now - each.until)


def _holders(slow: list[Slow], kept: dict[int, Slow], now: int) -> list[tuple[int, int, int]]:
    """Who holds how many nodes until when, of those that no suspended job keeps; and the suspended jobs."""
    running = [each for each in slow if each.status == "running"]
    holders = [(now, now + _left(each, now), sum(node not in kept for node in each.nodes)) for each in running]
    for each in slow:
        if each.status == "suspended":
            back = max((now + _left(one, now) for one in running if set(one.nodes) & set(each.nodes)), default=now)
            holders.append((now, back + each.back_s + each.job.run_s - each.done, each.size))
    return holders
