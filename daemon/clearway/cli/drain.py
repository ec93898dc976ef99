"""``clearway drain``, ``undrain``, ``rolling``, ``compact``, ``promote``, ``promise`` and ``promises``."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, NoReturn

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from clearway.api.schemas import EvictionView, RequestView, RollingView
from clearway.cli import asker, options, render
from clearway.cli.evictions import what_if
from clearway.drain.request import MOST_AT_ONCE, DrainRequest, UndrainRequest, new_request
from clearway.model.durations import format_duration, parse_duration_s
from clearway.model.operations import EvictionState
from clearway.model.orders import MoveKind, Parallel, TurnState
from clearway.model.records import LARGEST_ID
from clearway.model.requests import RequestKind
from clearway.promise.request import PromiseRequest
from clearway.slurm.parse.hostlist import compress

rolling_app = options.CommandGroup("Drains of a few nodes at a time: clearway drain --rolling.")
_POLL_S = 0.5

WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the jobs have moved.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
RollingId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the rolling drain.")]


def drain(
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
    look: options.Look = options.LOOKING,
) -> None:
    """Empty nodes without losing work: nothing new starts there, and their jobs are saved and go on elsewhere."""
    now = asker.now()
    with options.errors():
        wish = new_request(
            DrainRequest,
            nodes=nodes,
            reason=reason,
            deadline=None if deadline is None else point_in_time(deadline, now),
            at=None if at is None else point_in_time(at, now),
            parallel=parallel,
            force=force,
            rolling=rolling,
        )
    if dry_run:
        _dry_run(wish, look)
    _order(RequestKind.DRAIN, look, _emptied if wait else None, wish.model_dump_json())


def undrain(nodes: Annotated[str, typer.Argument(help="Nodes, as for drain.")], *, look: options.Look) -> None:
    """Let nodes take jobs again that `clearway drain` has emptied."""
    with options.errors():
        wish = new_request(UndrainRequest, nodes=nodes)
    _order(RequestKind.UNDRAIN, look, document=wish.model_dump_json())


def compact(wait: WaitOption = False, dry_run: DryRunOption = False, look: options.Look = options.LOOKING) -> None:
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty."""
    if dry_run:
        _dry_run(MoveKind.COMPACTION, look)
    _order(RequestKind.COMPACT, look, _arrived if wait else None)


def promote(wait: WaitOption = False, dry_run: DryRunOption = False, look: options.Look = options.LOOKING) -> None:
    """Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need."""
    if dry_run:
        _dry_run(MoveKind.PROMOTION, look)
    _order(RequestKind.PROMOTE, look, _arrived if wait else None)


def _dry_run(wish: DrainRequest | MoveKind, look: options.Look) -> NoReturn:
    with options.source(look.site) as asked:
        if isinstance(wish, DrainRequest) and wish.rolling is not None:
            found = asked.rolling_what_if(wish)
            batches = render.table(">batch", "nodes", ">jobs", ">saving takes")
            for number, each in enumerate(found.batches, 1):
                batches.add_row(number, each.nodes, each.jobs, format_duration(each.checkpoint_s))
            skipped = [f"Skipped: {name}: {why}." for name, why in found.skipped.items()]
            parts = [batches if found.batches else "No node could be emptied.", *skipped]
            render.answer(found, look.output, lambda: render.page(parts))
            raise typer.Exit(options.FAILED if skipped else 0)
        plan = asked.moves_what_if(wish) if isinstance(wish, MoveKind) else asked.drain_what_if(wish)
    what_if(plan, look.output)
    raise typer.Exit(0 if plan.feasible else options.FAILED)


Ended = tuple[EvictionView | RollingView, bool]  # what has ended, and whether as it was wanted


def _order(
    kind: RequestKind,
    look: options.Look,
    ended: Callable[[options.Source, RequestView], Ended | None] | None = None,
    document: str = "",
) -> NoReturn:
    """Ask for it and print what came of it; first wait for its end where ``ended`` looks for that."""
    quiet = look.output is options.Output.JSON
    request = options.ask(kind, look.site, document=document, quiet=quiet)
    told: BaseModel = request
    good = not options.refused(request)
    if good and ended is not None and (request.eviction_id or request.rolling_id) is not None:
        with options.source(look.site) as asked:
            while (found := ended(asked, request)) is None:
                time.sleep(_POLL_S)
        told, good = found
        if not quiet:
            print(render.visible(found[0].outcome))
    if quiet:
        render.print_document(told)
    raise typer.Exit(0 if good else options.FAILED)


def point_in_time(text: str, now: datetime) -> datetime:
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


def _emptied(asked: options.Source, request: RequestView) -> Ended | None:
    """When the nodes are empty or the drain has ended without; of a rolling one, when its last turn is over."""
    if request.eviction_id is None:
        rolling = asked.rolling_drain(request.rolling_id or 0)
        skipped = any(turn.state is TurnState.SKIPPED for turn in rolling.turns)
        return (rolling, not skipped) if rolling.state.terminal else None
    e = asked.eviction(request.eviction_id)
    empty = e.started_at is not None
    return (e, empty) if empty or e.state.terminal else None


