"""``clearway drain``, ``undrain``, ``rolling``, ``compact`` and ``promote``."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from clearway.cli import options, render, rolling_view
from clearway.drain.request import MOST_AT_ONCE, DrainRequest, UndrainRequest, new_request
from clearway.model.durations import parse_duration_s
from clearway.model.errors import DrainError
from clearway.model.operations import EvictionState
from clearway.model.orders import MoveKind, Parallel
from clearway.model.plan import NoPlan
from clearway.model.requests import OperatorRequest, RequestKind
from clearway.model.rolling import RollingDrain, TurnState
from clearway.store.base import LARGEST_ID, Store

rolling_app = options.commands("Drains of a few nodes at a time: clearway drain --rolling.")
_POLL_S = 0.5

WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the jobs have moved.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
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
    dry_run: DryRunOption = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Empty nodes without losing work: nothing new starts there, and their jobs are saved and go on elsewhere."""
    now = datetime.now(UTC)
    with options.errors():
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
    _order(RequestKind.DRAIN, config, output, _emptied if wait else None, wish.model_dump_json())


def undrain(
    nodes: Annotated[str, typer.Argument(help="Nodes, as for drain.")],
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Let nodes take jobs again that `clearway drain` has emptied."""
    with options.errors():
        wish = new_request(UndrainRequest, nodes=nodes)
    _order(RequestKind.UNDRAIN, config, output, document=wish.model_dump_json())


def compact(
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty."""
    if dry_run:
        _dry_run(MoveKind.COMPACTION, config, output)
    _order(RequestKind.COMPACT, config, output, _arrived if wait else None)


def promote(
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need."""
    if dry_run:
        _dry_run(MoveKind.PROMOTION, config, output)
    _order(RequestKind.PROMOTE, config, output, _arrived if wait else None)


def _dry_run(wish: DrainRequest | MoveKind, config: Path, output: options.Output) -> NoReturn:
    from clearway.cli import dry_run  # noqa: PLC0415 - the other commands start quicker without

    with options.stored(config) as store:
        settings = options.configuration(config)
        if isinstance(wish, DrainRequest) and wish.rolling is not None:
            found = dry_run.rolling_drain(settings, store, wish)
            rolling_view.preview(found, output.value)
            raise typer.Exit(options.FAILED if found.skipped else 0)
        answer = (
            dry_run.moves(wish, settings, store) if isinstance(wish, MoveKind) else dry_run.drain(settings, store, wish)
        )
        render.what_if(answer, output.value)
        raise typer.Exit(options.FAILED if isinstance(answer, NoPlan) else 0)


Ended = tuple[dict[str, Any], str, bool]  # what it is for programs, its outcome, and whether that was wanted


def _order(
    kind: RequestKind,
    config: Path,
    output: options.Output,
    ended: Callable[[Store, OperatorRequest], Ended | None] | None = None,
    document: str = "",
) -> NoReturn:
    """Ask for it and print what came of it; first wait for its end where ``ended`` looks for that."""
    quiet = output is options.Output.JSON
    request = options.ask(kind, config, document=document, quiet=quiet)
    told, outcome, good = render.answered(request), "", not request.refused
    if ended is not None and (request.eviction_id or request.rolling_id) is not None:
        with options.stored(config) as store:
            while (found := ended(store, request)) is None:
                time.sleep(_POLL_S)
        more, outcome, good = found
        told |= more
    if quiet:
        render.print_json(told)
    elif outcome:
        print(render.visible(outcome))
    raise typer.Exit(0 if good else options.FAILED)


def _point_in_time(text: str, now: datetime) -> datetime:
    """``30m`` from now on, ``18:30`` (the next one here) or ``2026-03-01T18:30`` (here, unless it names its zone)."""
    with suppress(ValueError):
        return now + timedelta(seconds=parse_duration_s(text))
    with suppress(ValueError):
        clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 - a time of this machine's day
        today = now.astimezone().replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).astimezone(UTC)
    with suppress(ValueError):
        return datetime.fromisoformat(text).astimezone(UTC)
    raise typer.BadParameter(f"must be a duration (30m), a time (18:30) or a date, not {text[:40]!r}")


def _emptied(store: Store, request: OperatorRequest) -> Ended | None:
    """When the nodes are empty or the drain has ended without; of a rolling one, when its last turn is over."""
    if request.eviction_id is None:
        rolling = _rolling(store, request.rolling_id or 0)
        skipped = rolling.nodes(TurnState.SKIPPED)
        return (rolling_view.summary(rolling), rolling.outcome, not skipped) if rolling.state.terminal else None
    e = store.eviction(request.eviction_id)
    empty = e.started_at is not None
    return (render.summary(e), e.outcome, empty) if empty or e.state.terminal else None


def _arrived(store: Store, request: OperatorRequest) -> Ended | None:
    """When the jobs have arrived, or it has ended without."""
    e = store.eviction(request.eviction_id or 0)
    return (render.summary(e), e.outcome, e.state is EvictionState.COMPLETED) if e.state.terminal else None


def _rolling(store: Store, rolling_id: int) -> RollingDrain:
    found = store.rolling_drain(rolling_id)
    if found is None:
        raise DrainError(f"no rolling drain {rolling_id}")
    return found


@rolling_app.command("list")
def list_rolling(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of rolling drains, newest first.")] = 20,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """List rolling drains, newest first."""
    with options.stored(config) as store:
        rolling_view.several(store.rolling_drains(limit=limit), output.value)


@rolling_app.command("show")
def show_rolling(
    rolling_id: RollingId,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """One rolling drain: the turn of each node, and why nodes were skipped."""
    with options.stored(config) as store:
        rolling_view.one(_rolling(store, rolling_id), output.value)


@rolling_app.command("cancel")
def cancel_rolling(rolling_id: RollingId, config: options.ConfigOption = options.DEFAULT_CONFIG) -> None:
    """Begin no more of its drains and cancel what is not empty yet; empty nodes stay until `clearway undrain`."""
    options.ask(RequestKind.CANCEL_ROLLING, config, rolling_id=rolling_id)
