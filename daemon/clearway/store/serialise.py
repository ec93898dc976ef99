"""Decisions as JSON and back, without loss: what a database keeps as text. Pure.

The dataclasses of ``model`` are the schema (pydantic reads their annotations), so nothing is mapped by hand:
a field that gains a default stays readable in old rows, and one that is gone is passed over. What does not fit its
annotation (a fraction in an ``int`` field) is refused when it is written, because it could not be read again.
"""

from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from clearway.model.errors import StoreError

T = TypeVar("T")

_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Made on first use: building one for ``Plan`` takes some 50 ms, which a command line may never need.

    A dataclass takes no configuration of its own here, a union hands its configuration down; without it an
    infinite number would silently become null.
    """
    if kind not in _adapters:
        union: Any = kind | None
        _adapters[kind] = TypeAdapter(union, config=ConfigDict(ser_json_inf_nan="strings"))
    return _adapters[kind]


def dump(value: object) -> str:
    """A frozen record (``Plan``, ``EvictionProblem``, ``Curve``, ``Job`` ...) as one line of JSON."""
    return dump_as(type(value), value)


def dump_as(kind: Any, value: object) -> str:
    """A value whose type does not say what is in it, as a tuple of records."""
    try:
        return _adapter(kind).dump_json(value, warnings="error").decode()
    except (PydanticSerializationError, UnicodeError) as error:
        why = " ".join(str(error).split())
        raise StoreError(f"{type(value).__name__} cannot be written as JSON: {why}") from error


def load(kind: type[T], text: str) -> T:
    """The record that ``dump`` wrote."""
    try:
        value: T | None = _adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise StoreError(f"stored {kind.__name__} cannot be read: {where}: {first['msg']}") from error
    if value is None:
        raise StoreError(f"stored {kind.__name__} cannot be read: it is null")
    return value
