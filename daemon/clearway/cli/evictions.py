"""``clearway status`` and ``clearway evictions``: what waits, is planned or under way, and decisions about it."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearway.api.report_schemas import StatusView
from clearway.api.schemas import EvictionView
from clearway.cli import asker, eviction_view, options, render
from clearway.cli.render import Columns, listing, visible, when
from clearway.model.durations import format_duration
from clearway.model.errors import ClearwayError
from clearway.model.operations import STATE_GROUPS, EvictionState
from clearway.model.requests import RequestKind

evictions_app = options.commands("Planned, active and past evictions; approve and cancel them.")
Which = StrEnum("Which", [*STATE_GROUPS, "all"])  # type: ignore[misc]
_WAITING = EvictionState.AWAITING_APPROVAL
_MOST_WAITING = 1_000


@evictions_app.command("list")
@options.with_options
def list_evictions(
    which: Annotated[Which, typer.Option("--state", help="State of the evictions.")] = Which["all"],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of evictions, newest first.")] = 20,
    watch: options.WatchOption = False,
    look: options.Look = options.LOOKING,
) -> None:
    """List evictions, newest first."""

    def shown() -> None:
        with options.source(look.site) as asked:
            found = asked.evictions(None if which.value == "all" else which.value, limit)
        eviction_view.evictions(found, look.output)

    options.watched(shown, watch=watch)


@evictions_app.command("show")
@options.with_options
def show_eviction(
    eviction_id: options.EvictionId, watch: options.WatchOption = False, look: options.Look = options.LOOKING
) -> None:
    """One eviction: the plan, a reason for every job, the trade-off curve, every step."""

    def shown() -> None:
        with options.source(look.site) as asked:
            found = asked.eviction(eviction_id)
            if look.output is options.Output.JSON:
                render.print_document(found)
                return
            verdicts, steps = asked.verdicts(eviction_id), asked.steps(eviction_id)
        eviction_view.eviction(found, verdicts, steps.items, look.output)

    options.watched(shown, watch=watch)


@evictions_app.command()
@options.with_options
def verdicts(eviction_id: options.EvictionId, look: options.Look = options.LOOKING) -> None:
    """Why each running job leaves or stays."""
    with options.source(look.site) as asked:
        found = asked.verdicts(eviction_id)
    if look.output is options.Output.JSON:
        render.print_json({"items": [each.model_dump(mode="json") for each in found], "next_offset": None})
    else:
        render.console(look.output).print(eviction_view.verdict_table(found, {}))


@evictions_app.command()
@options.with_options
def steps(eviction_id: options.EvictionId, look: options.Look = options.LOOKING) -> None:
    """Everything that was done or noticed, in order."""
    with options.source(look.site) as asked:
        found = asked.steps(eviction_id)
    render.answer(found, look.output, lambda: eviction_view.journal(found.items))


@evictions_app.command()
@options.with_options
def approve(
    eviction_id: Annotated[
        int | None, typer.Argument(max=options.LARGEST_ID, help="Number of the eviction, else --job.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="The eviction that waits for approval for this urgent job.")] = None,
    *,
    site: options.Site,
) -> None:
    """Let a planned eviction be carried out, with those that were planned together with it; tell what comes of it."""
    if (eviction_id is None) == (job is None):
        raise typer.BadParameter("give either the number of an eviction or --job ID")
    if eviction_id is None:
        with options.source(site) as asked:
            eviction_id = _waiting_for(asked, job or "")
    options.ask(RequestKind.APPROVE, site, eviction_id)
    _follow(eviction_id, site)


def _waiting_for(asked: options.Source, job: str) -> int:
    for each in asked.evictions(_WAITING.value, _MOST_WAITING).items:
        if job in (each.job_id, each.display_id):
            return each.eviction_id
    raise ClearwayError(f"no eviction for the job {job!r} waits for approval (clearway evictions list --state planned)")


def _follow(eviction_id: int, site: options.Site) -> None:
    """Tell what has become of an approval: the next cycle may still find that the plan does not fit any more."""
    with options.source(site) as asked:
        found = render.wait_for(lambda: _begun(asked.eviction(eviction_id)))
    if found is None:
        print(f"Eviction {eviction_id} is not under way yet (clearway evictions show {eviction_id})")
        return
    if found.state is not EvictionState.SUPERSEDED:
        jobs = f"{found.preemptees} job{'s' * (found.preemptees != 1)}"
        print(render.visible(f"Eviction {eviction_id} is {found.state.value}: {jobs}. {found.outcome}".rstrip()))
        return
    instead = "" if found.replaced_by is None else f" Eviction {found.replaced_by} replaces it."
    options.complain(f"eviction {eviction_id} was superseded, and nothing was done: {found.outcome}{instead}")
    raise typer.Exit(options.FAILED)


def _begun(found: EvictionView) -> EvictionView | None:
    """When the daemon has taken it up, or put it aside and planned anew."""
    if found.state in (_WAITING, EvictionState.PLACING):
        return None
    return found


@evictions_app.command()
@options.with_options
def cancel(eviction_id: options.EvictionId, *, site: options.Site) -> None:
    """Undo an eviction; jobs past their point of no return are followed until they run again."""
    options.ask(RequestKind.CANCEL, site, eviction_id)


NOT_RUNNING = 3  # exit status, as of `systemctl status`


@options.with_options
def status(watch: options.WatchOption = False, look: options.Look = options.LOOKING) -> None:
    """Whether a daemon runs and in which mode, what waits for room or approval, and what is under way.

    Exit status 3: no daemon leads, or that cannot be found out.
    """

    def shown() -> bool:
        try:
            with options.source(look.site, told=False) as asked:
                found = asked.status()
        except ClearwayError as error:
            options.complain(f"not known whether Clearway runs: {error}")
            return False
        render.answer(found, look.output, lambda: Group(*_shown_status(found, asker.now(), look.output)))
        return found.running

    if not options.watched(shown, watch=watch):
        raise typer.Exit(NOT_RUNNING)


def _shown_status(found: StatusView, now: datetime, output: str) -> Iterator[RenderableType]:
    yield _headline(found, now)
    if found.running:
        yield _through(found)
    yield from (Text(visible(text), style=style) for style, text in _holds(found))
    if found.waiting:
        yield from ("", _urgent_table(found))
    if found.left_to_slurm:
        reasons = ", ".join(f"{reason.value} {count}" for reason, count in found.left_to_slurm.items())
        yield f"Urgent jobs that are left to Slurm, by reason: {reasons}."
    parts = {"Waits for approval (clearway evictions approve NUMBER)": True, "Planned or under way": False}
    for title, waits in parts.items():
        some = [e for e in found.open_evictions if (e.state is _WAITING) is waits]
        if some:
            yield from ("", eviction_view.summaries(some, output, title))
    for each in found.rolling_drains:
        yield f"Rolling drain {each.rolling_id}, {each.at_once} at once: {eviction_view.turns(each)}."
    if not (found.waiting or found.open_evictions or found.rolling_drains):
        yield "Nothing is planned or under way, and no urgent job waits."


def _through(found: StatusView) -> str:
    why = f" ({found.backend_why})" if found.backend_why else ""
    acts = "" if found.only_observes else "; Clearway acts on this release as its mode says"
    version = found.slurm_version or "of a version that is not known"
    return visible(f"Slurm {version} through {found.backend}{why}{acts}.")


def _urgent_table(found: StatusView) -> Table:
    more = found.waiting_preemptors - len(found.waiting)
    title = "Urgent jobs that wait" + (f" (the most pressing ones, and {more} more)" if more > 0 else "")
    columns: Columns = {
        "job": lambda each: each.display_id + eviction_view.of_tasks(each.tasks),
        "user": lambda each: each.user,
        ">nodes": lambda each: each.nodes,
        "deadline": lambda each: when(each.deadline),
        ">left": lambda each: format_duration(each.left_s) if each.left_s > 0 else "over",
        ">eviction": lambda each: each.eviction_id or "-",
        "what is done": lambda each: each.why,
    }
    return listing(found.waiting, columns, title)


def _holds(found: StatusView) -> Iterator[tuple[str, str]]:
    if found.only_observes:
        yield "bold yellow", f"It only observes, whatever its mode: {found.only_observes}."
    if found.halted:
        yield "bold red", f"No command is given to Slurm: {found.halted}."
    if found.stopped:
        yield (
            "bold red",
            f"Stopped: {found.stopped}. No job is made to leave. Look at these nodes, then: clearway resume",
        )
    if found.paused:
        yield "bold yellow", "Paused: nothing new is begun."


def _headline(found: StatusView, now: datetime) -> Text:
    mode = f"mode {found.mode.value}" if found.mode else "mode not known"
    if found.running:
        beat = format_duration(round(found.heartbeat_age_s or 0.0))
        return Text(visible(f"Running in {mode}. {found.leader} leads; last sign of life {beat} ago."), style="bold")
    since = found.not_running_since
    if since is None:
        return Text("NOT RUNNING: no daemon has led with this database yet.", style="bold red")
    ago = format_duration(max(0, round((now - since).total_seconds())))
    return Text(f"NOT RUNNING since {when(since)} ({ago} ago): no daemon leads. It was in {mode}.", style="bold red")
