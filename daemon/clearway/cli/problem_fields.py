"""The fields of a problem file, its JSON schema, and its errors; ``plan_file`` says how the fields fit together."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from clearway.config.fields import SHOWN
from clearway.config.fields import shown as config_shown
from clearway.model.problem import Action, Amounts, Needs, Option

TEXT = "printable text of 1 to 256 characters"
NAMES = "a list of names"
KEY = "[key]"  # what pydantic ends a place with when not the value but the key is wrong
_WANTED = {
    "an integer >= 0": (
        "nodes_needed", "max_delay_s", "checkpoint_s", "ready_s", "return_node_s", "file_system_s", "gpus", "cores",
        "memory_mib", "gpus_per_node", "cores_per_node", "memory_mib_per_node", "preempt_priority", "ran_s", "waited_s",
    ),
    "an integer >= 0 or null": ("app_checkpoint_s", "sys_checkpoint_s", "remaining_s"),
    "a positive integer": ("step_s",),
    "a number >= 0": ("lost_work_node_s",),
    "true or false": ("contiguous", "one_switch"),
    f"one of {', '.join(Action)}": ("action",),
    "a list": ("candidates",),
    "a list of at least one option": ("options",),
    TEXT: ("job_id", "partition", "switch"),
    NAMES: ("features", "partitions", "required_nodes", "excluded_nodes", "node_names"),
}  # fmt: skip
WANTED = {field: wanted for wanted, fields in _WANTED.items() for field in fields}


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
    return f"{field}: must be {_wanted(place)}, not {shown(error['input'])}"


def _wanted(place: Sequence[int | str]) -> str:
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
    return name if name.isidentifier() and len(name) <= SHOWN else shown(name)


shown = partial(config_shown, mapping="an object", written=json.dumps)  # as JSON would write it


MOST_CANDIDATES = 20_000  # what ties are settled with takes memory in the square of their number
MOST_NODES = 1_000_000
MOST_NODES_NEEDED = 10**9
MOST_SECONDS = 10**12
MOST_LOST_WORK_NODE_S = 10**15
MOST_OF_A_RESOURCE = 10**12
MOST_PRIORITY = 2**32 - 1
SCHEMA_FILE = Path(__file__).with_name("problem.schema.json")
COSTS = ("lost_work_node_s", "app_checkpoint_s", "sys_checkpoint_s")


def _number(value: object) -> int | float:
    """Integers stay integers; true, false and text are no numbers, NaN and Infinity neither."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or value == inf:
        raise ValueError(WANTED["lost_work_node_s"])
    if value > MOST_LOST_WORK_NODE_S:
        raise PydanticCustomError("less_than_equal", "too large", {"le": MOST_LOST_WORK_NODE_S})
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(TEXT)
    return value


_Seconds = Annotated[int, Field(ge=0, le=MOST_SECONDS)]
_Amount = Annotated[int, Field(ge=0, le=MOST_OF_A_RESOURCE)]
# What a schema can say of text that is not printable in every dialect of regular expressions.
_UNPRINTABLE = "[\\u0000-\\u001f\\u007f-\\u00a0\\u00ad\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff]"
_Text = Annotated[
    str,
    Field(min_length=1, max_length=256, json_schema_extra={"not": {"pattern": _UNPRINTABLE}}),
    AfterValidator(_printable),
]
_LostWork = Annotated[
    int | float,
    PlainValidator(_number),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MOST_LOST_WORK_NODE_S}),
]
_Action = Annotated[Action, Field(strict=False), WithJsonSchema({"type": "string", "enum": [*Action]})]