def _arrived(asked: options.Source, request: RequestView) -> Ended | None:
    e = asked.eviction(request.eviction_id or 0)
    return (e, e.state is EvictionState.COMPLETED) if e.state.terminal else None


@rolling_app.command("list")
def list_rolling(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of rolling drains, newest first.")] = 20,
    look: options.Look = options.LOOKING,
) -> None:
    """List rolling drains, newest first."""
    columns: render.Columns = {
        ">no.": lambda each: each.rolling_id,
        "state": lambda each: each.state.value,
        "nodes": lambda each: compress(turn.node for turn in each.turns),
        ">at once": lambda each: each.at_once,
        "ordered": lambda each: render.minute(each.created_at),
        "turns": turns,
        "outcome": lambda each: each.outcome,
    }
    look.show(lambda asked: asked.rolling_drains(limit), lambda found: render.listed(found.items, columns))


def turns(rolling: RollingView) -> str:
    counts = Counter(turn.state for turn in rolling.turns)
    return ", ".join(f"{counts[state]} {state.value}" for state in TurnState if counts[state])


@rolling_app.command("show")
def show_rolling(rolling_id: RollingId, watch: options.WatchOption = False, *, look: options.Look) -> None:
    """One rolling drain: the turn of each node, and why nodes were skipped."""
    look.show(lambda asked: asked.rolling_drain(rolling_id), lambda found: render.page(_told(found)), watch=watch)


def _told(found: RollingView) -> Iterator[RenderableType]:
    reason = f": {found.reason}" if found.reason else ""
    nodes = f"{len(found.turns)} node(s), {found.at_once} at once, for {found.actor}{reason}"
    yield f"Rolling drain {found.rolling_id} of {nodes}; ordered {render.when(found.created_at)}."
    yield f"{found.state.value}: {turns(found)}. {found.outcome}"
    alike: defaultdict[tuple[TurnState, str, int | None], list[str]] = defaultdict(list)
    for turn in found.turns:
        alike[turn.state, turn.note, turn.drain_id].append(turn.node)
    made = render.table("nodes", "turn", ">drain", "why")
    for (state, note, drain_id), names in alike.items():
        made.add_row(compress(names), state.value, drain_id or "", note)
    yield made


@rolling_app.command("cancel")
def cancel_rolling(rolling_id: RollingId, *, site: options.Site) -> None:
    """Begin no more of its drains and cancel what is not empty yet; empty nodes stay until `clearway undrain`."""
    options.ask(RequestKind.CANCEL_ROLLING, site, rolling_id=rolling_id)


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
    look: options.Look = options.LOOKING,
) -> None:
    """Have nodes free from a time on, at the least loss of other jobs' work.

    Jobs of the named users run there with the reservation that `clearway promises` shows.
    """
    if cancel is not None:
        if any(given is not None for given in (nodes, at, duration, user)):
            raise typer.BadParameter("--cancel goes alone")
        options.ask(RequestKind.CANCEL, look.site, cancel)
        return
    if nodes is None or at is None or duration is None or not user:
        raise typer.BadParameter("--nodes, --at, --for and --user are needed")
    duration_s = options.duration_s(duration, "--for")
    with options.errors(options.BAD_INPUT):
        wish = new_request(
            PromiseRequest,
            nodes=nodes,
            partition=partition,
            at=point_in_time(at, asker.now()),
            duration_s=duration_s,
            users=tuple(user),
            reason=reason,
        )
    _order(RequestKind.PROMISE, look, document=wish.model_dump_json())


def promises(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of promises, newest first.")] = 20,
    look: options.Look = options.LOOKING,
) -> None:
    """List promised nodes, newest first; `clearway evictions show NUMBER` has more of each."""
    columns: render.Columns = {
        ">no.": lambda e: e.eviction_id,
        "state": lambda e: e.state.value,
        ">nodes": lambda e: e.promise.nodes,
        "from": lambda e: render.when(e.promise.at),
        "for": lambda e: format_duration((e.promise.until - e.promise.at).total_seconds()),
        "users": lambda e: ",".join(e.promise.users),
        "reservation": lambda e: e.promise.reservation,
        "by": lambda e: f"calendar: {e.promise.event}" if e.promise.event else e.promise.actor,
        "on": lambda e: e.promise.chosen,
        "outcome": lambda e: e.outcome,
    }
    if render.console(look.output).width < render.NARROW:  # then what a user of the nodes needs
        columns["from"] = lambda e: render.minute(e.promise.at)
        del columns["users"], columns["by"], columns["on"]
    look.show(lambda asked: asked.promises(limit), lambda found: render.listed(found.items, columns))
