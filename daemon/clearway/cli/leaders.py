"""Which daemon leads: its history, and taking the lease from it."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.options import DEFAULT_CONFIG, ConfigOption, Output, OutputOption, actor, ask, complain, stored
from clearway.model.leadership import Leader
from clearway.model.requests import RequestKind

_WARNING = (
    "the lease was taken without the daemon's consent: it can write nothing more and gives Slurm no new command, but a "
    "command that is under way may still take effect. The daemon that leads next only watches for half of daemon.lease"
)


def leaders(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of leaders, newest first.")] = 20,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """The daemons that have acted on this database, newest first."""
    with stored(config) as store:
        found = store.leaders(limit=limit)
    if output is Output.JSON:
        render.print_json([render.picked(each, *Leader.__slots__) for each in found])
        return
    columns: render.Columns = {
        ">epoch": lambda leader: leader.epoch,
        "daemon": lambda leader: leader.owner,
        "from": lambda leader: render.when(leader.began_at),
        "until": lambda leader: render.when(leader.ended_at),
        "ended": lambda leader: f"{leader.ended or 'leads'}{f' by {leader.ended_by}' if leader.ended_by else ''}",
    }
    render.console().print(render.listing(found, columns))


def takeover(
    force: Annotated[
        bool, typer.Option("--force", help="Take the lease from a daemon that does not answer, without its consent.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Let another daemon lead: the present leader finishes its cycle and gives up the lease."""
    if not force:
        ask(RequestKind.HAND_OVER, config)
        return
    with stored(config) as store:
        owner = store.depose(actor(), datetime.now(UTC))
    complain(_WARNING)
    print(render.visible(f"taken from {owner}" if owner else "no daemon had the lease"))
