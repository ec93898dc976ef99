"""``clearway doctor``: everything that must hold at this site, on one page."""

import hashlib
import textwrap
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from clearway import __version__
from clearway.cli import asker, launcher, options, render
from clearway.config.configuration import load_config
from clearway.doctor.case import Asked, Case, Finding, State
from clearway.doctor.examination import examine
from clearway.model.errors import ConfigError
from clearway.telemetry.log import configure_logging

_SHOWN = {
    State.OK: ("ok", "green"),
    State.ADVICE: ("look", "yellow"),
    State.FAULT: ("FAULT", "bold red"),
    State.UNTRIED: ("-", "dim"),
}


def doctor(
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    job: Annotated[
        bool, typer.Option("--job", help="Run a job of one node, a minute at most, which looks for the launcher.")
    ] = False,
    partition: Annotated[str, typer.Option(help="Partition of that job; default: Slurm's.")] = "",
    launcher_path: Annotated[
        str, typer.Option("--launcher", metavar="PATH", help="How jobs call the launcher.")
    ] = "clearway-run",
    checkpoints: Annotated[Path | None, typer.Option(help="Folder that jobs save into: has it room?")] = None,
    prometheus: Annotated[str, typer.Option(metavar="URL", help="Ask this Prometheus whether it scrapes.")] = "",
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Look for everything that must hold: Slurm, rights, clocks, database, port, tokens, nodes; and what to do.

    Nothing is changed. Run it as the daemon's user, beside the daemon or before its first start. Exit status 0: no
    fault; 1: faults; 2: the configuration cannot be read.
    """
    try:
        settings = load_config(config)
    except ConfigError as error:
        for fault in error.faults or (str(error),):
            options.complain(fault)
        raise typer.Exit(options.BAD_INPUT) from None
    configure_logging("text", quiet=True)  # standard output is for the page alone
    asked = Asked(
        prometheus=prometheus,
        checkpoints=checkpoints,
        job=job,
        partition=partition,
        launcher=launcher_path,
        launcher_sum=_sum(),
    )
    case = Case(settings, asked, asker.user())
    found = _document(config, case) if output is options.Output.JSON else _page(config, case, output)
    raise typer.Exit(options.FAILED if _faulty(found) else 0)


def _sum() -> str:
    """Of the launcher that belongs to this installation; "" where it has none."""
    try:
        return hashlib.sha256(launcher.source("clearway-run").read_bytes()).hexdigest()
    except (ConfigError, OSError):
        return ""


def _faulty(found: list[Finding]) -> bool:
    return any(each.state is State.FAULT for each in found)


def _document(config: Path, case: Case) -> list[Finding]:
    found = list(examine(case))
    render.print_json(
        {
            "version": __version__,
            "config": str(config),
            "user": case.user,
            "good": not _faulty(found),
            "findings": [asdict(each) for each in found],
        }
    )
    return found


def _page(config: Path, case: Case, output: options.Output) -> list[Finding]:
    """Line by line as it is found: a job takes its time."""
    out = render.console(output)
    out.print(Text(render.visible(f"Clearway {__version__}, {config}, tried as {case.user}")))
    found: list[Finding] = []
    for each in examine(case):
        if not found or found[-1].area != each.area:
            out.print(Text(f"\n{each.area}", style="bold"))
        again = bool(found) and (found[-1].area, found[-1].check) == (each.area, each.check)
        out.print(_lines(each, out.width, again=again))
        found.append(each)
    count = Counter(each.state for each in found)
    words = {State.FAULT: f"fault{'s' * (count[State.FAULT] != 1)}", State.ADVICE: "to look at"}
    words |= {State.UNTRIED: "not tried"}
    said = [f"{count[state]} {word}" for state, word in words.items() if count[state]]
    good, style = ("Not ready", "bold red") if count[State.FAULT] else ("Everything that must hold holds", "bold green")
    out.print(Text(f"\n{': '.join([good, *([', '.join(said)] if said else [])])}.", style=style))
    return found


def _lines(finding: Finding, width: int, *, again: bool) -> Text:
    word, style = _SHOWN[finding.state]
    left = f"  {word:<5}  {'' if again else finding.check:<13}  "
    room = max(30, width - len(left) - 1)
    below = f"\n{' ' * len(left)}"
    told = textwrap.wrap(render.visible(finding.what), room, break_on_hyphens=False)
    remedy = render.visible(finding.remedy)
    advised = textwrap.wrap(remedy, room - 3, break_on_hyphens=False, break_long_words=False)
    made = Text.assemble(left[:2], (left[2:7], style), left[7:], below.join(told))
    for number, line in enumerate(advised):
        made.append(below).append(f"{'   ' if number else '-> '}{line}", style="cyan")
    return made
