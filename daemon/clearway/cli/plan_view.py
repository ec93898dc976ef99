"""How plans that nothing follows from are shown."""

from collections.abc import Mapping

from clearway.api.plan_schemas import VerdictView, WholePlanView
from clearway.api.schemas import RollingWhatIf, WhatIfView
from clearway.cli.eviction_view import curve_table, verdict_table
from clearway.cli.render import console, print_document, table, visible
from clearway.model.durations import format_duration
from clearway.slurm.parse.hostlist import expand, short


def what_if(answer: WhatIfView, output: str) -> None:
    if output == "json":
        print_document(answer)
        return
    out, plan = console(output), answer.plan
    if plan is None:
        out.print(visible(f"Not possible: {answer.why}."))
    elif answer.drain is not None:
        out.print(visible(_headline(answer, plan)) + "\n")
    if answer.budget:
        out.print(visible(f"It would wait for an operator's approval: {answer.budget}.\n"))
    if answer.curve is not None:
        out.print(curve_table(answer.curve, plan.chosen if plan else None))
        out.print()
    reasons: tuple[VerdictView, ...] = plan.verdicts if plan else answer.verdicts
    names: Mapping[str, str] = {each.job_id: each.display_id for each in plan.chosen.actions} if plan else {}
    if reasons:
        out.print(verdict_table(reasons, names))


def _headline(answer: WhatIfView, plan: WholePlanView) -> str:
    drain = answer.drain
    assert drain is not None  # noqa: S101 - the caller has seen it
    jobs, nodes = plan.chosen.preemptees, short(expand(drain.nodes))
    if drain.move is not None:
        move = drain.move
        emptied = f"{nodes} would become empty; " if drain.nodes else ""
        balance = f"gain {move.gain_node_s / 3_600:.2f} node-hours, cost {move.cost_node_s / 3_600:.2f}"
        return f"{move.kind.value.capitalize()}: {jobs} job(s) would move; {emptied}{balance}."
    if not plan.verdicts:
        return f"No job is on {nodes}: nothing would have to leave."
    return f"{jobs} job(s) would leave {nodes}; saving them takes {format_duration(plan.chosen.checkpoint_s or 0)}."


def rolling(found: RollingWhatIf, output: str) -> None:
    if output == "json":
        print_document(found)
        return
    made = table(">batch", "nodes", ">jobs", ">saving takes")
    for number, batch in enumerate(found.batches, 1):
        made.add_row(number, batch.nodes, batch.jobs, format_duration(batch.checkpoint_s))
    out = console(output)
    out.print(made if found.batches else "No node could be emptied.")
    for name, why in found.skipped.items():
        out.print(visible(f"Skipped: {name}: {why}."))
