"""How long Theorem 2's dynamic program takes, and how that grows.

Run with ``pytest tests/benchmarks/bench_walltime.py -s``. All nine distributions, checkpoints of a minute, six
minutes and an hour: the last is the hard case, where few checkpoints pay and many states stay open. Processor
time, within limits for a quiet machine: where the yardstick takes longer than on one, as much longer is allowed, and
what takes too long is tried again, twice at most.
"""

from __future__ import annotations

import math
import time

import pytest
from rich.console import Console
from rich.table import Table

from clearway.walltime.distributions import FAMILIES, Continuous, continuous
from clearway.walltime.request_sequence import Costs, Strategy, dynamic
from tests.benchmarks.yardstick import Pace

TRIES = 3
LIMITS_S = {1_000: 1.0, 5_000: 30.0}


def spent(times: Continuous, costs: Costs, count: int) -> tuple[float, float]:
    """Seconds, and how many times slower than a quiet one the machine is."""
    pace = Pace(time.process_time, arrays=True)
    pace.take()
    begin = time.process_time()
    dynamic(times, costs, Strategy.DYN_PROG_COUNT, count)
    spent_s = time.process_time() - begin
    pace.take()
    return spent_s, pace.slower


@pytest.mark.timeout(1_800)
def test_the_dynamic_program_is_fast() -> None:
    table = Table(title="Theorem 2, seconds of one core", title_justify="left")
    for heading in ("", "C = R", *(f"n = {n:,}" for n in LIMITS_S), "grows as n^"):
        table.add_column(heading, justify="right")
    for name, paper in FAMILIES.items():
        times = continuous(name, paper, 3_600.0)
        for overhead_s in (60.0, 360.0, 3_600.0):
            taken: list[float] = []
            for count, limit_s in LIMITS_S.items():
                spent_s, allowed_s = math.inf, 0.0
                for _ in range(TRIES):
                    if spent_s >= allowed_s:
                        spent_s, slower = spent(times, Costs(overhead_s, overhead_s), count)
                        allowed_s = limit_s * slower
                assert spent_s < allowed_s, (name, overhead_s, count)
                taken.append(spent_s)
            growth = math.log(taken[1] / taken[0]) / math.log(5)
            table.add_row(name, f"{overhead_s:.0f} s", *(f"{each:.3f}" for each in taken), f"{growth:.2f}")
    Console(width=100).print(table)
