"""``clearway simulate --config``: what Clearway would have done with the jobs in a site's accounting."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.text import Text

from clearway.cli import render
from clearway.cli.simulate import progress_bar, replayed_trace, tell_left_out
from clearway.cli.sweep_options import SweepOptions, alone, open_sweep
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteQuestion:
    """A period, or a file with what sacct has answered; ``nodes`` None: as many as Slurm has now."""

    config: Path
    file: Path | None = None
    period: tuple[str, str] | None = None
    nodes: int | None = None
    seed: int = 0


def simulate_site(question: SiteQuestion, sweep: SweepOptions, output: str) -> None:
    """Replay and print.

    Raises:
        ClearwayError: with one line that says which file, command or setting cannot be used.
    """
    config = load_config(question.config)
    # The configured one first; of a rule that is the configured one there is no second run.
    names = dict.fromkeys((config.planning.planner, *RULES))
    planners = [(name, plugins.load(plugins.PLANNERS, name)) for name in names]
    trace = _record(question, config)
    urgent = find_urgent(trace, config.preemptors)
    nodes = question.nodes or _nodes(question, config)
    tell_left_out(trace, nodes)
    record = _Record(mark_urgent(trace, urgent), urgent, nodes, question.seed)
    courses = tuple(schedulers(record.trace, config, planners))
    if alone(sweep, len(courses)):
        runs = []
        for course in courses:
            with progress_bar(course[0], len(trace.jobs), _WORTH_A_BAR) as tick:
                runs.append(_run(record, *course, tick))
    else:
        with open_sweep(sweep, len(courses), quiet=True) as workers:
            runs = workers(_run, [(record, *course) for course in courses], lambda run: run.name)
    if output == "json":
        own = {"urgent_jobs": urgent.by_rule(), "limits": list(untold(config)), "runs": [run.as_json() for run in runs]}
        render.print_json(replayed_trace(trace, nodes) | own)
        return
    for line in untold(config):
        print(f"clearway: {line}", file=sys.stderr)
    render.console().print(_page(trace, nodes, urgent, runs))


@dataclass(frozen=True, slots=True)
class _Record:
    """What every run replays."""

    trace: Trace
    urgent: UrgentJobs
    nodes: int
    seed: int


def _run(
    record: _Record, name: str, planner: str | None, scheduler: Scheduler, tick: Callable[[int], None] | None = None
) -> SiteRun:
    replayed = replay(record.trace.jobs, record.nodes, scheduler, seed=record.seed, progress=tick)
    return evaluate(name, planner, replayed, record.urgent)


def _commands(config: Config) -> Commands:
    return Commands(timeout_s=_SACCT_TIMEOUT_S, slurm_conf=str(config.slurm.conf) if config.slurm.conf else None)


def _record(question: SiteQuestion, config: Config) -> Trace:
    if question.file is not None:
        return sacct.read_sacct(question.file)
    start, end = question.period or ("", "")
    answer = _commands(config).run(sacct.command(start, end), env=sacct.ENVIRONMENT)
    name = f"{start} to {end}"
    return ran(sacct.parse_sacct(answer.split("\n"), name), f"sacct, {name}")


def _nodes(question: SiteQuestion, config: Config) -> int:
    if question.file is not None:
        raise SimulationError(f"{question.file} does not say how large the machine is; give --nodes")
    answer = _commands(config).run(("sinfo", "--all", "--Node", "--noheader", "--format=%N"))
    nodes = len(set(answer.split()))  # a line for each partition of a node
    if not nodes:
        raise SimulationError("sinfo knows no node; give --nodes")
    return nodes


def _page(trace: Trace, nodes: int, urgent: UrgentJobs, runs: list[SiteRun]) -> Group:
    rules = ", ".join(f"{count:,} by {name}" for name, count in urgent.by_rule().items())
    head = f"{trace.name}: {len(trace.jobs):,} jobs on {nodes:,} nodes; urgent: {rules}"
    planner = next((run.planner for run in runs if run.name == "clearway"), None)
    numbers = ("wait", "p95", "longest", "late", "others", "lost h", "jobs hit")
    title = "Waiting of urgent jobs, and of the others, in minutes; node-hours lost"
    made = render.table("run", *numbers, title=title, right=numbers)
    for run in runs:
        wait = run.urgent_wait_s
        made.add_row(
            run.name,
            *(_short(value / 60) for value in (wait.mean, wait.p95, wait.largest)),
            f"{run.late:,}",
            "-" if run.other_wait_s is None else _short(run.other_wait_s.mean / 60),
            _short(run.lost_node_h),
            f"{run.preempted_jobs:,}",
        )
    return Group(
        Text(render.visible(head)), Text(f"clearway plans by {planner}, the runs below it by their names"), Text(), made
    )


def _short(value: float) -> str:
    """One decimal where it says something: the table has to fit 80 columns."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
