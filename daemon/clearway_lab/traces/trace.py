"""A recorded workload: the jobs that a machine was asked to run, and what could not be read of the record.

Times are whole seconds since the trace's first moment, sizes are processors or nodes, whatever the record counts.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from clearway_lab.errors import TraceError

R = TypeVar("R")

UNKNOWN = -1
LARGEST = 10**10  # seconds (317 years), processors: what is beyond was never recorded
_GZIP, _XZ, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh", b"\x28\xb5\x2f\xfd"
_DIGITS = 12  # of a number in a header or of a queue


@dataclass(frozen=True, slots=True)
class Names:
    """The job's user, account and place, as Slurm's accounting names them: what a site's rules match on."""

    user: str
    account: str
    partition: str
    qos: str
    job_name: str


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as recorded. ``UNKNOWN`` (-1) stands for what the record does not say, as in the SWF."""

    job_id: int
    submit_s: int
    run_s: int
    size: int  # processors or nodes
    requested_s: int = UNKNOWN  # the time limit that its user asked for
    wait_s: int = UNKNOWN  # as recorded; a simulation finds its own
    memory_kib: int = UNKNOWN  # used, for each processor
    status: int = UNKNOWN  # 1 completed, 0 failed, 5 cancelled
    user: int = UNKNOWN
    group: int = UNKNOWN
    application: int = UNKNOWN
    queue: int = UNKNOWN
    partition: int = UNKNOWN
    urgent: bool = False
    names: Names | None = None  # the SWF has numbers only

    @property
    def limit_s(self) -> int:
        """The longest that it may run, as a scheduler knows it.

        Where a record has no requested time this is the run time; where a job ran past its requested time, the site
        let it, so its limit was longer than the record says: at least the run time.
        """
        return max(self.requested_s, self.run_s)


@dataclass(frozen=True, slots=True)
class BrokenLine:
    number: int  # counted from 1
    why: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.why}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs that ran, by submission (ties: job_id); ``start_epoch_s`` is second 0 in Unix time, if known."""

    name: str
    jobs: tuple[TraceJob, ...]
    header: tuple[str, ...] = ()  # comment lines, without their semicolons
    broken: tuple[BrokenLine, ...] = ()
    never_ran: int = 0  # well-formed records without a run time or a size: there is nothing to replay
    start_epoch_s: int | None = None
    queues: dict[int, str] = field(default_factory=dict)

    @property
    def size(self) -> int | None:
        """The machine's processors (else nodes) as the header tells them."""
        for key in ("MaxProcs", "MaxNodes"):
            for line in self.header:
                name, _, value = line.partition(":")
                digits = value.split()[:1]
                if name.strip() == key and digits and is_small_number(digits[0]) and int(digits[0]):
                    return int(digits[0])
        return None

    def on_nodes(self, processors_per_node: int) -> Trace:
        """The same jobs on whole nodes of so many processors."""
        if processors_per_node == 1:
            return self
        return replace(self, jobs=tuple(replace(j, size=math.ceil(j.size / processors_per_node)) for j in self.jobs))

    def with_exact_limits(self) -> Trace:
        """As if every user had known the run time, as the UJFB paper's simulations assume."""
        return replace(self, jobs=tuple(replace(job, requested_s=job.run_s) for job in self.jobs))

    def with_urgent_queues(self, names: Iterable[str]) -> Trace:
        """The same jobs; those of the queues with these names (or numbers) are urgent."""
        wanted = set(names)
        queues = {number for number, name in self.queues.items() if name in wanted}
        queues |= {int(name) for name in wanted if is_small_number(name)}
        return replace(self, jobs=tuple(replace(job, urgent=job.queue in queues) for job in self.jobs))

    def with_jobs(self, more: Iterable[TraceJob]) -> Trace:
        return replace(self, jobs=in_order((*self.jobs, *more)))


@contextmanager
def recorded_lines(path: Path) -> Iterator[Iterable[str]]:
    """The lines of a text file, plain or compressed with gzip, bzip2 or xz, whatever it is called.

    Raises:
        TraceError: when it cannot be read, or is cut short; also while the lines are read.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(6)
        if magic.startswith(_ZSTD):
            raise TraceError(f"{path}: it is compressed with zstd, which is not read: unpack it with zstd -d first")
        kinds = ((_GZIP, gzip.open), (_XZ, lzma.open), (_BZIP2, bz2.open))
        reader = next((opens for start, opens in kinds if magic.startswith(start)), open)
        with reader(path, "rt", encoding="utf-8-sig", errors="replace") as lines:
            yield lines
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from None


def ran(trace: Trace, origin: str) -> Trace:
    """The trace, if there is anything to replay.

    Raises:
        TraceError: no job of it ran.
    """
    if not trace.jobs:
        first = f"; {trace.broken[0]}" if trace.broken else ""
        raise TraceError(f"{origin}: no job that ran ({len(trace.broken)} broken lines{first})")
    return trace


def gathered(
    rows: Iterable[tuple[int, R]], read: Callable[[R], TraceJob | None]
) -> tuple[list[TraceJob], list[BrokenLine], int]:
    """The jobs that ran; the rows that ``read`` refuses by a ValueError, or that tell a job again; how many never ran.

    ``rows`` come with the numbers of their lines; None stands for a job that never ran.
    """
    jobs: list[TraceJob] = []
    broken: list[BrokenLine] = []
    seen: set[int] = set()
    never_ran = 0
    for number, row in rows:
        try:
            job = read(row)
            if job is not None and job.job_id in seen:
                raise ValueError(f"job {job.job_id} again")  # noqa: TRY301 - as broken as a word that is no number
        except ValueError as error:
            broken.append(BrokenLine(number, str(error)))
            continue
        if job is not None:
            seen.add(job.job_id)
        if job is not None and job.run_s > 0 and job.size > 0:
            jobs.append(job)
        else:
            never_ran += 1
    return jobs, broken, never_ran


def is_small_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= _DIGITS


def in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    return tuple(sorted(jobs, key=attrgetter("submit_s", "job_id")))
