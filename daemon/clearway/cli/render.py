"""What the command line prints: tables for people, JSON for programs.

Names, comments and reasons come from users and from Slurm: they are never read as markup, and no control character of
theirs reaches the terminal.
"""

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

from clearway.drain.rolling import progress
from clearway.model.durations import format_duration
from clearway.model.operations import Drain, Eviction, Operation, Relocation, StepRecord
from clearway.model.orders import RelocationOrder
from clearway.model.plan import Choice, Curve, CurvePoint, DrainPlan, NoPlan, OperationPlan, RelocationPlan, Verdict
from clearway.model.requests import OperatorRequest
from clearway.service.requests import HEARTBEAT, PAUSED
from clearway.slurm.parse.hostlist import compress, short
from clearway.store.base import Store

T = TypeVar("T")

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


class _VisibleTable(Table):
    """A table whose plain cells are shown as they are."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **options)


def console() -> Console:
    return Console(highlight=False, emoji=False, markup=False)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def node_hours(node_s: float | None) -> str:
    return "-" if node_s is None else f"{node_s / 3_600:,.1f}"


def when(time_: datetime | None) -> str:
    return "-" if time_ is None else time_.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def wait_for(answer: Callable[[], T | None], limit_s: float = _ANSWER_LIMIT_S) -> T | None:
    end = time.monotonic() + limit_s
    while (found := answer()) is None and time.monotonic() < end:
        time.sleep(0.1)
    return found


def table(*columns: str, title: str = "", right: Sequence[str] = ()) -> Table:
    made = _VisibleTable(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        # Only sentences are broken on a narrow screen: half an id or half a time is of no use, and the rest of a
        # number that was cut must not be taken for the number.
        sentence = name in _SENTENCES
        overflow: OverflowMethod = "fold" if sentence else "ellipsis"
        made.add_column(name, justify="right" if name in right else "left", overflow=overflow, no_wrap=not sentence)
    return made


# -- parts of a plan -------------------------------------------------------------------------------------------


def curve_table(curve: Curve, chosen: CurvePoint | None) -> Table:
    """The trade-off: one bar for every delay at which the answer changes; returns where any costs something."""
    back = ("return node-hours",) if any(point.return_node_s for point in curve.points) else ()
    numbers = ("may wait", "lost node-hours", *back)
    made = table(*numbers, "", title="Trade-off: delay against lost work", right=numbers)
    most = max((point.lost_work_node_s or 0.0 for point in curve.points), default=0.0) or 1.0
    before: tuple[Any, ...] | None = None
    for point in curve.points:
        key = (point.feasible, point.cost)
        if key == before:
            continue
        before = key
        if not point.feasible:
            nothing = ["-" for _ in numbers[1:]]
            made.add_row(format_duration(point.max_delay_s), *nothing, Text("not possible", style="dim"))
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
    order = {Choice.CHOSEN: 0, Choice.SPARED: 1, Choice.EXEMPT: 2}
    exempt = 0
    for verdict in sorted(verdicts, key=lambda v: (order[v.choice], v.job_id)):
        exempt += verdict.choice is Choice.EXEMPT
        if exempt > _EXEMPT_SHOWN:
            continue
        job = names.get(verdict.job_id, verdict.job_id)
        made.add_row(job, Text(verdict.choice.value, style=style[verdict.choice]), verdict.reason)
    if exempt > _EXEMPT_SHOWN:
        made.add_row("...", "", f"and {exempt - _EXEMPT_SHOWN} more exempt jobs (-o json shows all)")
    return made


def preemption_table(eviction: Operation) -> Table:
    made = table(
        "job", "user", "nodes", "action", "state", "node-h\nlost", "node-h\nplanned", "note",
        right=("nodes", "node-h\nlost", "node-h\nplanned"),
    )  # fmt: skip
    for p in sorted(eviction.preemptions, key=lambda p: p.order):
        made.add_row(
            p.job.display_id,
            p.job.user,
            str(p.job.num_nodes),
            p.action.shown,
            p.state.value,
            node_hours(p.actual_lost_node_s),
            node_hours(p.predicted_lost_node_s),
            p.note,
        )
    return made


# -- commands --------------------------------------------------------------------------------------------------


def status(store: Store, now: datetime, output: str) -> None:
    beat = store.get_value(HEARTBEAT)
    age_s = (now - datetime.fromisoformat(beat["at"])).total_seconds() if beat else None
    open_ones = store.open_evictions()
    rolling = store.open_rolling_drains()
    paused = bool(store.get_value(PAUSED))
    if output == "json":
        print_json(
            {
                "last_heartbeat": beat["at"] if beat else None,
                "heartbeat_age_s": age_s,
                "backend": beat["backend"] if beat else None,
                "paused": paused,
                "open_evictions": [summary(e) for e in open_ones],
                "open_rolling_drains": {each.rolling_id: progress(each) for each in rolling},
            }
        )
        return
    out = console()
    if beat is None or age_s is None:
        out.print("The daemon has not run with this database yet.")
    else:
        out.print(f"Last sign of life {format_duration(max(0.0, age_s))} ago, Slurm through {beat['backend']}.")
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
    return {
        "request_id": request.request_id,
        "result": request.result,
        "refused": request.refused,
        "eviction_id": request.eviction_id,
        "rolling_id": request.rolling_id,
    }


def summary(e: Operation) -> dict[str, Any]:
    return {
        "eviction_id": e.eviction_id,
        "state": e.state.value,
        "mode": e.mode,
        "preemptor": e.subject.display_id,
        "user": e.subject.user,
        "drain": compress(e.drained_nodes) if isinstance(e, Drain | Relocation) else None,
        "move": e.order.kind.value if isinstance(e, Relocation) else None,
        "nodes_needed": e.plan.nodes_needed,
        "created_at": e.created_at.isoformat(),
        "deadline": e.plan.deadline.isoformat(),
        "started_at": e.started_at.isoformat() if e.started_at else None,
        "preemptees": len(e.plan.preemptees),
        "predicted_lost_work_node_s": e.predicted_lost_node_s,
        "actual_lost_work_node_s": e.actual_lost_node_s,
        "outcome": e.outcome,
    }


def evictions(found: Sequence[Operation], output: str) -> None:
    if output == "json":
        print_json([summary(e) for e in found])
        return
    narrow = console().width < _NARROW  # then the outcome, a sentence, needs the room more
    made = table(
        "no.", "state", "for", *(() if narrow else ("nodes", "planned")), "jobs", "node-h\nlost", "outcome",
        right=("no.", "nodes", "jobs", "node-h\nlost"),
    )  # fmt: skip
    for e in found:
        lost = e.actual_lost_node_s if e.state.terminal else e.predicted_lost_node_s
        made.add_row(
            str(e.eviction_id), e.state.value, _goal(e),
            *(() if narrow else (str(e.plan.nodes_needed), f"{e.created_at.astimezone():%m-%d %H:%M}")),
            str(len(e.plan.preemptees)), node_hours(lost), e.outcome,
        )  # fmt: skip
    console().print(made if found else "There are none.")


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
                "placement_nodes": list(e.plan.placement_nodes),
                "switch": switch or None,
                "note": note,
                "preemptions": [
                    {
                        "job_id": p.job_id,
                        "action": p.action.value,
                        "state": p.state.value,
                        "reason": p.reason,
                        "predicted_lost_work_node_s": p.predicted_lost_node_s,
                        "actual_lost_work_node_s": p.actual_lost_node_s,
                        "note": p.note,
                    }
                    for p in e.preemptions
                ],
                "verdicts": _verdicts(e.plan.verdicts),
                "curve": _points(e.plan.curve.points),
                "steps": [
                    {
                        "at": s.intended_at.isoformat(),
                        "job_id": s.job_id,
                        "kind": s.kind,
                        "result": s.result or "unknown",
                        "detail": s.detail,
                    }
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
    made = table("at", "job", "step", "result", "detail", title="What was done")
    for s in steps:
        made.add_row(when(s.intended_at), s.job_id or "", s.kind, s.result or "unknown", s.detail)
    out.print(
        Group(
            preemption_table(e),
            "",
            curve_table(e.plan.curve, e.plan.chosen),
            "",
            verdict_table(e.plan.verdicts, names),
            "",
            made,
        )
    )


def _verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    return [{"job_id": v.job_id, "choice": v.choice.value, "code": v.code, "reason": v.reason} for v in verdicts]


def _points(points: Sequence[CurvePoint]) -> list[dict[str, Any]]:
    fields = ("max_delay_s", "feasible", "lost_work_node_s", "return_node_s")
    return [{name: getattr(point, name) for name in fields} for point in points]


def _move(order: RelocationOrder) -> dict[str, Any]:
    return {
        "moves": [
            {"job_id": m.job_id, "source": m.source, "target": m.target, "processors": m.processors}
            for m in order.moves
        ],
        "gain_node_s": order.gain_node_s,
        "cost_node_s": order.cost_node_s,
    }


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
                "nodes": list(plan.placement_nodes) if plan else [],
                "actions": [{"job_id": a.job_id, "action": a.action.value} for a in plan.chosen.actions]
                if plan
                else [],
                "move": _move(plan.order) if isinstance(plan, RelocationPlan) else None,
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
