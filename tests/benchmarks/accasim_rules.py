"""AccaSim 1.1.3 beside the simulator: how it is started here, and its EASY's rules on our engine.

AccaSim (MIT, on PyPI) is an independent published simulator of workloads. It was written for Python 3.4: the names that
newer versions of Python and numpy have moved are put back before it is imported, in a process of its own.

Its EASY differs from the usual one in two ways, which its source shows (``EASYBackfilling.scheduling_method``): it
backfills with an empty list of reserved nodes, so every job that fits now overtakes, whether or not that delays the
first; and the first job's reservation, once made, is kept, and the job not tried before that time comes, though nodes
may have become free. ``AccaSimEasy`` has these two rules and is otherwise ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from clearway_lab.schedulers.easy import Easy
from clearway_lab.simulator.machine import ReplayedJob
from clearway_lab.traces.swf import write_swf
from clearway_lab.traces.trace import Trace

_START = """
import collections, collections.abc, json, re, sys, time
import numpy
for name in ("Mapping", "MutableMapping", "Sequence", "Iterable", "Callable"):
    setattr(collections, name, getattr(collections.abc, name))
for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
    setattr(numpy, name, kind)
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
from accasim.base.simulator_class import Simulator
scheduler = {"fcfs": FirstInFirstOut, "easy": EASYBackfilling}[sys.argv[1]](FirstFit())
simulator = Simulator("log.swf", "machine.json", scheduler, scheduling_output=False, statistics_output=False)
begin = time.process_time()
simulator.start_simulation()
print("spent", time.process_time() - begin)
"""


@dataclass(frozen=True, slots=True)
class AccaSimRun:
    wait_s: float  # mean
    slowdown: float  # mean
    spent_s: float  # processor time of the simulation alone


def run_accasim(trace: Trace, nodes: int, scheduler: str, folder: Path) -> AccaSimRun:
    """The same jobs on nodes of one processor; every limit is at least the run time, as in our replay."""
    with (folder / "log.swf").open("w") as log:
        write_swf(replace(trace, jobs=tuple(replace(job, requested_s=job.limit_s) for job in trace.jobs)), log)
    machine = {"groups": {"node": {"core": 1}}, "resources": {"node": nodes}}
    (folder / "machine.json").write_text(json.dumps(machine))
    command = [sys.executable, "-c", _START, scheduler]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr

    def number(after: str) -> float:
        return float(said.partition(after)[2].split()[0])

    return AccaSimRun(number("Avg. waiting times:"), number("Avg. slowdown:"), number("spent"))


class AccaSimEasy(Easy):
    """EASY by AccaSim's two rules."""

    name = "accasim-easy"

    def __init__(self) -> None:
        super().__init__()
        self.blocked: ReplayedJob | None = None

    def schedule(self) -> None:
        machine, queue = self.machine, self.queue
        if self.blocked is not None and self.shadow_s <= machine.now_s and self.blocked.size <= len(machine.free):
            machine.start(self.blocked)
            queue.remove(self.blocked)
            self.blocked = None
        while self.blocked is None and queue:
            if queue[0].size > len(machine.free):
                self.blocked = queue[0]
                self.shadow_s, _ = self.reservation(self.blocked)
            else:
                machine.start(queue.pop(0))
        for job in queue[1:]:
            if job.size <= len(machine.free):
                machine.start(job)
                queue.remove(job)
