"""``clearway evictions``: planned, active and past ones, and decisions about them."""

from enum import StrEnum
from typing import Annotated

import typer

from clearway.api.schemas import EvictionView
from clearway.cli import eviction_view, options, render
from clearway.cli.source import Source
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
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """List evictions, newest first."""

    def shown() -> None:
        with options.source(site) as asked:
            found = asked.evictions(None if which.value == "all" else which.value, limit)
        eviction_view.several(found, output.value)

    options.watched(shown, watch=watch)


@evictions_app.command("show")
@options.with_options
def show_eviction(
    eviction_id: options.EvictionId,
    watch: options.WatchOption = False,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """One eviction: the plan, a reason for every job, the trade-off curve, every step."""

    def shown() -> None:
        with options.source(site) as asked:
            found = asked.eviction(eviction_id)
            if output is options.Output.JSON:
                render.print_document(found)
                return
            verdicts, steps = asked.verdicts(eviction_id), asked.steps(eviction_id)
        eviction_view.one(found, verdicts, steps.items, output.value)

    options.watched(shown, watch=watch)


@evictions_app.command()
@options.with_options
def verdicts(
    eviction_id: options.EvictionId, output: options.OutputOption = options.Output.TABLE, *, site: options.Site
) -> None:
    """Why each running job leaves or stays."""
    with options.source(site) as asked:
        found = asked.verdicts(eviction_id)
    if output is options.Output.JSON:
        render.print_json({"items": [each.model_dump(mode="json") for each in found], "next_offset": None})
    else:
        render.console(output.value).print(eviction_view.verdict_table(found, {}))


@evictions_app.command()
@options.with_options
def steps(
    eviction_id: options.EvictionId, output: options.OutputOption = options.Output.TABLE, *, site: options.Site
) -> None:
    """Everything that was done or noticed, in order."""
    with options.source(site) as asked:
        found = asked.steps(eviction_id)
    if output is options.Output.JSON:
        render.print_document(found)
    else:
        render.console(output.value).print(eviction_view.journal(found.items))


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


def _waiting_for(asked: Source, job: str) -> int:
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
