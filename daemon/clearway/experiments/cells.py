"""What the studies share: the recorded workloads that a folder has, and cells that are chosen and averaged. Pure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from clearway.model.errors import TraceError

C = TypeVar("C")


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
