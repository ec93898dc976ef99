"""Slurm's answers, of which only the records that have changed since the last one are read anew. What is read of a
record follows from its text alone. Changes of no weight do not count: the scheduler's guess when a waiting job starts,
the load of a node; of a waiting job that differs in its priority alone, that is set. An answer is taken in pieces while
Slurm prints it, and known text dropped at once: no second answer is ever held.
"""

import re
import secrets
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import accumulate, takewhile
from operator import is_, itemgetter
from typing import Generic, TypeVar

from clearway.eligibility.node_usage import NodeKinds, job_with_least_nodes, node_kinds
from clearway.model.cluster import Job, JobState, Node, Skipped
from clearway.slurm import parse
from clearway.slurm.parse import FieldError, Reading, fields, together
from clearway.slurm.process import Take

# In one query; the others come in the next cycles.
MOST_ASKED = 500  # tasks that may be hidden, or arrays
MOST_TASKS = 20_000  # of these arrays

# Ahead of everything that a user can write into the record.
_LIMIT = re.compile(r"^JobId=\d+ ArrayJobId=\d+ ArrayTaskId=\S+ ArrayTaskThrottle=(\d+) ", re.MULTILINE | re.ASCII)


class ArrayTasks:
    """The tasks of arrays that squeue does not show: it prints one line for all tasks that wait (measured on 22.05).

    While other tasks of its array wait, that line hides a task that was requeued, and leaves out the array's limit
    (``%2``). ``squeue --array`` prints each task by itself, of all tasks perhaps a million lines. So it is asked of
    those alone that were seen on nodes and are not any more; at first of every array that has such a line, a bounded
    part in each cycle. Of an array with more waiting tasks, one requeued before Clearway began counts as ended until it
    runs again. The limit is asked for (``learn_limit``) before jobs leave for an array.
    """

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._unasked: list[tuple[int, str]] | None = None  # arrays with their waiting tasks, the smallest first
        self._limits: dict[str, int] = {}
        self._found: tuple[Sequence[Job], frozenset[str], list[Job]] | None = None

    def to_ask(self, jobs: Sequence[Job]) -> list[str]:
        jobs = self._of_arrays(jobs)
        arrays = {job.array_job_id: job.pending_tasks for job in jobs if job.array_job_id and job.pending_tasks > 1}
        if self._unasked is None:
            self._unasked = sorted((tasks, array) for array, tasks in arrays.items() if tasks <= MOST_TASKS)
        seen = {job.job_id for job in jobs}
        hidden = sorted(self._known - seen)[:MOST_ASKED] if arrays else []
        sums = accumulate(tasks for tasks, _ in self._unasked)
        part = takewhile(lambda each: each[0] <= MOST_TASKS, zip(sums, self._unasked, strict=True))
        return [*hidden, *(array for _, (_, array) in part)][:MOST_ASKED]

    def complete(self, jobs: Sequence[Job], answer: Sequence[Job], asked: Sequence[str]) -> Sequence[Job]:
        """All jobs, with the tasks that were hidden; ``answer`` is what squeue told of those that it was asked of."""
        done = set(asked)
        self._unasked = [each for each in self._unasked or () if each[1] not in done]
        of_arrays = self._of_arrays(jobs)
        seen = {job.job_id for job in (jobs if answer else of_arrays)}
        hidden = {job.job_id: job for job in answer if job.job_id not in seen and job.state is JobState.PENDING}
        own = [job for job in of_arrays if job.array_job_id is not None]
        self._learn(own, hidden.keys() | (self._known - seen - done))
        changed = hidden or any(self._as_array(job, 0) is not job for job in own)
        return self._with_hidden(jobs, hidden) if changed else jobs

    def _with_hidden(self, jobs: Sequence[Job], hidden: Mapping[str, Job]) -> list[Job]:
        counts = Counter(job.array_job_id for job in hidden.values())
        shown = (job if job.array_job_id is None else self._as_array(job, counts[job.array_job_id]) for job in jobs)
        return [*shown, *(self._as_array(job, 0) for job in hidden.values())]

    def _learn(self, own: Sequence[Job], waiting: AbstractSet[str]) -> None:
        self._known = frozenset(waiting | {job.job_id for job in own if job.state.holds_nodes})
        arrays = {job.array_job_id for job in own if _waits_in_array(job)}
        told = {job.array_job_id or "": job.array_limit for job in own if job.array_limit}
        self._limits = {array: limit for array, limit in (self._limits | told).items() if array in arrays}

    def _of_arrays(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of arrays, and tasks that were seen on nodes: found once for the same jobs."""
        if self._found is None or self._found[0] is not jobs or self._found[1] != self._known:
            found = [job for job in jobs if job.array_job_id is not None or job.job_id in self._known]
            self._found = jobs, self._known, found
        return self._found[2]

    def learn_limit(self, job: Job, text: str) -> Job:
        """An array with its limit from ``text``, what ``scontrol show job`` says of it."""
        limits = [int(found) for found in _LIMIT.findall(text)]
        self._limits[job.array_job_id or ""] = limit = min(limits, default=0)
        return replace(job, array_limit=limit)

    def _as_array(self, job: Job, hidden: int) -> Job:
        if not _waits_in_array(job):
            return job
        limit = job.array_limit or self._limits.get(job.array_job_id or "", 0)
        tasks = max(1, job.pending_tasks - hidden)
        changed = (tasks, limit) != (job.pending_tasks, job.array_limit)
        return replace(job, pending_tasks=tasks, array_limit=limit) if changed else job


def _waits_in_array(job: Job) -> bool:
    return job.array_job_id is not None and job.state is JobState.PENDING


T = TypeVar("T")
Again = Callable[[str, str, Reading[T]], Reading[T] | None]
Ask = Callable[[Take], object]  # has Slurm answer, and hands the answer on in pieces; it may raise

_LOAD = re.compile(r"(?<= )(?:CPULoad|FreeMem|LastBusyTime|CurrentWatts|AveWatts)=\S+", re.ASCII)


_ANSWERS = 500  # for which one token serves; renaming 60,000 records takes a quarter of a second
_SIGNS = string.ascii_letters + string.digits


def new_token() -> str:
    """65 bits that no user can guess, in few characters: seven tenths of squeue's answer are separators."""
    return "".join(secrets.choice(_SIGNS) for _ in range(11))


_Entry = tuple[str, Reading[T]]  # a record's text, and what it tells


class _Answer(Generic[T]):
    """The records of one answer that are known by their text, and the text of the others."""

    def __init__(self, known: Mapping[str, _Entry[T]], separator: str) -> None:
        self._known, self._separator = known, separator
        self.found: list[_Entry[T] | None] = []  # None: its text is the next of these
        self.fresh: list[str] = []
        self.rest = ""  # what follows the last separator

    def take(self, piece: str) -> None:
        *records, self.rest = (self.rest + piece).split(self._separator)
        self.add(records)

    def add(self, records: Sequence[str]) -> None:
        found = list(map(self._known.get, records))
        if None in found:
            self.fresh += [record for record, entry in zip(records, found, strict=True) if entry is None]
        self.found += found


class _Kept(Generic[T]):
    """What was read of the last answer's records, by their text. ``again`` is given a changed record, its text before,
    and what that told; it returns what the record tells now where this can be said without reading it.
    """

    def __init__(self, kind: str, key_name: str, key: Callable[[str], str], again: Again[T]) -> None:
        self._by_text: dict[str, _Entry[T]] = {}
        self._entries: list[_Entry[T]] = []  # of the last answer, in its order
        self._told: tuple[list[T], list[Skipped]] = ([], [])
        self._kind, self._key_name, self._key, self._again = kind, key_name, key, again

    @property
    def has_other_columns(self) -> bool:
        return any(not told[1] and told[0].startswith("\n") for _, told in self._entries)

    def ask(self, ask: Ask, separator: str) -> _Answer[T]:
        """What Slurm answers now; it changes nothing here before it is read."""
        answer = _Answer(self._by_text, separator)
        ask(answer.take)
        return answer

    def read(self, answer: _Answer[T], read: Callable[[str], Reading[T]]) -> tuple[list[T], list[Skipped]]:
        """What its records tell: the same lists where it is what the last ones told."""
        if not answer.fresh and answer.found == self._entries:
            return self._told
        kept = {entry[0]: entry for entry in answer.found if entry is not None}
        before = {entry[1][0]: entry for text, entry in self._by_text.items() if text not in kept}
        fresh = iter(answer.fresh)
        entries = []
        for entry in answer.found:
            if entry is None:
                record = next(fresh)
                earlier = before.get(self._key(record))
                entry = record, (earlier and self._again(record, *earlier)) or read(record)  # noqa: PLW2901
            entries.append(entry)
        told = itemgetter(1)
        same = len(entries) == len(self._entries) and all(map(is_, map(told, entries), map(told, self._entries)))
        self._keep(entries)
        if not same:
            self._told = together(self._kind, [told for _, told in entries if any(told)], self._key_name)
        return self._told

    def _keep(self, entries: list[_Entry[T]]) -> None:
        self._by_text, self._entries = {entry[0]: entry for entry in entries}, entries

    def rename(self, token: str, after: str) -> None:
        self._keep([(text.replace(token, after), told) for text, told in self._entries])


class JobRecords:
    """The jobs of squeue's answers, asked for with a token that is kept as long as it can be trusted: only squeue's
    environment holds it, which its own user alone can read. Another one is made for a record without all columns
    (nobody is to find it out by trying), an error of squeue, whose words are told, and every ``_ANSWERS`` answers.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take another token. All records are read anew then."""
        self.token, self._answers = new_token(), 0
        self._forget(())

    def _forget(self, columns: tuple[str, ...]) -> None:
        self._kept = _Kept("job", "id", lambda record: record[:40].removeprefix("\n").partition("|")[0], self._again)
        self._columns = columns

    def read(self, ask: Ask, columns: tuple[str, ...]) -> tuple[list[Job], list[Skipped]]:
        """As ``parse.read_jobs``; the same list where nothing has changed. ``ask`` asks with ``token``."""
        if columns != self._columns:
            self._forget(columns)
        answer = self._kept.ask(ask, parse.record_separator(self.token))
        cut = parse.cut_record(answer.rest)
        jobs, skipped = self._kept.read(answer, lambda record: parse.read_record(record, self.token, columns))
        self._answers += 1
        if cut or (skipped and self._kept.has_other_columns):
            self.renew()
        elif self._answers >= _ANSWERS:
            before, self.token, self._answers = self.token, new_token(), 0
            self._kept.rename(before, self.token)
        return jobs, cut + skipped

    def _again(self, record: str, before: str, told: Reading[Job]) -> Reading[Job] | None:
        job_id, job, skipped = told
        if job is None or skipped is not None or job.state is not JobState.PENDING:
            return None
        now, then = parse.split_columns(record, self.token), parse.split_columns(before, self.token)
        start, end, priority = map(self._columns.index, ("StartTime", "EndTime", "PriorityLong"))
        if len(now) != len(then):
            return None
        then[start], then[end] = now[start], now[end]
        if now == then:
            return told
        then[priority] = now[priority]
        if now != then or not now[priority].isdecimal():
            return None
        try:
            return job_id, replace(job, priority=fields.number(now[priority], "PriorityLong")), None
        except FieldError:
            return None


_BLANK: Reading[Node] = ("", None, None)  # of a line that is no record


class NodeRecords:
    def __init__(self) -> None:
        self._kept = _Kept("node", "name", lambda line: line.split(" ", 1)[0].removeprefix("NodeName="), _same_but_load)

    def read(self, ask: Ask) -> tuple[list[Node], list[Skipped]]:
        """As ``parse.read_nodes``; the same list of nodes where nothing of weight has changed."""
        answer = self._kept.ask(ask, "\n")
        answer.add([answer.rest])
        return self._kept.read(answer, lambda line: parse.read_node(line) if line.strip() else _BLANK)


def _same_but_load(line: str, before: str, told: Reading[Node]) -> Reading[Node] | None:
    """What changes all the time on a node stands in front of its Reason, which is free text."""
    (now, *reason), (then, *reason_then) = line.split(" Reason=", 1), before.split(" Reason=", 1)
    return told if reason == reason_then and _LOAD.sub("", now) == _LOAD.sub("", then) else None


OverTimes = Mapping[str, int | None]  # as ``ConfigReader`` has them
_NO_OVER_TIME: OverTimes = {"": 0}


class LeastNodes:
    """``job_with_least_nodes``, and how long it may run beyond its limit; asked again only where a job's record, what
    nodes there are, or that setting has changed.
    """

    def __init__(self) -> None:
        self._by: tuple[NodeKinds, OverTimes] = {}, _NO_OVER_TIME
        self._seen: Sequence[Job] = ()
        self._found: tuple[Job, ...] = ()
        self._known: dict[str, tuple[Job, Job]] = {}  # as it was read, and as it was found to be; by its id

    def of(self, jobs: Sequence[Job], nodes: Sequence[Node], over_times: OverTimes = _NO_OVER_TIME) -> tuple[Job, ...]:
        """The same tuple where the jobs, what nodes there are and the setting have not changed."""
        by = node_kinds(nodes), over_times
        if by == self._by and len(jobs) == len(self._seen) and all(map(is_, jobs, self._seen)):
            return self._found
        if by != self._by:
            self._by, self._known = by, {}
        before, self._known = self._known, {}
        for job in jobs:
            known = before.get(job.job_id)
            if known is None or known[0] is not job:
                known = (job, _with_over_time(job_with_least_nodes(job, by[0]), over_times))
            self._known[job.job_id] = known
        self._seen, self._found = tuple(jobs), tuple([known[1] for known in self._known.values()])
        return self._found


def _with_over_time(job: Job, over_times: OverTimes) -> Job:
    if not job.state.holds_nodes or not job.partitions:
        return job
    over_time_s = over_times.get(job.partitions[0], over_times[""])
    return job if over_time_s == job.over_time_s else replace(job, over_time_s=over_time_s)
