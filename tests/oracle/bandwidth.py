"""Checkpoints on a shared file system, as a linear program and by playing them through."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

Rates = Mapping[int, float]


@dataclass(frozen=True)
class Writing:
    """MiB, the greatest MiB/s, and seconds until it may begin."""

    size_mib: float
    rate_mib_s: float
    from_s: float = 0.0


def random_writings(rng: random.Random, bandwidth_mib_s: float) -> list[Writing]:
    return [
        Writing(rng.uniform(1, 100), rng.choice((1.0, 0.5, 0.2, rng.uniform(0.05, 1))) * bandwidth_mib_s, wait_s)
        for _ in range(rng.randint(1, 7))
        for wait_s in (rng.choice((0.0, 0.0, rng.uniform(0, 20))),)
    ]


def cautious_s(writings: Sequence[Writing], bandwidth_mib_s: float) -> float:
    """What the planners keep to: data through the whole file system, and the longest rest."""
    whole = [each.size_mib / bandwidth_mib_s for each in writings]
    alone = [each.from_s + each.size_mib / each.rate_mib_s for each in writings]
    return sum(whole) + max(own - mine for own, mine in zip(alone, whole, strict=True))


def can_be_in_time(writings: Sequence[Writing], bandwidth_mib_s: float, deadline_s: float) -> bool:
    """Whether rates that are set at every moment could do it: what must be written after each begin fits."""
    if any(each.size_mib > each.rate_mib_s * (deadline_s - each.from_s) + 1e-9 for each in writings):
        return False
    for moment_s in {0.0, deadline_s, *(each.from_s for each in writings if each.from_s <= deadline_s)}:
        later_mib = sum(
            max(0.0, each.size_mib - each.rate_mib_s * max(0.0, moment_s - each.from_s)) for each in writings
        )
        if later_mib > bandwidth_mib_s * (deadline_s - moment_s) + 1e-9:
            return False
    return True


def least_s(writings: Sequence[Writing], bandwidth_mib_s: float) -> float:
    """The earliest deadline that set rates can meet, to a millionth."""
    low, high = 0.0, cautious_s(writings, bandwidth_mib_s) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if can_be_in_time(writings, bandwidth_mib_s, middle):
            high = middle
        else:
            low = middle
    return high


def program_s(writings: Sequence[Writing], bandwidth_mib_s: float) -> float:
    """The same as linear programs: MiB of each in each interval between begins; the last one as short as it can be.

    One program for each interval in which the deadline may lie; the first that has a solution.
    """
    begins = sorted({0.0, *(each.from_s for each in writings)})
    for last in range(len(begins)):
        # columns: MiB by writing and interval, then the length of the last interval
        count, intervals = len(writings), last + 1
        width = count * intervals + 1
        cost = np.zeros(width)
        cost[-1] = 1.0
        equal = np.zeros((count, width))
        rows, limits = [], []
        for interval in range(intervals):
            length_s = begins[interval + 1] - begins[interval] if interval < last else None
            total = np.zeros(width)
            for number, each in enumerate(writings):
                column = number * intervals + interval
                equal[number, column] = total[column] = 1.0
                row = np.zeros(width)
                row[column] = 1.0
                may = each.rate_mib_s if each.from_s <= begins[interval] else 0.0
                if length_s is None:
                    row[-1] = -may
                rows.append(row)
                limits.append(0.0 if length_s is None else may * length_s)
            if length_s is None:
                total[-1] = -bandwidth_mib_s
            rows.append(total)
            limits.append(0.0 if length_s is None else bandwidth_mib_s * length_s)
        longest = begins[last + 1] - begins[last] if last + 1 < len(begins) else None
        found = linprog(
            cost,
            A_ub=np.array(rows),
            b_ub=np.array(limits),
            A_eq=equal,
            b_eq=np.array([each.size_mib for each in writings]),
            bounds=[*[(0, None)] * (width - 1), (0, longest)],
        )
        if found.status == 0:
            return float(begins[last] + found.fun)
    raise AssertionError("all can be written after the last begin")


def played_s(
    writings: Sequence[Writing], bandwidth_mib_s: float, share: Callable[[Mapping[int, float]], Rates]
) -> float:
    """When all are complete; ``share`` sets rates for the greatest ones of those that write, at every change."""
    left = {number: each.size_mib for number, each in enumerate(writings)}
    now_s = 0.0
    while left:
        writing = [number for number in left if writings[number].from_s <= now_s]
        rates = share({number: writings[number].rate_mib_s for number in writing})
        full = sum(rates.values()) >= bandwidth_mib_s * (1 - 1e-9)
        for number, rate in rates.items():
            assert rate <= writings[number].rate_mib_s * (1 + 1e-9)
            assert full or rate >= writings[number].rate_mib_s * (1 - 1e-9), "it never idles"
        assert sum(rates.values()) <= bandwidth_mib_s * (1 + 1e-9)
        ends = [now_s + left[number] / rate for number, rate in rates.items() if rate > 0]
        begins = [each.from_s for each in writings if each.from_s > now_s]
        after_s = min(ends + begins)
        for number, rate in rates.items():
            left[number] -= rate * (after_s - now_s)
        left = {number: mib for number, mib in left.items() if mib > 1e-9}
        now_s = after_s
    return now_s


def in_order(order: Sequence[int], bandwidth_mib_s: float) -> Callable[[Mapping[int, float]], Rates]:
    """The first in order as fast as it can, the next with what that leaves ...: the most unequal sharing."""

    def share(greatest: Mapping[int, float]) -> Rates:
        rates, left_mib_s = {}, bandwidth_mib_s
        for number in order:
            if number in greatest:
                rates[number] = min(greatest[number], left_mib_s)
                left_mib_s -= rates[number]
        return rates

    return share
