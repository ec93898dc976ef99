"""Which daemon leads: its history, and taking the lease from it."""

from typing import Annotated

import typer

from clearway.cli import options, render
from clearway.model.requests import RequestKind

_WARNING = (
    "the lease was taken without the daemon's consent: it can write nothing more and gives Slurm no new command, but a "
    "command that is under way may still take effect. The daemon that leads next only watches for half of daemon.lease"
)


@options.with_options
def leaders(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of leaders, newest first.")] = 20,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """The daemons that have acted on this database, newest first."""
    with options.source(site) as asked:
        found = asked.leaders(limit)
    if output is options.Output.JSON:
        render.print_document(found)
        return
    columns: render.Columns = {
        ">epoch": lambda leader: leader.epoch,
        "daemon": lambda leader: leader.owner,
        "from": lambda leader: render.when(leader.began_at),
        "until": lambda leader: render.when(leader.ended_at),
        "ended": lambda leader: f"{leader.ended or 'leads'}{f' by {leader.ended_by}' if leader.ended_by else ''}",
    }
    render.console(output.value).print(render.listing(found.items, columns))


def takeover(
    force: Annotated[
        bool, typer.Option("--force", help="Take the lease from a daemon that does not answer, without its consent.")
    ] = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Let another daemon lead: the present leader finishes its cycle and gives up the lease. Needs the database."""
    if not force:
        options.ask(RequestKind.HAND_OVER, options.Site(config=config))
        return
    with options.stored(config) as store:
        owner = store.depose(options.actor(), options.now())
    options.complain(_WARNING)
    print(render.visible(f"taken from {owner}" if owner else "no daemon had the lease"))
