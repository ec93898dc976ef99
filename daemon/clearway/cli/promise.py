"""``clearway promise`` and ``clearway promises``."""

from typing import Annotated

import typer

from clearway.cli import options, promise_view
from clearway.cli.drain import point_in_time
from clearway.drain.request import new_request
from clearway.model.durations import parse_duration_s
from clearway.model.requests import RequestKind
from clearway.promise.request import PromiseRequest
from clearway.store.base import LARGEST_ID


@options.with_options
def promise(
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many nodes shall be free.")] = None,
    at: Annotated[str | None, typer.Option(help="From when on: 2026-03-01T18:30, 18:30 or 2h (from now).")] = None,
    duration: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="For how long, such as 8h.")] = None,
    user: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A user whose jobs may run on them; may be repeated.")
    ] = None,
    partition: Annotated[
        str, typer.Option(metavar="NAME", help="Whose nodes; may be left out if it is the only one.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why: one line.")] = "",
    cancel: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, metavar="NUMBER", help="Cancel this promise instead.")
    ] = None,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """Have nodes free from a time on, at the least loss of other jobs' work.

    Jobs of the named users run there with the reservation that `clearway promises` shows.
    """
    if cancel is not None:
        if any(given is not None for given in (nodes, at, duration, user)):
            raise typer.BadParameter("--cancel goes alone")
        options.ask(RequestKind.CANCEL, site, cancel)
        return
    if nodes is None or at is None or duration is None or not user:
        raise typer.BadParameter("--nodes, --at, --for and --user are needed")
    try:
        duration_s = parse_duration_s(duration)
    except ValueError as error:
        raise typer.BadParameter(f"--for: {error}") from None
    with options.errors(options.BAD_INPUT):
        wish = new_request(
            PromiseRequest,
            nodes=nodes,
            partition=partition,
            at=point_in_time(at, options.now()),
            duration_s=duration_s,
            users=tuple(user),
            reason=reason,
        )
    quiet = output is options.Output.JSON
    answer = options.ask(RequestKind.PROMISE, site, document=wish.model_dump_json(), quiet=quiet)
    if quiet:
        promise_view.answer(answer)
        raise typer.Exit(options.FAILED if options.refused(answer) else 0)


@options.with_options
def promises(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of promises, newest first.")] = 20,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """List promised nodes, newest first; `clearway evictions show NUMBER` has more of each."""
    with options.source(site) as asked:
        promise_view.several(asked.promises(limit), output.value)
