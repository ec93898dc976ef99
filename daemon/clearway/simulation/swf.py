"""The Standard Workload Format of the Parallel Workloads Archive: one job a line, 18 numbers, comments after ``;``.

Read plain, or compressed with gzip or xz, whatever the file is called. A line that cannot be read costs that line
alone: it is counted and reported with its number. Written are the fields that a ``TraceJob`` has; the other five
(CPU time, requested memory, preceding job, think time and the second count of processors where only one is known)
become -1 or repeat what is known.
"""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from clearway.errors import TraceError
from clearway.simulation.trace import UNKNOWN, BrokenLine, Trace, TraceJob, in_order

_FIELDS = 18
_QUEUE = re.compile(r"Queue:\s+(\d+)\s+(\S+)")
_START = re.compile(r"UnixStartTime:\s+(\d+)")
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


def read_swf(path: Path) -> Trace:
    """Read a file.

    Raises:
        TraceError: when it cannot be read at all, is cut short, or holds no job that ran.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(6)
        reader = gzip.open if magic.startswith(_GZIP) else lzma.open if magic == _XZ else open
        with reader(path, "rt", encoding="utf-8", errors="replace") as lines:
            trace = parse_swf(lines, _name(path))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from None
    if not trace.jobs:
        first = f"; {trace.broken[0]}" if trace.broken else ""
        raise TraceError(f"{path}: no job that ran ({len(trace.broken)} broken lines{first})")
    return trace


def parse_swf(lines: Iterable[str], name: str) -> Trace:
    jobs: list[TraceJob] = []
    header: list[str] = []
    broken: list[BrokenLine] = []
    seen: set[int] = set()
    never_ran = 0
    for number, line in enumerate(lines, start=1):
        if line.startswith(";"):
            header.append(line[1:].strip())
            continue
        words = line.split()
        if not words:
            continue
        try:
            job = _job(words)
            if job.job_id in seen:
                raise ValueError(f"job {job.job_id} again")  # noqa: TRY301 - as broken as a word that is no number
        except (ValueError, OverflowError) as error:
            broken.append(BrokenLine(number, str(error)))
            continue
        seen.add(job.job_id)
        if job.run_s > 0 and job.size > 0:
            jobs.append(job)
        else:
            never_ran += 1
    text = "\n".join(header)
    start = _START.search(text)
    return Trace(
        name=name,
        jobs=in_order(jobs),
        header=tuple(header),
        broken=tuple(broken),
        never_ran=never_ran,
        start_epoch_s=int(start[1]) if start else None,
        queues={int(queue): label for queue, label in _QUEUE.findall(text)},
    )


def _job(words: list[str]) -> TraceJob:
    if len(words) != _FIELDS:
        raise ValueError(f"{len(words)} fields, not {_FIELDS}")
    job_id, submit, wait, run, allocated, _, memory, asked, requested, _, status, *who = map(_number, words)
    if submit < 0:
        raise ValueError("it was submitted before the trace began")
    return TraceJob(
        job_id=job_id,
        submit_s=submit,
        run_s=run,
        size=allocated if allocated > 0 else asked,
        requested_s=requested if requested > 0 else UNKNOWN,
        wait_s=wait,
        memory_kib=memory,
        status=status,
        user=who[0],
        group=who[1],
        application=who[2],
        queue=who[3],
        partition=who[4],
    )


def _number(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return round(float(word))  # some logs have fractions of seconds
    except ValueError:
        raise ValueError(f"{word[:40]!r} is not a number") from None


def write_swf(trace: Trace, out: TextIO) -> None:
    """The header as it was read, then a line for each job that ran."""
    out.writelines(f"; {line}\n" for line in trace.header)
    for j in trace.jobs:
        numbers = (j.job_id, j.submit_s, j.wait_s, j.run_s, j.size, -1, j.memory_kib, j.size, j.requested_s, -1)
        who = (j.status, j.user, j.group, j.application, j.queue, j.partition, -1, -1)
        out.write(" ".join(map(str, numbers + who)) + "\n")


def _name(path: Path) -> str:
    return re.sub(r"(-cln)?(\.swf)?(\.(gz|xz))?$", "", path.name)
