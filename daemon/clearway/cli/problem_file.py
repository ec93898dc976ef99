"""The file of ``clearway plan --problem``: an eviction problem as JSON, read strictly.

What is not exactly as documented (unknown keys, a number written as text, a key given twice) is refused in one line
that names the field. ``problem.schema.json`` beside this module is the same as a JSON schema; it is made from
these classes.

Two kinds of problem: with ``nodes_needed`` a node is free when all jobs on it have left; with ``nodes`` (what each
has) and ``needs`` (what the urgent job asks on each) it is free when enough of it is. A candidate counts its nodes
or names them. It has ``options``, or the three costs of the CoSim paper; null means not possible. On named nodes
``holds`` says what it holds on each, ``holds_by_node`` where they differ; without them it holds whole nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from clearway.errors import ProblemFileError
from clearway.model import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option

LARGEST_FILE_BYTES = 64 * 2**20
MOST_STEPS = 100_000
MOST_NODES = 1_000_000
MOST_NODES_NEEDED = 10**9
MOST_SECONDS = 10**12
MOST_LOST_WORK_NODE_S = 10**15
MOST_OF_A_RESOURCE = 10**12
MOST_PRIORITY = 2**32 - 1
SCHEMA_FILE = Path(__file__).with_name("problem.schema.json")
_SHOWN = 60  # characters of a wrong value
_COSTS = ("lost_work_node_s", "app_checkpoint_s", "sys_checkpoint_s")

_TEXT = "printable text of 1 to 256 characters"
_NAMES = "a list of names"
_WANTED = {
    "nodes_needed": "an integer >= 0",
    "max_delay_s": "an integer >= 0",
    "step_s": "a positive integer",
    "candidates": "a list",
    "options": "a list of at least one option",
    "action": f"one of {', '.join(Action)}",
    "job_id": _TEXT,
    "lost_work_node_s": "a number >= 0",
    "app_checkpoint_s": "an integer >= 0 or null",
    "sys_checkpoint_s": "an integer >= 0 or null",
    "partition": _TEXT,
    "switch": _TEXT,
    "contiguous": "true or false",
    "one_switch": "true or false",
} | dict.fromkeys(("features", "partitions", "required_nodes", "excluded_nodes", "node_names"), _NAMES)
_WANTED |= dict.fromkeys(
    (
        "checkpoint_s",
        "ready_s",
        "return_node_s",
        "file_system_s",
        "gpus",
        "cores",
        "memory_mib",
        "gpus_per_node",
        "cores_per_node",
        "memory_mib_per_node",
        "preempt_priority",
    ),
    "an integer >= 0",
)


def _number(value: object) -> int | float:
    """Integers stay integers; true, false and text are no numbers, NaN and Infinity neither."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or value == inf:
        raise ValueError(_WANTED["lost_work_node_s"])
    if value > MOST_LOST_WORK_NODE_S:
        raise PydanticCustomError("less_than_equal", "too large", {"le": MOST_LOST_WORK_NODE_S})
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(_TEXT)
    return value


def _action(value: object) -> Action:
    if not isinstance(value, str) or value not in set(Action):
        raise ValueError(_WANTED["action"])
    return Action(value)


_Seconds = Annotated[int, Field(ge=0, le=MOST_SECONDS)]
_Amount = Annotated[int, Field(ge=0, le=MOST_OF_A_RESOURCE)]
_Text = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
_LostWork = Annotated[
    int | float,
    PlainValidator(_number),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MOST_LOST_WORK_NODE_S}),
]
_Action = Annotated[
    Action, PlainValidator(_action), PlainSerializer(str), WithJsonSchema({"type": "string", "enum": [*Action]})
]


def _either(these: tuple[str, ...], those: tuple[str, ...]) -> dict[str, Any]:
    """All keys of one group are there, and none of the other."""
    return {
        "oneOf": [
            {"required": [*keys], "not": {"anyOf": [{"required": [other]} for other in others]}}
            for keys, others in ((these, those), (those, these))
        ]
    }


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Amounts(_Strict):
    gpus: _Amount = Field(0, description="GPUs without a type; on a node of one type they are of that type")
    gpus_by_type: dict[_Text, _Amount] = Field({}, description="GPUs by type, instead of gpus")
    cores: _Amount = 0
    memory_mib: _Amount = 0

    def amounts(self) -> Amounts:
        return Amounts(self.cores, self.memory_mib, _gpus(self.gpus, self.gpus_by_type))


