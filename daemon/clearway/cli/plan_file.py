"""``clearway plan --problem FILE``: an eviction problem from a JSON file, its trade-off curve as JSON or a table.

Needs neither Slurm nor a database. What is not exactly as docs/howto/problem-files.md says is refused with one line on
standard error that names the field, and exit status 2.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from clearway.cli import problem_fields
from clearway.cli.options import BAD_INPUT
from clearway.cli.problem_fields import BadProblemError, demand, key, shown
from clearway.cli.render import Columns, console, print_json, table
from clearway.config import plugins
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError, ProblemFileError
from clearway.model.plan import Curve
from clearway.model.problem import Amounts, Candidate, EvictionProblem, NodeResources
from clearway.planning.base import Planner

LARGEST_FILE_BYTES = 64 * 2**20
_OF_A_POINT = ("max_delay_s", "feasible", "lost_work_node_s", "checkpoint_s", "nodes_freed")


def read_problem(path: Path) -> EvictionProblem:
    """The problem in a file. Raises ``ProblemFileError``: one line that names the file and the field."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise ProblemFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > LARGEST_FILE_BYTES:
        raise ProblemFileError(f"{path}: larger than {LARGEST_FILE_BYTES // 2**20} MiB")
    try:
        return _problem(problem_fields.ProblemFields.model_validate(_parse(raw)))
    except ValidationError as error:
        raise ProblemFileError(f"{path}: {problem_fields.explain(error.errors(include_url=False)[0])}") from error
    except BadProblemError as error:
        raise ProblemFileError(f"{path}: {error}") from error


def _problem(fields: problem_fields.ProblemFields) -> EvictionProblem:
    nodes = {name: _node(f"nodes.{key(name)}", name, node) for name, node in fields.nodes.items()}
    if fields.needs is not None:
        _certain_nodes(fields.needs, nodes)
    places: dict[str, int] = {}
    candidates = []
    for index, candidate in enumerate(fields.candidates):
        place, first = f"candidates[{index}]", places.setdefault(candidate.job_id, index)
        twice = f"{shown(candidate.job_id)} is already the job_id of candidates[{first}]"
        demand(first == index, f"{place}.job_id", twice)
        candidates.append(_candidate(place, candidate, nodes, typed=fields.needs is not None))
    needed, needs = (fields.needs.nodes, fields.needs.needs()) if fields.needs else (fields.nodes_needed, None)
    told = tuple(candidates)
    return EvictionProblem(needed, fields.max_delay_s, fields.step_s, told, needs=needs, nodes=tuple(nodes.values()))


def _certain_nodes(needs: problem_fields.NeedsFields, nodes: Collection[str]) -> None:
    for field, names in (("required_nodes", needs.required_nodes), ("excluded_nodes", needs.excluded_nodes)):
        for index, name in enumerate(names):
            demand(name in nodes, f"needs.{field}[{index}]", f"{shown(name)} is not among nodes")
    required = len(set(needs.required_nodes))
    too_many = f"{required} certain nodes, but needs.nodes is {needs.nodes}"
    demand(required <= needs.nodes, "needs.required_nodes", too_many)


def _node(place: str, name: str, fields: problem_fields.NodeFields) -> NodeResources:
    has = fields.amounts()
    held = _on_node(f"{place}.held", fields.held, has, name)
    return NodeResources(name, has, held, tuple(fields.features), tuple(fields.partitions), fields.switch or "")


def _candidate(
    place: str, fields: problem_fields.CandidateFields, nodes: dict[str, NodeResources], *, typed: bool
) -> Candidate:
    """A candidate counts its nodes, or names them; where nodes are listed, it names them."""
    given = fields.model_fields_set
    demand(bool({"nodes", "node_names"} & given), f"{place}.{'node_names' if typed else 'nodes'}", "is missing")
    demand(not (typed and "nodes" in given), f"{place}.nodes", "must be named in node_names, as needs is given")
    for_the_rules = fields.model_dump(include={"preempt_priority", "ran_s", "remaining_s", "waited_s"})
    if "nodes" in given:
        return Candidate(fields.job_id, fields.nodes, fields.ways(), **for_the_rules)
    for index, name in enumerate(fields.node_names):
        at = f"{place}.node_names[{index}]"
        demand(fields.node_names.index(name) == index, at, f"{shown(name)} is named twice")
        demand(not typed or name in nodes, at, f"{shown(name)} is not among nodes")
    holds, names = _holds(place, fields, nodes, typed=typed), tuple(fields.node_names)
    return Candidate(fields.job_id, len(names), fields.ways(), names, holds, **for_the_rules)


