"""What a cycle takes with 10,000 nodes, 10,000 running and 50,000 waiting jobs, beside splitting the same text.

Run with ``pytest tests/benchmarks/bench_many_jobs.py -s``. The daemon is a process of its own on a stand-in for Slurm's
commands (``large_slurm``); a cycle's time is that process's processor time, the least of three cycles, and is judged
beside the time of reading and splitting Slurm's text in the same run. The planning cycle, of which there is one, makes
and begins an eviction for one urgent job of 64 nodes, with every running job a candidate. What is above its limit is
measured again, three times at most.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.large_slurm import Cycled, Daemon, LargeSlurm, split_s

NODES, RUNNING, PENDING = 10_000, 10_000, 50_000
CHANGES = 500  # records of each kind between two cycles
CYCLES = 3
YARDSTICKS = 9
RUNS = 3
# Times the yardstick: a third above what was measured. The goals are 0.3 s for an idle cycle and 1 s for one that
# plans; the latter is reached on a quiet machine, and missed by some hundredths on one 1.3 times as slow.
MOST = {"idle": 1.75, "some records changed": 3.5, "all priorities changed": 17.5, "planning": 10.5}
MOST_MIB = 400.0


def test_records_that_have_not_changed_cost_little(tmp_path: Path) -> None:
    above = {*MOST, "memory"}
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        first, measured, yardstick_s = measure(folder)
        show(first, measured, yardstick_s)
        assert 3 * measured["idle"].seconds < first.seconds
        now = {what for what, took in measured.items() if took.seconds > MOST[what] * yardstick_s}
        now |= {"memory"} if measured["planning"].memory_mib > MOST_MIB else set()
        above &= now
        if not above:
            return
    pytest.fail(f"in {RUNS} runs above the limit: {above}")


def measure(folder: Path) -> tuple[Cycled, dict[str, Cycled], float]:
    """The first cycle, others by what has happened before them, and the yardstick in seconds."""
    slurm = LargeSlurm(folder, NODES, RUNNING, PENDING)
    daemon = Daemon(slurm)
    try:
        first = daemon.cycle()
        assert (first.jobs, first.nodes) == (RUNNING + PENDING, NODES)
        yardstick_s = min(split_s(folder) for _ in range(YARDSTICKS))

        def after(act: Callable[[], None]) -> Cycled:
            found = []
            for _ in range(CYCLES):
                act()
                found.append(daemon.cycle())
            return min(found, key=lambda each: each.seconds)

        measured = {
            "idle": after(lambda: None),
            "some records changed": after(lambda: slurm.change(CHANGES)),
            "all priorities changed": after(slurm.age),
        }
        slurm.submit_urgent()
        measured["planning"] = daemon.cycle()
    finally:
        daemon.close()
    assert measured["planning"].under_way == 1
    return first, measured, yardstick_s


def show(first: Cycled, measured: dict[str, Cycled], yardstick_s: float) -> None:
    table = Table(title=f"One cycle; the yardstick took {yardstick_s:.3f} s", title_justify="left")
    for heading in ("cycle", "s", "times the yardstick", "MiB at most"):
        table.add_column(heading)
    for what, took in {"first": first, **measured}.items():
        table.add_row(what, f"{took.seconds:.2f}", f"{took.seconds / yardstick_s:.2f}", f"{took.memory_mib:.0f}")
    Console(width=110).print(table)
