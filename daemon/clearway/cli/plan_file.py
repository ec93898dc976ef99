"""``clearway plan --problem FILE``: an eviction problem from a file, its trade-off curve as JSON or a table.

Needs neither Slurm nor a database. The file is read strictly: what is not exactly as documented (unknown keys,
a number written as text, a key given twice) is refused in one line that names the field, with exit status 2.

FILE: ``{"nodes_needed": int, "max_delay_s": int, "step_s": int, "candidates": [{"job_id": str, "nodes": int,
"lost_work_node_s": number, "app_checkpoint_s": int|null, "sys_checkpoint_s": int|null}]}``; null means not
possible, durations are rounded up to whole steps. The curve has one entry for every step from 0 to
``max_delay_s``, the last one included when it is a multiple of ``step_s``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clearway import registry
from clearway.durations import format_duration
from clearway.errors import ConfigError, ProblemFileError
from clearway.model import Action, Candidate, Curve, CurvePoint, EvictionProblem, Option
from clearway.planning.base import Planner

BAD_INPUT = 2
LARGEST_FILE_BYTES = 64 * 2**20
MOST_STEPS = 100_000
MOST_NODES = 1_000_000
MOST_NODES_NEEDED = 10**9
MOST_SECONDS = 10**12
MOST_LOST_WORK_NODE_S = 10**15
_SHOWN = 60  # characters of a wrong value

_WANTED = {
    "nodes_needed": "an integer >= 0",
    "max_delay_s": "an integer >= 0",
    "step_s": "a positive integer",
    "candidates": "a list",
    "job_id": "printable text of 1 to 256 characters",
    "nodes": "a positive integer",
    "lost_work_node_s": "a number >= 0",
    "app_checkpoint_s": "an integer >= 0 or null",
    "sys_checkpoint_s": "an integer >= 0 or null",
}


def _number(value: object) -> int | float:
    """Integers stay integers; true, false and text are no numbers, NaN and Infinity neither."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or value == inf:
        raise ValueError(_WANTED["lost_work_node_s"])
    if value > MOST_LOST_WORK_NODE_S:
        raise PydanticCustomError("less_than_equal", "too large", {"le": MOST_LOST_WORK_NODE_S})
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(_WANTED["job_id"])
    return value


