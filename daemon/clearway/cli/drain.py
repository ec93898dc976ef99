"""``clearway drain``, ``undrain`` and ``rolling``."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from clearway.cli import render, rolling_view
from clearway.cli.options import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    Output,
    OutputOption,
    ask,
    complain,
    configuration,
    errors,
    poll_until,
    stored,
)
from clearway.drain.request import MOST_AT_ONCE, DrainRequest, UndrainRequest, new_request
from clearway.model.durations import parse_duration_s
from clearway.model.errors import DrainError
from clearway.model.operations import Operation
from clearway.model.orders import Parallel
from clearway.model.plan import NoPlan
from clearway.model.requests import RequestKind
from clearway.model.rolling import RollingDrain, TurnState
from clearway.store.base import LARGEST_ID, Store

rolling_app = typer.Typer(
    help="Drains of a few nodes at a time: clearway drain --rolling.", no_args_is_help=True, rich_markup_mode=None
)
RollingId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the rolling drain.")]


def drain_nodes(
    nodes: Annotated[
        str,
        typer.Argument(help="Host list such as node[1-3,7], partition=NAME or feature=NAME; several joined by commas."),
    ],
    reason: Annotated[str, typer.Option(help="Why the nodes are drained; part of their Reason in Slurm.")] = "",
    deadline: Annotated[
        str | None,
        typer.Option(help="Time by which the nodes should be empty: 30m, 18:30, 2026-03-01T18:30; default: none."),
    ] = None,
    at: Annotated[str | None, typer.Option(help="Time to begin, in the same forms; default: at once.")] = None,
    parallel: Annotated[
        Parallel, typer.Option(help="Jobs that also run on other nodes: migrate them, or leave them to end.")
    ] = Parallel.MIGRATE,
    force: Annotated[bool, typer.Option("--force", help="Also requeue jobs that cannot be saved.")] = False,
    rolling: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_AT_ONCE, metavar="N", help="At most N nodes at a time: the next follows when one is back."
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Return when the nodes are empty; with --rolling, when the last node is back."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Empty nodes without losing work: nothing new starts there, and their jobs are saved and go on elsewhere."""
    now = datetime.now(UTC)
    with errors():
        wish = new_request(
            DrainRequest,
            nodes=nodes,
            reason=reason,
            deadline=None if deadline is None else _point_in_time(deadline, now),
            at=None if at is None else _point_in_time(at, now),
            parallel=parallel,
            force=force,
            rolling=rolling,
        )
    if dry_run:
        _dry_run(wish, config, output)
    quiet = output is Output.JSON
    request = ask(RequestKind.DRAIN, None, config, wish.model_dump_json(), quiet=quiet)
    failed = request.refused
    more: dict[str, object] = {}
    outcome = ""
    if wait and request.eviction_id is not None:
        with stored(config) as store:
            eviction = poll_until(partial(_emptied, store, request.eviction_id))
        more, outcome, failed = render.summary(eviction), eviction.outcome, eviction.started_at is None
    elif wait and request.rolling_id is not None:
        with stored(config) as store:
            ended = poll_until(partial(_over, store, request.rolling_id))
        more, outcome, failed = rolling_view.summary(ended), ended.outcome, bool(ended.nodes(TurnState.SKIPPED))
    if quiet:
        render.print_json(render.answered(request) | more)
    elif outcome:
        print(render.visible(outcome))
    raise typer.Exit(FAILED if failed else 0)


def undrain(
    nodes: Annotated[str, typer.Argument(help="Nodes, as for drain.")],
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let nodes take jobs again that `clearway drain` has emptied."""
    with errors():
        wish = new_request(UndrainRequest, nodes=nodes)
    quiet = output is Output.JSON
    request = ask(RequestKind.UNDRAIN, None, config, wish.model_dump_json(), quiet=quiet)
    if quiet:
        render.print_json(render.answered(request))
        raise typer.Exit(FAILED if request.refused else 0)


def _dry_run(wish: DrainRequest, config: Path, output: Output) -> NoReturn:
    from clearway.cli import dry_run  # noqa: PLC0415 - the other commands start quicker without

    with stored(config) as store:
        if wish.rolling is None:
            answer = dry_run.drain(configuration(config), store, wish)
            render.what_if(answer, output.value)
            raise typer.Exit(FAILED if isinstance(answer, NoPlan) else 0)
        found = dry_run.rolling_drain(configuration(config), store, wish)
        rolling_view.preview(found, output.value)
        raise typer.Exit(FAILED if found.skipped else 0)


def _point_in_time(text: str, now: datetime) -> datetime:
    """``30m`` from now on, ``18:30`` (the next one here) or ``2026-03-01T18:30``."""
    try:
        return now + timedelta(seconds=parse_duration_s(text))
    except ValueError:
        pass
    try:
        clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 - a time of this machine's day
    except ValueError:
        clock = None
    try:
        if clock is None:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo is not None else found.astimezone()).astimezone(UTC)
    except ValueError:
        wanted = f"must be a duration (30m), a time (18:30) or a date, not {text[:40]!r}"
        raise typer.BadParameter(wanted) from None
    today = now.astimezone().replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
    return (today if today > now else today + timedelta(days=1)).astimezone(UTC)


def _emptied(store: Store, eviction_id: int) -> Operation | None:
    """The drain when its nodes are empty, or when it has ended without."""
    eviction = store.eviction(eviction_id)
    return eviction if eviction.started_at is not None or eviction.state.terminal else None


def _over(store: Store, rolling_id: int) -> RollingDrain | None:
    """The rolling drain when the turn of its last node is over, or when it was cancelled."""
    rolling = store.rolling_drain(rolling_id)
    if rolling is None:
        raise DrainError(f"no rolling drain {rolling_id}")
    return rolling if rolling.state.terminal else None


@rolling_app.command("list")
def list_rolling(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of rolling drains, newest first.")] = 20,
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
    """One rolling drain: the turn of each node, and why nodes were skipped."""
    with stored(config) as store:
        found = store.rolling_drain(rolling_id)
        if found is None:
            complain(f"no rolling drain {rolling_id}")
            raise typer.Exit(FAILED)
        rolling_view.one(found, output.value)


@rolling_app.command("cancel")
def cancel_rolling(rolling_id: RollingId, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Begin no more of its drains and cancel what is not empty yet; empty nodes stay until `clearway undrain`."""
    ask(RequestKind.CANCEL_ROLLING, None, config, rolling_id=rolling_id)
