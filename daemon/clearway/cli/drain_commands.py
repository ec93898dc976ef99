"""``clearway drain``, ``undrain`` and ``rolling``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from clearway.cli import render, rolling_view
from clearway.cli.asking import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    Output,
    OutputOption,
    ask,
    complain,
    configuration,
    errors,
    stored,
    time_option,
)
from clearway.drain.request import MOST_AT_ONCE
from clearway.model.orders import Parallel
from clearway.model.plan import NoPlan
from clearway.model.requests import RequestKind
from clearway.model.rolling import TurnState
from clearway.store.base import LARGEST_ID

rolling_app = typer.Typer(
    help="Drains of a few nodes at a time: clearway drain --rolling.", no_args_is_help=True, rich_markup_mode=None
)
RollingId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the rolling drain.")]


def drain_nodes(
    nodes: Annotated[
        str, typer.Argument(help="Host list such as node[1-3,7]; partition=NAME and feature=NAME stand for theirs.")
    ],
    reason: Annotated[str, typer.Option(help="Why; it becomes part of the nodes' Reason.")] = "",
    deadline: Annotated[
        str | None, typer.Option(help="When they should be empty: 30m, 18:30, 2026-03-01T18:30; else as soon as saved.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="When to begin, in the same forms; else at once.")] = None,
    parallel: Annotated[
        Parallel, typer.Option(help="Jobs that also run on other nodes: move them, or leave them to end.")
    ] = Parallel.MIGRATE,
    force: Annotated[bool, typer.Option("--force", help="Requeue jobs that cannot be saved as well.")] = False,
    rolling: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_AT_ONCE, help="So many nodes at a time: the next follow when one is back."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the nodes are empty; --rolling: when the last is back.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Empty nodes without losing work: nothing new starts there, and their jobs are saved and go on elsewhere."""
    from clearway.cli import drain  # noqa: PLC0415 - the other commands start quicker without
    from clearway.drain.request import DrainRequest, new_request  # noqa: PLC0415

    now = datetime.now(UTC)
    with errors():
        wish = new_request(
            DrainRequest,
            nodes=nodes,
            reason=reason,
            deadline=None if deadline is None else time_option(deadline, now),
            at=None if at is None else time_option(at, now),
            parallel=parallel,
            force=force,
            rolling=rolling,
        )
    if dry_run and rolling is not None:
        with stored(config) as store:
            found = drain.dry_run_rolling(configuration(config), store, wish)
        rolling_view.preview(found, output.value)
        raise typer.Exit(FAILED if found.skipped else 0)
    if dry_run:
        with stored(config) as store:
            answer = drain.dry_run(configuration(config), store, wish)
        render.what_if(answer, output.value)
        raise typer.Exit(FAILED if isinstance(answer, NoPlan) else 0)
    quiet = output is Output.JSON
    request = ask(RequestKind.DRAIN, None, config, wish.model_dump_json(), quiet=quiet)
    failed = request.refused
    more: dict[str, object] = {}
    outcome = ""
    if wait and request.eviction_id is not None:
        with stored(config) as store:
            eviction = drain.wait_until_empty(store, request.eviction_id)
        more, outcome, failed = render.summary(eviction), eviction.outcome, eviction.started_at is None
    elif wait and request.rolling_id is not None:
        with stored(config) as store:
            ended = drain.wait_until_over(store, request.rolling_id)
        more, outcome, failed = rolling_view.summary(ended), ended.outcome, bool(ended.nodes(TurnState.SKIPPED))
    if quiet:
        render.print_json(render.answered(request) | more)
    elif outcome:
        print(render.visible(outcome))
    raise typer.Exit(FAILED if failed else 0)


def undrain(
    nodes: Annotated[str, typer.Argument(help="As for drain.")],
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let nodes take jobs again that `clearway drain` has emptied."""
    # The other commands start quicker without.
    from clearway.drain.request import UndrainRequest, new_request  # noqa: PLC0415

    with errors():
        wish = new_request(UndrainRequest, nodes=nodes)
    quiet = output is Output.JSON
    request = ask(RequestKind.UNDRAIN, None, config, wish.model_dump_json(), quiet=quiet)
    if quiet:
        render.print_json(render.answered(request))
        raise typer.Exit(FAILED if request.refused else 0)


@rolling_app.command("list")
def list_rolling(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many, newest first.")] = 20,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """List rolling drains, newest first."""
    with stored(config) as store:
        rolling_view.several(store.rolling_drains(limit=limit), output.value)


@rolling_app.command("show")
def show_rolling(
    rolling_id: RollingId, config: ConfigOption = DEFAULT_CONFIG, output: OutputOption = Output.TABLE
) -> None:
    """One rolling drain: whose turn is over, who is away, who waits, and who was skipped and why."""
    with stored(config) as store:
        found = store.rolling_drain(rolling_id)
        if found is None:
            complain(f"no rolling drain {rolling_id}")
            raise typer.Exit(FAILED)
        rolling_view.one(found, output.value)


@rolling_app.command("cancel")
def cancel_rolling(rolling_id: RollingId, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Begin no more of its drains and call off what is not empty yet; empty nodes stay until `clearway undrain`."""
    ask(RequestKind.CANCEL_ROLLING, None, config, rolling_id=rolling_id)
