"""How evictions, drains, moves and plans are shown: tables for people, the answers of REST for programs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearway.api.schemas import (
    ChosenPointView,
    CurvePointView,
    CurveView,
    DrainView,
    EvictionList,
    EvictionSummary,
    EvictionView,
    PreemptionView,
    RollingList,
    RollingView,
    RollingWhatIf,
    StepView,
    VerdictView,
    WhatIfView,
    WholePlanView,
)
from clearway.cli.render import NARROW, Columns, answer, console, listing, node_hours, table, visible, when
from clearway.model.durations import format_duration
from clearway.model.orders import TurnState
from clearway.model.plan import Choice
from clearway.slurm.parse.hostlist import compress, expand, short

_BAR = 40  # characters
_EXEMPT_SHOWN = 30


def evictions(found: EvictionList, output: str) -> None:
    answer(found, output, lambda: summaries(found.items, output) if found.items else "There are none.")


def summaries(found: Sequence[EvictionSummary], output: str, title: str = "") -> Table:
    columns: Columns = {
        ">no.": lambda e: e.eviction_id,
        "state": lambda e: e.state.value,
        "for": _goal,
        ">nodes": lambda e: e.nodes_needed,
        "planned": lambda e: f"{e.created_at.astimezone():%m-%d %H:%M}",
        ">jobs": lambda e: e.preemptees,
        ">node-h\nlost": lambda e: node_hours(
            e.actual_lost_work_node_s if e.state.terminal else e.predicted_lost_work_node_s
        ),
        "outcome": lambda e: e.outcome,
    }
    if console(output).width < NARROW:  # then the outcome, a sentence, needs the room more
        del columns[">nodes"], columns["planned"]
    return listing(found, columns, title)


def _goal(e: EvictionSummary) -> str:
    if e.promise is not None:
        return f"promise {e.promise.at.astimezone():%m-%d %H:%M}"
    if e.drain is None:
        return f"{e.display_id}{of_tasks(e.tasks)} {e.user}"
    if e.drain.move is None:
        return f"drain {e.drain.nodes}"
    return f"{e.drain.move.kind.value} {compress({move.source for move in e.drain.move.moves})}"


def of_tasks(tasks: int) -> str:
    """What is added to the id of an array of which so many tasks start at once."""
    return f" ({tasks} tasks)" if tasks > 1 else ""


def purpose(e: EvictionSummary) -> str:
    """What it is for, after its number in a sentence."""
    if e.promise is not None:
        return f"for nodes promised from {when(e.promise.at)} on, asked for by {e.promise.actor}"
    if e.drain is None:
        return f"for job {e.display_id}{of_tasks(e.tasks)} of {e.user}"
    if e.drain.move is not None:
        return f"for {e.drain.move.kind.value}, asked for by {e.drain.actor}"
    return f"to drain {e.drain.nodes} for {e.drain.actor}"


def eviction(e: EvictionView, verdicts: Sequence[VerdictView], steps: Sequence[StepView], output: str) -> None:
    out, plan = console(output), e.plan
    out.print(visible(f"Eviction {e.eviction_id} {purpose(e)}: {e.state.value}. {e.outcome}".rstrip()))
    if e.replaced_by is not None:
        out.print(f"Eviction {e.replaced_by} replaces it: clearway evictions show {e.replaced_by}")
    where = f", all under leaf switch {plan.switch}," if plan.switch else ""
    note = f" It was {plan.note}." if plan.note else ""
    out.print(
        visible(
            f"{plan.nodes_needed} nodes{where} by {when(plan.deadline)}; planned {when(e.created_at)} "
            f"by {plan.curve.planner}.{note}"
        )
    )
    if plan.together:
        out.print(visible(f"Planned together with the job(s) {', '.join(plan.together)}, and approved with them."))
    names = {p.job_id: p.display_id for p in e.preemptions}
    curve, reasons = curve_table(plan.curve, plan.chosen), verdict_table(verdicts, names)
    out.print(Group("", preemption_table(e.preemptions), "", curve, "", reasons, "", journal(steps)))


def journal(steps: Sequence[StepView]) -> Table:
    columns: Columns = {
        "at": lambda s: when(s.intended_at),
        "job": lambda s: s.job_id or "",
        "step": lambda s: s.kind,
        "result": lambda s: s.result or "unknown",
        "detail": lambda s: s.detail,
    }
    return listing(steps, columns, title="What was done")


def preemption_table(preemptions: Sequence[PreemptionView]) -> Table:
    columns: Columns = {
        "job": lambda p: p.display_id,
        "user": lambda p: p.user,
        ">nodes": lambda p: len(expand(p.nodes)),
        "action": lambda p: p.action.shown,
        "state": lambda p: p.state.value,
        ">node-h\nlost": lambda p: node_hours(p.actual_lost_work_node_s),
        ">node-h\nplanned": lambda p: node_hours(p.predicted_lost_work_node_s),
        "note": lambda p: p.note,
    }
    return listing(preemptions, columns)


def curve_table(curve: CurveView, chosen: ChosenPointView | None) -> Table:
    """The trade-off: one bar for every delay at which the answer changes; returns where any costs something."""
    back = (">return node-hours",) if any(point.return_node_s for point in curve.points) else ()
    made = table(">may wait", ">lost node-hours", *back, "", title="Trade-off: delay against lost work")
    most = max((point.lost_work_node_s or 0.0 for point in curve.points), default=0.0) or 1.0
    for _, alike in groupby(curve.points, key=_cost):
        point = next(alike)
        if not point.feasible:
            nothing = ["-" for _ in back]
            made.add_row(format_duration(point.max_delay_s), "-", *nothing, Text("not possible", style="dim"))
            continue
        lost = point.lost_work_node_s or 0.0
        bar = Text("█" * round(_BAR * lost / most) or "▏")
        bar.append(f"  {point.preemptees} job{'s' * (point.preemptees != 1)}", style="dim")
        if chosen is not None and point.max_delay_s == chosen.max_delay_s:
            bar.append("  <- chosen", style="bold green")
        returns = [node_hours(point.return_node_s) for _ in back]
        made.add_row(format_duration(point.max_delay_s), node_hours(lost), *returns, bar)
    if not curve.complete:
        made.caption = "Further delays are being worked out"
    return made


def _cost(point: CurvePointView) -> tuple[object, ...]:
    return point.feasible, point.lost_work_node_s, point.return_node_s, point.checkpoint_s, point.preemptees


def verdict_table(verdicts: Sequence[VerdictView], names: Mapping[str, str]) -> Table:
    """Of exempt jobs the first ones."""
    made = table("job", "", "why", title="Every job, with the reason")
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


def what_if(found: WhatIfView, output: str) -> None:
    answer(found, output, lambda: Group(*_would_be(found)))


def _would_be(answer: WhatIfView) -> Iterator[RenderableType]:
    plan = answer.plan
    if plan is None:
        yield visible(f"Not possible: {answer.why}.")
    elif answer.drain is not None:
        yield visible(_headline(answer.drain, plan)) + "\n"
    if answer.budget:
        yield visible(f"It would wait for an operator's approval: {answer.budget}.") + "\n"
    if answer.curve is not None:
        yield from (curve_table(answer.curve, plan.chosen if plan else None), "")
    reasons: tuple[VerdictView, ...] = plan.verdicts if plan else answer.verdicts
    if reasons:
        yield verdict_table(reasons, {each.job_id: each.display_id for each in plan.chosen.actions} if plan else {})


def _headline(drain: DrainView, plan: WholePlanView) -> str:
    jobs, nodes = plan.chosen.preemptees, short(expand(drain.nodes))
    if drain.move is not None:
        move = drain.move
        emptied = f"{nodes} would become empty; " if drain.nodes else ""
        balance = f"gain {move.gain_node_s / 3_600:.2f} node-hours, cost {move.cost_node_s / 3_600:.2f}"
        return f"{move.kind.value.capitalize()}: {jobs} job(s) would move; {emptied}{balance}."
    if not plan.verdicts:
        return f"No job is on {nodes}: nothing would have to leave."
    return f"{jobs} job(s) would leave {nodes}; saving them takes {format_duration(plan.chosen.checkpoint_s or 0)}."


def batches(found: RollingWhatIf, output: str) -> None:
    made = table(">batch", "nodes", ">jobs", ">saving takes")
    for number, batch in enumerate(found.batches, 1):
        made.add_row(number, batch.nodes, batch.jobs, format_duration(batch.checkpoint_s))
    skipped = [visible(f"Skipped: {name}: {why}.") for name, why in found.skipped.items()]
    answer(found, output, lambda: Group(made if found.batches else "No node could be emptied.", *skipped))


def rolling_drains(found: RollingList, output: str) -> None:
    columns: Columns = {
        ">no.": lambda each: each.rolling_id,
        "state": lambda each: each.state.value,
        "nodes": lambda each: compress(turn.node for turn in each.turns),
        ">at once": lambda each: each.at_once,
        "ordered": lambda each: f"{each.created_at.astimezone():%m-%d %H:%M}",
        "turns": turns,
        "outcome": lambda each: each.outcome,
    }
    answer(found, output, lambda: listing(found.items, columns) if found.items else "There are none.")


def rolling_drain(found: RollingView, output: str) -> None:
    reason = f": {found.reason}" if found.reason else ""
    head = (
        f"Rolling drain {found.rolling_id} of {len(found.turns)} node(s), {found.at_once} at once, "
        f"for {found.actor}{reason}; ordered {when(found.created_at)}."
    )
    groups: defaultdict[tuple[TurnState, str, int | None], list[str]] = defaultdict(list)
    for turn in found.turns:
        groups[turn.state, turn.note, turn.drain_id].append(turn.node)
    made = table("nodes", "turn", ">drain", "why")
    for (state, note, drain_id), names in groups.items():
        made.add_row(compress(names), state.value, drain_id or "", note)
    standing = visible(f"{found.state.value}: {turns(found)}. {found.outcome}")
    answer(found, output, lambda: Group(visible(head), standing, made))


def turns(rolling: RollingView) -> str:
    counts = Counter(turn.state for turn in rolling.turns)
    return ", ".join(f"{counts[state]} {state.value}" for state in TurnState if counts[state])
