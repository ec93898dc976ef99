"""A cluster of eight nodes with four processors each, as the tests of every backend see it."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Protocol

from clearway.model.cluster import Job, JobState, Reservation
from clearway.slurm.base import SlurmBackend

NODES = tuple(f"node{number}" for number in range(1, 9))
CPUS = 4
OURS = "clearway:test"


class Site(Protocol):
    """A cluster under test. Every job runs until ``finish``; ``user`` submits them."""

    user: str
    most_queries: int  # that a snapshot takes where nothing new has come

    @property
    def backend(self) -> SlurmBackend: ...

    def now(self) -> datetime: ...

    def run_job(
        self,
        *nodes: str,
        cpus: int | None = None,
        name: str = "job",
        comment: str = "",
        deaf: bool = False,
        requeueable: bool = True,
    ) -> str:
        """A job that runs on exactly these nodes (all their processors, or ``cpus`` of each); its id.

        It notices USR1 (``heard``). A ``deaf`` one ignores TERM, so it is COMPLETING until ``let_go``.
        """
        ...

    def wait_job(self, num_nodes: int = 1, *, held: bool = False, switches: int = 0) -> str:
        """A waiting job for whole nodes, held or waiting for room; its id. This cluster's switches are not known."""
        ...

    def array(self) -> str:
        """An array of which tasks 1 and 2 run on node1, a processor each, and 3 and 4 wait; its id."""
        ...

    def full_array(self) -> str:
        """An array of two tasks that both run on node1: the id of one task is that of the array."""
        ...

    def het(self) -> str:
        """A heterogeneous job that runs with one node and with two; the id of its first component."""
        ...

    def configuring(self) -> str:
        """A job that is CONFIGURING until ``configured``."""
        ...

    def configured(self, job_id: str) -> None: ...

    def let_go(self, job_id: str) -> None:
        """Let a ``deaf`` job that is COMPLETING leave its nodes."""
        ...

    def finish(self, job_id: str) -> None:
        """Let the job end by itself, with success."""
        ...

    def heard(self, job_id: str) -> bool:
        """Whether USR1 came to the job's batch shell."""
        ...

    def drain_as_somebody_else(self, node: str, reason: str) -> None: ...

    def update_job(
        self,
        job_id: str,
        *,
        begin_s: int | None = None,
        dependency: str | None = None,
        nice: int | None = None,
        priority: int | None = None,
        limit_s: int | None = None,
        deadline_s: int | None = None,
        nodes: int | None = None,
    ) -> None:
        """As an administrator; what is None stays. ``begin_s`` and ``deadline_s`` are from now on."""
        ...

    def refuses(self, job_id: str, *, nodes: int) -> bool:
        """Whether Slurm refuses such an update."""
        ...

    def hold(self, job_id: str) -> None:
        """As its owner."""
        ...

    def release(self, job_id: str) -> None: ...

    def nice(self, job_id: str) -> int: ...

    def end(self, job_id: str) -> datetime:
        """When its time limit ends the run, as Slurm says."""
        ...

    def update_partition(self, name: str, state: str) -> None: ...

    def wait(self, what: str, predicate: Callable[[], bool], timeout_s: float = 30) -> None:
        """Until the predicate holds; fails with ``what`` when it does not in time."""
        ...


def look(site: Site, job_id: str) -> Job:
    job = site.backend.job(job_id)
    assert job is not None, f"job {job_id} is not known"
    return job


def wait_state(site: Site, job_id: str, *states: JobState, timeout_s: float = 30) -> Job:
    seen: list[Job] = []

    def reached() -> bool:
        seen[:] = [look(site, job_id)]
        return seen[0].state in states

    try:
        site.wait(f"job {job_id} is {' or '.join(states)}", reached, timeout_s)
    except AssertionError as error:
        error.add_note(f"last seen: {seen[0] if seen else None}")
        raise
    return seen[0]


def by_id(site: Site) -> dict[str, Job]:
    return site.backend.snapshot().job_by_id


def untouched(site: Site, jobs: Iterable[Job]) -> bool:
    """Whether these jobs are in the same run and state as then."""
    return all((now := look(site, then.job_id)).run == then.run and now.state is then.state for then in jobs)


def placement(site: Site, *nodes: str, name: str = "clearway-test", seconds: float = 600) -> Reservation:
    return Reservation(
        name=name,
        nodes=nodes,
        start_time=site.now(),
        end_time=site.now() + timedelta(seconds=seconds),
        users=(site.user,),
        flags=("IGNORE_JOBS", "FLEX"),
    )


def reserved(site: Site, name: str) -> bool:
    return site.backend.snapshot().node_by_name[name].reservation is not None