def _holds(
    place: str, fields: problem_fields.CandidateFields, nodes: dict[str, NodeResources], *, typed: bool
) -> tuple[Amounts, ...]:
    field = next(iter({"holds", "holds_by_node"} & fields.model_fields_set), None)
    if field is None:
        return ()
    demand(typed, f"{place}.{field}", "must not be given without needs")
    if field == "holds":
        return tuple(_on_node(f"{place}.holds", fields.holds, nodes[name].has, name) for name in fields.node_names)
    at = {name: f"{place}.{field}.{key(name)}" for name in (*fields.holds_by_node, *fields.node_names)}
    named = set(fields.node_names)
    for name, its_place in at.items():
        demand(name in named, its_place, "is not among node_names")
        demand(name in fields.holds_by_node, its_place, "is missing")
    return tuple(_on_node(at[name], fields.holds_by_node[name], nodes[name].has, name) for name in fields.node_names)


def _on_node(place: str, fields: problem_fields.AmountFields, has: Amounts, name: str) -> Amounts:
    """What is held on a node, its GPUs by the node's types; never more than the node has."""
    types = [gpu_type for gpu_type, _ in has.gpus]
    amounts = fields.amounts()
    if fields.gpus and types != [""]:
        demand(len(types) < 2, f"{place}.gpus", f"must be given by type, as node {shown(name)} has several")
        amounts = Amounts(fields.cores, fields.memory_mib, tuple((gpu_type, fields.gpus) for gpu_type in types))
        demand(bool(types), f"{place}.gpus", f"must be at most what node {shown(name)} has (0), not {fields.gpus}")
    limits = [("cores", amounts.cores, has.cores), ("memory_mib", amounts.memory_mib, has.memory_mib)]
    limits += [
        (f"gpus_by_type.{key(kind)}" if fields.gpus_by_type else "gpus", held, dict(has.gpus).get(kind, 0))
        for kind, held in amounts.gpus
    ]
    for field, held, most in limits:
        demand(held <= most, f"{place}.{field}", f"must be at most what node {shown(name)} has ({most}), not {held}")
    return amounts


def _parse(raw: bytes) -> object:
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadProblemError(f"not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise BadProblemError(f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadProblemError("not a problem: nested too deeply") from error
    except ValueError as error:  # a number of more than 4,300 digits
        raise BadProblemError("holds a number with too many digits") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise BadProblemError(f"{key(name)}: is given twice in one object")
        found[name] = value
    return found


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
    """The curve as the fixed interface prints it; with ``proof``, how far it is proven as well."""
    gap = curve.gap if curve.exact else curve.gap or None  # not known: rules have no bound
    proven = {"exact": curve.exact, "gap": gap} if proof else {}
    points = []
    for point in curve.points:
        shown_point: dict[str, Any] = {name: getattr(point, name) for name in _OF_A_POINT}
        shown_point |= {"return_node_s": point.return_node_s} if point.return_node_s else {}
        shown_point["actions"] = [{"job_id": planned.job_id, "action": planned.action} for planned in point.actions]
        points.append(shown_point)
    return {"planner": curve.planner, **proven, "curve": points}


def _curve_table(problem: EvictionProblem, curve: Curve) -> Table:
    columns: Columns = {
        ">lost node-hours": lambda point: f"{(point.lost_work_node_s or 0) / 3_600:,.2f}",
        ">return": lambda point: f"{point.return_node_s / 3_600:,.2f}",
        ">checkpoint time": lambda point: format_duration(point.checkpoint_s or 0),
        ">nodes freed": lambda point: point.nodes_freed,
    }
    if not any(point.return_node_s for point in curve.points):
        del columns[">return"]
    made = table(">within", *columns, "actions", title=f"Freeing {problem.nodes_needed} nodes ({curve.planner})")
    if not curve.exact and curve.gap:
        made.caption = f"Not proven: up to {curve.gap:.1%} of the lost work may be needless"
    for point in curve.points:
        costs = [cost(point) if point.feasible else "-" for cost in columns.values()]
        actions = ", ".join(f"{planned.job_id} {planned.action.shown}" for planned in point.actions) or "none"
        made.add_row(format_duration(point.max_delay_s), *costs, actions if point.feasible else "not possible")
    return made
