"""What squeue does not show of arrays, which it prints as one line for all tasks that wait (measured on 22.05).

A task that was requeued, or changed by itself, has a record of its own. As long as other tasks of its array wait,
squeue hides that record in their line, and leaves the array's limit (``%2``) out of the line, as it does where one task
is left. ``squeue --array`` prints each task by itself; asked of all tasks it could be a million lines. So it is asked
of those tasks alone that were seen on nodes and are not seen any more. At first, when none is known, it is asked of
every array that has such a line, a bounded part of them in each cycle. An array with more waiting tasks than that is
not asked for: a task of it that was requeued before Clearway began counts as ended until it runs again. The limit is
asked for (``learn_limit``) before jobs leave for an array.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import accumulate, takewhile

from clearway.model.cluster import Job, JobState

# In one query; the others come in the next cycles.
MOST_ASKED = 500  # tasks that may be hidden, or arrays
MOST_TASKS = 20_000  # of these arrays

# Ahead of everything that a user can write into the record.
_LIMIT = re.compile(r"^JobId=\d+ ArrayJobId=\d+ ArrayTaskId=\S+ ArrayTaskThrottle=(\d+) ", re.MULTILINE | re.ASCII)


class ArrayTasks:
    """The tasks that were seen on nodes, and the limits of arrays; what a restart forgets is asked for again."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._unasked: list[tuple[int, str]] | None = None  # arrays with their waiting tasks, the smallest first
        self._limits: dict[str, int] = {}
        self._found: tuple[Sequence[Job], frozenset[str], list[Job]] | None = None

    def to_ask(self, jobs: Sequence[Job]) -> list[str]:
        """Ids of tasks, or of arrays, of which tasks may be hidden."""
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
        """Tasks that are on nodes or wait unseen, and the limits of arrays that wait still."""
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
