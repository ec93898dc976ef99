"""What ``clearway explain`` prints: what every other decision would have cost."""

from typing import Any

from rich.console import Group
from rich.table import Table

from clearway.api.views import explained
from clearway.bootstrap import open_planner
from clearway.cli import render
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.operations import Operation
from clearway.model.plan import Alternative, Choice, Cost, Explanation, NoPlan, OperationPlan, Plan, RuleOutcome
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.preemption.explanation import explain

_SHOWN = 20
_NODE_HOURS = ">node-h lost"


def show(eviction: Operation, explanation: Explanation, output: str) -> None:
    """Of an eviction, as a table for people or as JSON."""
    plan = eviction.plan
    if output == "json":
        render.print_json({"eviction_id": eviction.eviction_id} | explained(plan, explanation))
        return
    head = (
        f"Eviction {eviction.eviction_id}: {plan.nodes_needed} nodes {render.purpose(eviction)} "
        f"by {render.when(plan.deadline)}. {_plan_in_words(plan, explanation)}"
    )
    render.console().print(Group(render.visible(head), "", tables(plan, explanation)))


def show_dry_run(config: Config, answer: Plan | NoPlan, output: str) -> None:
    """A plan that nothing follows from, explained within the time that the daemon would take for that as well."""
    if isinstance(answer, NoPlan):
        render.what_if(answer, output)
        return
    clock = SystemClock()
    ends = clock.monotonic() + config.planning.explanation_time
    explanation = explain(answer, open_planner(config), lambda: clock.monotonic() < ends)
    render.what_if(answer, output, explanation=explained(answer, explanation))
    if output != "json":
        render.console().print(Group("", tables(answer, explanation)))


def tables(plan: OperationPlan, explanation: Explanation) -> Group:
    """Every question with its answers, the most frequent question first."""
    own, alternatives = explanation.cost, explanation.alternatives
    chosen = [each for each in alternatives if each.choice is Choice.CHOSEN]
    spared = [each for each in alternatives if each.choice is Choice.SPARED]
    parts: list[Any] = [_chosen_table(plan, chosen, own), "", _spared_table(plan.problem, spared, own), ""]
    parts += [_rules_table(plan, explanation), "", render.curve_table(plan.curve, plan.chosen)]
    last = max((point.max_delay_s for point in plan.curve.points), default=0)
    parts += [
        f"With a delay of {format_duration(later.max_delay_s)}: {_in_words(later.cost)}." for later in explanation.later
    ]
    if explanation.complete and not explanation.later:
        parts.append(f"Waiting up to {format_duration(2 * last)} would save nothing more.")
    if isinstance(plan, Plan) and plan.together:
        others = ", ".join(plan.together)
        parts.append(
            f"This compares the plan with planning the job alone; it was planned together with {plan.called} {others}."
        )
    if isinstance(plan, Plan) and plan.note:
        parts.append(f"It was {plan.note}.")
    if not explanation.complete:
        parts.append('There was no time for every alternative ("?"); planning.explanation_time is the limit.')
    return Group(*parts)


def _plan_in_words(plan: OperationPlan, explanation: Explanation) -> str:
    proven = "proven to be the cheapest"
    if isinstance(plan, Plan) and plan.together:
        proven = "planned together with others"
    elif not plan.curve.exact:
        gap = plan.curve.gap
        proven = f"at most {100 * gap:.1f} % of it may be needless" if gap else "not proven to be the cheapest"
    return f"The plan ({plan.curve.planner}): {_in_words(explanation.cost)}, {proven}."


def _in_words(cost: Cost) -> str:
    saving = f", {format_duration(cost.checkpoint_s)} of checkpoints" if cost.checkpoint_s else ""
    jobs = f"{cost.preemptees} job{'s' * (cost.preemptees != 1)} preempted"
    back = f", {render.node_hours(cost.return_node_s)} node-hours to come back" if cost.return_node_s else ""
    return f"{render.node_hours(cost.lost_work_node_s)} node-hours lost, {jobs}{saving}{back}"


def _difference(own: Cost, other: Cost | None, *, known: bool = True) -> str:
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


def _chosen_table(plan: OperationPlan, chosen: list[Alternative], own: Cost) -> Table | str:
    if not chosen:
        return "No job has to be preempted."
    actions = {planned.job_id: planned for planned in plan.chosen.actions}
    names = {job.job_id: job.display_id for job in plan.leaving}
    nodes = {candidate.job_id: candidate.nodes for candidate in plan.problem.candidates}
    columns: render.Columns = {
        "job": lambda each: names.get(each.job_id, each.job_id),
        ">nodes": lambda each: nodes[each.job_id],
        "action": lambda each: actions[each.job_id].action.shown,
        _NODE_HOURS: lambda each: render.node_hours(actions[each.job_id].lost_work_node_s),
        "sparing it would cost": lambda each: _difference(own, each.cost, known=each.known),
    }
    return render.listing(chosen, columns, "Why these jobs")


def _spared_table(problem: EvictionProblem, spared: list[Alternative], own: Cost) -> Table | str:
    if not spared:
        return "No other job could have been preempted."
    candidates = {candidate.job_id: candidate for candidate in problem.candidates}
    known = [each for each in spared if each.known and each.cost is not None]
    shown = sorted(known, key=lambda each: (each.cost, each.job_id))[:_SHOWN]

    def cheapest(each: Alternative) -> Option:
        in_time = problem.in_time(candidates[each.job_id].options)
        return min(in_time, key=lambda option: (option.lost_work_node_s, option.return_node_s, option.checkpoint_s))

    def action(each: Alternative) -> str:
        found = cheapest(each).action
        return found.shown if found is not Action.END else "its own end"

    columns: render.Columns = {
        "job": lambda each: each.job_id,
        ">nodes": lambda each: candidates[each.job_id].nodes,
        "cheapest action": action,
        _NODE_HOURS: lambda each: render.node_hours(cheapest(each).lost_work_node_s),
        "preempting it would cost": lambda each: _difference(own, each.cost),
    }
    made = render.listing(shown, columns, "Why not the other jobs")
    if len(spared) > len(shown):
        made.add_row("...", "", f"and {len(spared) - len(shown)} more", "", "(-o json shows all)")
    return made


def _rules_table(plan: OperationPlan, explanation: Explanation) -> Table:
    own = explanation.cost
    columns: render.Columns = {
        "rule": lambda each: each.rule,
        _NODE_HOURS: lambda each: render.node_hours(each.cost.lost_work_node_s if each.cost else None),
        "more than the plan": lambda each: _difference(own, each.cost) if each.cost != own else "",
        ">jobs": lambda each: each.cost.preemptees if each.cost else "-",
    }
    rows = (RuleOutcome(f"this plan ({plan.curve.planner})", own), *explanation.rules)
    return render.listing(rows, columns, "What simple rules would have lost")
