"""How fast recorded workloads are replayed, in how much memory, beside AccaSim and a plain loop; in processor time.

Run with ``pytest tests/benchmarks/bench_simulation.py -s``. Needs the traces (see ``trace_problems``).
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearway_lab.schedulers.easy import Easy, Fcfs
from clearway_lab.simulator.engine import Scheduler, replay
from clearway_lab.simulator.measures import measure
from clearway_lab.traces.swf import read_swf
from clearway_lab.traces.trace import Trace
from tests.benchmarks.accasim_rules import AccaSimEasy, run_accasim
from tests.oracle.plain_easy import plain_easy
from tests.traces import FOLDER, recorded

YEARS = (  # file, records, processors, allowed seconds of processor time, reading included
    ("SDSC-DS-2004-2.1-cln.swf.xz", 96_069, 1_664, 20.0),  # 2 on a quiet machine
    ("LANL-CM5-1994-4.1-cln.swf.xz", 122_060, 1_024, 30.0),  # 3
)
MOST_MIB = 1_024
TIMES_ACCASIM = 10  # about 30 on a quiet machine
TRIES = 3
TIMES_PLAIN = 0.92  # 1.02 (busy machine) to 1.15; 0.90 once was; the loop knows no nodes, preemption or accounts
FEWEST_PAIRS, MOST_PAIRS = 5, 25
TIMES_PLAIN_ALL = 2_400  # all experiments with one seed, in plain loops over KTH-SP2: the sum of the parts is 1,500
AGREES = 0.01
KTH, KTH_NODES = "KTH-SP2-1996-2.1-cln.swf.xz", 100

_MEASURE = """
import re, sys, time
from pathlib import Path
from clearway_lab.simulator.engine import replay
from clearway_lab.schedulers.easy import Easy
from clearway_lab.traces.swf import read_swf
begin = time.process_time()
trace = read_swf(Path(sys.argv[1]))
done = replay(trace.jobs, int(sys.argv[2]), Easy())
assert len(done.outcomes) == len(trace.jobs)
spent_s = time.process_time() - begin
with open("/proc/self/status") as status:  # getrusage would tell the parent's, which this process began as
    peak_mib = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) / 1024
print(len(trace.jobs) + trace.never_ran, spent_s, peak_mib)
"""


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("name", "records", "nodes", "allowed_s"), YEARS)
def test_a_year_under_easy(name: str, records: int, nodes: int, allowed_s: float) -> None:
    command = [sys.executable, "-c", _MEASURE, *map(str, recorded(name)), str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, spent_s, peak_mib = map(float, done.stdout.split())
    print(f"{name}: {count:,.0f} records in {spent_s:.2f} s, {peak_mib:.0f} MiB")
    assert count == records
    assert spent_s < allowed_s
    assert peak_mib < MOST_MIB


def replayed(trace: Trace, scheduler: Scheduler) -> tuple[float, float, float]:
    """Mean wait, mean slowdown, seconds of processor time."""
    begin = time.process_time()
    done = replay(trace.jobs, KTH_NODES, scheduler)
    spent_s = time.process_time() - begin
    spreads = measure(done).jobs["all"][1]
    return spreads["wait_s"].mean, spreads["slowdown"].mean, spent_s


@pytest.mark.timeout(900)
def test_fcfs_agrees_with_accasim(tmp_path: Path) -> None:
    trace = read_swf(*recorded(KTH))
    theirs = run_accasim(trace, KTH_NODES, "fcfs", tmp_path)
    wait_s, slowdown, spent_s = replayed(trace, Fcfs())
    print(
        f"FCFS: mean wait {wait_s:,.2f} s, AccaSim {theirs.wait_s:,.2f}; {theirs.spent_s / spent_s:.0f} times as fast"
    )
    assert wait_s == pytest.approx(theirs.wait_s, rel=AGREES)
    assert slowdown == pytest.approx(theirs.slowdown, rel=AGREES)


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_easy_is_ten_times_as_fast_as_accasims_and_agrees_by_its_rules(tmp_path: Path) -> None:
    """The usual EASY differs from AccaSim's, which does not keep to its reservation: ``accasim_rules`` says how."""
    trace = read_swf(*recorded(KTH))
    theirs = run_accasim(trace, KTH_NODES, "easy", tmp_path)
    wait_s, slowdown, _ = replayed(trace, AccaSimEasy())
    found = [replayed(trace, Easy()) for _ in range(TRIES)]
    usual_s, spent_s = found[0][0], min(each[2] for each in found)  # a neighbour's disturbance only adds
    print(
        f"EASY: mean wait {usual_s:,.2f} s; by AccaSim's rules {wait_s:,.2f} s, AccaSim {theirs.wait_s:,.2f} s; "
        f"{len(trace.jobs) / spent_s:,.0f} jobs/s, AccaSim {len(trace.jobs) / theirs.spent_s:,.0f}"
    )
    assert wait_s == pytest.approx(theirs.wait_s, rel=AGREES)
    assert slowdown == pytest.approx(theirs.slowdown, rel=AGREES)
    assert theirs.spent_s / spent_s >= TIMES_ACCASIM


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_easy_is_about_as_fast_as_a_plain_loop_and_starts_every_job_at_the_same_second() -> None:
    """Pairs in one process, in processor time, the best of each: a neighbour only adds to a time.

    There are more pairs while the bound is missed, so that a moment's disturbance is outlasted and a slower engine not.
    """
    trace = read_swf(*recorded(KTH))
    spent_s = plain_s = float("inf")
    for pair in range(MOST_PAIRS):
        begin = time.process_time()
        done = replay(trace.jobs, KTH_NODES, Easy())
        middle = time.process_time()
        starts = plain_easy(trace.jobs, KTH_NODES)
        spent_s, plain_s = min(spent_s, middle - begin), min(plain_s, time.process_time() - middle)
        if pair >= FEWEST_PAIRS and plain_s / spent_s >= TIMES_PLAIN:
            break
    jobs = len(trace.jobs)
    print(
        f"EASY: {jobs / spent_s:,.0f} jobs/s, plain loop {jobs / plain_s:,.0f}; {plain_s / spent_s:.2f} times as fast"
    )
    assert {outcome.job.job_id: outcome.start_s for outcome in done.outcomes} == starts
    assert plain_s / spent_s >= TIMES_PLAIN


@pytest.mark.timeout(1_800)
def test_all_experiments_take_minutes_of_processor_time(tmp_path: Path) -> None:
    """In plain loops over KTH-SP2, before and after, so that the machine's speed does not matter."""
    trace = read_swf(*recorded(KTH))
    plain_s = [plain_time(trace)]
    before_s = children_s()
    asked = [
        "lab",
        "experiment",
        "all",
        "--traces",
        str(FOLDER),
        "--out",
        str(tmp_path),
        "--seeds",
        "1",
        "--processes",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "from clearway.cli.app import main; main()", *asked],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    spent_s = children_s() - before_s
    plain_s.append(plain_time(trace))
    loops = spent_s / max(plain_s)
    print(f"experiment all --seeds 1: {spent_s:,.0f} s of processor time, {loops:,.0f} plain loops\n{done.stderr}")
    assert (tmp_path / "index.html").exists()
    assert loops <= TIMES_PLAIN_ALL


def plain_time(trace: Trace) -> float:
    spent_s = []
    for _ in range(TRIES):
        begin = time.process_time()
        plain_easy(trace.jobs, KTH_NODES)
        spent_s.append(time.process_time() - begin)
    return min(spent_s)


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
