"""What ``clearway explain`` prints: what every other decision would have cost."""

from typing import Any

from rich.console import Group
from rich.table import Table

from clearway.api.views import explained
from clearway.bootstrap import open_planner
from clearway.cli.render import console, curve_table, node_hours, print_json, purpose, table, visible, what_if, when
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.explanation import Alternative, Explanation
from clearway.model.operations import Operation
from clearway.model.plan import Choice, Cost, NoPlan, OperationPlan, Plan
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.preemption.explanation import explain

_SHOWN = 20
_NODE_HOURS = "node-h lost"
_MORE = "more than the plan"


def show(eviction: Operation, explanation: Explanation, output: str) -> None:
    """Of an eviction, as a table for people or as JSON."""
    plan = eviction.plan
    if output == "json":
        print_json({"eviction_id": eviction.eviction_id} | explained(plan, explanation))
        return
    out = console()
    out.print(
        visible(
            f"Eviction {eviction.eviction_id}: {plan.nodes_needed} nodes {purpose(eviction)} "
            f"by {when(plan.deadline)}. {_plan_in_words(plan, explanation)}"
        )
    )
    out.print()
    out.print(tables(plan, explanation))


def show_dry_run(config: Config, answer: Plan | NoPlan, output: str) -> None:
    """A plan that nothing follows from, explained within the time that the daemon would take for that as well."""
    if isinstance(answer, NoPlan):
        what_if(answer, output)
        return
    clock = SystemClock()
    ends = clock.monotonic() + config.planning.explanation_time
    explanation = explain(answer, open_planner(config), lambda: clock.monotonic() < ends)
    what_if(answer, output, explanation=explained(answer, explanation))
    if output != "json":
        out = console()
        out.print()
        out.print(tables(answer, explanation))


def tables(plan: OperationPlan, explanation: Explanation) -> Group:
    """Every question with its answers, the most frequent question first."""
    candidates = {candidate.job_id: candidate for candidate in plan.problem.candidates}
    by_choice: dict[Choice, list[Alternative]] = {Choice.CHOSEN: [], Choice.SPARED: []}
    for each in explanation.alternatives:
        by_choice[each.choice].append(each)
    parts: list[Any] = [
        _chosen_table(plan, by_choice[Choice.CHOSEN], explanation.cost, candidates),
        "",
        _spared_table(plan.problem, by_choice[Choice.SPARED], explanation.cost, candidates),
        "",
        _rules_table(plan, explanation),
        "",
        curve_table(plan.curve, plan.chosen),
    ]
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
    back = f", {node_hours(cost.return_node_s)} node-hours to come back" if cost.return_node_s else ""
    return f"{node_hours(cost.lost_work_node_s)} node-hours lost, {jobs}{saving}{back}"


def _difference(own: Cost, other: Cost | None, *, known: bool = True) -> str:
    """How another plan differs, in what counts first."""
    if not known:
        return "?"
    if other is None:
        return "not possible in time"
    lost = other.lost_work_node_s - own.lost_work_node_s
    if lost:
        return f"{_signed(lost)} node-hours"
    if other.return_node_s != own.return_node_s:
        return f"{_signed(other.return_node_s - own.return_node_s)} node-hours to come back"
    if other.checkpoint_s != own.checkpoint_s:
        longer = other.checkpoint_s - own.checkpoint_s
        return f"{'+' if longer > 0 else '-'}{format_duration(abs(longer))} of checkpoints"
    if other.preemptees != own.preemptees:
        more = other.preemptees - own.preemptees
        return f"{more:+d} job{'s' * (abs(more) != 1)} preempted"
    return "nothing: ties go to smaller job ids"


def _signed(node_s: float) -> str:
    """A difference in node-hours, with enough decimals not to look like zero."""
    hours = node_s / 3_600
    return f"{hours:+,.1f}" if abs(hours) >= 0.05 else f"{hours:+,.2g}"


def _chosen_table(
    plan: OperationPlan, chosen: list[Alternative], own: Cost, candidates: dict[str, Candidate]
) -> Table | str:
    if not chosen:
        return "No job has to be preempted."
    actions = {planned.job_id: planned for planned in plan.chosen.actions}
    names = {job.job_id: job.display_id for job in plan.leaving}
    made = table(
        "job", "nodes", "action", _NODE_HOURS, "sparing it would cost", title="Why these jobs",
        right=("nodes", _NODE_HOURS),
    )  # fmt: skip
    for each in chosen:
        planned = actions[each.job_id]
        made.add_row(
            names.get(each.job_id, each.job_id),
            str(candidates[each.job_id].nodes),
            planned.action.shown,
            node_hours(planned.lost_work_node_s),
            _difference(own, each.cost, known=each.known),
        )
    return made


def _spared_table(
    problem: EvictionProblem, spared: list[Alternative], own: Cost, candidates: dict[str, Candidate]
) -> Table | str:
    if not spared:
        return "No other job could have been preempted."
    known = sorted(
        (each for each in spared if each.known and each.cost is not None), key=lambda each: (each.cost, each.job_id)
    )
    shown = known[:_SHOWN]
    made = table(
        "job", "nodes", "cheapest action", _NODE_HOURS, "preempting it would cost", title="Why not the other jobs",
        right=("nodes", _NODE_HOURS),
    )  # fmt: skip
    for each in shown:
        candidate = candidates[each.job_id]
        in_time = problem.in_time(candidate.options)
        cheapest = min(in_time, key=lambda option: (option.lost_work_node_s, option.return_node_s, option.checkpoint_s))
        made.add_row(
            each.job_id,
            str(candidate.nodes),
            cheapest.action.shown if cheapest.action is not Action.END else "its own end",
            node_hours(cheapest.lost_work_node_s),
            _difference(own, each.cost),
        )
    if len(spared) > len(shown):
        made.add_row("...", "", f"and {len(spared) - len(shown)} more", "", "(-o json shows all)")
    return made


def _rules_table(plan: OperationPlan, explanation: Explanation) -> Table:
    own = explanation.cost
    made = table(
        "rule", _NODE_HOURS, _MORE, "jobs", title="What simple rules would have lost", right=(_NODE_HOURS, "jobs")
    )
    made.add_row(f"this plan ({plan.curve.planner})", node_hours(own.lost_work_node_s), "", str(own.preemptees))
    for each in explanation.rules:
        cost = each.cost
        made.add_row(
            each.rule,
            node_hours(cost.lost_work_node_s if cost else None),
            _difference(own, cost) if cost != own else "",
            str(cost.preemptees) if cost else "-",
        )
    return made
