"""A change of many jobs as a chaos schedule plays it: what can come between two commands comes between two jobs.

Backends do it in two ways, and the seed chooses. Where each job is a call of its own, each passes through all that any
call of the daemon does. Slurm's own commands take the list: the fence lets it through once, and from then on the
command is a process that goes on without the daemon, whether that is killed or not, until it is done or its time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from clearway.model.cluster import Job
from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmTimeoutError
from clearway.slurm.base import Failures, Fence, JobChange, Unfenced
from clearway.slurm.job_changes import one_by_one

if TYPE_CHECKING:
    from clearway.simulation.backend import SimulatedBackend
    from tests.simulation.chaos_world import ChaosDaemon

_BY_ID = (JobChange.START_NOW,)
_SIGNALS = {JobChange.SIGNAL_BATCH: True, JobChange.SIGNAL_STEPS: False}


def call_for_one(change: JobChange, job: Job, signal: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The call that does the same for one job: its name and arguments."""
    if change in _SIGNALS:
        return "signal", (job, signal), {"batch_only": _SIGNALS[change]}
    return change.value, (job.job_id if change in _BY_ID else job,), {}


def job_after_job(
    ask: Callable[..., Any], slurm: Any, daemon: ChaosDaemon, change: JobChange, jobs: Sequence[Job], signal: str
) -> Failures:
    """As backends do it that have no lists; ``ask`` is the way of any call of the daemon."""
    by_id = {job.job_id: job for job in jobs}

    def act(job_id: str) -> None:
        daemon.world.between(daemon)
        name, args, kwargs = call_for_one(change, by_id[job_id], signal)
        ask(name, getattr(slurm, name), args, kwargs)

    return one_by_one(act, by_id)


class ListedCommand:
    """One command of Slurm's that names all these jobs."""

    def __init__(
        self, slurm: SimulatedBackend, daemon: ChaosDaemon, change: JobChange, jobs: Sequence[Job], signal: str
    ) -> None:
        self._slurm, self._daemon = slurm, daemon
        self._calls = {job.job_id: call_for_one(change, job, signal) for job in jobs}
        self._name = next(iter(self._calls.values()))[0]
        self._spent_s = 0.0

    def run(self, fence: Fence, slow_s: float) -> Failures:
        """What failed, by job; ``slow_s``: what the whole command would take."""
        daemon, failures = self._daemon, dict[str, SlurmError]()
        limit_s = fence.command_limit_s()
        daemon.let_through(self._name)
        if (down := daemon.failure(self._name)) is not None:
            return dict.fromkeys(self._calls, down)
        orphaned: BaseException | None = None
        for job_id in self._calls:
            if orphaned is None:
                daemon.world.between(daemon)
                orphaned = daemon.killed_meanwhile(self._name)
            self._spent_s += slow_s / len(self._calls)
            if self._spent_s > limit_s:  # the daemon ends the command; nothing ends one whose daemon has died
                if orphaned is None:
                    return dict.fromkeys(self._calls, SlurmTimeoutError(f"no answer within {limit_s:g} s"))
                break
            if orphaned is None:
                daemon.world.take(slow_s / len(self._calls), daemon)
            try:
                self._one(job_id)
            except SlurmError as error:
                failures[job_id] = error
        if orphaned is not None:
            raise orphaned
        return dict.fromkeys(self._calls, SlurmTimeoutError("no answer")) if daemon.answer_is_lost() else failures

    def _one(self, job_id: str) -> None:
        name, args, kwargs = self._calls[job_id]
        if self._daemon.is_picky():
            raise SlurmRefusedError(f"denied for job {job_id}")
        self._daemon.world.witness.command(self._daemon, name, args)
        slurm = self._slurm
        hook, fence = slurm.before_change, slurm._fence
        slurm.before_change, slurm._fence = (lambda _call, _limit_s: None), Unfenced()
        try:
            getattr(slurm, name)(*args, **kwargs)
        finally:
            slurm.before_change, slurm._fence = hook, fence
