"""The Standard Workload Format of the Parallel Workloads Archive: one job a line, 18 numbers, comments after ``;``.

Read plain, or compressed with gzip, bzip2 or xz, whatever the file is called. A line that cannot be read costs that
line alone: it is counted and reported with its number. Written are the fields that a ``TraceJob`` has; the other five
(CPU time, requested memory, preceding job, think time and the second count of processors where only one is known)
become -1 or repeat what is known.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from clearway_lab.traces.trace import LARGEST, UNKNOWN, Trace, TraceJob, gathered, in_order, ran, recorded_lines

_FIELDS = 18
_QUEUE = re.compile(r"Queue:\s+(\d{1,12})\s+(\S+)")
_START = re.compile(r"UnixStartTime:\s+(\d{1,12})\b")


def read_swf(path: Path) -> Trace:
    """Read a file.

    Raises:
        TraceError: when it cannot be read at all, is cut short, or holds no job that ran.
    """
    with recorded_lines(path) as lines:
        trace = parse_swf(lines, _name(path))
    return ran(trace, str(path))


def parse_swf(lines: Iterable[str], name: str) -> Trace:
    header: list[str] = []

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(lines, start=1):
            if (comment := line.lstrip()).startswith(";"):
                header.append(comment[1:].strip())
            elif words := line.split():
                yield number, words

    jobs, broken, never_ran = gathered(rows(), _job)
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
    job_id, submit, wait, run, allocated, _, memory, asked, requested, _, status, *numbered = map(_number, words)
    user, group, application, queue, partition, *_ = numbered
    if submit < 0:
        raise ValueError("it was submitted before the trace began")
    size = allocated if allocated > 0 else asked
    if max(submit, run, size, requested) > LARGEST:
        raise ValueError(f"a time or a size is beyond {LARGEST:,}")
    limit = requested if requested > 0 else UNKNOWN
    return TraceJob(job_id, submit, run, size, limit, wait, memory, status, user, group, application, queue, partition)


def _number(word: str) -> int:
    try:
        if "_" not in word:  # Python's own way to write a million
            try:
                return int(word)
            except ValueError:
                return round(float(word))  # some logs have fractions of seconds
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{word[:40]!r} is not a number")


def write_swf(trace: Trace, out: TextIO) -> None:
    """The header as it was read, then a line for each job that ran."""
    out.writelines(f"; {line}\n" for line in trace.header)
    for j in trace.jobs:
        numbers = (j.job_id, j.submit_s, j.wait_s, j.run_s, j.size, -1, j.memory_kib, j.size, j.requested_s, -1)
        last = (j.status, j.user, j.group, j.application, j.queue, j.partition, -1, -1)
        out.write(" ".join(map(str, numbers + last)) + "\n")


def _name(path: Path) -> str:
    return re.sub(r"(-cln)?(\.swf)?(\.(gz|bz2|xz))?$", "", path.name)
