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

from clearway.model.problem import Option

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

    def of(self, options: Sequence[Option]) -> list[int]:
        lost = [self.units(option.lost_work_node_s) for option in options]
        if self.base == 1:
            return lost
        more = [(option.return_node_s + self.coarse // 2) // self.coarse for option in options]
        return [units * self.base + extra for units, extra in zip(lost, more, strict=True)]


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


def fitting_losses(candidates: Sequence[Sequence[Option]]) -> LostUnits:
    """For problems with these options of each candidate, of which at most one is taken."""
    options = [option for each in candidates for option in each]
    lost = fitting_units([option.lost_work_node_s for option in options])
    if min([option.return_node_s for option in options], default=0) < 0:
        raise ValueError("coming back must cost a number of node-seconds >= 0")
    most = [max([option.return_node_s for option in each], default=0) for each in candidates]
    if not any(most):
        return lost
    worst = 1 + sum(max([lost.units(option.lost_work_node_s) for option in each], default=0) for each in candidates)
    coarse = 1
    while True:
        base = 1 + sum((each + coarse // 2) // coarse for each in most)
        if base == 1 or worst * base * (len(candidates) + 1) * 2 <= _ROOM:
            return replace(lost, base=base, coarse=coarse)
        coarse *= 10
