"""Lost work as whole numbers, so that sums are exact and ties are ties.

Model: floats such as 0.1 + 0.2 and 0.3 differ in their last bit, which would decide between equally good plans. Lost
work is therefore counted in units of 10**-decimals node-seconds, with as many decimals as the numbers have in their
shortest decimal form, nine at most. Numbers with more are rounded to the finest unit with which all sums of a problem
still fit into 62 bits.

What coming back costs is the next key. Both are one number, ``lost x base + return``, where no sum of returns reaches
``base``: whatever adds and compares lost work keeps to both keys. Where sums would exceed 62 bits, returns are counted
in tens, hundreds ... of node-seconds; lost work never is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

_MOST_DECIMALS = 9
_ROOM = 1 << 62


@dataclass(frozen=True, slots=True)
class LostUnits:
    """Turns lost work into whole units and back; with the return of options into one whole number each."""

    decimals: int
    base: int = 1  # 1: no return is counted
    coarse: int = 1  # node-seconds of return that count as one

    def units(self, lost_work_node_s: float) -> int:
        return round(Decimal(str(lost_work_node_s)).scaleb(self.decimals)) if self.decimals else round(lost_work_node_s)

    def node_s(self, units: int) -> float:
        """Node-seconds; whole numbers stay integers when every number of the problem is whole."""
        return units / 10**self.decimals if self.decimals else units


def fitting_units(lost_work_node_s: Sequence[float]) -> LostUnits:
    """The coarsest unit in which all these numbers are whole, or the finest that is still safe."""
    for value in lost_work_node_s:
        if not 0 <= value < math.inf:
            raise ValueError(f"lost work must be a finite number of node-seconds, not {value!r}")
    fractions = [value for value in lost_work_node_s if value % 1]
    if not fractions:
        return LostUnits(0)
    decimals = max(-int(Decimal(str(value)).as_tuple().exponent) for value in fractions)
    if decimals > _MOST_DECIMALS:
        largest_key = (sum(lost_work_node_s) + 1) * (len(lost_work_node_s) + 1) * 2
        decimals = min(_MOST_DECIMALS, max(0, math.floor(math.log10(_ROOM / largest_key))))
    return LostUnits(decimals)


def in_units(candidates: Sequence[Sequence[tuple[float, int]]]) -> tuple[LostUnits, list[int]]:
    """The unit for lost work and return of all options, at most one of each candidate taken; and every option in it."""
    lost = fitting_units([lost_node_s for each in candidates for lost_node_s, _ in each])
    if min([back for each in candidates for _, back in each], default=0) < 0:
        raise ValueError("coming back must cost a number of node-seconds >= 0")
    units = [[lost.units(lost_node_s) for lost_node_s, _ in each] for each in candidates]
    most = [max([back for _, back in each], default=0) for each in candidates]
    worst, coarse = 1 + sum([max(each, default=0) for each in units]), 1
    while True:
        half = coarse // 2
        base = 1 + sum([(each + half) // coarse for each in most])
        if base == 1 or worst * base * (len(candidates) + 1) * 2 <= _ROOM:
            break
        coarse *= 10
    both = zip(units, candidates, strict=True)
    numbers = [
        unit * base + (back + half) // coarse for some, each in both for unit, (_, back) in zip(some, each, strict=True)
    ]
    return replace(lost, base=base, coarse=coarse), numbers
