"""A workload from Slurm's accounting: the command to ask with, and how its answer becomes a trace.

Times are Unix times (``SLURM_TIME_FORMAT=%s``). Sizes are whole nodes. Names become numbers, by their order in the
alphabet; the partitions' names stay known as the trace's queues, and each job keeps its own as ``Names``. A job that
has not ended is left out. So is a job that is listed a second time, as where two overlapping periods were put
together. The job's name comes last: it alone may hold the delimiter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from clearway.slurm.site_facts import sacct_command
from clearway_lab.traces.trace import (
    LARGEST,
    UNKNOWN,
    BrokenLine,
    Names,
    Trace,
    TraceJob,
    gathered,
    in_order,
    ran,
    recorded_lines,
)

_STATUS = {"COMPLETED": 1, "CANCELLED": 5}
_DIGITS = len(str(LARGEST))
_NO_TIME = {"Unknown", "None", ""}  # it has not started, or not ended


class _Row(NamedTuple):
    """The fields that sacct is asked for, by its own names."""

    JobIDRaw: str
    User: str
    Account: str
    Partition: str
    State: str
    Submit: str
    Start: str
    End: str
    ElapsedRaw: str  # seconds
    TimelimitRaw: str  # minutes, or a word
    NNodes: str
    QOS: str
    JobName: str


ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}


def command(start: str, end: str) -> Sequence[str]:
    """The sacct command for all jobs of all users between two times, as sacct reads times."""
    return sacct_command(_Row._fields, "--allusers", f"--starttime={start}", f"--endtime={end}")


def read_sacct(path: Path) -> Trace:
    """Read what the command has answered, from a file.

    Raises:
        TraceError: when it cannot be read, or holds no job that ran.
    """
    with recorded_lines(path) as lines:
        trace = parse_sacct(lines, path.stem)
    return ran(trace, str(path))


def parse_sacct(lines: Iterable[str], name: str) -> Trace:
    rows: list[tuple[int, _Row]] = []
    broken: list[BrokenLine] = []
    for number, line in enumerate(lines, start=1):
        words = line.rstrip("\r\n").split("|", len(_Row._fields) - 1)
        if len(words) == len(_Row._fields):
            rows.append((number, _Row(*words)))
        elif line.strip():
            broken.append(BrokenLine(number, f"{len(words)} fields, not {len(_Row._fields)}"))
    users, accounts, partitions = (
        {each: place for place, each in enumerate(sorted({getattr(row, field) for _, row in rows}), start=1)}
        for field in ("User", "Account", "Partition")
    )

    def read(row: _Row) -> TraceJob | None:
        return _job(row, users[row.User], accounts[row.Account], partitions[row.Partition])

    jobs, unread, never_ran = gathered(rows, read)
    first_s = min((job.submit_s for job in jobs), default=0)
    return Trace(
        name=name,
        jobs=in_order(replace(job, submit_s=job.submit_s - first_s) for job in jobs),
        broken=tuple(sorted(broken + unread, key=lambda line: line.number)),
        never_ran=never_ran,
        start_epoch_s=first_s,
        queues={place: each for each, place in partitions.items()},
    )


def _job(row: _Row, user: int, account: int, partition: int) -> TraceJob | None:
    """None for a job that never ran, or still does."""
    if row.Start in _NO_TIME or row.End in _NO_TIME:
        return None
    submit_s, start_s, _ = map(_time, (row.Submit, row.Start, row.End))
    run_s, size = _number(row.ElapsedRaw), _number(row.NNodes)
    if not run_s or not size:
        return None
    job_id = _number(row.JobIDRaw)
    limit_s = _number(row.TimelimitRaw, 60) if row.TimelimitRaw.isdecimal() else UNKNOWN
    status = _STATUS.get(row.State.partition(" ")[0], 0)  # "CANCELLED by 1000"
    names = Names(row.User, row.Account, row.Partition, row.QOS, row.JobName)
    numbers = (job_id, submit_s, run_s, size, limit_s, start_s - submit_s, UNKNOWN, status)
    return TraceJob(*numbers, user, account, queue=partition, names=names)


def _time(word: str) -> int:
    if not word.isdecimal():
        raise ValueError(f"{word[:40]!r} is not a Unix time (sacct tells those with SLURM_TIME_FORMAT=%s)")
    return _number(word)


def _number(word: str, times: int = 1) -> int:
    if not word.isdecimal():
        raise ValueError(f"{word[:40]!r} is not a number")
    if len(word) > _DIGITS or times * int(word) > LARGEST:
        raise ValueError(f"{word[:40]!r} is beyond {LARGEST // times:,}")
    return times * int(word)