def _gpus(untyped: int, by_type: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(by_type.items())) or ((("", untyped),) if untyped else ())


class _Node(_Amounts):
    held: _Amounts = Field(_Amounts(), description="what jobs hold that are no candidates: they stay")
    features: list[_Text] = []
    partitions: list[_Text] = []
    switch: _Text | None = Field(None, description="its leaf switch")


class _NeedsFields(_Strict):
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    gpus_per_node: _Amount = Field(0, description="of whatever type")
    gpus_per_node_by_type: dict[_Text, _Amount] = {}
    cores_per_node: _Amount = 0
    memory_mib_per_node: _Amount = 0
    features: list[_Text] = []
    partition: _Text | None = None
    required_nodes: list[_Text] = Field([], description="these must be among the nodes")
    excluded_nodes: list[_Text] = []
    contiguous: bool = Field(default=False, description="nodes in a row, in the order in which nodes lists them")
    one_switch: bool = Field(default=False, description="nodes of one switch")

    def needs(self) -> Needs:
        gpus = _gpus(0, self.gpus_per_node_by_type) + _gpus(self.gpus_per_node, {})
        return Needs(
            per_node=Amounts(self.cores_per_node, self.memory_mib_per_node, gpus),
            features=tuple(self.features),
            partition=self.partition or "",
            required_nodes=tuple(self.required_nodes),
            excluded_nodes=tuple(self.excluded_nodes),
            contiguous=self.contiguous,
            one_switch=self.one_switch,
        )


class _OptionFields(_Strict):
    action: _Action
    lost_work_node_s: _LostWork = 0
    checkpoint_s: _Seconds = Field(0, description="on the file system, where checkpoints are written one by one")
    ready_s: _Seconds = Field(0, description="no deadline before it can use this option")
    file_system_s: _Seconds | None = Field(
        None,
        description="how long its data takes with the whole file system, where checkpoints share it; at most "
        "checkpoint_s; without it, others wait for it",
    )
    return_node_s: _Seconds = Field(0, description="what coming back costs; it counts where lost work is equal")


class _CandidateFields(_Strict):
    model_config = ConfigDict(
        json_schema_extra={"allOf": [_either(("nodes",), ("node_names",)), _either(("options",), _COSTS)]}
    )
    job_id: _Text
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(1, description="when nobody shares them")
    node_names: Annotated[list[_Text], Field(min_length=1, max_length=MOST_NODES)] = Field([], validate_default=False)
    holds: _Amounts = Field(_Amounts(), description="on each of its nodes; without it, whole nodes")
    holds_by_node: dict[_Text, _Amounts] = Field({}, description="where it is not the same on each")
    options: Annotated[list[_OptionFields], Field(min_length=1)] = Field([], validate_default=False)
    lost_work_node_s: _LostWork = Field(0, description="when it is killed")
    app_checkpoint_s: _Seconds | None = None
    sys_checkpoint_s: _Seconds | None = None
    preempt_priority: Annotated[int, Field(ge=0, le=MOST_PRIORITY)] = Field(
        0, description="of its QoS or its partition's tier: slurm-default takes the lowest first"
    )

    def ways(self) -> tuple[Option, ...]:
        if "options" in self.model_fields_set:
            return tuple(
                Option(
                    each.action,
                    each.lost_work_node_s,
                    each.checkpoint_s,
                    each.ready_s,
                    each.return_node_s,
                    each.file_system_s,
                )
                for each in self.options
            )
        options = [Option(Action.KILL, lost_work_node_s=self.lost_work_node_s)]
        if self.app_checkpoint_s is not None:
            options.append(Option(Action.APP_CHECKPOINT, checkpoint_s=self.app_checkpoint_s))
        if self.sys_checkpoint_s is not None:
            options.append(Option(Action.SYS_CHECKPOINT, checkpoint_s=self.sys_checkpoint_s))
        return tuple(options)


class _ProblemFields(_Strict):
    model_config = ConfigDict(
        title="The problem file of clearway plan --problem",
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **_either(("nodes_needed",), ("needs", "nodes")),
        },
    )
    nodes_needed: Annotated[int, Field(ge=0, le=MOST_NODES_NEEDED)] = Field(0, description="whole nodes")
    needs: _NeedsFields | None = Field(None, description="what the urgent job asks, instead of nodes_needed")
    nodes: dict[_Text, _Node] = Field(
        {}, description="every node that candidates name, and idle ones, in Slurm's order"
    )
    max_delay_s: _Seconds
    step_s: Annotated[int, Field(ge=1, le=MOST_SECONDS)]
    candidates: list[_CandidateFields]


