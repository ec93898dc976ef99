"""What a cycle takes with 10,000 nodes, 10,000 running and 50,000 waiting jobs, beside splitting the same text.

Run with ``pytest tests/benchmarks/bench_many_jobs.py -s``. The daemon is a process of its own on a stand-in for Slurm's
commands (``large_slurm``); a cycle's time is that process's processor time, the least of three cycles, and is judged
beside the time of reading and splitting Slurm's text in the same run. The planning cycle makes and begins an eviction
for one urgent job of 64 nodes, with every running job a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.large_slurm import Cycled, Daemon, LargeSlurm, split_s

NODES, RUNNING, PENDING = 10_000, 10_000, 50_000
CHANGES = 500  # records of each kind between two cycles
CYCLES = 3
# Times the yardstick. As on the landed code; the goals of 0.3 s and 1 s are still to be reached.
MOST = {"idle": 6.0, "some records changed": 8.0, "all priorities changed": 24.0}
MOST_MIB = 460.0


def test_records_that_have_not_changed_cost_little(tmp_path: Path) -> None:
    slurm = LargeSlurm(tmp_path, NODES, RUNNING, PENDING)
    daemon = Daemon(slurm)
    try:
        first = daemon.cycle()
        assert (first.jobs, first.nodes) == (RUNNING + PENDING, NODES)
        yardstick_s = min(split_s(tmp_path) for _ in range(CYCLES))

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
        planning = daemon.cycle()
    finally:
        daemon.close()
    table = Table(title=f"One cycle; the yardstick took {yardstick_s:.3f} s", title_justify="left")
    for heading in ("cycle", "s", "times the yardstick", "MiB at most"):
        table.add_column(heading)
    for what, took in {"first": first, **measured, "planning": planning}.items():
        table.add_row(what, f"{took.seconds:.2f}", f"{took.seconds / yardstick_s:.1f}", f"{took.memory_mib:.0f}")
    Console(width=110).print(table)
    assert planning.under_way == 1
    for what, took in measured.items():
        assert took.seconds < MOST[what] * yardstick_s, what
        assert 3 * took.seconds < first.seconds or what != "idle"
    assert planning.memory_mib < MOST_MIB
