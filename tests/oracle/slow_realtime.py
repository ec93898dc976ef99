"""The WCJS paper's rules again, second by second, from its text: for a few jobs and small times only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations

from clearway_lab.traces.trace import TraceJob
from tests.oracle.slow_schedulers import Slow, easy

THRESHOLD = 1.2
MOST_SLOWDOWN = {False: 10.0, True: 4.0}  # short, long: all jobs here are narrow


def wfp(now: int, waiting: list[Slow]) -> list[Slow]:
    return sorted(
        waiting, key=lambda each: (-(((now - each.job.submit_s) / each.limit) ** 3) * each.size, each.job.job_id)
    )


def replayed(jobs: Sequence[TraceJob], nodes: int, rule: str, transfer_s: int = 0) -> dict[int, tuple[int, int]]:
    """First start and end of each job under ``wfp``, ``high-priority`` or ``weighted-cost`` with just-in-time saves."""
    slow = [Slow(job) for job in jobs]
    promised: list[Slow] = []
    now = 0
    while any(each.end is None for each in slow):
        happened = any(each.job.submit_s == now for each in slow)
        for each in slow:
            if each.status == "running" and now - each.until >= each.job.run_s - each.done:
                each.status, each.end, happened = "ended", now, True
            elif each.status == "leaving" and each.until == now:
                each.status, happened = "waiting", True
            late = _slowdown(each, now - 1) <= THRESHOLD < _slowdown(each, now)  # since this second
            happened = happened or (rule == "weighted-cost" and each.job.urgent and late)
        if happened:
            first = [each for each in slow if each.status == "waiting" and each.job.submit_s <= now and each.job.urgent]
            if rule == "high-priority":
                for each in wfp(now, first):
                    _start_if(each.size <= _free(slow, nodes), each, now)
            elif rule == "weighted-cost":
                first = [each for each in first if _slowdown(each, now) > THRESHOLD]
                for each in sorted(wfp(now, first), key=lambda each: (-_slowdown(each, now), each.job.job_id)):
                    _weigh(each, now, slow, nodes, transfer_s, promised)
            else:
                first = []
            if not any(each.status == "waiting" for each in first):
                waiting = [each for each in slow if each.status == "waiting" and each.job.submit_s <= now]
                left = [_left(each) for each in wfp(now, waiting)]
                by_id = {each.job.job_id: each for each in waiting}
                for each in easy(now, left, _holders(slow, now), nodes):
                    _start_if(True, by_id[each.job.job_id], now)
        now += 1
    return {each.job.job_id: (each.start or 0, each.end or 0) for each in slow}


def _weigh(job: Slow, now: int, slow: list[Slow], nodes: int, transfer_s: int, promised: list[Slow]) -> None:
    """Algorithm 2 for one urgent job."""
    if job in promised:
        if job.size <= _free(slow, nodes):
            promised.remove(job)
            _start_if(True, job, now)
        return
    leaving = sum(each.size for each in slow if each.status == "leaving")
    spoken_for = sum(each.size for each in promised)
    missing = job.size - (_free(slow, nodes) + leaving - spoken_for)
    if missing > 0:
        eligible = [
            each
            for each in slow
            if each.status == "running"
            and not each.job.urgent
            and each.size <= job.size
            and 1 + _waited(each, now) / each.limit <= MOST_SLOWDOWN[each.limit > 7_200]
        ]
        sets = chain.from_iterable(combinations(eligible, count) for count in range(1, len(eligible) + 1))
        enough = [chosen for chosen in sets if sum(each.size for each in chosen) >= missing]
        if not enough:
            return
        for each in min(enough, key=lambda chosen: _key(chosen, now)):
            each.done += max(0, now - each.until)
            each.status, each.until, each.back_s = "leaving", now + transfer_s, transfer_s
        promised.append(job)
    elif job.size <= _free(slow, nodes) - max(0, spoken_for - leaving):
        _start_if(True, job, now)
    else:
        promised.append(job)


def _key(chosen: Sequence[Slow], now: int) -> tuple[float, int, list[str]]:
    scores = [
        round(each.size * (1 + _waited(each, now) / each.limit) * (1 + _worked(each, now) / each.limit), 3)
        for each in chosen
    ]
    return round(sum(scores), 3), len(chosen), sorted(str(each.job.job_id) for each in chosen)


def _worked(each: Slow, now: int) -> int:
    return each.done + max(0, now - each.until)


def _waited(each: Slow, now: int) -> int:
    return now - each.job.submit_s - _worked(each, now)


def _slowdown(each: Slow, now: int) -> float:
    return 1 + (now - each.job.submit_s) / each.limit


def _free(slow: list[Slow], nodes: int) -> int:
    return nodes - sum(each.size for each in slow if each.status in ("running", "leaving"))


def _holders(slow: list[Slow], now: int) -> list[Slow]:
    """Whoever has nodes, with a start from which its limit counts."""
    holders = []
    for each in slow:
        if each.status == "running":
            holders.append(Slow(each.job, start=each.until - each.done))
        elif each.status == "leaving":
            holders.append(Slow(each.job, start=now + each.back_s - each.done))
    return holders


def _left(each: Slow) -> Slow:
    """A waiting job as one that has never run and has only the rest of its limit, and its way back, before it."""
    return Slow(replace(each.job, run_s=1, requested_s=each.back_s + each.limit - each.done))


def _start_if(fits: bool, each: Slow, now: int) -> None:
    if fits:
        each.status, each.until = "running", now + each.back_s
        each.start = now if each.start is None else each.start