def problem_schema() -> str:
    """The JSON schema of the file, as ``problem.schema.json`` ships it."""
    return json.dumps(_ProblemFields.model_json_schema(), indent=2) + "\n"


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
        parsed = _parse(raw)
        if isinstance(parsed, dict):
            _demand(not {"nodes_needed", "needs"}.isdisjoint(parsed), "nodes_needed", "is missing")
        return _problem(_ProblemFields.model_validate(parsed))
    except ValidationError as error:
        raise ProblemFileError(f"{path}: {_explain(error.errors(include_url=False)[0])}") from error
    except _BadProblemError as error:
        raise ProblemFileError(f"{path}: {error}") from error


class _BadProblemError(Exception):
    """What the file holds is not one JSON value, or does not fit together; its text says where."""


def _problem(fields: _ProblemFields) -> EvictionProblem:
    if fields.max_delay_s // fields.step_s > MOST_STEPS:
        raise _BadProblemError(
            f"max_delay_s: must be at most {MOST_STEPS} times step_s ({fields.step_s}), not {fields.max_delay_s}"
        )
    given = fields.model_fields_set
    if fields.needs is None:
        _demand("needs" not in given, "needs", "must be an object, not null")
        _demand("nodes" not in given, "needs", "is missing, and nodes is given")
    else:
        _demand("nodes_needed" not in given, "nodes_needed", "must not be given beside needs")
        _demand("nodes" in given, "nodes", "is missing")
    nodes = {name: _node(f"nodes.{_key(name)}", name, node) for name, node in fields.nodes.items()}
    for field in ("required_nodes", "excluded_nodes") if fields.needs else ():
        for index, name in enumerate(getattr(fields.needs, field)):
            _demand(name in nodes, f"needs.{field}[{index}]", f"{_shown(name)} is not among nodes")
    places: dict[str, int] = {}
    candidates = []
    for index, candidate in enumerate(fields.candidates):
        place = f"candidates[{index}]"
        if (first := places.setdefault(candidate.job_id, index)) != index:
            name = _shown(candidate.job_id)
            raise _BadProblemError(f"{place}.job_id: {name} is already the job_id of candidates[{first}]")
        candidates.append(_candidate(place, candidate, nodes, typed=fields.needs is not None))
    return EvictionProblem(
        nodes_needed=fields.needs.nodes if fields.needs else fields.nodes_needed,
        max_delay_s=fields.max_delay_s,
        step_s=fields.step_s,
        candidates=tuple(candidates),
        needs=fields.needs.needs() if fields.needs else None,
        nodes=tuple(nodes.values()),
    )


def _node(place: str, name: str, fields: _Node) -> NodeResources:
    _one_way_of_gpus(place, fields)
    has = fields.amounts()
    held = _on_node(f"{place}.held", fields.held, has, name)
    return NodeResources(name, has, held, tuple(fields.features), tuple(fields.partitions), fields.switch or "")


def _candidate(place: str, fields: _CandidateFields, nodes: dict[str, NodeResources], *, typed: bool) -> Candidate:
    given = fields.model_fields_set
    wanted = "node_names" if typed else "nodes"
    _demand(bool({"nodes", "node_names"} & given), f"{place}.{wanted}", "is missing")
    _demand(not {"nodes", "node_names"} <= given, f"{place}.nodes", "must not be given beside node_names")
    _demand(not (typed and "nodes" in given), f"{place}.nodes", "must be named in node_names, as needs is given")
    if "options" in given:
        beside = next((field for field in _COSTS if field in given), "")
        _demand(not beside, f"{place}.{beside}", "must not be given beside options")
    for field in _COSTS if "options" not in given else ():
        _demand(field in given, f"{place}.{field}", "is missing")
    for index, option in enumerate(fields.options):
        free = not option.lost_work_node_s and not option.checkpoint_s
        cost = "lost_work_node_s" if option.lost_work_node_s else "checkpoint_s"
        _demand(option.action is not Action.END or free, f"{place}.options[{index}].{cost}", "must be 0 for end")
    if "nodes" in given:
        beside = next((field for field in ("holds", "holds_by_node") if field in given), "")
        _demand(not beside, f"{place}.{beside}", "must not be given without node_names")
        return Candidate(fields.job_id, fields.nodes, fields.ways(), preempt_priority=fields.preempt_priority)
    for index, name in enumerate(fields.node_names):
        at = f"{place}.node_names[{index}]"
        _demand(fields.node_names.index(name) == index, at, f"{_shown(name)} is named twice")
        _demand(not typed or name in nodes, at, f"{_shown(name)} is not among nodes")
    holds = _holds(place, fields, nodes, typed=typed)
    return Candidate(
        job_id=fields.job_id,
        nodes=len(fields.node_names),
        options=fields.ways(),
        node_names=tuple(fields.node_names),
        holds=holds,
        preempt_priority=fields.preempt_priority,
    )


