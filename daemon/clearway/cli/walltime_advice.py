"""``clearway walltime advice``: what the daemon has seen of jobs of one name."""

import getpass
from typing import Annotated

import typer

from clearway.cli import options, render


@options.with_options
def walltime_advice(
    name: Annotated[str, typer.Option(help="The application as the job calls it, else the job's name.")],
    user: Annotated[str | None, typer.Option(help="User of the jobs; default: you.")] = None,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """Time limits and run times of the jobs of this name that the daemon has seen end."""
    with options.source(site) as asked:
        found = asked.walltime_advice(user or getpass.getuser(), name)
    if output is options.Output.JSON:
        render.print_document(found)
    else:
        print(render.visible(found.advice))
