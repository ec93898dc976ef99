"""What Clearway asks of Slurm. The facts behind each call are measured on real clusters (docs/explanation)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Protocol

from clearway.model.cluster import AdminLevel, ClusterSnapshot, Job, Reservation
from clearway.model.errors import SlurmError
from clearway.model.limits import Limits

Failures = Mapping[str, SlurmError]  # what Slurm said of each job, by job_id, where a change was not done


class JobChange(StrEnum):
    """A change that many jobs can be given in one call."""

    # Each looks at the job just before. Where its run has ended, or is another one, it is refused
    # (``JobNotRunningError``): Slurm would run a completed job a second time. So is one that leaves or waits again
    # already (``AlreadyGoneError``): another hand did that, or an earlier call whose answer was lost.
    REQUEUE = "requeue"  # end this run and put it back in the queue
    # Of a job whose run has ended by itself, COMPLETED or FAILED: run it again. Refused in any other state or run.
    RUN_AGAIN = "run_again"
    CANCEL = "cancel"  # end it for good; refused where it could not be requeued when this was decided, and now can
    SUSPEND = "suspend"
    RESUME = "resume"
    # Lift the wait that Slurm gives requeued jobs; only a PENDING one takes it. Less than a second after its requeue a
    # job waits first: Slurm would fail it for good.
    START_NOW = "start_now"
    # Refused unless this run is RUNNING: a signal to a suspended job would hang.
    SIGNAL_BATCH = "signal_batch"  # to the batch shell
    SIGNAL_STEPS = "signal_steps"  # to every process of the job's steps


class Fence(Protocol):
    """Keeps a daemon that may not act any more from acting: ``service.leadership`` has the real one."""

    def keep(self) -> None:
        """Called at least once a second during a wait, to renew; raises ``CycleEndedError`` where that is of no use."""

    def command_limit_s(self) -> float:
        """Called immediately before each command that changes Slurm: how long it may take at most. Raises
        ``CycleEndedError`` or ``HaltedError`` when it must not be given.
        """


class Unfenced:
    """For programs that are no daemon."""

    def keep(self) -> None: ...

    def command_limit_s(self) -> float:
        return inf


class SlurmBackend(Protocol):
    """One way of talking to Slurm. Every call has a time limit and raises only ``SlurmError`` subclasses. Every change
    can be repeated: repeating what is already so succeeds and does nothing.
    """

    name: str

    def available(self) -> str | None:
        """Why this backend cannot be used now, in one line; None when it can."""

    def fenced_by(self, fence: Fence) -> None:
        """Ask this fence from now on. A command that takes longer than it allows ends as ``SlurmTimeoutError``."""

    def snapshot(self) -> ClusterSnapshot:
        """All jobs that hold nodes or wait, all nodes, and slurmctld's version: two queries, a third when something new
        appeared, a few more every ten minutes. Leaf switches, or why they are not known, come while a waiting job asks
        for one.
        """

    def job(self, job_id: str) -> Job | None:
        """One job, fresh; None when Slurm does not know it (any more)."""

    def look_at(self, job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        """Many jobs, fresh, and of which it failed; those that Slurm does not know are absent. ``whole``: with their
        excluded nodes and the limits of their arrays, as by ``job``.
        """

    def change_jobs(self, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        """Give many jobs the same change, looking at all of them just before; what was not done, job by job. After a
        ``SlurmTimeoutError`` it is not known whether it was done. ``signal``: "USR1", without SIG.
        """

    def attach(self, job_id: str, reservation: str) -> None:
        """Let it start in this reservation; refused where it asks for another one by now."""

    def detach(self, job_id: str, reservation: str) -> None:
        """Take it out of this one; another one that it asks for by now stays."""

    def set_nice(self, wanted: Mapping[str, tuple[int, int]]) -> Failures:
        """By job id the Nice and instead of which: what is another one by now stays, as does that of a job that has
        ended. Refused for a held job: with priority/basic Slurm would release it. A job whose priority an administrator
        has set keeps its Nice without a word of Slurm's.
        """

    def set_partitions(self, job_id: str, partitions: tuple[str, ...], instead_of: tuple[str, ...]) -> None:
        """Let the waiting job start in these partitions alone; nothing is done unless it waits in ``instead_of``.
        Refused where Slurm does not admit the job's user there; then it waits in ``instead_of`` again.
        """

    def reservations(self) -> tuple[Reservation, ...]: ...

    def limits(self, jobs: Sequence[Job]) -> Limits:
        """What bounds these waiting jobs: two queries. It raises nothing: limits that cannot be read say why."""

    def create_reservation(self, reservation: Reservation) -> None:
        """Create it as given (a start that has passed is now); one of the same name with the same nodes is success."""

    def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None: ...

    def extend_reservation(self, name: str, end_time: datetime) -> None: ...

    def delete_reservation(self, name: str) -> None:
        """Delete it; one that does not exist is success."""

    def drain(self, node: str, reason: str) -> None:
        """Let nothing new start on the node. Refused when it was drained for another reason."""

    def undrain(self, node: str, reason: str) -> None:
        """Take back our own drain, and its Reason; refused when the reason on the node is not ours."""

    def power_down(self, node: str) -> None:
        """Let Slurm's power saving switch the node off once no job is on it."""

    def admin_level(self, user: str) -> AdminLevel:
        """What rights Slurm gives this user; ``NONE`` without accounting."""

    def close(self) -> None: ...
