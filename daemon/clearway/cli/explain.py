"""``clearway plan`` and ``clearway explain``: what would be done, and what every other decision would have cost."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from clearway.api.schemas import AlternativeView, CostView, EvictionView, ExplanationView, PlanView, RuleOutcomeView
from clearway.api.views import explanation_view, what_if_view
from clearway.bootstrap import open_planner
from clearway.cli import asker, database, options, render
from clearway.cli.evictions import curve_table, purpose, what_if
from clearway.cli.plan_file import run_plan_file
from clearway.cli.render import Columns, counted, listing, node_hours, page
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.plan import Choice, NoPlan, Plan
from clearway.model.problem import Action
from clearway.preemption.explanation import explain as alternatives_of

_SHOWN = 20
_NODE_HOURS = ">node-h lost"


def plan(
    problem: Annotated[Path | None, typer.Option(help="Solve the problem in this file; needs no Slurm.")] = None,
    planner: Annotated[str, typer.Option(help="Planner for --problem.")] = "eviction-dp",
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Plan for an urgent job of N nodes.")] = None,
    max_delay: Annotated[str, typer.Option(help="With --nodes: its maximum delay (90s, 10m, 1h30m).")] = "10m",
    partition: Annotated[str | None, typer.Option(help="With --nodes: its partition.")] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="With --nodes, where Slurm can be asked: what every other decision would cost."),
    ] = False,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """Make a plan and do nothing: for a problem file, or for an urgent job on the cluster as it is now."""
    if (problem is None) == (nodes is None):
        options.complain("plan: give either --problem FILE or --nodes N")
        raise typer.Exit(options.BAD_INPUT)
    if problem is not None:
        raise typer.Exit(run_plan_file(problem, planner, output))
    delay_s = options.duration_s(max_delay)
    if options.has_api(site) and not explain:
        with options.source(site) as asked:
            what_if(asked.what_if(nodes or 0, delay_s, partition), output)
        return
    settings = options.configuration(site.config)
    with options.errors():
        answer = database.plan_eviction(settings, nodes or 0, delay_s, partition)
        _show_dry_run(settings, answer, output, explain=explain)


def explain(
    eviction_id: options.EvictionId, output: options.OutputOption = options.Output.TABLE, *, site: options.Site
) -> None:
    """Why these jobs and not others: what every other decision would have cost."""
    with options.source(site) as asked:
        show(asked.eviction(eviction_id), asked.explanation(eviction_id), output)


def show(found: EvictionView, explanation: ExplanationView, output: str) -> None:
    plan, gap = found.plan, explanation.gap_ratio
    if plan.together:
        proven = "planned together with others"
    elif explanation.exact:
        proven = "proven to be the cheapest"
    else:
        proven = f"at most {100 * gap:.1f} % of it may be needless" if gap else "not proven to be the cheapest"
    head = (
        f"Eviction {found.eviction_id}: {plan.nodes_needed} nodes {purpose(found)} by {render.when(plan.deadline)}. "
        f"The plan ({explanation.planner}): {_in_words(explanation.cost)}, {proven}."
    )
    names = {each.job_id: each.display_id for each in found.preemptions}
    render.answer(explanation, output, lambda: page([head, "", tables(plan, explanation, names)]))


def _show_dry_run(config: Config, answer: Plan | NoPlan, output: str, *, explain: bool) -> None:
    """A plan that is not carried out, explained within the time that the daemon would take for that."""
    shown = what_if_view(asker.now(), answer)
    if isinstance(answer, NoPlan) or shown.plan is None or not explain:
        what_if(shown, output)
        return
    clock = SystemClock()
    ends = clock.monotonic() + config.planning.explanation_time
    found = alternatives_of(answer, open_planner(config), lambda: clock.monotonic() < ends)
    explanation = explanation_view(0, answer, found)
    if output == options.Output.JSON:
        document = shown.model_dump(mode="json") | {"explanation": explanation.model_dump(mode="json")}
        render.print_json(document)
        return
    what_if(shown, output)
    names = {job.job_id: job.display_id for job in answer.leaving}
    render.console(output).print(Group("", tables(shown.plan, explanation, names)))


def tables(plan: PlanView, explanation: ExplanationView, names: Mapping[str, str]) -> Group:
    return page(_answers(plan, explanation, names))


def _answers(plan: PlanView, explanation: ExplanationView, names: Mapping[str, str]) -> Iterator[RenderableType]:
    own, alternatives = explanation.cost, explanation.alternatives
    yield from (_chosen_table([each for each in alternatives if each.choice is Choice.CHOSEN], own, names), "")
    yield from (_spared_table([each for each in alternatives if each.choice is Choice.SPARED], own), "")
    yield from (_rules_table(explanation), "", curve_table(plan.curve, plan.chosen))
    for later in explanation.later:
        yield f"With a delay of {format_duration(later.max_delay_s)}: {_in_words(later.cost)}."
    if explanation.complete and not explanation.later:
        last = max((point.max_delay_s for point in plan.curve.points), default=0)
        yield f"Waiting up to {format_duration(2 * last)} would save nothing more."
    if plan.together:
        others = ", ".join(plan.together)
        yield f"This compares the plan with planning the job alone; it was planned together with the job(s) {others}."
    if plan.note:
        yield f"It was {plan.note}."
    if not explanation.complete:
        yield 'There was no time for every alternative ("?"); planning.explanation_time is the limit.'


def _in_words(cost: CostView) -> str:
    saving = f", {format_duration(cost.checkpoint_s)} of checkpoints" if cost.checkpoint_s else ""
    back = f", {node_hours(cost.return_node_s)} node-hours to come back" if cost.return_node_s else ""
    lost = f"{node_hours(cost.lost_work_node_s)} node-hours lost"
    return f"{lost}, {counted(cost.preemptees, 'job')} preempted{saving}{back}"


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
    columns: Columns = {
        "job": lambda each: names.get(each.job_id, each.job_id),
        ">nodes": lambda each: each.nodes,
        "action": _action,
        _NODE_HOURS: lambda each: node_hours(each.own_lost_work_node_s),
        "sparing it would cost": lambda each: _difference(own, each.cost, known=each.known),
    }
    return listing(chosen, columns, "Why these jobs")


def _spared_table(spared: list[AlternativeView], own: CostView) -> Table | str:
    if not spared:
        return "No other job could have been preempted."

    def rank(each: AlternativeView) -> tuple[object, ...]:
        cost = each.cost or own
        return cost.lost_work_node_s, cost.return_node_s, cost.checkpoint_s, cost.preemptees, each.job_id

    known = [each for each in spared if each.known and each.cost is not None]
    shown = sorted(known, key=rank)[:_SHOWN]
    columns: Columns = {
        "job": lambda each: each.job_id,
        ">nodes": lambda each: each.nodes,
        "cheapest action": _action,
        _NODE_HOURS: lambda each: node_hours(each.own_lost_work_node_s),
        "preempting it would cost": lambda each: _difference(own, each.cost),
    }
    made = listing(shown, columns, "Why not the other jobs")
    if len(spared) > len(shown):
        made.add_row("...", "", f"and {len(spared) - len(shown)} more", "", "(-o json shows all)")
    return made


def _action(each: AlternativeView) -> str:
    if each.action is None:
        return "-"
    return "its own end" if each.action is Action.END and each.choice is Choice.SPARED else each.action.shown


def _rules_table(explanation: ExplanationView) -> Table:
    own = explanation.cost
    columns: Columns = {
        "rule": lambda each: each.rule,
        _NODE_HOURS: lambda each: node_hours(each.cost.lost_work_node_s if each.cost else None),
        "more than the plan": lambda each: _difference(own, each.cost) if each.cost != own else "",
        ">jobs": lambda each: each.cost.preemptees if each.cost else "-",
    }
    this = RuleOutcomeView(rule=f"this plan ({explanation.planner})", cost=own, more_lost_work_node_s=0.0)
    return listing((this, *explanation.rules), columns, "What simple rules would have lost")