_Seconds = Annotated[int, Field(ge=0, le=MOST_SECONDS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _CandidateFields(_Strict):
    job_id: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    lost_work_node_s: Annotated[int | float, PlainValidator(_number)]
    app_checkpoint_s: _Seconds | None
    sys_checkpoint_s: _Seconds | None

    def candidate(self) -> Candidate:
        options = [Option(Action.KILL, lost_work_node_s=self.lost_work_node_s)]
        if self.app_checkpoint_s is not None:
            options.append(Option(Action.APP_CHECKPOINT, checkpoint_s=self.app_checkpoint_s))
        if self.sys_checkpoint_s is not None:
            options.append(Option(Action.SYS_CHECKPOINT, checkpoint_s=self.sys_checkpoint_s))
        return Candidate(self.job_id, self.nodes, tuple(options))


class _ProblemFields(_Strict):
    nodes_needed: Annotated[int, Field(ge=0, le=MOST_NODES_NEEDED)]
    max_delay_s: _Seconds
    step_s: Annotated[int, Field(ge=1, le=MOST_SECONDS)]
    candidates: list[_CandidateFields]


def run_plan_file(path: Path, planner_name: str, output: str) -> int:
    """Print the curve (``output``: json or table) and return the exit status: 0, or 2 with a line on stderr."""
    try:
        problem = read_problem(path)
        planner: Planner = registry.load(registry.PLANNERS, planner_name)()
        try:
            curve = planner.solve(problem)
        except ValueError as error:  # too large for this planner
            raise ProblemFileError(f"{path}: {error}") from error
    except (ProblemFileError, ConfigError) as error:
        print(str(error).replace("\n", "\\n"), file=sys.stderr)
        return BAD_INPUT
    if output == "json":
        print(json.dumps(curve_to_json(curve), indent=2))
    else:
        Console().print(_curve_table(problem, curve))
    return 0


def read_problem(path: Path) -> EvictionProblem:
    """The problem in a file.

    Raises:
        ProblemFileError: one line that names the file and the field.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise ProblemFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > LARGEST_FILE_BYTES:
        raise ProblemFileError(f"{path}: larger than {LARGEST_FILE_BYTES // 2**20} MiB")
    try:
        fields = _ProblemFields.model_validate(_parse(raw))
    except ValidationError as error:
        raise ProblemFileError(f"{path}: {_explain(error.errors(include_url=False)[0])}") from error
    except _NotJsonError as error:
        raise ProblemFileError(f"{path}: {error}") from error
    if fields.max_delay_s // fields.step_s > MOST_STEPS:
        raise ProblemFileError(
            f"{path}: max_delay_s: must be at most {MOST_STEPS} times step_s ({fields.step_s}), "
            f"not {fields.max_delay_s}"
        )
    places: dict[str, int] = {}
    for index, candidate in enumerate(fields.candidates):
        if (first := places.setdefault(candidate.job_id, index)) != index:
            name = _shown(candidate.job_id)
            raise ProblemFileError(
                f"{path}: candidates[{index}].job_id: {name} is already the job_id of candidates[{first}]"
            )
    return EvictionProblem(
        nodes_needed=fields.nodes_needed,
        max_delay_s=fields.max_delay_s,
        step_s=fields.step_s,
        candidates=tuple(candidate.candidate() for candidate in fields.candidates),
    )


def curve_to_json(curve: Curve) -> dict[str, Any]:
    """The curve as the fixed interface prints it."""
    return {"planner": curve.planner, "curve": [_point_to_json(point) for point in curve.points]}


def _point_to_json(point: CurvePoint) -> dict[str, Any]:
    return {
        "max_delay_s": point.max_delay_s,
        "feasible": point.feasible,
        "lost_work_node_s": point.lost_work_node_s,
        "checkpoint_s": point.checkpoint_s,
        "nodes_freed": point.nodes_freed,
        "actions": [{"job_id": planned.job_id, "action": planned.action.value} for planned in point.actions],
    }


class _NotJsonError(Exception):
    """What the file holds is not one JSON value; its text says where."""


def _parse(raw: bytes) -> object:
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _NotJsonError(f"not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise _NotJsonError(f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise _NotJsonError("not a problem: nested too deeply") from error
    except ValueError as error:  # a number of more than 4,300 digits
        raise _NotJsonError("holds a number with too many digits") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _NotJsonError(f"{_key(key)}: is given twice in one object")
        found[key] = value
    return found


def _explain(error: ErrorDetails) -> str:
    """One pydantic error as ``field: what is wrong``."""
    place = error["loc"]
    field = _path(place)
    match error["type"]:
        case "missing":
            return f"{field}: is missing"
        case "extra_forbidden":
            return f"{field}: is not a known field"
        case "less_than_equal":
            return f"{field}: must be at most {error['ctx']['le']}, not {_shown(error['input'])}"
    wanted = _WANTED.get(str(place[-1]), "an object") if place else "an object"
    return f"{field}: must be {wanted}, not {_shown(error['input'])}"


def _path(place: Iterable[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in place]
    return "".join(parts).removeprefix(".") or "the whole file"


def _key(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _SHOWN else _shown(name)


def _shown(value: object) -> str:
    """A value as JSON would write it, on one line, cut when long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a number of more than 60 digits"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _curve_table(problem: EvictionProblem, curve: Curve) -> Table:
    table = Table(title=f"Freeing {problem.nodes_needed} nodes ({curve.planner})", title_justify="left")
    for heading in ("within", "lost node-hours", "checkpoint time", "nodes freed", "jobs"):
        table.add_column(heading, justify="right" if heading != "jobs" else "left")
    for point in curve.points:
        within = format_duration(point.max_delay_s)
        if not point.feasible:
            table.add_row(within, "-", "-", "-", "not possible")
            continue
        jobs = ", ".join(f"{planned.job_id} {planned.action.value}" for planned in point.actions)
        table.add_row(
            within,
            f"{(point.lost_work_node_s or 0) / 3_600:,.2f}",
            format_duration(point.checkpoint_s or 0),
            str(point.nodes_freed),
            Text(jobs or "none"),
        )
    return table
