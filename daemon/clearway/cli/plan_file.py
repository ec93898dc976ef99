"""``clearway plan --problem FILE``: an eviction problem from a file, its trade-off curve as JSON or a table.

Needs neither Slurm nor a database. The file is that of ``problem_file``; an error in it is one line on standard error,
with exit status 2. Durations are rounded up to whole steps. The curve has one entry for every step from 0 to
``max_delay_s``, the last one included when it is a multiple of ``step_s``.
"""

import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from clearway.cli.options import BAD_INPUT
from clearway.cli.problem_file import read_problem
from clearway.cli.render import console, picked, print_json, table
from clearway.config import plugins
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError, ProblemFileError
from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner


def run_plan_file(path: Path, planner_name: str, output: str) -> int:
    """Print the curve (``output``: json or table) and return the exit status: 0, or 2 with a line on stderr."""
    try:
        problem = read_problem(path)
        planner: Planner = plugins.load(plugins.PLANNERS, planner_name)()
        try:
            curve = planner.solve(problem)
        except ValueError as error:  # too large for this planner
            raise ProblemFileError(f"{path}: {error}") from error
    except (ProblemFileError, ConfigError) as error:
        print(str(error).replace("\n", "\\n"), file=sys.stderr)
        return BAD_INPUT
    if output == "json":
        named = any(candidate.node_names for candidate in problem.candidates)
        # Where nodes have names, not every plan can be proven.
        print_json(curve_to_json(curve, proof=named or problem.needs is not None))
    else:
        console().print(_curve_table(problem, curve))
    return 0


def curve_to_json(curve: Curve, *, proof: bool = False) -> dict[str, Any]:
    """The curve as the fixed interface prints it; with ``proof``, how far it is proven as well.

    A gap of null is not known: rules have no bound.
    """
    gap = curve.gap if curve.exact else curve.gap or None
    proven = {"exact": curve.exact, "gap": gap} if proof else {}
    return {"planner": curve.planner, **proven, "curve": [_point_to_json(point) for point in curve.points]}


def _point_to_json(point: CurvePoint) -> dict[str, Any]:
    return {
        **picked(point, "max_delay_s", "feasible", "lost_work_node_s", "checkpoint_s", "nodes_freed"),
        **({"return_node_s": point.return_node_s} if point.return_node_s else {}),
        "actions": [picked(planned, "job_id", "action") for planned in point.actions],
    }


def _curve_table(problem: EvictionProblem, curve: Curve) -> Table:
    back = (">return",) if any(point.return_node_s for point in curve.points) else ()
    columns = (">within", ">lost node-hours", *back, ">checkpoint time", ">nodes freed", "actions")
    made = table(*columns, title=f"Freeing {problem.nodes_needed} nodes ({curve.planner})")
    if not curve.exact and curve.gap:
        made.caption = f"Not proven: up to {curve.gap:.1%} of the lost work may be needless"
    for point in curve.points:
        within = format_duration(point.max_delay_s)
        if not point.feasible:
            made.add_row(within, *("-" for _ in columns[1:-1]), "not possible")
            continue
        lost, returns = (f"{node_s / 3_600:,.2f}" for node_s in (point.lost_work_node_s or 0, point.return_node_s))
        saving = format_duration(point.checkpoint_s or 0)
        actions = ", ".join(f"{planned.job_id} {planned.action.shown}" for planned in point.actions)
        made.add_row(within, lost, *(returns for _ in back), saving, point.nodes_freed, actions or "none")
    return made
