"""What the sections of the configuration are made of, and what is wrong with one, in words for administrators.

Every wrong key has one line.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails

from clearway.model.durations import Duration


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def key(default: Any, meaning: str, **limits: Any) -> Any:
    """A key that may be left out; ``meaning`` goes into the documentation."""
    return Field(default, description=meaning, **limits)


Names = tuple[str, ...]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Period = Annotated[Duration, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0, le=1_000)]


SHOWN = 60  # characters of a wrong value
# What belongs there, by pydantic's type of the error, or the beginning of that.
_WANTED = {
    "enum": "{expected}",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "model_type": "a section",
    "model_attributes_type": "a section",
    "dict_type": "a section",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "string": "text in quotes",
    "path": "a path in quotes",
}


def told(error: ErrorDetails, model: type[BaseModel]) -> str:
    """``section.key: what it must be``; ``model`` is what the whole file should have been."""
    place = error["loc"]
    key = ".".join(printable(str(part)) for part in place) or "(top level)"
    return f"{key}: {printable(_what(error, model))}"


def printable(text: str) -> str:
    """One line, whatever a file may hold."""
    return text if text.isprintable() else ascii(text)


def _what(error: ErrorDetails, model: type[BaseModel]) -> str:
    kind, given = error["type"], error["input"]
    match kind:
        case "extra_forbidden":
            return f"unknown key{_meant(error['loc'], model)}"
        case "tuple_type" | "list_type":
            return _list_wanted(str(error["loc"][-1]), given)
    wanted = _WANTED.get(kind) or _WANTED.get(kind.partition("_")[0])
    if wanted is None:
        return error["msg"].removeprefix("Value error, ")
    return f"must be {wanted.format(**error.get('ctx', {}))}, not {shown(given)}"


def _list_wanted(key: str, given: object) -> str:
    if isinstance(given, Mapping):
        return f"write [[{key}]], in two brackets: there may be several"
    if isinstance(given, str) and key != "preemptors":
        return f'must be a list: ["{given[:SHOWN]}"]'
    return f"must be a list, not {shown(given)}"


def _meant(place: Iterable[int | str], model: type[BaseModel]) -> str:
    """The known key that looks most like it."""
    *above, wrong = place
    section: type[BaseModel] | None = model
    for part in above:
        section = section if isinstance(part, int) else _subsection(section, part)
        if section is None:
            return ""
    close = difflib.get_close_matches(str(wrong), section.model_fields if section else (), 1)
    return f"; is {close[0]} meant?" if close else ""


def _subsection(model: type[BaseModel] | None, key: str) -> type[BaseModel] | None:
    field = model.model_fields.get(key) if model is not None else None
    annotation: Any = None if field is None else field.annotation
    found = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
    return next((each for each in found if issubclass(each, BaseModel)), None)


def shown(value: object, mapping: str = "a section", written: Callable[[object], str] = repr) -> str:
    """A wrong value on one line, cut when long; ``written``: how text and numbers are."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return mapping if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return f"a number of more than {SHOWN} digits"
    text = written(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
