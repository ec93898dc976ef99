"""What the command line prints: tables for people, JSON for programs.

Names, comments and reasons come from users and from Slurm: they are never read as markup, and no control character of
theirs reaches the terminal.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, Group, JustifyMethod, OverflowMethod
from rich.table import Table
from rich.text import Text

from clearway.drain.rolling import progress
from clearway.execution.gate import Gate
from clearway.model.durations import format_duration
from clearway.model.operations import Drain, Eviction, Operation, Relocation, StepRecord
from clearway.model.orders import RelocationOrder
from clearway.model.plan import Choice, Curve, CurvePoint, DrainPlan, NoPlan, OperationPlan, RelocationPlan, Verdict
from clearway.model.requests import OperatorRequest
from clearway.service.requests import BACKEND, PAUSED
from clearway.slurm.parse.hostlist import compress, short
from clearway.store.base import Store

T = TypeVar("T")
Columns = dict[str, Callable[[Any], object]]

_ANSWER_LIMIT_S = 15.0
_BAR = 40
_EXEMPT_SHOWN = 30
_NARROW = 100  # characters
_SENTENCES = frozenset({"why", "outcome", "note", "detail", "action", "actions", "cheapest action", ""})


def visible(text: str) -> str:
    """Control characters, and what reorders text, as Python writes them in a literal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class VisibleTable(Table):
    """A table whose cells are shown as they are."""

    def add_row(self, *cells: object, **options: Any) -> None:
        super().add_row(*(cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in cells), **options)


def console() -> Console:
    return Console(highlight=False, emoji=False, markup=False)


def print_json(value: Any) -> None:
    """Times as ISO 8601; what JSON does not know otherwise, as text."""
    print(
        json.dumps(value, indent=2, default=lambda each: each.isoformat() if hasattr(each, "isoformat") else str(each))
    )


def picked(record: object, *names: str) -> dict[str, Any]:
    """These attributes of it, for programs."""
    return {name: getattr(record, name) for name in names}


def node_hours(node_s: float | None) -> str:
    return "-" if node_s is None else f"{node_s / 3_600:,.1f}"


def when(time_: datetime | None) -> str:
    return "-" if time_ is None else time_.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def wait_for(answer: Callable[[], T | None], limit_s: float = _ANSWER_LIMIT_S) -> T | None:
    end = time.monotonic() + limit_s
    while (found := answer()) is None and time.monotonic() < end:
        time.sleep(0.1)
    return found


