"""Slurm's host lists: ``node[1-3,07],x[1-2]y[3-4]`` to names and back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from clearway.slurm.parse.fields import NOTHING, FieldError

# More than the largest clusters have; a longer list is an error in the text, not a cluster.
MAX_HOSTS = 65_536
_SHORT = 60  # characters

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_TRAILING_NUMBER = re.compile(r"(.*?)(\d{1,12})", re.ASCII)


def expand(hostlist: str, *, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """The names of a host list, each once, in the order of the list. Raises FieldError for what is none.

    Numbers keep their leading zeros: ``n[08-10]`` is n08, n09, n10.
    """
    if hostlist in NOTHING:
        return ()
    hosts: dict[str, None] = {}
    for piece in pieces(hostlist):
        for host in _expand_piece(piece, limit):
            hosts[host] = None
            if len(hosts) > limit:
                raise FieldError(f"host list {hostlist[:40]!r} has more than {limit} names")
    return tuple(hosts)


def pieces(hostlist: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    depth, start = 0, 0
    for at, char in enumerate(hostlist):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield hostlist[start:at]
            start = at + 1
        if depth not in (0, 1):
            raise FieldError(f"host list {hostlist[:40]!r} has brackets that do not match")
    if depth != 0:
        raise FieldError(f"host list {hostlist[:40]!r} has brackets that do not match")
    yield hostlist[start:]


def _expand_piece(piece: str, limit: int) -> Iterator[str]:
    axes: list[list[str]] = []
    count = 1
    for found in _PART.finditer(piece):
        ranges, literal = found.groups()
        if literal is None:
            axes.append(_expand_ranges(ranges, limit))
        elif _NAME.fullmatch(literal):
            axes.append([literal])
        else:
            raise FieldError(f"host list holds {literal[:40]!r}, not a node name")
        count *= len(axes[-1])
        if count > limit:
            raise FieldError(f"host list {piece[:40]!r} has more than {limit} names")
    if not axes:
        raise FieldError("host list holds an empty name")
    return ("".join(parts) for parts in itertools.product(*axes))


def _expand_ranges(ranges: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        found = _RANGE.fullmatch(item)
        if found is None:
            raise FieldError(f"host list holds the range {item[:40]!r}")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= limit:
            raise FieldError(f"host list holds the range {item[:40]!r}")
        numbers += [str(value).zfill(len(first)) for value in range(int(first), int(last) + 1)]
        if len(numbers) > limit:
            raise FieldError(f"host list has more than {limit} names")
    return numbers


def compress(hosts: Iterable[str]) -> str:
    """A short list with one bracket a prefix: ``node[1-3,7]``; each name once. ``expand`` undoes it."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for host in sorted(set(hosts)):
        found = _TRAILING_NUMBER.fullmatch(host)
        if found is None:
            plain.append(host)
            continue
        digits = found[2]
        # Numbers with leading zeros only join others of the same width.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        groups.setdefault((found[1], width), []).append(int(digits))
    parts = plain + [
        _compress_group(prefix, width, sorted(numbers)) for (prefix, width), numbers in sorted(groups.items())
    ]
    return ",".join(parts)


def short(hosts: Iterable[str]) -> str:
    """``compress`` for one line of text; how many there are where that would be too long."""
    names = set(hosts)
    text = compress(names)
    return text if len(text) <= _SHORT else f"{len(names)} nodes"


def _compress_group(prefix: str, width: int, numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for value in numbers:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    texts = [
        str(first).zfill(width) if first == last else f"{str(first).zfill(width)}-{str(last).zfill(width)}"
        for first, last in runs
    ]
    if len(texts) == 1 and "-" not in texts[0]:
        return prefix + texts[0]
    return f"{prefix}[{','.join(texts)}]"
