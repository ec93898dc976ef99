"""What the studies share: how a report is written, recorded workloads that a folder has, and cells. Pure.

A report is an HTML page (``clearway.cli.report``), from a template of ``templates/``, and a table (CSV) beside it.
What a template is given is escaped, but for charts (``chart``).
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clearway.cli.report import Missed, templates
from clearway_lab.errors import TraceError

C = TypeVar("C")

_ENVIRONMENT = templates("clearway_lab.studies")


def marked(text: str, *, good: bool) -> str:
    return text if good else Missed(text)


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


def left_out_files(files: Sequence[str]) -> list[str]:
    return [f"Not found, so left out: {', '.join(files)}."] if files else []


def absent(folder: Path, files: Iterable[str]) -> tuple[str, ...]:
    """The files that the folder does not have.

    Raises:
        TraceError: when it has none of them.
    """
    files = tuple(files)
    missing = tuple(file for file in files if not (folder / file).exists())
    if missing == files:
        raise TraceError(f"{folder}: none of {', '.join(files)}")
    return missing


def chosen(cells: Iterable[C], **fields: object) -> tuple[C, ...]:
    """The cells whose fields have these values."""
    return tuple(cell for cell in cells if all(getattr(cell, name) == value for name, value in fields.items()))


def means(rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Of each column."""
    return tuple(sum(column) / len(column) for column in zip(*rows, strict=True))
