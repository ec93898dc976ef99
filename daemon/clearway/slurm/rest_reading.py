"""Jobs and nodes through slurmrestd, asked the cheap way first: all jobs take it a third of a second for 1,000.

Asked with the time of its last answer (``update_time``) slurmctld says within a millisecond that nothing has changed.
It compares whole seconds of its own clock. A change may carry a time that was read before a lock was waited for, so
the question allows for two seconds; the states of all jobs (``/jobs/state/``) are compared as well, and all is read
again twice a minute. A record that says the same as before is not read again.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from clearway.model.cluster import Job, JobState, Node, Skipped
from clearway.model.errors import SlurmUnavailableError
from clearway.slurm import rest_records as records
from clearway.slurm.process import RefusedError
from clearway.slurm.rest_client import UNCHANGED, Document, RestClient
from clearway.slurm.site_settings import NEVER

MARGIN_S = 2
ALL_EVERY = timedelta(seconds=30)
ALL = {"flags": "ALL"}  # without DETAIL, a quarter of the answer that says nothing needed here

T = TypeVar("T", Job, Node)


class Kept(Generic[T]):
    """What was read last, and when."""

    def __init__(self) -> None:
        self.found: Sequence[T] = ()
        self.skipped: Sequence[Skipped] = ()
        self._asked_with: int | None = None
        self._read_at = NEVER

    def fresh(self, now: datetime) -> bool:
        return self._asked_with is not None and timedelta(0) <= now - self._read_at < ALL_EVERY

    def changed(self, client: RestClient, path: str, key: str, *, fresh: bool, **query: str) -> Document | None:
        """All records; None where they are ``fresh``, and slurmctld says that none has changed."""
        since, self._asked_with = self._asked_with, None  # until the answer has been read as a whole
        document = client.read(path, **query, **({"update_time": since} if fresh and since else {}))
        # Of nodes it says so by the status 304, of jobs by no jobs and no time.
        none = document is UNCHANGED or (not list_of(document, key) and not whole_number(document, "last_update"))
        if not none:
            return document
        if not fresh:
            raise SlurmUnavailableError(f"slurmrestd has answered {path} with nothing, not even a time")
        self._asked_with = since
        return None

    def keep(self, document: Document, now: datetime) -> None:
        """This document has been read."""
        self._asked_with, self._read_at = max(1, whole_number(document, "last_update") - MARGIN_S), now


class JobReader:
    """All jobs that wait or hold nodes."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._kept: Kept[Job] = Kept()
        self._states: list[object] = []
        self._known: dict[tuple[Any, ...], Job] = {}

    def read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Skipped], int]:
        """Jobs, those that cannot be read, and how many queries that took."""
        # Before the jobs: what changes between the two answers is then seen as a change the next time.
        states = list_of(self._client.read("/jobs/state/"), "jobs")
        fresh = self._kept.fresh(now) and states == self._states
        document = self._kept.changed(self._client, "/jobs/", "jobs", fresh=fresh, **ALL)
        if document is not None:
            self._take(list_of(document, "jobs"))
            self._kept.keep(document, now)
            self._states = states
        return self._kept.found, self._kept.skipped, 2

    def _take(self, found: Sequence[object]) -> None:
        known: dict[tuple[Any, ...], Job] = {}

        def read(record: records.Record) -> Job:
            values = _hashable(records.job_values(record))
            known[values] = job = self._known.get(values) or records.read_job(record)
            return job

        jobs, skipped = records.read_jobs(found, read)
        self._kept.found = [job for job in jobs if job.state is not JobState.ENDED]
        self._kept.skipped, self._known = skipped, known


class NodeReader:
    """All nodes. 24.11 answers the question for what has changed with an error, where nothing has: it is asked once."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._kept: Kept[Node] = Kept()
        self._tells_changes = True

    def read(self, now: datetime) -> tuple[Sequence[Node], Sequence[Skipped], int]:
        """As ``JobReader.read``."""
        fresh = self._tells_changes and self._kept.fresh(now)
        try:
            document = self._kept.changed(self._client, "/nodes/", "nodes", fresh=fresh)
        except RefusedError:
            if not fresh:
                raise
            self._tells_changes = False
            return self.read(now)
        if document is not None:
            self._kept.found, self._kept.skipped = records.read_nodes(list_of(document, "nodes"))
            self._kept.keep(document, now)
        return self._kept.found, self._kept.skipped, 1


def list_of(document: Document, key: str) -> list[object]:
    found = document.get(key)
    if not isinstance(found, list):
        raise SlurmUnavailableError(f"slurmrestd's answer has no list of {key}")
    return found


def whole_number(document: Document, key: str) -> int:
    found = document.get(key)
    number = found.get("number") if isinstance(found, dict) else found
    if not isinstance(number, int) or isinstance(number, bool):
        raise SlurmUnavailableError(f"slurmrestd's answer has no {key}")
    return number


def _hashable(values: Iterable[object]) -> tuple[Any, ...]:
    return tuple(repr(value) if isinstance(value, dict | list) else value for value in values)
