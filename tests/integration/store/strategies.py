"""Random records for hypothesis, made from the dataclasses' own annotations: a new field is covered at once."""

from __future__ import annotations

import dataclasses
import types
import typing
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from clearway.model.operations import Drain, Eviction, Operation, Promise, Relocation

# What Slurm may show in a name: anything but NUL and halves of surrogate pairs, which no database takes.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TIMES = st.builds(
    lambda microseconds, zone: datetime.fromtimestamp(0, zone) + timedelta(microseconds=microseconds),
    st.integers(0, 4 * 10**15),  # 1970 to 2096
    st.sampled_from([UTC, timezone(timedelta(hours=-7))]),
)
INTEGERS = st.integers(0, 2**31 - 1)
FLOATS = st.floats(-1e18, 1e18)  # evictions add them up: sums must stay finite


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation."""
    plain = {str: TEXTS, int: INTEGERS, float: FLOATS, bool: st.booleans(), datetime: TIMES, type(None): st.none()}
    if kind in plain:
        return plain[kind]
    if dataclasses.is_dataclass(kind):
        return record(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(kind)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(of, arguments))
    if typing.get_origin(kind) is tuple:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    if typing.get_origin(kind) is frozenset:
        return st.frozensets(of(arguments[0]), max_size=3)
    if isinstance(kind, types.UnionType):
        return st.one_of([of(argument) for argument in arguments])
    raise TypeError(f"no strategy for {kind}")


def record(kind: Any, **given: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass with every field drawn, but for those that are given."""
    hints = typing.get_type_hints(kind)
    drawn = {field.name: of(hints[field.name]) for field in dataclasses.fields(kind) if field.name not in given}
    return st.builds(kind, **drawn, **given)


def evictions(kind: type[Operation] = Eviction, **given: Any) -> st.SearchStrategy[Any]:
    """Operations of one type that were not stored yet."""
    return record(kind, **({"eviction_id": st.just(0)} | given))


def operations() -> st.SearchStrategy[Operation]:
    """Operations of all types."""
    return st.one_of(evictions(kind) for kind in (Eviction, Drain, Relocation, Promise))
