"""``clearway experiment``: the papers' experiments again, each one command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.cli.sweep_options import SweepOptions, open_sweep, sweeping, tell
from clearway.errors import ClearwayError
from clearway.sweeps.base import Sweep

experiment_app = typer.Typer(
    help="The papers' experiments again; each makes a report.", no_args_is_help=True, rich_markup_mode=None
)

Traces = Annotated[Path, typer.Option(help="Folder with the recorded workloads (Standard Workload Format).")]
Out = Annotated[Path, typer.Option(help="Folder for report.html and a table as CSV; made if absent.")]
Seeds = Annotated[int, typer.Option(min=1, help="Drawings of urgent jobs.")]

_DAYS = 10  # drawings for compaction
_PATIENCE_S = 10.0  # for one answer of the exhaustive search


@experiment_app.command()
def cosim(out: Out) -> None:
    """Who makes room: Figures 5 to 8 of the CoSim paper, three planners on problems drawn as it describes."""
    with _errors("cosim", out):
        _cosim(out)


@experiment_app.command()
@sweeping
def stochastic(out: Out, sweep: SweepOptions) -> None:
    """Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper, beside our values."""
    with _errors("stochastic", out), open_sweep(sweep) as workers:
        _stochastic(out, workers)


@experiment_app.command()
@sweeping
def urgent(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """Urgent jobs on recorded workloads: Figures 10 to 13, 16 and 17 and Table 2 of the UJFB paper, beside ours."""
    with _errors("urgent", out), open_sweep(sweep) as workers:
        _urgent(out, traces, seeds, workers)


@experiment_app.command()
@sweeping
def realtime(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """Real-time jobs among batch jobs: Figures 3 to 7 and Table 3 of the WCJS paper, with Clearway beside them."""
    with _errors("realtime", out), open_sweep(sweep) as workers:
        _realtime(out, traces, seeds, workers)


@experiment_app.command()
@sweeping
def compaction(
    out: Out, sweep: SweepOptions, seeds: Annotated[int, typer.Option(min=1, help="Drawings of a day's jobs.")] = _DAYS
) -> None:
    """Moving running jobs: Figures 3 and 4 and Table 2 of the Slurm+DMTCP paper, beside ours; simulation only."""
    with _errors("compaction", out), open_sweep(sweep) as workers:
        _compaction(out, seeds, workers)


@experiment_app.command()
@sweeping
def drain(
    traces: Traces,
    out: Out,
    sweep: SweepOptions,
    seed: Annotated[int, typer.Option(help="Another seed draws other moments and nodes.")] = 0,
) -> None:
    """Emptying nodes: the Slurm+DMTCP paper's comparison of waiting with moving jobs, on recorded workloads."""
    with _errors("drain", out), open_sweep(sweep) as workers:
        _drain(out, traces, seed, workers)


@experiment_app.command(name="all")
@sweeping
def every(traces: Traces, out: Out, sweep: SweepOptions, seeds: Seeds = 3) -> None:
    """All of them, each in a folder of its own."""
    with _errors("all", out):
        _cosim(out / "cosim")  # it takes times, so nothing else computes meanwhile
        with open_sweep(sweep) as workers:
            _stochastic(out / "stochastic", workers)
            _compaction(out / "compaction", _DAYS, workers)
            _drain(out / "drain", traces, 0, workers)
            _urgent(out / "urgent", traces, seeds, workers)
            _realtime(out / "realtime", traces, seeds, workers)


def _cosim(out: Path) -> None:
    from clearway.simulation.cosim_report import as_csv, as_html  # noqa: PLC0415 - the other commands start quicker
    from clearway.simulation.cosim_study import study  # noqa: PLC0415 - likewise

    made = study(tell, patience_s=_PATIENCE_S)
    _write(out, {"report.html": as_html(made), "cosim.csv": as_csv(made)})


def _stochastic(out: Path, sweep: Sweep) -> None:
    from clearway.walltime.study import study  # noqa: PLC0415 - see _cosim
    from clearway.walltime.study_report import as_csv, as_html  # noqa: PLC0415 - likewise

    made = study(sweep)
    _write(out, {"report.html": as_html(made), "table2.csv": as_csv(made)})


def _compaction(out: Path, seeds: int, sweep: Sweep) -> None:
    from clearway.simulation.compaction_report import as_csv, as_html  # noqa: PLC0415 - see _cosim
    from clearway.simulation.compaction_study import study  # noqa: PLC0415 - likewise

    made = study(seeds, sweep)
    _write(out, {"report.html": as_html(made), "compaction.csv": as_csv(made)})


def _drain(out: Path, traces: Path, seed: int, sweep: Sweep) -> None:
    from clearway.simulation.drain_report import as_csv, as_html  # noqa: PLC0415 - see _cosim
    from clearway.simulation.drain_study import study  # noqa: PLC0415 - likewise

    made = study(traces, sweep, seed=seed)
    _write(out, {"report.html": as_html(made), "drain.csv": as_csv(made)})


def _urgent(out: Path, traces: Path, seeds: int, sweep: Sweep) -> None:
    from clearway.simulation.urgent_report import as_csv, as_html  # noqa: PLC0415 - see _cosim
    from clearway.simulation.urgent_study import study  # noqa: PLC0415 - likewise

    made = study(traces, seeds, sweep)
    _write(out, {"report.html": as_html(made), "urgent.csv": as_csv(made)})


def _realtime(out: Path, traces: Path, seeds: int, sweep: Sweep) -> None:
    from clearway.simulation.realtime_report import as_csv, as_html  # noqa: PLC0415 - see _cosim
    from clearway.simulation.realtime_study import study  # noqa: PLC0415 - likewise

    made = study(traces, seeds, sweep)
    _write(out, {"report.html": as_html(made), "realtime.csv": as_csv(made)})


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


def _write(out: Path, texts: Mapping[str, str]) -> None:
    """Texts by file name."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    print(render.visible(str(out / "report.html")), flush=True)
