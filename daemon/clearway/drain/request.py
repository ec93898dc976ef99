"""What a request to drain or to bring back says, as it is stored for the loop, and which nodes it means."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.orders import DrainOrder, Parallel
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.hostlist import TooManyNamesError, expand, pieces

# What Slurm keeps of a Reason as it was given: in one line, without quotes, and without its own [user@time].
_REASON = re.compile(r'[^"\[\]]{0,120}')
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
LONGEST_LIST = 4_096  # characters
MOST_AT_ONCE = 100_000
_CLOCKS_DIFFER = timedelta(minutes=1)  # between the machine that asked and the daemon's
_FURTHEST = timedelta(days=3_653)


def _is_a_date(value: object) -> object:
    """Pydantic would read a number as seconds since 1970."""
    if isinstance(value, (int, float)) or (isinstance(value, str) and not _DATE.match(value)):
        raise ValueError("a time is a text such as 2026-11-22T21:00:00Z")
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_is_a_date)]


class DrainRequest(BaseModel):
    """Nodes that shall be empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: str = Field(
        min_length=1,
        max_length=LONGEST_LIST,
        description="host list such as node[1-3,7]; partition=NAME and feature=NAME stand for their nodes",
    )
    reason: str = Field("", description="why, for the nodes' Reason: one line without quotes and brackets")
    deadline: Time | None = Field(
        None, description="when the nodes should be empty; null: as soon as every job has been saved"
    )
    at: Time | None = Field(None, description="when to begin; null: at once")
    parallel: Parallel = Field(
        Parallel.MIGRATE,
        description="what becomes of jobs that also run on other nodes: migrate moves them, leave lets them end",
    )
    force: bool = Field(
        False, strict=True, description="requeues jobs that cannot be saved as well; their work is lost"
    )
    rolling: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=MOST_AT_ONCE,
        description="so many nodes at a time: the next follow when one has been brought back; null: all at once",
    )

    @field_validator("reason")
    @classmethod
    def _is_one_line(cls, reason: str) -> str:
        if not reason.isprintable() or not _REASON.fullmatch(reason) or reason != reason.strip():
            raise ValueError("a reason is one line of at most 120 characters, without quotes and brackets")
        return reason

    @model_validator(mode="after")
    def _rolls_without_deadline(self) -> Self:
        if self.rolling is not None and self.deadline is not None:
            raise ValueError("a rolling drain has no deadline: when its nodes come back is not in its hands")
        return self

    def check_times(self, asked_at: datetime) -> None:
        """Raises ``DrainError`` for a mistyped date: before the request was made, or more than ten years after it."""
        for what, when in (("beginning", self.at), ("deadline", self.deadline)):
            if when is not None and when < asked_at - _CLOCKS_DIFFER:
                raise DrainError(f"its {what}, {in_utc(when)}, has passed")
            if when is not None and when > asked_at + _FURTHEST:
                raise DrainError(f"its {what}, {in_utc(when)}, lies more than ten years ahead")
        if self.at is not None and self.deadline is not None and self.deadline <= self.at:
            raise DrainError(f"its deadline, {in_utc(self.deadline)}, comes before its beginning, {in_utc(self.at)}")

    def order(self, nodes: tuple[str, ...], actor: str, request_id: int = 0) -> DrainOrder:
        same = self.model_dump(include={"reason", "deadline", "parallel", "force"})
        return DrainOrder(nodes=nodes, actor=actor, request_id=request_id, begin_at=self.at, **same)


class UndrainRequest(BaseModel):
    """Nodes that shall take jobs again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: str = Field(min_length=1, max_length=LONGEST_LIST, description="as for a drain")


R = TypeVar("R", bound=BaseModel)


def new_request(kind: type[R], **fields: object) -> R:
    return _validated(lambda: kind.model_validate(fields))


def read_request(kind: type[R], document: str) -> R:
    return _validated(lambda: kind.model_validate_json(document))


def _validated(validate: Callable[[], R]) -> R:
    """Raises ``DrainError``, with the first thing that is wrong."""
    try:
        return validate()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "request"
    match first["type"]:
        case "string_too_short":
            why = "is empty"
        case "string_too_long":
            why = f"has more than {first['ctx']['max_length']} characters"
        case _:
            why = first["msg"].removeprefix("Value error, ")
    raise DrainError(f"{where}: {why}")


def in_utc(when: datetime) -> str:
    if not 1_970 <= when.year < 9_999:  # the same moment in UTC may be no date any more
        return when.isoformat(sep=" ")
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


_TIMES_NAMED = 2  # a list that names all nodes more often is no list of nodes


def _names(piece: str, left: int, most: int, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """What it names, where that is no more than the cluster may have: a short text stands for 65,536 names."""
    try:
        return expand(piece, limit=left)
    except TooManyNamesError:
        total = len(snapshot.nodes)
        why = f"{piece[:80]!r} names more than the {total} node(s) of this cluster"
        again = f"it names the {total} node(s) of this cluster again and again"
        raise DrainError(why if left == most else again) from None


def chosen_nodes(text: str, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """All nodes of ``node[1-3],partition=debug,feature=gpu``, by name. Raises ``DrainError``."""
    names: set[str] = set()
    left = most = _TIMES_NAMED * len(snapshot.nodes) + 1
    try:
        for piece in dict.fromkeys(pieces(text.replace(" ", ""))):
            kind, equals, value = piece.partition("=")
            if not equals:
                listed = _names(piece, left, most, snapshot)
                found, left = set(listed), left - len(listed)
                if unknown := sorted(found - snapshot.node_by_name.keys()):
                    raise DrainError(f"{unknown[0]} is not a node of this cluster")
            elif kind == "partition":
                found = {node.name for node in snapshot.nodes if value in node.partitions}
            elif kind == "feature":
                found = {node.name for node in snapshot.nodes if value in node.features}
            else:
                raise DrainError(f"{piece[:80]!r} is neither a host list nor partition=NAME or feature=NAME")
            if not found:
                raise DrainError(f"{piece[:80]!r} names no node of this cluster")
            names |= found
    except FieldError as error:
        raise DrainError(str(error)) from None
    return tuple(sorted(names))
