"""What ``clearway explain`` prints: what every other decision would have cost."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

from clearway.api.schemas import AlternativeView, CostView, EvictionView, ExplanationView, PlanView, RuleOutcomeView
from clearway.api.views import explanation_view, what_if_view
from clearway.bootstrap import open_planner
from clearway.cli import asker, eviction_view, render
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.plan import Choice, NoPlan, Plan
from clearway.model.problem import Action
from clearway.preemption.explanation import explain as find

_SHOWN = 20
_NODE_HOURS = ">node-h lost"


def show(found: EvictionView, explanation: ExplanationView, output: str) -> None:
    if output == "json":
        render.print_document(explanation)
        return
    plan = found.plan
    head = (
        f"Eviction {found.eviction_id}: {plan.nodes_needed} nodes {eviction_view.purpose(found)} "
        f"by {render.when(plan.deadline)}. {_plan_in_words(plan, explanation)}"
    )
    names = {each.job_id: each.display_id for each in found.preemptions}
    render.console(output).print(Group(render.visible(head), "", tables(plan, explanation, names)))


def show_dry_run(config: Config, answer: Plan | NoPlan, output: str, *, explain: bool) -> None:
    """A plan that is not carried out, explained within the time that the daemon would take for that."""
    shown = what_if_view(asker.now(), answer)
    if isinstance(answer, NoPlan) or shown.plan is None or not explain:
        eviction_view.what_if(shown, output)
        return
    clock = SystemClock()
    ends = clock.monotonic() + config.planning.explanation_time
    found = find(answer, open_planner(config), lambda: clock.monotonic() < ends)
    explanation = explanation_view(0, answer, found)
    if output == "json":
        document = shown.model_dump(mode="json") | {"explanation": explanation.model_dump(mode="json")}
        render.print_json(document)
        return
    eviction_view.what_if(shown, output)
    names = {job.job_id: job.display_id for job in answer.leaving}
    render.console(output).print(Group("", tables(shown.plan, explanation, names)))


def tables(plan: PlanView, explanation: ExplanationView, names: Mapping[str, str]) -> Group:
    """Every question with its answers, the most frequent question first."""
    own, alternatives = explanation.cost, explanation.alternatives
    chosen = [each for each in alternatives if each.choice is Choice.CHOSEN]
    spared = [each for each in alternatives if each.choice is Choice.SPARED]
    parts: list[Any] = [_chosen_table(chosen, own, names), "", _spared_table(spared, own), ""]
    parts += [_rules_table(explanation), "", eviction_view.curve_table(plan.curve, plan.chosen)]
    last = max((point.max_delay_s for point in plan.curve.points), default=0)
    parts += [
        f"With a delay of {format_duration(later.max_delay_s)}: {_in_words(later.cost)}." for later in explanation.later
    ]
    if explanation.complete and not explanation.later:
        parts.append(f"Waiting up to {format_duration(2 * last)} would save nothing more.")
    if plan.together:
        others = ", ".join(plan.together)
        parts.append(
            f"This compares the plan with planning the job alone; it was planned together with the job(s) {others}."
        )
    if plan.note:
        parts.append(f"It was {plan.note}.")
    if not explanation.complete:
        parts.append('There was no time for every alternative ("?"); planning.explanation_time is the limit.')
    return Group(*parts)


def _plan_in_words(plan: PlanView, explanation: ExplanationView) -> str:
    proven = "proven to be the cheapest"
    if plan.together:
        proven = "planned together with others"
    elif not explanation.exact:
        gap = explanation.gap_ratio
        proven = f"at most {100 * gap:.1f} % of it may be needless" if gap else "not proven to be the cheapest"
    return f"The plan ({explanation.planner}): {_in_words(explanation.cost)}, {proven}."


def _in_words(cost: CostView) -> str:
    saving = f", {format_duration(cost.checkpoint_s)} of checkpoints" if cost.checkpoint_s else ""
    jobs = f"{cost.preemptees} job{'s' * (cost.preemptees != 1)} preempted"
    back = f", {render.node_hours(cost.return_node_s)} node-hours to come back" if cost.return_node_s else ""
    return f"{render.node_hours(cost.lost_work_node_s)} node-hours lost, {jobs}{saving}{back}"


def _difference(own: CostView, other: CostView | None, *, known: bool = True) -> str:
    """How another plan differs, in what counts first."""
    if not known:
        return "?"
    if other is None:
        return "not possible in time"
    lost, back = other.lost_work_node_s - own.lost_work_node_s, other.return_node_s - own.return_node_s
    longer, more = other.checkpoint_s - own.checkpoint_s, other.preemptees - own.preemptees
    if lost:
        return f"{_signed(lost)} node-hours"
    if back:
        return f"{_signed(back)} node-hours to come back"
    if longer:
        return f"{'+' if longer > 0 else '-'}{format_duration(abs(longer))} of checkpoints"
    if more:
        return f"{more:+d} job{'s' * (abs(more) != 1)} preempted"
    return "nothing: ties go to smaller job ids"


def _signed(node_s: float) -> str:
    """A difference in node-hours, with enough decimals not to look like zero."""
    hours = node_s / 3_600
    return f"{hours:+,.1f}" if abs(hours) >= 0.05 else f"{hours:+,.2g}"


def _chosen_table(chosen: list[AlternativeView], own: CostView, names: Mapping[str, str]) -> Table | str:
    if not chosen:
        return "No job has to be preempted."
    columns: render.Columns = {
        "job": lambda each: names.get(each.job_id, each.job_id),
        ">nodes": lambda each: each.nodes,
        "action": _action,
        _NODE_HOURS: lambda each: render.node_hours(each.own_lost_work_node_s),
        "sparing it would cost": lambda each: _difference(own, each.cost, known=each.known),
    }
    return render.listing(chosen, columns, "Why these jobs")


def _spared_table(spared: list[AlternativeView], own: CostView) -> Table | str:
    if not spared:
        return "No other job could have been preempted."

    def rank(each: AlternativeView) -> tuple[object, ...]:
        cost = each.cost or own
        return cost.lost_work_node_s, cost.return_node_s, cost.checkpoint_s, cost.preemptees, each.job_id

    known = [each for each in spared if each.known and each.cost is not None]
    shown = sorted(known, key=rank)[:_SHOWN]
    columns: render.Columns = {
        "job": lambda each: each.job_id,
        ">nodes": lambda each: each.nodes,
        "cheapest action": _action,
        _NODE_HOURS: lambda each: render.node_hours(each.own_lost_work_node_s),
        "preempting it would cost": lambda each: _difference(own, each.cost),
    }
    made = render.listing(shown, columns, "Why not the other jobs")
    if len(spared) > len(shown):
        made.add_row("...", "", f"and {len(spared) - len(shown)} more", "", "(-o json shows all)")
    return made


def _action(each: AlternativeView) -> str:
    if each.action is None:
        return "-"
    return "its own end" if each.action is Action.END and each.choice is Choice.SPARED else each.action.shown


def _rules_table(explanation: ExplanationView) -> Table:
    own = explanation.cost
    columns: render.Columns = {
        "rule": lambda each: each.rule,
        _NODE_HOURS: lambda each: render.node_hours(each.cost.lost_work_node_s if each.cost else None),
        "more than the plan": lambda each: _difference(own, each.cost) if each.cost != own else "",
        ">jobs": lambda each: each.cost.preemptees if each.cost else "-",
    }
    this = RuleOutcomeView(rule=f"this plan ({explanation.planner})", cost=own, more_lost_work_node_s=0.0)
    return render.listing((this, *explanation.rules), columns, "What simple rules would have lost")