def table(*columns: str, title: str = "") -> VisibleTable:
    """A table without rows; a column whose name begins with ``>`` is aligned to the right."""
    made = VisibleTable(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        # Only sentences are broken on a narrow screen: half an id or half a time is of no use, and the rest of a
        # number that was cut must not be taken for the number.
        sentence = name in _SENTENCES
        overflow: OverflowMethod = "fold" if sentence else "ellipsis"
        justify: JustifyMethod = "left" if name == column else "right"
        made.add_column(name, justify=justify, overflow=overflow, no_wrap=not sentence)
    return made


def listing(rows: Iterable[Any], columns: Columns, title: str = "") -> VisibleTable:
    """A row for each of these, by the columns that say what of it they show."""
    made = table(*columns, title=title)
    for row in rows:
        made.add_row(*(cell(row) for cell in columns.values()))
    return made


def curve_table(curve: Curve, chosen: CurvePoint | None) -> Table:
    """The trade-off: one bar for every delay at which the answer changes; returns where any costs something."""
    back = (">return node-hours",) if any(point.return_node_s for point in curve.points) else ()
    made = table(">may wait", ">lost node-hours", *back, "", title="Trade-off: delay against lost work")
    most = max((point.lost_work_node_s or 0.0 for point in curve.points), default=0.0) or 1.0
    for _, alike in groupby(curve.points, key=lambda point: (point.feasible, point.cost)):
        point = next(alike)
        if not point.feasible:
            nothing = ["-" for _ in back]
            made.add_row(format_duration(point.max_delay_s), "-", *nothing, Text("not possible", style="dim"))
            continue
        lost = point.lost_work_node_s or 0.0
        bar = Text("█" * round(_BAR * lost / most) or "▏")
        preempted = point.cost.preemptees
        bar.append(f"  {preempted} job{'s' * (preempted != 1)}", style="dim")
        if chosen is not None and point.max_delay_s == chosen.max_delay_s:
            bar.append("  <- chosen", style="bold green")
        returns = [node_hours(point.return_node_s) for _ in back]
        made.add_row(format_duration(point.max_delay_s), node_hours(lost), *returns, bar)
    return made


def verdict_table(verdicts: Sequence[Verdict], names: dict[str, str]) -> Table:
    made = table("job", "", "why", title="Every job, with the reason")
    style = {Choice.CHOSEN: "bold yellow", Choice.SPARED: "green", Choice.EXEMPT: "dim"}
    order = list(style)
    shown = sorted(verdicts, key=lambda v: (order.index(v.choice), v.job_id))
    more = sum(v.choice is Choice.EXEMPT for v in verdicts) - _EXEMPT_SHOWN
    for verdict in shown[:-more] if more > 0 else shown:
        job = names.get(verdict.job_id, verdict.job_id)
        made.add_row(job, Text(verdict.choice.value, style=style[verdict.choice]), verdict.reason)
    if more > 0:
        made.add_row("...", "", f"and {more} more exempt jobs (-o json shows all)")
    return made


def preemption_table(eviction: Operation) -> Table:
    columns: Columns = {
        "job": lambda p: p.job.display_id,
        "user": lambda p: p.job.user,
        ">nodes": lambda p: p.job.num_nodes,
        "action": lambda p: p.action.shown,
        "state": lambda p: p.state.value,
        ">node-h\nlost": lambda p: node_hours(p.actual_lost_node_s),
        ">node-h\nplanned": lambda p: node_hours(p.predicted_lost_node_s),
        "note": lambda p: p.note,
    }
    return listing(sorted(eviction.preemptions, key=lambda p: p.order), columns)


def status(store: Store, now: datetime, output: str, halt_file: Path | None) -> None:
    beat, leader = store.sign_of_life(), next(iter(store.leaders(limit=1)), None)
    age_s = (now - beat).total_seconds() if beat else None
    backend = store.get_value(BACKEND)
    open_ones = store.open_evictions()
    rolling = store.open_rolling_drains()
    paused = bool(store.get_value(PAUSED))
    halted = Gate(store, halt_file).closed()
    if output == "json":
        print_json(
            {
                "last_heartbeat": beat.isoformat() if beat else None,
                "heartbeat_age_s": age_s,
                "leader": leader.owner if leader and leader.ended is None else None,
                "backend": backend,
                "paused": paused,
                "halted": halted,
                "open_evictions": [summary(e) for e in open_ones],
                "open_rolling_drains": {each.rolling_id: progress(each) for each in rolling},
            }
        )
        return
    out = console()
    if age_s is None:
        out.print("The daemon has not run with this database yet.")
    else:
        out.print(f"Last sign of life {format_duration(max(0.0, age_s))} ago, Slurm through {backend}.")
        if leader is not None:
            out.print(Text(f"Leader: {visible(leader.owner)}" if leader.ended is None else "No daemon leads."))
    if halted:
        out.print(Text(f"No command is given to Slurm: {halted}.", style="bold red"))
    if paused:
        out.print(Text("Paused: nothing new is begun.", style="bold yellow"))
    for each in rolling:
        out.print(f"Rolling drain {each.rolling_id}, {each.at_once} at once: {progress(each)}.")
    if open_ones:
        evictions(open_ones, output)
    elif not rolling:
        out.print("Nothing is planned or under way.")


def answered(request: OperatorRequest) -> dict[str, Any]:
    """What the daemon answered to a request, for programs."""
    return picked(request, "request_id", "result", "refused", "eviction_id", "rolling_id")


def summary(e: Operation) -> dict[str, Any]:
    return {
        **picked(e, "eviction_id", "state", "mode"),
        "preemptor": e.subject.display_id,
        "user": e.subject.user,
        "drain": compress(e.drained_nodes) if isinstance(e, Drain | Relocation) else None,
        "move": e.order.kind if isinstance(e, Relocation) else None,
        "nodes_needed": e.plan.nodes_needed,
        "created_at": e.created_at,
        "deadline": e.plan.deadline,
        "started_at": e.started_at,
        "preemptees": len(e.plan.preemptees),
        "predicted_lost_work_node_s": e.predicted_lost_node_s,
        "actual_lost_work_node_s": e.actual_lost_node_s,
        "outcome": e.outcome,
    }


def evictions(found: Sequence[Operation], output: str) -> None:
    if output == "json":
        print_json([summary(e) for e in found])
        return
    columns: Columns = {
        ">no.": lambda e: e.eviction_id,
        "state": lambda e: e.state.value,
        "for": _goal,
        ">nodes": lambda e: e.plan.nodes_needed,
        "planned": lambda e: f"{e.created_at.astimezone():%m-%d %H:%M}",
        ">jobs": lambda e: len(e.plan.preemptees),
        ">node-h\nlost": lambda e: node_hours(e.actual_lost_node_s if e.state.terminal else e.predicted_lost_node_s),
        "outcome": lambda e: e.outcome,
    }
    if console().width < _NARROW:  # then the outcome, a sentence, needs the room more
        del columns[">nodes"], columns["planned"]
    console().print(listing(found, columns) if found else "There are none.")


def _goal(e: Operation) -> str:
    if isinstance(e, Relocation):
        return f"{e.order.kind.value} {compress({move.source for move in e.order.moves})}"
    if isinstance(e, Drain):
        return f"drain {compress(e.order.nodes)}"
    return f"{e.subject.display_id} {e.subject.user}"


def purpose(e: Operation) -> str:
    """What it is for, after its number in a sentence."""
    if isinstance(e, Relocation):
        return f"for {e.order.kind.value}, asked for by {e.order.actor}"
    if isinstance(e, Drain):
        return f"to drain {compress(e.order.nodes)} for {e.order.actor}"
    assert isinstance(e, Eviction), e.kind  # noqa: S101 - there are three kinds
    return f"for {e.plan.called} {e.preemptor.display_id}"


def eviction(e: Operation, steps: Sequence[StepRecord], output: str) -> None:
    switch, note = (e.plan.switch, e.plan.note) if isinstance(e, Eviction) else ("", "")
    if output == "json":
        print_json(
            summary(e)
            | {
                "placement": e.placement,
                "placement_nodes": e.plan.placement_nodes,
                "switch": switch or None,
                "note": note,
                "preemptions": [
                    picked(p, "job_id", "action", "state", "reason")
                    | {"predicted_lost_work_node_s": p.predicted_lost_node_s}
                    | {"actual_lost_work_node_s": p.actual_lost_node_s, "note": p.note}
                    for p in e.preemptions
                ],
                "verdicts": _verdicts(e.plan.verdicts),
                "curve": _points(e.plan.curve.points),
                "steps": [
                    {"at": s.intended_at}
                    | picked(s, "job_id", "kind")
                    | {"result": s.result or "unknown", "detail": s.detail}
                    for s in steps
                ],
            }
        )
        return
    out = console()
    out.print(visible(f"Eviction {e.eviction_id} {purpose(e)}: {e.state.value}. {e.outcome}"))
    where = f", all under leaf switch {switch}," if switch else ""
    out.print(
        f"{e.plan.nodes_needed} nodes{where} by {when(e.plan.deadline)}; planned {when(e.created_at)} "
        f"by {e.plan.curve.planner}.{f' It was {note}.' if note else ''}\n"
    )
    names = {p.job_id: p.job.display_id for p in e.preemptions}
    done: Columns = {
        "at": lambda s: when(s.intended_at),
        "job": lambda s: s.job_id or "",
        "step": lambda s: s.kind,
        "result": lambda s: s.result or "unknown",
        "detail": lambda s: s.detail,
    }
    curve, verdicts = curve_table(e.plan.curve, e.plan.chosen), verdict_table(e.plan.verdicts, names)
    out.print(Group(preemption_table(e), "", curve, "", verdicts, "", listing(steps, done, title="What was done")))


def _verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [asdict(verdict) for verdict in verdicts]


def _points(points: Sequence[CurvePoint]) -> list[dict[str, Any]]:
    return [picked(point, "max_delay_s", "feasible", "lost_work_node_s", "return_node_s") for point in points]


def _moves(order: RelocationOrder) -> dict[str, Any]:
    return {"moves": [asdict(move) for move in order.moves]} | picked(order, "gain_node_s", "cost_node_s")


def _nothing_to_trade(plan: OperationPlan) -> bool:
    """Relocations have no deadline, and empty nodes cost nothing."""
    return isinstance(plan, RelocationPlan) or (isinstance(plan, DrainPlan) and not plan.problem.candidates)


def _headline(plan: DrainPlan | RelocationPlan) -> str:
    jobs, saving, order = len(plan.preemptees), format_duration(plan.chosen.checkpoint_s or 0), plan.order
    if isinstance(order, RelocationOrder):
        emptied = f"{short(order.nodes)} would become empty; " if order.nodes else ""
        balance = f"gain {order.gain_node_s / 3_600:.2f} node-hours, cost {order.cost_node_s / 3_600:.2f}"
        return f"{order.kind.value.capitalize()}: {jobs} job(s) would move; {emptied}{balance}."
    if not plan.verdicts:
        return f"No job is on {short(order.nodes)}: nothing would have to leave."
    return f"{jobs} job(s) would leave {short(order.nodes)}; saving them takes {saving}."


def what_if(answer: OperationPlan | NoPlan, output: str, **more: Any) -> None:
    """``more`` goes into the JSON as it is."""
    curve = answer.curve
    plan = answer if isinstance(answer, OperationPlan) else None
    if output == "json":
        print_json(
            {
                "feasible": plan is not None,
                "why_not": answer.why if isinstance(answer, NoPlan) else None,
                "lost_work_node_s": plan.chosen.lost_work_node_s if plan else None,
                "nodes": plan.placement_nodes if plan else (),
                "actions": [picked(action, "job_id", "action") for action in (plan.chosen.actions if plan else ())],
                "move": _moves(plan.order) if isinstance(plan, RelocationPlan) else None,
                "verdicts": _verdicts(answer.verdicts),
                "curve": _points(curve.points if curve else ()),
            }
            | more
        )
        return
    out = console()
    if isinstance(answer, NoPlan):
        out.print(visible(f"Not possible: {answer.why}."))
        if answer.verdicts:
            out.print(verdict_table(answer.verdicts, {}))
    if isinstance(plan, DrainPlan | RelocationPlan):
        out.print(visible(_headline(plan)) + "\n")
    if curve is not None and not (plan is not None and _nothing_to_trade(plan)):
        out.print(curve_table(curve, plan.chosen if plan else None))
        out.print()
    if plan is not None and plan.verdicts:
        out.print(verdict_table(plan.verdicts, {job.job_id: job.display_id for job in plan.leaving}))
