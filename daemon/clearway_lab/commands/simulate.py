"""``clearway lab simulate``: a recorded workload under other schedulers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from clearway.cli import render
from clearway.cli.options import complain
from clearway.config import plugins
from clearway_lab.commands.options import ReplayOptions, SweepOptions, each_done
from clearway_lab.errors import SimulationError
from clearway_lab.schedulers import GROUP
from clearway_lab.simulator.engine import Scheduler, replay
from clearway_lab.simulator.measures import Measures, Spread, measure
from clearway_lab.studies.injection import urgent_jobs
from clearway_lab.traces.sacct import read_sacct
from clearway_lab.traces.swf import read_swf, write_swf
from clearway_lab.traces.trace import Trace

_BROKEN_SHOWN = 5
_NO_DECIMALS_FROM = 1_000
_WORTH_A_BAR = 20_000  # jobs: fewer are done before a bar could be read


def simulate(asked: ReplayOptions, sweep: SweepOptions, output: str) -> None:
    """Replay and print. Programs that ask for JSON get no progress.

    Raises:
        ClearwayError: with one line that says which file, scheduler or number cannot be used.
    """
    for name in asked.schedulers:
        _scheduler(name)
    trace, nodes = _read(asked)
    tell_left_out(trace, nodes)
    if asked.save_swf is not None:
        _save(asked, asked.save_swf)
    tasks = {name: (asked, name) for name in asked.schedulers}
    sweep = replace(sweep, quiet=sweep.quiet or output == "json")
    found = each_done(sweep, _replayed, tasks, lambda each: each.scheduler, len(trace.jobs), _WORTH_A_BAR)
    if output == "json":
        render.print_json(replayed_trace(trace, nodes) | {"schedulers": [each.as_json() for each in found]})
    else:
        render.console().print(_page(trace, nodes, found))


def _recorded(asked: ReplayOptions) -> Trace:
    file = asked.trace or Path()
    return read_sacct(file) if asked.sacct else read_swf(file)


def _save(asked: ReplayOptions, path: Path) -> None:
    try:
        with path.open("x", encoding="utf-8") as out:  # never over an existing file
            write_swf(_recorded(asked), out)
    except OSError as error:
        raise SimulationError(f"cannot write {path}: {error.strerror}") from None


@lru_cache(maxsize=1)
def _read(asked: ReplayOptions) -> tuple[Trace, int]:
    """The jobs as they are replayed, and the nodes; once in every process."""
    trace = _recorded(asked)
    nodes = asked.nodes
    if nodes is None:
        if trace.size is None:
            raise SimulationError(f"{asked.trace} does not say how large the machine is; give --nodes")
        nodes = -(-trace.size // asked.processors_per_node)
    trace = trace.on_nodes(asked.processors_per_node)
    if asked.exact_limits:
        trace = trace.with_exact_limits()
    if asked.urgent_queue:
        trace = trace.with_urgent_queues(asked.urgent_queue)
        if not any(job.urgent for job in trace.jobs):
            queues = sorted({job.queue for job in trace.jobs})
            known = ", ".join(
                f"{each} ({trace.queues[each]})" if each in trace.queues else str(each) for each in queues
            )
            raise SimulationError(f"no job is in the queue {', '.join(asked.urgent_queue)}; there are {known}")
    if asked.inject_urgent:
        trace = trace.with_jobs(urgent_jobs(trace, nodes, asked.seed, asked.processors_per_node))
    return trace, nodes


def _scheduler(name: str) -> Scheduler:
    made: Scheduler = plugins.load(GROUP, name)()
    return made


def _replayed(asked: ReplayOptions, name: str, tick: Callable[[int], None] | None = None) -> Measures:
    trace, nodes = _read(asked)
    return measure(replay(trace.jobs, nodes, _scheduler(name), seed=asked.seed, progress=tick))


def tell_left_out(trace: Trace, nodes: int) -> None:
    """What of the record is not replayed, on standard error.

    Raises:
        SimulationError: nothing is left.
    """
    smallest = min(job.size for job in trace.jobs)
    if smallest > nodes:
        raise SimulationError(f"{trace.name}: no job fits {nodes:,} nodes; the smallest asks for {smallest:,}")
    lines = [f"{trace.name}: {line}; left out" for line in trace.broken[:_BROKEN_SHOWN]]
    if len(trace.broken) > _BROKEN_SHOWN:
        lines.append(f"{trace.name}: {len(trace.broken):,} lines are broken in all")
    if trace.never_ran:
        lines.append(f"{trace.name}: {trace.never_ran:,} jobs never ran; left out")
    too_large = sum(job.size > nodes for job in trace.jobs)
    if too_large:
        lines.append(f"{trace.name}: {too_large:,} jobs are larger than {nodes:,} nodes; left out")
    for line in lines:
        complain(line)


def replayed_trace(trace: Trace, nodes: int) -> dict[str, Any]:
    """What was replayed, for programs."""
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "never_ran": trace.never_ran,
        "broken_lines": [{"line": line.number, "why": line.why} for line in trace.broken],
        "too_large": sum(job.size > nodes for job in trace.jobs),
        "nodes": nodes,
    }


def _page(trace: Trace, nodes: int, found: Sequence[Measures]) -> Group:
    replayed = sum(job.size <= nodes for job in trace.jobs)
    title = f"{trace.name}: {replayed:,} jobs, {nodes:,} nodes; means, times in hours"
    numbers = (">jobs", ">wait", ">response", ">slowdown", ">p95", ">bounded")
    jobs = render.table("scheduler", "of", *numbers, title=title)
    jobs.collapse_padding = True  # seven-digit slowdowns fit 80 columns
    for each in found:
        for name, (count, spreads) in each.jobs.items():
            if name != "all" or len(each.jobs) == 1 or "urgent" not in each.jobs:
                jobs.add_row(each.scheduler, name, f"{count:,}", *_cells(spreads))
    columns: render.Columns = {
        "scheduler": lambda each: each.scheduler,
        ">used": lambda each: f"{each.utilisation:.1%}",
        ">productive": lambda each: f"{each.productive_utilisation:.1%}",
        ">preempted": lambda each: f"{each.preemptions:,}",
        ">lost h": lambda each: f"{each.lost_node_h:,.1f}",
        ">saved h": lambda each: f"{each.saved_node_h:,.1f}",
        ">lateness": lambda each: "-" if each.urgent_lateness is None else f"{each.urgent_lateness:,.2f}",
    }
    title = "The machine; preemptions, node-hours lost and saved, Urgent Lateness"
    return Group(jobs, Text(), render.listing(found, columns, title))


def _cells(spreads: dict[str, Spread]) -> tuple[str, ...]:
    hours = [spreads[name].mean / 3_600 for name in ("wait_s", "response_s")]
    slowdown, bounded = spreads["slowdown"], spreads["bounded_slowdown"]
    return tuple(map(_short, (*hours, slowdown.mean, slowdown.p95, bounded.mean)))


def _short(value: float) -> str:
    return f"{value:,.2f}" if value < _NO_DECIMALS_FROM else f"{value:,.0f}"
