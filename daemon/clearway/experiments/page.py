"""How a report is written: an HTML page that needs no other file, from a template, and a table (CSV) beside it. Pure.

The templates stand in ``templates/``; all of them extend ``base.html`` and show tables with the macro of
``table.html``. What a template is given is escaped, but for charts (``chart``).
"""

import csv
import io
from collections.abc import Iterable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=PackageLoader("clearway.experiments"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class Missed(str):
    """The text of a table's cell whose number misses its target: it is shown in red."""

    __slots__ = ()


def marked(text: str, *, good: bool) -> str:
    return text if good else Missed(text)


_ENVIRONMENT.tests["missed"] = lambda cell: isinstance(cell, Missed)


def html(template: str, study: object = None, **known: Any) -> str:
    """A template sees the study, and what else is known."""
    return _ENVIRONMENT.get_template(template).render(known, study=study)


def as_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
