"""What the command line prints: tables for people, JSON for programs. No text is read as markup, and no control
character that users or Slurm wrote reaches the terminal.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console, Group, JustifyMethod, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
Columns = dict[str, Callable[[Any], object]]

_ANSWER_LIMIT_S = 15.0
_QUICK_S = 10.0  # so long it asks ten times a second, then once
NARROW = 100  # characters; on a screen below that, long tables show fewer columns
_WIDE = 10_000  # characters; tables take what they need of it
_SENTENCES = frozenset({"why", "outcome", "note", "detail", "action", "actions", "cheapest action", "what is done", ""})


def visible(text: str) -> str:
    """Control characters, and what reorders text, as Python writes them in a literal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class VisibleTable(Table):
    """A table whose cells are shown as they are."""

    def add_row(self, *cells: object, **options: Any) -> None:
        super().add_row(*(cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in cells), **options)


def console(output: str = "table") -> Console:
    """On a terminal as wide as that, or as COLUMNS says; elsewhere, and for ``wide``, as wide as its tables are."""
    wide = output == "wide" or not (os.environ.get("COLUMNS") or sys.stdout.isatty())
    return Console(highlight=False, emoji=False, markup=False, width=_WIDE if wide else None)


def print_document(answer: BaseModel) -> None:
    """An answer of REST, for programs; ASCII alone, whatever users write."""
    print_json(answer.model_dump(mode="json"))


def print_json(value: Any) -> None:
    """Times as ISO 8601; what JSON does not know otherwise, as text."""
    print(
        json.dumps(value, indent=2, default=lambda each: each.isoformat() if hasattr(each, "isoformat") else str(each))
    )


def answer(found: BaseModel, output: str, shown: Callable[[], RenderableType]) -> None:
    """An answer of REST as it is for programs, and as ``shown`` makes it for people."""
    if output == "json":
        print_document(found)
    else:
        console(output).print(shown())


def listed(rows: Sequence[Any], columns: Columns) -> RenderableType:
    return listing(rows, columns) if rows else "There are none."


def node_hours(node_s: float | None) -> str:
    return "-" if node_s is None else f"{node_s / 3_600:,.1f}"


def when(time_: datetime | None) -> str:
    return "-" if time_ is None else time_.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def minute(time_: datetime) -> str:
    return f"{time_.astimezone():%m-%d %H:%M}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def page(parts: Iterable[RenderableType]) -> Group:
    """One below the other; sentences are shown as they are."""
    return Group(*(Text(visible(part)) if isinstance(part, str) else part for part in parts))


def wait_for(answer: Callable[[], T | None], limit_s: float = _ANSWER_LIMIT_S) -> T | None:
    began = time.monotonic()
    while (found := answer()) is None and (waited := time.monotonic() - began) < limit_s:
        time.sleep(0.1 if waited < _QUICK_S else 1.0)
    return found


def table(*columns: str, title: str = "") -> VisibleTable:
    """A table without rows; a column whose name begins with ``>`` is aligned to the right."""
    made = VisibleTable(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        # Only sentences are broken on a narrow screen: half an id or half a time is of no use, and the rest of a
        # number that was cut must not be taken for the number.
        sentence = name in _SENTENCES
        overflow: OverflowMethod = "fold" if sentence else "ellipsis"
        justify: JustifyMethod = "left" if name == column else "right"
        made.add_column(name, justify=justify, overflow=overflow, no_wrap=not sentence)
    return made


def listing(rows: Iterable[Any], columns: Columns, title: str = "") -> VisibleTable:
    made = table(*columns, title=title)
    for row in rows:
        made.add_row(*(cell(row) for cell in columns.values()))
    return made
