"""``clearway experiment``: the papers' experiments again, each one command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.cli.sweep_options import SweepOptions, open_sweep, sweeping
from clearway.model.errors import ClearwayError

experiment_app = typer.Typer(
    help="The papers' experiments again; each makes a report.", no_args_is_help=True, rich_markup_mode=None
)

Traces = Annotated[Path, typer.Option(help="Folder with the recorded workloads (Standard Workload Format).")]
Out = Annotated[Path, typer.Option(help="Folder for report.html and a table as CSV; made if absent.")]
Seeds = Annotated[int, typer.Option(min=1, help="Drawings of urgent jobs.")]

_DAYS = 10  # drawings for compaction


@experiment_app.command()
def cosim(out: Out) -> None:
    """Who makes room: Figures 5 to 8 of the CoSim paper, three planners on problems drawn as it describes."""
    with _errors("cosim", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        experiment_reports.cosim(out)


@experiment_app.command()
@sweeping
def stochastic(out: Out, sweep: SweepOptions) -> None:
    """Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper, beside our values."""
    with _errors("stochastic", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        with open_sweep(sweep) as workers:
            experiment_reports.stochastic(out, workers)


@experiment_app.command()
@sweeping
def urgent(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """Urgent jobs on recorded workloads: Figures 10 to 13, 16 and 17 and Table 2 of the UJFB paper, beside ours."""
    with _errors("urgent", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        with open_sweep(sweep) as workers:
            experiment_reports.urgent(out, traces, seeds, workers)


@experiment_app.command()
@sweeping
def realtime(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """Real-time jobs among batch jobs: Figures 3 to 7 and Table 3 of the WCJS paper, with Clearway beside them."""
    with _errors("realtime", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        with open_sweep(sweep) as workers:
            experiment_reports.realtime(out, traces, seeds, workers)


@experiment_app.command()
@sweeping
def compaction(
    out: Out, sweep: SweepOptions, seeds: Annotated[int, typer.Option(min=1, help="Drawings of a day's jobs.")] = _DAYS
) -> None:
    """Moving running jobs: Figures 3 and 4 and Table 2 of the Slurm+DMTCP paper, beside ours; simulation only."""
    with _errors("compaction", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        with open_sweep(sweep) as workers:
            experiment_reports.compaction(out, seeds, workers)


@experiment_app.command()
@sweeping
def drain(
    traces: Traces,
    out: Out,
    sweep: SweepOptions,
    seed: Annotated[int, typer.Option(help="Another seed draws other moments and nodes.")] = 0,
) -> None:
    """Emptying nodes: the Slurm+DMTCP paper's comparison of waiting with moving jobs, on recorded workloads."""
    with _errors("drain", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        with open_sweep(sweep) as workers:
            experiment_reports.drain(out, traces, seed, workers)


@experiment_app.command(name="all")
@sweeping
def every(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """All of them, each in a folder of its own, and index.html that leads to them."""
    with _errors("all", out):
        from clearway.cli import experiment_reports  # noqa: PLC0415 - the other commands start quicker without

        entries = experiment_reports.every(out, traces, seeds, _DAYS, sweep)
    if any(entry.missing for entry in entries):
        raise typer.Exit(BAD_INPUT)


@contextmanager
def _errors(experiment: str, out: Path) -> Iterator[None]:
    """A folder that cannot be written is found out at once; what cannot be done is one line."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, ClearwayError) as error:
        what = f"{error.filename or out}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"clearway: {render.visible(f'experiment {experiment}: {what}')}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
