"""Errors of a problem file: one line that names the field, what belongs there, and what it holds."""

import json
from collections.abc import Iterable, Sequence

from pydantic_core import ErrorDetails

from clearway.model.problem import Action

_SHOWN = 60  # characters of a wrong value

TEXT = "printable text of 1 to 256 characters"
NAMES = "a list of names"
KEY = "[key]"  # what pydantic ends a place with when not the value but the key is wrong
WANTED = {
    "nodes_needed": "an integer >= 0",
    "max_delay_s": "an integer >= 0",
    "step_s": "a positive integer",
    "candidates": "a list",
    "options": "a list of at least one option",
    "action": f"one of {', '.join(Action)}",
    "job_id": TEXT,
    "lost_work_node_s": "a number >= 0",
    "app_checkpoint_s": "an integer >= 0 or null",
    "sys_checkpoint_s": "an integer >= 0 or null",
    "partition": TEXT,
    "switch": TEXT,
    "remaining_s": "an integer >= 0 or null",
    "contiguous": "true or false",
    "one_switch": "true or false",
} | dict.fromkeys(("features", "partitions", "required_nodes", "excluded_nodes", "node_names"), NAMES)
_COUNTS = (
    "checkpoint_s", "ready_s", "return_node_s", "file_system_s", "gpus", "cores", "memory_mib", "gpus_per_node",
    "cores_per_node", "memory_mib_per_node", "preempt_priority", "ran_s", "waited_s",
)  # fmt: skip
WANTED |= dict.fromkeys(_COUNTS, "an integer >= 0")


class BadProblemError(Exception):
    """What the file holds is not one JSON value, or does not fit together; its text says where."""


def demand(holds: bool, place: str, wrong: str) -> None:
    if not holds:
        raise BadProblemError(f"{place}: {wrong}")


def explain(error: ErrorDetails) -> str:
    """One pydantic error as ``field: what is wrong``."""
    place = error["loc"]
    field = _path(place)
    match error["type"]:
        case "missing":
            return f"{field}: is missing"
        case "extra_forbidden":
            return f"{field}: is not a known field"
        case "less_than_equal":
            return f"{field}: must be at most {error['ctx']['le']}, not {shown(error['input'])}"
        case "too_long" if isinstance(error["input"], list):
            return f"{field}: must hold at most {error['ctx']['max_length']}"
    if place and place[-1] == KEY:
        return f"{_path(place[:-2])}: a key must be {TEXT}, not {shown(error['input'])}"
    wanted = _wanted(place)
    return f"{field}: must be {wanted}, not {shown(error['input'])}"


def _wanted(place: Sequence[int | str]) -> str:
    """What belongs into this place of the file."""
    last, above = (place[-1] if place else 0), str(place[-2]) if len(place) > 1 else ""
    if isinstance(last, int):
        return TEXT if WANTED.get(above) == NAMES else "an object"
    if last == "nodes" and above:
        return "a positive integer"
    return "an integer >= 0" if above.endswith("_by_type") else WANTED.get(last, "an object")


def _path(place: Iterable[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{key(part)}" for part in place]
    return "".join(parts).removeprefix(".") or "the whole file"


def key(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _SHOWN else shown(name)


def shown(value: object) -> str:
    """A value as JSON would write it, on one line, cut when long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a number of more than 60 digits"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
