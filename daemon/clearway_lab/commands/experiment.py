"""``clearway lab experiment``: the papers' experiments again, each one command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from clearway.cli.options import BAD_INPUT, CommandGroup, errors
from clearway.model.errors import ClearwayError
from clearway_lab.commands.options import SweepOptions, open_sweep

experiment_app = CommandGroup("The papers' experiments again; each makes a report.")

Traces = Annotated[Path, typer.Option(help="Folder of the recorded workloads (Standard Workload Format).")]
Out = Annotated[Path, typer.Option(help="Folder for report.html and a table as CSV; created if absent.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of random sets of urgent jobs or promises.")]

_DAYS = 10  # random days for compaction


@experiment_app.command()
def cosim(out: Out) -> None:
    """Eviction plans: Figures 5 to 8 of the CoSim paper, three planners on random problems as it describes."""
    with _reports("cosim", out) as reports:
        reports.cosim(out)


@experiment_app.command()
def stochastic(out: Out, *, sweep: SweepOptions) -> None:
    """Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper, beside our values."""
    with _reports("stochastic", out) as reports, open_sweep(sweep) as workers:
        reports.stochastic(out, workers)


@experiment_app.command()
def urgent(traces: Traces, out: Out, seeds: Seeds = 3, *, sweep: SweepOptions) -> None:
    """Urgent jobs on recorded workloads: Figures 10 to 13, 16 and 17 and Table 2 of the UJFB paper, beside ours."""
    with _reports("urgent", out) as reports, open_sweep(sweep) as workers:
        reports.urgent(out, traces, seeds, workers)


@experiment_app.command()
def realtime(traces: Traces, out: Out, seeds: Seeds = 3, *, sweep: SweepOptions) -> None:
    """Real-time jobs among batch jobs: Figures 3 to 7 and Table 3 of the WCJS paper, with Clearway beside them."""
    with _reports("realtime", out) as reports, open_sweep(sweep) as workers:
        reports.realtime(out, traces, seeds, workers)


@experiment_app.command()
def compaction(
    out: Out,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random days of jobs.")] = _DAYS,
    *,
    sweep: SweepOptions,
) -> None:
    """Moving running jobs: Figures 3 and 4 and Table 2 of the Slurm+DMTCP paper, beside ours; simulation only."""
    with _reports("compaction", out) as reports, open_sweep(sweep) as workers:
        reports.compaction(out, seeds, workers)


@experiment_app.command()
def drain(
    traces: Traces,
    out: Out,
    seed: Annotated[int, typer.Option(help="Seed of the random times and nodes.")] = 0,
    *,
    sweep: SweepOptions,
) -> None:
    """Emptying nodes: the Slurm+DMTCP paper's comparison of waiting with moving jobs, on recorded workloads."""
    with _reports("drain", out) as reports, open_sweep(sweep) as workers:
        reports.drain(out, traces, seed, workers)


@experiment_app.command()
def promises(traces: Traces, out: Out, seeds: Seeds = 3, *, sweep: SweepOptions) -> None:
    """Nodes free at a promised time: a promise beside a plain reservation and reacting only, on recorded workloads."""
    with _reports("promises", out) as reports, open_sweep(sweep) as workers:
        reports.promises(out, traces, seeds, workers)


@experiment_app.command(name="all")
def every(traces: Traces, out: Out, seeds: Seeds = 3, *, sweep: SweepOptions) -> None:
    """All experiments, each in its own folder, and index.html with links to them."""
    with _reports("all", out) as reports:
        entries = reports.every(out, traces, seeds, _DAYS, sweep)
    if any(entry.missing for entry in entries):
        raise typer.Exit(BAD_INPUT)


@contextmanager
def _reports(experiment: str, out: Path) -> Iterator[ModuleType]:
    """A folder that cannot be written is an error at once; every error is one line."""
    with errors(BAD_INPUT, f"experiment {experiment}: "):
        try:
            out.mkdir(parents=True, exist_ok=True)
            from clearway_lab.commands import reports  # noqa: PLC0415 - the other Commands start quicker without

            yield reports
        except OSError as error:
            raise ClearwayError(f"{error.filename or out}: {error.strerror}") from None
