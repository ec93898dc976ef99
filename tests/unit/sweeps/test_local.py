"""Sweeps on this machine: the order of answers, errors, and that no process is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway_lab.errors import TraceError
from clearway_lab.sweeps.local import Answered, Sweep, Task, local_workers

T = TypeVar("T")


class Shuffled:
    """Workers that finish in another order."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def answers(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
        for place in self.order:
            yield place, function(*tasks[place])


@given(st.integers(0, 12).flatmap(lambda count: st.permutations(range(count))))
def test_answers_are_in_the_order_of_the_tasks_whoever_finishes_first(order: list[int]) -> None:
    told: list[Answered] = []
    sweep = Sweep(Shuffled(order), told.append)
    assert sweep(pow, [(place, 2) for place in range(len(order))], str) == [n * n for n in range(len(order))]
    assert [(each.done, each.total) for each in told] == [(done, len(order)) for done in range(1, len(order) + 1)]
    assert [each.what for each in told] == [str(place * place) for place in order]


@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_the_longest_begin_first_and_a_task_counts_for_as_much_as_it_weighs(
    data: st.DataObject, weights: list[int]
) -> None:
    longest_first = sorted(enumerate(weights), key=lambda task: (-task[1], task[0]))  # those alike as they come
    order = data.draw(st.permutations(range(len(weights))))
    told: list[Answered] = []
    tasks = [(place, weight) for place, weight in enumerate(weights)]
    answers = Sweep(Shuffled(order), told.append)(_pair, tasks, str, lambda task: task[1])
    assert answers == tasks
    assert [each.what for each in told] == [str(longest_first[place]) for place in order]
    done = list(accumulate(longest_first[place][1] for place in order))
    assert [each.share for each in told] == pytest.approx([each / done[-1] for each in done])


def _pair(place: int, weight: int) -> Task:
    return place, weight


def test_workers_look_for_cycles_seldom_and_this_process_as_before() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        with local_workers(1) as workers:
            [(_, after)] = workers.answers(gc.get_threshold, [()])
        assert after[0] >= 7_000
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)  # other tests, and what they import, may have set it


def with_all_others(folder: str, workers: int) -> int:
    """This process, when as many as there are workers have a task each."""
    Path(folder, str(os.getpid())).touch()
    assert _within(120, lambda: len(list(Path(folder).iterdir())) == workers)
    return os.getpid()


def test_processes_share_the_tasks(tmp_path: Path) -> None:
    with local_workers(3) as workers:
        found = Sweep(workers)(with_all_others, [(str(tmp_path), 3)] * 6, str)
    assert len(found) == 6
    assert len(set(found)) == 3
    assert os.getpid() not in found


def fails(_: int) -> None:
    raise TraceError("line 3 is broken")


def test_an_error_of_a_task_is_raised_and_nobody_waits_for_the_others() -> None:
    before = time.monotonic()
    with pytest.raises(TraceError, match="line 3"), local_workers(2) as workers:
        Sweep(workers)(_either, [(1,), (280,), (280,)], str)
    assert time.monotonic() - before < 140


def _either(seconds: float) -> None:
    if seconds == 1:
        fails(0)
    time.sleep(seconds)


LONG = """\
import sys, time
from pathlib import Path
from typing import TypeVar
from clearway_lab.commands.options import SweepOptions, open_sweep
from tests.unit.sweeps.test_local import signed
with open_sweep(SweepOptions(processes=2)) as sweep:
    sweep(signed, [(sys.argv[1],)] * 2, str)
"""


def signed(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(300)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_the_sweep_however_it_ends(number: signal.Signals, tmp_path: Path) -> None:
    # Tests that were themselves started in the background ignore Ctrl-C, and so would what they start.
    command = ["env", "--default-signal", sys.executable, "-c", LONG, str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert _within(120, lambda: len(list(tmp_path.iterdir())) == 2)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        process.send_signal(number)
        assert process.wait(120) != 0
        assert _within(120, lambda: not any(map(_runs, workers)))
    finally:
        process.kill()
        process.wait()


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _within(limit_s: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
