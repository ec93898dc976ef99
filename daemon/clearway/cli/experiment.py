"""``clearway experiment``: the papers' experiments again, each one command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.errors import ClearwayError

experiment_app = typer.Typer(
    help="The papers' experiments again; each makes a report.", no_args_is_help=True, rich_markup_mode=None
)


@experiment_app.callback()
def experiment() -> None:
    """Keeps each experiment a command of its own."""


@experiment_app.command()
def stochastic(
    out: Annotated[Path, typer.Option(help="Folder for report.html and table2.csv; made if absent.")],
) -> None:
    """Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper, beside our values."""
    from clearway.walltime.study import study  # noqa: PLC0415 - the other commands start quicker without
    from clearway.walltime.study_report import as_csv, as_html  # noqa: PLC0415 - likewise

    try:
        out.mkdir(parents=True, exist_ok=True)
        made = study(lambda part: print(f"{part} ...", file=sys.stderr, flush=True))
        for name, text in (("report.html", as_html(made)), ("table2.csv", as_csv(made))):
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"clearway: {render.visible(f'experiment stochastic: {out}: {error.strerror}')}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(render.visible(str(out / "report.html")))


@experiment_app.command()
def urgent(
    traces: Annotated[Path, typer.Option(help="Folder with the recorded workloads (Standard Workload Format).")],
    out: Annotated[Path, typer.Option(help="Folder for report.html and urgent.csv; made if absent.")],
    seeds: Annotated[int, typer.Option(min=1, help="Drawings of urgent jobs.")] = 3,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes at once; else one for each processor.")
    ] = None,
) -> None:
    """Urgent jobs on recorded workloads: Figures 10 to 13, 16 and 17 and Table 2 of the UJFB paper, beside ours."""
    from clearway.simulation.urgent_report import as_csv, as_html  # noqa: PLC0415 - see stochastic
    from clearway.simulation.urgent_study import study  # noqa: PLC0415 - likewise

    try:
        out.mkdir(parents=True, exist_ok=True)
        made = study(traces, seeds, processes or os.cpu_count() or 1, lambda part: print(part, file=sys.stderr))
        for name, text in (("report.html", as_html(made)), ("urgent.csv", as_csv(made))):
            (out / name).write_text(text, encoding="utf-8")
    except (OSError, ClearwayError) as error:
        print(f"clearway: {render.visible(f'experiment urgent: {error}')}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(render.visible(str(out / "report.html")))
