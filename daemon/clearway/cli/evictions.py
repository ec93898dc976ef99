"""``clearway evictions``, and how evictions, drains, moves and plans are shown."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearway.api import schemas as s
from clearway.cli import options, render
from clearway.model.durations import format_duration
from clearway.model.errors import ClearwayError
from clearway.model.operations import STATE_GROUPS, EvictionState
from clearway.model.plan import Choice
from clearway.model.requests import RequestKind
from clearway.preemption.approval import ApprovalRequest
from clearway.slurm.parse.hostlist import compress, expand, short

evictions_app = options.CommandGroup("Planned, active and past evictions; approve and cancel them.")
Which = StrEnum("Which", [*STATE_GROUPS, "all"])  # type: ignore[misc]
_WAITING = EvictionState.AWAITING_APPROVAL
_MOST_WAITING = 1_000
_BAR = 40  # characters
_EXEMPT_SHOWN = 30


@evictions_app.command("list")
def list_evictions(
    which: Annotated[Which, typer.Option("--state", help="State of the evictions.")] = Which["all"],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of evictions, newest first.")] = 20,
    watch: options.WatchOption = False,
    look: options.Look = options.LOOKING,
) -> None:
    """List evictions, newest first."""
    state = None if which.value == "all" else which.value
    look.show(
        lambda asked: asked.evictions(state, limit),
        lambda found: summaries(found.items, look.output) if found.items else "There are none.",
        watch=watch,
    )


@evictions_app.command("show")
def show_eviction(eviction_id: options.EvictionId, watch: options.WatchOption = False, *, look: options.Look) -> None:
    """One eviction: the plan, a reason for every job, the trade-off curve, every step."""

    def shown() -> None:
        with options.source(look.site) as asked:
            found = asked.eviction(eviction_id)
            if look.output is options.Output.JSON:
                render.print_document(found)
                return
            verdicts, steps = asked.verdicts(eviction_id), asked.steps(eviction_id)
        eviction(found, verdicts, steps.items, look.output)

    options.watched(shown, watch=watch)


@evictions_app.command()
def verdicts(eviction_id: options.EvictionId, look: options.Look = options.LOOKING) -> None:
    """Why each running job leaves or stays."""
    look.show(
        lambda asked: s.VerdictList(items=asked.verdicts(eviction_id), next_offset=None),
        lambda found: verdict_table(found.items, {}),
    )


@evictions_app.command()
def steps(eviction_id: options.EvictionId, look: options.Look = options.LOOKING) -> None:
    """Everything that was done or noticed, in order."""
    look.show(lambda asked: asked.steps(eviction_id), lambda found: journal(found.items))


@evictions_app.command()
def approve(
    eviction_id: Annotated[
        int | None, typer.Argument(max=options.LARGEST_ID, help="Number of the eviction, else --job.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="The eviction that waits for approval for this urgent job.")] = None,
    revision: Annotated[
        int | None, typer.Option(min=0, help="Of the plan that was read: one that was changed since is not approved.")
    ] = None,
    *,
    site: options.Site,
) -> None:
    """Let a planned eviction be carried out, with those that were planned together with it; tell what comes of it."""
    if (eviction_id is None) == (job is None):
        raise typer.BadParameter("give either the number of an eviction or --job ID")
    if eviction_id is None:
        with options.source(site) as asked:
            waiting = asked.evictions(_WAITING.value, _MOST_WAITING).items
            eviction_id = next((each.eviction_id for each in waiting if job in (each.job_id, each.display_id)), None)
            if eviction_id is None:
                hint = "(clearway evictions list --state planned)"
                raise ClearwayError(f"no eviction for the job {job!r} waits for approval {hint}")
    document = "" if revision is None else ApprovalRequest(revision=revision).model_dump_json()
    options.ask(RequestKind.APPROVE, site, eviction_id, document=document)
    _follow(eviction_id, site)


def _follow(eviction_id: int, site: options.Site) -> None:
    """Tell what has become of an approval: the next cycle may still find that the plan does not fit any more."""

    def begun() -> s.EvictionView | None:
        found = asked.eviction(eviction_id)
        return None if found.state in (_WAITING, EvictionState.PLACING) else found

    with options.source(site) as asked:
        found = render.wait_for(begun)
    if found is None:
        print(f"Eviction {eviction_id} is not under way yet (clearway evictions show {eviction_id})")
    elif found.state is EvictionState.SUPERSEDED:
        instead = "" if found.replaced_by is None else f" Eviction {found.replaced_by} replaces it."
        options.complain(f"eviction {eviction_id} was superseded, and nothing was done: {found.outcome}{instead}")
        raise typer.Exit(options.FAILED)
    else:
        told = (
            f"Eviction {eviction_id} is {found.state.value}: {render.counted(found.preemptees, 'job')}. {found.outcome}"
        )
        print(render.visible(told.rstrip()))


@evictions_app.command()
def cancel(eviction_id: options.EvictionId, *, site: options.Site) -> None:
    """Undo an eviction; jobs past their point of no return are followed until they run again."""
    options.ask(RequestKind.CANCEL, site, eviction_id)


def summaries(found: Sequence[s.EvictionSummary], output: str, title: str = "") -> Table:
    columns: render.Columns = {
        ">no.": lambda e: e.eviction_id,
        "state": lambda e: e.state.value,
        "for": _goal,
        ">nodes": lambda e: e.nodes_needed,
        "planned": lambda e: render.minute(e.created_at),
        ">jobs": lambda e: e.preemptees,
        ">node-h\nlost": lambda e: render.node_hours(
            e.actual_lost_work_node_s if e.state.terminal else e.predicted_lost_work_node_s
        ),
        "outcome": lambda e: e.outcome,
    }
    if render.console(output).width < render.NARROW:  # then the outcome, a sentence, needs the room more
        del columns[">nodes"], columns["planned"]
    return render.listing(found, columns, title)


def _goal(e: s.EvictionSummary) -> str:
    if e.promise is not None:
        return f"promise {render.minute(e.promise.at)}"
    if e.drain is None:
        return f"{e.display_id}{of_tasks(e.tasks)} {e.user}"
    if e.drain.move is None:
        return f"drain {e.drain.nodes}"
    return f"{e.drain.move.kind.value} {compress({move.source for move in e.drain.move.moves})}"


def of_tasks(tasks: int) -> str:
    """What is added to the id of an array of which so many tasks start at once."""
    return f" ({tasks} tasks)" if tasks > 1 else ""


def purpose(e: s.EvictionSummary) -> str:
    """What it is for, after its number in a sentence."""
    if e.promise is not None:
        return f"for nodes promised from {render.when(e.promise.at)} on, asked for by {e.promise.actor}"
    if e.drain is None:
        return f"for job {e.display_id}{of_tasks(e.tasks)} of {e.user}"
    if e.drain.move is not None:
        return f"for {e.drain.move.kind.value}, asked for by {e.drain.actor}"
    return f"to drain {e.drain.nodes} for {e.drain.actor}"


def eviction(e: s.EvictionView, verdicts: Sequence[s.VerdictView], steps: Sequence[s.StepView], output: str) -> None:
    render.console(output).print(render.page(_told(e, verdicts, steps)))


def _told(e: s.EvictionView, why: Sequence[s.VerdictView], steps: Sequence[s.StepView]) -> Iterator[RenderableType]:
    plan = e.plan
    yield f"Eviction {e.eviction_id} {purpose(e)}: {e.state.value}. {e.outcome}".rstrip()
    if e.replaced_by is not None:
        yield f"Eviction {e.replaced_by} replaces it: clearway evictions show {e.replaced_by}"
    where = f", all under leaf switch {plan.switch}," if plan.switch else ""
    note = f" It was {plan.note}." if plan.note else ""
    planned = f"planned {render.when(e.created_at)} by {plan.curve.planner}.{note}"
    yield f"{plan.nodes_needed} nodes{where} by {render.when(plan.deadline)}; {planned}"
    if plan.together:
        yield f"Planned together with the job(s) {', '.join(plan.together)}, and approved with them."
    if e.state is _WAITING:
        lost, more = render.node_hours(e.predicted_lost_work_node_s), e.unsaved_nodes
        yield f"It would lose {lost} node-hours, and {more} more with each hour until it is approved."
        yield f"To approve it as shown here: clearway evictions approve {e.eviction_id} --revision {e.revision}"
    columns: render.Columns = {
        "job": lambda p: p.display_id,
        "user": lambda p: p.user,
        ">nodes": lambda p: len(expand(p.nodes)),
        "action": lambda p: p.action.shown,
        "state": lambda p: p.state.value,
        ">node-h\nlost": lambda p: render.node_hours(p.actual_lost_work_node_s if p.loss_measured else None),
        ">node-h\nplanned": lambda p: render.node_hours(p.predicted_lost_work_node_s),
        "note": lambda p: p.note,
    }
    names = {p.job_id: p.display_id for p in e.preemptions}
    yield from ("", render.listing(e.preemptions, columns), "", curve_table(plan.curve, plan.chosen))
    yield from ("", verdict_table(why, names), "", journal(steps))


def journal(steps: Sequence[s.StepView]) -> Table:
    columns: render.Columns = {
        "at": lambda step: render.when(step.intended_at),
        "job": lambda step: step.job_id or "",
        "step": lambda step: step.kind,
        "result": lambda step: step.result or "unknown",
        "detail": lambda step: step.detail,
    }
    return render.listing(steps, columns, title="What was done")


def curve_table(curve: s.CurveView, chosen: s.ChosenPointView | None) -> Table:
    """The trade-off: one bar for every delay at which the answer changes; returns where any costs something."""
    back = (">return node-hours",) if any(point.return_node_s for point in curve.points) else ()
    made = render.table(">may wait", ">lost node-hours", *back, "", title="Trade-off: delay against lost work")
    most = max((point.lost_work_node_s or 0.0 for point in curve.points), default=0.0) or 1.0
    cost = attrgetter("feasible", "lost_work_node_s", "return_node_s", "checkpoint_s", "preemptees")
    for _, alike in groupby(curve.points, key=cost):
        point = next(alike)
        if not point.feasible:
            nothing = ["-", *("-" for _ in back), Text("not possible", style="dim")]
            made.add_row(format_duration(point.max_delay_s), *nothing)
            continue
        lost = point.lost_work_node_s or 0.0
        bar = Text("█" * round(_BAR * lost / most) or "▏")
        bar.append(f"  {render.counted(point.preemptees, 'job')}", style="dim")
        if chosen is not None and point.max_delay_s == chosen.max_delay_s:
            bar.append("  <- chosen", style="bold green")
        returns = [render.node_hours(point.return_node_s) for _ in back]
        made.add_row(format_duration(point.max_delay_s), render.node_hours(lost), *returns, bar)
    if not curve.complete:
        made.caption = "Further delays are being worked out"
    return made


def verdict_table(verdicts: Sequence[s.VerdictView], names: Mapping[str, str]) -> Table:
    """Of exempt jobs the first ones."""
    made = render.table("job", "", "why", title="Every job, with the reason")
    style = {Choice.CHOSEN: "bold yellow", Choice.SPARED: "green", Choice.EXEMPT: "dim"}
    order = list(style)
    shown = sorted(verdicts, key=lambda v: (order.index(v.choice), v.job_id))
    more = sum(v.choice is Choice.EXEMPT for v in verdicts) - _EXEMPT_SHOWN
    shown = shown[:-more] if more > 0 else shown
    for verdict in shown:
        job = names.get(verdict.job_id, verdict.job_id)
        made.add_row(job, Text(verdict.choice.value, style=style[verdict.choice]), verdict.reason)
    if more > 0:
        made.add_row("...", "", f"and {more} more exempt jobs (-o json shows all)")
    return made


def what_if(found: s.WhatIfView, output: str) -> None:
    render.answer(found, output, lambda: render.page(_would_be(found)))


def _would_be(found: s.WhatIfView) -> Iterator[RenderableType]:
    plan = found.plan
    if plan is None:
        yield f"Not possible: {found.why}."
    elif found.drain is not None:
        yield from (_headline(found.drain, plan), "")
    if found.budget:
        yield from (f"It would wait for an operator's approval: {found.budget}.", "")
    if found.curve is not None:
        yield from (curve_table(found.curve, plan.chosen if plan else None), "")
    reasons: tuple[s.VerdictView, ...] = plan.verdicts if plan else found.verdicts
    if reasons:
        yield verdict_table(reasons, {each.job_id: each.display_id for each in plan.chosen.actions} if plan else {})


def _headline(drain: s.DrainView, plan: s.WholePlanView) -> str:
    jobs, nodes = plan.chosen.preemptees, short(expand(drain.nodes))
    if drain.move is not None:
        move = drain.move
        emptied = f"{nodes} would become empty; " if drain.nodes else ""
        balance = f"gain {move.gain_node_s / 3_600:.2f} node-hours, cost {move.cost_node_s / 3_600:.2f}"
        return f"{move.kind.value.capitalize()}: {jobs} job(s) would move; {emptied}{balance}."
    if not plan.verdicts:
        return f"No job is on {nodes}: nothing would have to leave."
    return f"{jobs} job(s) would leave {nodes}; saving them takes {format_duration(plan.chosen.checkpoint_s or 0)}."
