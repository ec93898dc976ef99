"""Urgent jobs that come at busy times, as the UJFB paper injects them into a recorded workload (section III-B).

The workload is replayed first come, first served without them, which tells how busy the machine is when (the paper's
Figure 2). Of every 720 hours between the first and the last submission, one moment is drawn among those at which at
least 75 % of the nodes are held; periods without any get no urgent job. Each urgent job is one of the three of the
paper's Table 1, drawn too, of those that the machine can hold. The same seed draws the same jobs for
every scheduler.

The paper does not say where in a month its moments lie; here every second that is busy enough is as likely.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random

from clearway_lab.errors import SimulationError
from clearway_lab.schedulers.easy import Fcfs
from clearway_lab.simulator.engine import replay
from clearway_lab.simulator.machine import Machine
from clearway_lab.traces.trace import Trace, TraceJob

PERIOD_S = 720 * 3_600
BUSY = 0.75
TSUNAMI = ((128, 600), (256, 390), (512, 240))  # processors, seconds: Table 1


def held_nodes(trace: Trace, nodes: int) -> list[tuple[int, int]]:
    """When how many nodes are held: the second of each event, and the number from then on."""
    held: list[tuple[int, int]] = []

    def watch(machine: Machine) -> None:
        held.append((int(machine.now_s), machine.used))

    replay(trace.jobs, nodes, Fcfs(), observe=watch)
    return held


def urgent_jobs(
    trace: Trace, nodes: int, seed: int, processors_per_node: int = 1, *, held: Sequence[tuple[int, int]] | None = None
) -> tuple[TraceJob, ...]:
    """The urgent jobs to add to a trace that counts nodes of so many processors; their ids follow its largest.

    ``held``: what ``held_nodes`` says of them, where that is known.

    Raises:
        SimulationError: the machine is smaller than every urgent job.
    """
    sizes = [(-(-processors // processors_per_node), run_s) for processors, run_s in TSUNAMI]
    choices = [(size, run_s) for size, run_s in sizes if size <= nodes]
    if not choices:
        raise SimulationError(
            f"no urgent job to inject fits {nodes:,} nodes: the smallest asks for {TSUNAMI[0][0]} processors"
        )
    used = held_nodes(trace, nodes) if held is None else held
    rng = Random(f"urgent-{trace.name}-{seed}")  # noqa: S311 - a simulation, not a secret
    first_s, last_s = trace.jobs[0].submit_s, trace.jobs[-1].submit_s
    next_id = max(job.job_id for job in trace.jobs) + 1
    drawn: list[TraceJob] = []
    for begin_s in range(first_s, last_s + 1, PERIOD_S):
        busy = _busy(used, begin_s, min(begin_s + PERIOD_S, last_s + 1), BUSY * nodes)
        if not busy:
            continue
        lengths = list(accumulate(end_s - start_s for start_s, end_s in busy))
        second = rng.randrange(lengths[-1])
        place = bisect_right(lengths, second)
        submit_s = busy[place][1] - (lengths[place] - second)
        size, run_s = rng.choice(choices)
        drawn.append(TraceJob(next_id + len(drawn), submit_s, run_s, size, requested_s=run_s, urgent=True))
    return tuple(drawn)


def _busy(used: Sequence[tuple[int, int]], begin_s: int, end_s: int, least: float) -> list[tuple[int, int]]:
    """The stretches of a period in which at least so many nodes are held."""
    stretches = [
        (max(at_s, begin_s), min(until_s, end_s))
        for (at_s, held), (until_s, _) in pairwise(used)
        if held >= least and at_s < end_s and until_s > begin_s
    ]
    return [(start_s, stop_s) for start_s, stop_s in stretches if stop_s > start_s]
