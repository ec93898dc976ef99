"""The fields of a problem file, and its errors; ``plan_file`` says how the fields fit together.

docs/reference/problem_schema.py says what they mean, and makes the JSON schema beside this module.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator
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


def _demand(holds: bool, field: str, wrong: str) -> None:
    """Of a field beside others of the same object."""
    if not holds:
        raise PydanticCustomError("wrong", "wrong", {"field": field, "wrong": wrong})


def explain(error: ErrorDetails) -> str:
    place = error["loc"]
    field = _path(place)
    match error["type"]:
        case "wrong":
            return f"{_path((*place, error['ctx']['field']))}: {error['ctx']['wrong']}"
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
MOST_STEPS = 100_000
MOST_LOST_WORK_NODE_S = 10**15
MOST_OF_A_RESOURCE = 10**12
MOST_PRIORITY = 2**32 - 1
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
_Count = Annotated[int, Field(ge=1, le=MOST_NODES)]
_Text = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
_LostWork = Annotated[int | float, PlainValidator(_number)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AmountFields(_Strict):
    gpus: _Amount = 0  # without a type; on a node of one type they are of that type
    gpus_by_type: dict[_Text, _Amount] = {}
    cores: _Amount = 0
    memory_mib: _Amount = 0

    @model_validator(mode="after")
    def _count_gpus_in_one_way(self) -> Self:
        _demand(not (self.gpus and self.gpus_by_type), "gpus", "must not be given beside gpus_by_type")
        return self

    def amounts(self) -> Amounts:
        return Amounts(self.cores, self.memory_mib, _gpus(self.gpus, self.gpus_by_type))


def _gpus(untyped: int, by_type: dict[str, int]) -> tuple[tuple[str, int], ...]:
    told = sorted(by_type.items()) if by_type else [("", untyped)]
    return tuple((gpu_type, count) for gpu_type, count in told if count)


class NodeFields(AmountFields):
    held: AmountFields = AmountFields()
    features: list[_Text] = []
    partitions: list[_Text] = []
    switch: _Text | None = None


class NeedsFields(_Strict):
    nodes: _Count
    gpus_per_node: _Amount = 0  # of any type
    gpus_per_node_by_type: dict[_Text, _Amount] = {}
    cores_per_node: _Amount = 0
    memory_mib_per_node: _Amount = 0
    features: list[_Text] = []
    partition: _Text | None = None
    required_nodes: list[_Text] = []
    excluded_nodes: list[_Text] = []
    contiguous: bool = False
    one_switch: bool = False

    def needs(self) -> Needs:
        gpus = _gpus(0, self.gpus_per_node_by_type) + _gpus(self.gpus_per_node, {})
        per_node = Amounts(self.cores_per_node, self.memory_mib_per_node, gpus)
        alike: dict[str, Any] = self.model_dump(include={"contiguous", "one_switch"})
        alike |= {field: tuple(getattr(self, field)) for field in ("features", "required_nodes", "excluded_nodes")}
        return Needs(per_node=per_node, partition=self.partition or "", **alike)


class OptionFields(_Strict):
    action: Annotated[Action, Field(strict=False)]
    lost_work_node_s: _LostWork = 0
    checkpoint_s: _Seconds = 0
    ready_s: _Seconds = 0
    file_system_s: _Seconds | None = None
    return_node_s: _Seconds = 0

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        shared = self.file_system_s or 0
        wrong = f"must be at most checkpoint_s ({self.checkpoint_s}), not {shared}"
        _demand(shared <= self.checkpoint_s, "file_system_s", wrong)
        for cost in ("lost_work_node_s", "checkpoint_s"):
            _demand(self.action is not Action.END or not getattr(self, cost), cost, "must be 0 for end")
        return self


class CandidateFields(_Strict):
    job_id: _Text
    nodes: _Count = 1  # that no other job shares
    node_names: Annotated[list[_Text], Field(min_length=1, max_length=MOST_NODES)] = Field([], validate_default=False)
    holds: AmountFields = AmountFields()  # on each of its nodes
    holds_by_node: dict[_Text, AmountFields] = {}
    options: Annotated[list[OptionFields], Field(min_length=1)] = Field([], validate_default=False)
    lost_work_node_s: _LostWork = 0
    app_checkpoint_s: _Seconds | None = None
    sys_checkpoint_s: _Seconds | None = None
    preempt_priority: Annotated[int, Field(ge=0, le=MOST_PRIORITY)] = 0
    ran_s: _Seconds = 0
    remaining_s: _Seconds | None = None
    waited_s: _Seconds = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = self.model_fields_set
        _demand(not {"nodes", "node_names"} <= given, "nodes", "must not be given beside node_names")
        _demand(not {"holds", "holds_by_node"} <= given, "holds_by_node", "must not be given beside holds")
        for field in COSTS:
            one_way = (field in given) is not ("options" in given)
            _demand(one_way, field, "must not be given beside options" if field in given else "is missing")
        for field in ("holds", "holds_by_node"):
            _demand(not {"nodes", field} <= given, field, "must not be given without node_names")
        return self

    def ways(self) -> tuple[Option, ...]:
        if "options" in self.model_fields_set:
            return tuple(Option(**dict(each)) for each in self.options)
        saving = {Action.APP_CHECKPOINT: self.app_checkpoint_s, Action.SYS_CHECKPOINT: self.sys_checkpoint_s}
        saved = [Option(action, checkpoint_s=time_s) for action, time_s in saving.items() if time_s is not None]
        return (Option(Action.KILL, lost_work_node_s=self.lost_work_node_s), *saved)


class ProblemFields(_Strict):
    nodes_needed: Annotated[int, Field(ge=0, le=MOST_NODES_NEEDED)] = 0
    needs: NeedsFields | None = None
    nodes: dict[_Text, NodeFields] = {}
    max_delay_s: _Seconds
    step_s: Annotated[int, Field(ge=1, le=MOST_SECONDS)]
    candidates: Annotated[list[CandidateFields], Field(max_length=MOST_CANDIDATES)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given, typed = self.model_fields_set, self.needs is not None
        too_many = f"must be at most {MOST_STEPS} times step_s ({self.step_s}), not {self.max_delay_s}"
        _demand(self.max_delay_s // self.step_s <= MOST_STEPS, "max_delay_s", too_many)
        _demand(bool({"nodes_needed", "needs"} & given), "nodes_needed", "is missing")
        _demand(typed or "needs" not in given, "needs", "must be an object, not null")
        _demand(typed or "nodes" not in given, "needs", "is missing, and nodes is given")
        _demand(not typed or "nodes_needed" not in given, "nodes_needed", "must not be given beside needs")
        _demand(not typed or "nodes" in given, "nodes", "is missing")
        return self