def _holds(
    place: str, fields: _CandidateFields, nodes: dict[str, NodeResources], *, typed: bool
) -> tuple[Amounts, ...]:
    given = {"holds", "holds_by_node"} & fields.model_fields_set
    if not given:
        return ()
    field = min(given)
    _demand(typed, f"{place}.{field}", "must not be given without needs")
    _demand(len(given) == 1, f"{place}.holds_by_node", "must not be given beside holds")
    if field == "holds":
        return tuple(_on_node(f"{place}.holds", fields.holds, nodes[name].has, name) for name in fields.node_names)
    for name in fields.holds_by_node:
        _demand(name in fields.node_names, f"{place}.holds_by_node.{_key(name)}", "is not among node_names")
    for name in fields.node_names:
        _demand(name in fields.holds_by_node, f"{place}.holds_by_node.{_key(name)}", "is missing")
    return tuple(
        _on_node(f"{place}.holds_by_node.{_key(name)}", fields.holds_by_node[name], nodes[name].has, name)
        for name in fields.node_names
    )


def _on_node(place: str, fields: _Amounts, has: Amounts, name: str) -> Amounts:
    """What is held on a node, its GPUs by the node's types; never more than the node has."""
    _one_way_of_gpus(place, fields)
    types = [gpu_type for gpu_type, _ in has.gpus]
    amounts = fields.amounts()
    if fields.gpus and types != [""]:
        _demand(len(types) < 2, f"{place}.gpus", f"must be told by type, as node {_shown(name)} has several")
        amounts = Amounts(fields.cores, fields.memory_mib, tuple((gpu_type, fields.gpus) for gpu_type in types))
        _demand(bool(types), f"{place}.gpus", f"must be at most what node {_shown(name)} has (0), not {fields.gpus}")
    limits = [("cores", amounts.cores, has.cores), ("memory_mib", amounts.memory_mib, has.memory_mib)]
    limits += [
        (f"gpus_by_type.{_key(kind)}" if fields.gpus_by_type else "gpus", held, dict(has.gpus).get(kind, 0))
        for kind, held in amounts.gpus
    ]
    for field, held, most in limits:
        _demand(held <= most, f"{place}.{field}", f"must be at most what node {_shown(name)} has ({most}), not {held}")
    return amounts


def _one_way_of_gpus(place: str, fields: _Amounts) -> None:
    _demand(not (fields.gpus and fields.gpus_by_type), f"{place}.gpus", "must not be given beside gpus_by_type")


def _demand(holds: bool, place: str, wrong: str) -> None:
    if not holds:
        raise _BadProblemError(f"{place}: {wrong}")


def _parse(raw: bytes) -> object:
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _BadProblemError(f"not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise _BadProblemError(f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise _BadProblemError("not a problem: nested too deeply") from error
    except ValueError as error:  # a number of more than 4,300 digits
        raise _BadProblemError("holds a number with too many digits") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _BadProblemError(f"{_key(key)}: is given twice in one object")
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
    wanted = _wanted(place)
    return f"{field}: must be {wanted}, not {_shown(error['input'])}"


def _wanted(place: Sequence[int | str]) -> str:
    """What belongs into this place of the file."""
    last, above = (place[-1] if place else 0), str(place[-2]) if len(place) > 1 else ""
    if isinstance(last, int):
        return _TEXT if _WANTED.get(above) == _NAMES else "an object"
    if last == "nodes" and above:
        return "a positive integer"
    return "an integer >= 0" if above.endswith("_by_type") else _WANTED.get(last, "an object")


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