def _not_both(one: str, other: str, *, least: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Not both keys are there, each with a value that ``least`` describes."""
    return {"not": {"required": [one, other], "properties": least}}


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


_ONE_WAY_OF_GPUS = _not_both(
    "gpus", "gpus_by_type", least={"gpus": {"minimum": 1}, "gpus_by_type": {"minProperties": 1}}
)


class AmountFields(_Strict):
    model_config = ConfigDict(json_schema_extra=_ONE_WAY_OF_GPUS)
    gpus: _Amount = Field(0, description="GPUs without a type; on a node of one type they are of that type")
    gpus_by_type: dict[_Text, _Amount] = Field({}, description="GPUs by type, instead of gpus")
    cores: _Amount = 0
    memory_mib: _Amount = 0

    def amounts(self) -> Amounts:
        return Amounts(self.cores, self.memory_mib, _gpus(self.gpus, self.gpus_by_type))


def _gpus(untyped: int, by_type: dict[str, int]) -> tuple[tuple[str, int], ...]:
    told = sorted(by_type.items()) if by_type else [("", untyped)]
    return tuple((gpu_type, count) for gpu_type, count in told if count)


class NodeFields(AmountFields):
    held: AmountFields = Field(AmountFields(), description="what jobs hold that are no candidates and stay")
    features: list[_Text] = []
    partitions: list[_Text] = []
    switch: _Text | None = Field(None, description="its leaf switch")


class NeedsFields(_Strict):
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    gpus_per_node: _Amount = Field(0, description="GPUs of any type")
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


class OptionFields(_Strict):
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["action"], "properties": {"action": {"const": Action.END.value}}},
            "then": {"properties": {cost: {"const": 0} for cost in ("lost_work_node_s", "checkpoint_s")}},
        }
    )
    action: _Action
    lost_work_node_s: _LostWork = 0
    checkpoint_s: _Seconds = Field(
        0, description="time on the file system, seconds; checkpoints are written one by one"
    )
    ready_s: _Seconds = Field(0, description="earliest deadline that can use this option, seconds")
    file_system_s: _Seconds | None = Field(
        None,
        description="time that its data takes with the whole file system, seconds, where checkpoints share it; at most "
        "checkpoint_s; null: other checkpoints wait for it",
    )
    return_node_s: _Seconds = Field(
        0, description="cost of its return, node-seconds; it counts where lost work is equal"
    )


class CandidateFields(_Strict):
    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _either(("nodes",), ("node_names",)),
                _either(("options",), COSTS),
                _not_both("holds", "holds_by_node", least={}),
            ],
            "dependentRequired": {"holds": ["node_names"], "holds_by_node": ["node_names"]},
        }
    )
    job_id: _Text
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(1, description="number of nodes that no other job shares")
    node_names: Annotated[list[_Text], Field(min_length=1, max_length=MOST_NODES)] = Field(
        [], validate_default=False, json_schema_extra={"uniqueItems": True}
    )
    holds: AmountFields = Field(AmountFields(), description="what it holds on each of its nodes; default: whole nodes")
    holds_by_node: dict[_Text, AmountFields] = Field({}, description="by node, where it differs")
    options: Annotated[list[OptionFields], Field(min_length=1)] = Field([], validate_default=False)
    lost_work_node_s: _LostWork = Field(0, description="when it is requeued without a checkpoint, node-seconds")
    app_checkpoint_s: _Seconds | None = None
    sys_checkpoint_s: _Seconds | None = None
    preempt_priority: Annotated[int, Field(ge=0, le=MOST_PRIORITY)] = Field(
        0, description="of its QoS or its partition's tier; slurm-default takes the lowest first"
    )
    ran_s: _Seconds = Field(0, description="time since its start, seconds; some rules look at it")
    remaining_s: _Seconds | None = Field(
        None, description="time until its time limit, seconds; null: none, or not known"
    )
    waited_s: _Seconds = Field(0, description="time from its submission to its start, seconds")

    def ways(self) -> tuple[Option, ...]:
        if "options" in self.model_fields_set:
            return tuple(Option(**dict(each)) for each in self.options)
        saving = {Action.APP_CHECKPOINT: self.app_checkpoint_s, Action.SYS_CHECKPOINT: self.sys_checkpoint_s}
        saved = [Option(action, checkpoint_s=time_s) for action, time_s in saving.items() if time_s is not None]
        return (Option(Action.KILL, lost_work_node_s=self.lost_work_node_s), *saved)


class ProblemFields(_Strict):
    model_config = ConfigDict(
        title="The problem file of clearway plan --problem",
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **_either(("nodes_needed",), ("needs", "nodes")),
            "if": {"required": ["needs"]},
            "then": {"properties": {"candidates": {"items": {"required": ["node_names"]}}}},
            "else": {"properties": {"candidates": {"items": {"properties": {"holds": False, "holds_by_node": False}}}}},
        },
    )
    nodes_needed: Annotated[int, Field(ge=0, le=MOST_NODES_NEEDED)] = Field(0, description="whole nodes")
    needs: NeedsFields | None = Field(
        None, description="what the urgent job needs, instead of nodes_needed", json_schema_extra={"type": "object"}
    )
    nodes: dict[_Text, NodeFields] = Field(
        {}, description="every node that candidates name, and idle ones, in Slurm's order"
    )
    max_delay_s: _Seconds
    step_s: Annotated[int, Field(ge=1, le=MOST_SECONDS)]
    candidates: Annotated[list[CandidateFields], Field(max_length=MOST_CANDIDATES)]


def problem_schema() -> str:
    return json.dumps(ProblemFields.model_json_schema(), indent=2) + "\n"
