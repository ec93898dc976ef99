"""What if so many nodes were needed now: the daemon's own decision on a fresh snapshot, and nothing done."""

from __future__ import annotations

from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.cli import render
from clearway.cli.explain import as_json, tables
from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.clock import SystemClock
from clearway.model.plan import NoPlan, Plan
from clearway.preemption.detection import imagined, usual_partition
from clearway.preemption.explanation import explain
from clearway.preemption.plan import decide
from clearway.telemetry.log import configure_logging


def what_if(config: Config, nodes: int, max_delay_s: float, partition: str | None) -> Plan | NoPlan:
    """Earlier preemptions are not counted here, as the question needs no database."""
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    clock = SystemClock()
    backend = open_backend(config, clock)
    try:
        snapshot = backend.snapshot()
    finally:
        backend.close()
    preemptor = imagined(
        nodes, max_delay_s, partition or usual_partition(snapshot, config.preemptors), snapshot.taken_at
    )
    context = PlanningContext(
        snapshot=snapshot,
        config=config,
        now=snapshot.taken_at,
        preempted={},
        under_way=UnderWay(),
        actions=checkpointer_actions(),
    )
    return decide(preemptor, context, open_planner(config))


def show_explained(config: Config, answer: Plan | NoPlan, output: str) -> None:
    """The answer and what else could be decided, within the time that the daemon would take for that as well."""
    if isinstance(answer, NoPlan):
        render.what_if(answer, output)
        return
    clock = SystemClock()
    ends = clock.monotonic() + config.planning.explanation_time
    explanation = explain(answer, open_planner(config), lambda: clock.monotonic() < ends)
    render.what_if(answer, output, explanation=as_json(answer, explanation))
    if output != "json":
        out = render.console()
        out.print()
        out.print(tables(answer, explanation))
