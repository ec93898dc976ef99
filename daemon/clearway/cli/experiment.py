"""``clearway experiment``: the papers' experiments again, each one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.errors import ClearwayError

experiment_app = typer.Typer(
    help="The papers' experiments again; each makes a report.", no_args_is_help=True, rich_markup_mode=None
)

Traces = Annotated[Path, typer.Option(help="Folder with the recorded workloads (Standard Workload Format).")]
Out = Annotated[Path, typer.Option(help="Folder for report.html and a table as CSV; made if absent.")]
Seeds = Annotated[int, typer.Option(min=1, help="Drawings of urgent jobs.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Processes at once; else one for each processor.")]

_PATIENCE_S = 10.0  # for one answer of the exhaustive search


@experiment_app.command()
def cosim(out: Out) -> None:
    """Who makes room: Figures 5 to 8 of the CoSim paper, three planners on problems drawn as it describes."""
    from clearway.simulation.cosim_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.cosim_study import study  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(_tell, patience_s=_PATIENCE_S)
        return {"report.html": as_html(made), "cosim.csv": as_csv(made)}

    _write("cosim", out, texts)


@experiment_app.command()
def stochastic(out: Out) -> None:
    """Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper, beside our values."""
    from clearway.walltime.study import study  # noqa: PLC0415 - the other commands start quicker without
    from clearway.walltime.study_report import as_csv, as_html  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(lambda part: _tell(f"{part} ..."))
        return {"report.html": as_html(made), "table2.csv": as_csv(made)}

    _write("stochastic", out, texts)


@experiment_app.command()
def urgent(traces: Traces, out: Out, seeds: Seeds = 3, processes: Processes = None) -> None:
    """Urgent jobs on recorded workloads: Figures 10 to 13, 16 and 17 and Table 2 of the UJFB paper, beside ours."""
    from clearway.simulation.urgent_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.urgent_study import study  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(traces, seeds, processes or os.cpu_count() or 1, _tell)
        return {"report.html": as_html(made), "urgent.csv": as_csv(made)}

    _write("urgent", out, texts)


@experiment_app.command()
def realtime(traces: Traces, out: Out, seeds: Seeds = 3, processes: Processes = None) -> None:
    """Real-time jobs among batch jobs: Figures 3 to 7 and Table 3 of the WCJS paper, with Clearway beside them."""
    from clearway.simulation.realtime_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.realtime_study import study  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(traces, seeds, processes or os.cpu_count() or 1, _tell)
        return {"report.html": as_html(made), "realtime.csv": as_csv(made)}

    _write("realtime", out, texts)


@experiment_app.command()
def compaction(out: Out, seeds: Annotated[int, typer.Option(min=1, help="Drawings of a day's jobs.")] = 10) -> None:
    """Moving running jobs: Figures 3 and 4 and Table 2 of the Slurm+DMTCP paper, beside ours; simulation only."""
    from clearway.simulation.compaction_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.compaction_study import study  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(seeds, _tell)
        return {"report.html": as_html(made), "compaction.csv": as_csv(made)}

    _write("compaction", out, texts)


@experiment_app.command()
def drain(
    traces: Traces,
    out: Out,
    seed: Annotated[int, typer.Option(help="Another seed draws other moments and nodes.")] = 0,
    processes: Processes = None,
) -> None:
    """Emptying nodes: the Slurm+DMTCP paper's comparison of waiting with moving jobs, on recorded workloads."""
    from clearway.simulation.drain_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.drain_study import study  # noqa: PLC0415 - likewise

    def texts() -> Mapping[str, str]:
        made = study(traces, processes or os.cpu_count() or 1, _tell, seed=seed)
        return {"report.html": as_html(made), "drain.csv": as_csv(made)}

    _write("drain", out, texts)


@experiment_app.command(name="all")
def every(traces: Traces, out: Out, seeds: Seeds = 3, processes: Processes = None) -> None:
    """All of them, each in a folder of its own."""
    cosim(out / "cosim")
    stochastic(out / "stochastic")
    compaction(out / "compaction")
    drain(traces, out / "drain", processes=processes)
    urgent(traces, out / "urgent", seeds, processes)
    realtime(traces, out / "realtime", seeds, processes)


def _write(experiment: str, out: Path, texts: Callable[[], Mapping[str, str]]) -> None:
    """Make the folder, then the texts by file name: a folder that cannot be written is found out at once."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts().items():
            (out / name).write_text(text, encoding="utf-8")
    except (OSError, ClearwayError) as error:
        what = f"{out}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"clearway: {render.visible(f'experiment {experiment}: {what}')}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(render.visible(str(out / "report.html")))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
