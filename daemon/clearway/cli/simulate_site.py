"""``clearway simulate --config``: what Clearway would have done with the jobs in a site's accounting."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group
from rich.text import Text

from clearway.cli import render
from clearway.cli.options import complain
from clearway.cli.simulate import replayed_trace, tell_left_out
from clearway.cli.sweep_options import ReplayOptions, SweepOptions, each_done
from clearway.config import plugins
from clearway.config.configuration import Config, load_config
from clearway.experiments.site_study import (
    RULES,
    SiteRun,
    UrgentJobs,
    evaluate,
    find_urgent,
    mark_urgent,
    schedulers,
    untold,
)
from clearway.model.errors import SimulationError
from clearway.simulation.engine import Scheduler, replay
from clearway.simulation.traces import sacct
from clearway.simulation.traces.trace import Trace, ran
from clearway.slurm.process import Commands

_SACCT_TIMEOUT_S = 600.0  # months of a busy site
_WORTH_A_BAR = 1_000  # jobs: wherever an urgent one waits, every event is a decision


def simulate_site(asked: ReplayOptions, settings: Path, sweep: SweepOptions, output: str) -> None:
    """Replay and print.

    Raises:
        ClearwayError: with one line that says which file, command or setting cannot be used.
    """
    config = load_config(settings)
    # The configured one first; of a rule that is the configured one there is no second run.
    names = dict.fromkeys((config.planning.planner, *RULES))
    planners = [(name, plugins.load(plugins.PLANNERS, name)) for name in names]
    trace = _record(asked, config)
    urgent = find_urgent(trace, config.preemptors)
    nodes = asked.nodes or _nodes(asked, config)
    tell_left_out(trace, nodes)
    marked = mark_urgent(trace, urgent)
    given = (marked, urgent, nodes, asked.seed)
    tasks = {course[0]: (*given, *course) for course in schedulers(marked, config, planners)}
    sweep = replace(sweep, quiet=sweep.quiet or output == "json")
    runs = each_done(sweep, _run, tasks, lambda run: run.name, len(trace.jobs), _WORTH_A_BAR)
    if output == "json":
        own = {"urgent_jobs": urgent.by_rule(), "limits": list(untold(config)), "runs": [run.as_json() for run in runs]}
        render.print_json(replayed_trace(trace, nodes) | own)
        return
    for line in untold(config):
        complain(line)
    render.console().print(_page(trace, nodes, urgent, runs))


def _run(
    trace: Trace, urgent: UrgentJobs, nodes: int, seed: int, name: str, planner: str | None, scheduler: Scheduler,
    tick: Callable[[int], None] | None = None,
) -> SiteRun:  # fmt: skip
    replayed = replay(trace.jobs, nodes, scheduler, seed=seed, progress=tick)
    return evaluate(name, planner, replayed, urgent)


def _commands(config: Config) -> Commands:
    return Commands(timeout_s=_SACCT_TIMEOUT_S, slurm_conf=str(config.slurm.conf) if config.slurm.conf else None)


def _record(asked: ReplayOptions, config: Config) -> Trace:
    if asked.trace is not None:
        return sacct.read_sacct(asked.trace)
    start, end = asked.from_sacct or ("", "")
    answer = _commands(config).run(sacct.command(start, end), env=sacct.ENVIRONMENT)
    name = f"{start} to {end}"
    return ran(sacct.parse_sacct(answer.split("\n"), name), f"sacct, {name}")


def _nodes(asked: ReplayOptions, config: Config) -> int:
    if asked.trace is not None:
        raise SimulationError(f"{asked.trace} does not say how large the machine is; give --nodes")
    answer = _commands(config).run(("sinfo", "--all", "--Node", "--noheader", "--format=%N"))
    nodes = len(set(answer.split()))  # a line for each partition of a node
    if not nodes:
        raise SimulationError("sinfo knows no node; give --nodes")
    return nodes


def _page(trace: Trace, nodes: int, urgent: UrgentJobs, runs: Sequence[SiteRun]) -> Group:
    rules = ", ".join(f"{count:,} by {name}" for name, count in urgent.by_rule().items())
    head = f"{trace.name}: {len(trace.jobs):,} jobs on {nodes:,} nodes; urgent: {rules}"
    planner = next((run.planner for run in runs if run.name == "clearway"), None)
    columns: render.Columns = {
        "run": lambda run: run.name,
        ">wait": lambda run: _short(run.urgent_wait_s.mean / 60),
        ">p95": lambda run: _short(run.urgent_wait_s.p95 / 60),
        ">longest": lambda run: _short(run.urgent_wait_s.largest / 60),
        ">late": lambda run: f"{run.late:,}",
        ">others": lambda run: "-" if run.other_wait_s is None else _short(run.other_wait_s.mean / 60),
        ">lost h": lambda run: _short(run.lost_node_h),
        ">jobs hit": lambda run: f"{run.preempted_jobs:,}",
    }
    made = render.listing(runs, columns, "Waiting of urgent jobs, and of the others, in minutes; node-hours lost")
    by_name = f"clearway plans by {planner}, the runs below it by their names"
    return Group(Text(render.visible(head)), Text(by_name), Text(), made)


def _short(value: float) -> str:
    """One decimal where it says something: the table has to fit 80 columns."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
