"""``clearway experiment``: the papers' experiments again, each one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT

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
