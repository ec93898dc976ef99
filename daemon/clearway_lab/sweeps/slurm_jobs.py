"""Sweeps on the machines of a Slurm cluster: Dask's scheduler runs here, its workers in Slurm jobs (dask-jobqueue).

Needs the packages of ``clearway[lab]``, and on the nodes the same Python and the same files under the same paths.
Settings that are not given come from Dask's own configuration (``jobqueue.slurm`` in ``~/.config/dask``).

Dask's workers run all code that they are sent, so the connections are TLS with a key made for this sweep, which only
its user can read. All jobs of a sweep have one name of its own, chosen before the first is submitted. By that name
they are cancelled on every way out, also those that Dask does not know. Where this process is killed, the workers end
themselves a minute after it (``jobqueue.slurm.death-timeout``).
"""

import getpass
import logging
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import Client, KilledWorker, Security, wait

from clearway.model.errors import SlurmError
from clearway.slurm.process import Commands, checked
from clearway_lab.errors import SimulationError
from clearway_lab.sweeps.local import ENDING, LONGEST_WAIT_S, Task, Workers, answered, undisturbed

with answered(signal.getsignal, *ENDING):  # its import makes Ctrl-C a success
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob

T = TypeVar("T")

# Calls that were given up leave tasks whose errors are not looked at; asyncio would print them.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)

_GIB_PER_PROCESS = 2
_ALIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
_LEFT = _ALIVE + ",COMPLETING"  # their processes may still write
_PAUSE_S = 0.2
_UNSEEN = "127.0.0.1:0"  # Dask's pages ask for no password
_NO_DASHBOARD = ("--no-dashboard", "--dashboard-address", _UNSEEN)
_LOOK_S = 5.0  # without an answer, before Slurm is asked about the jobs
_CANCEL_S = 30.0
_LAST_WORDS = 300  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJobs:
    """What is asked of Slurm; None: what Dask's configuration says, else one process, 2 GiB for each, no account."""

    jobs: int
    processes: int | None = None  # of each job, one core each
    memory: str | None = None  # of each job
    partition: str | None = None
    account: str | None = None
    walltime: str | None = None


@dataclass(frozen=True, slots=True)
class NamedJobs:
    """This user's jobs of one name that Slurm still knows of.

    Every method but ``cancel`` raises a SlurmError when Slurm does not answer.
    """

    name: str
    commands: Commands = field(default_factory=lambda: Commands(timeout_s=60.0))

    def alive(self) -> int:
        """How many wait, run or are suspended."""
        return self._count(_ALIVE)

    def cancel(self, within_s: float) -> str:
        """By name, and again until none is left: a submission may have been under way.

        Returns:
            Why jobs may be left; empty when none is.
        """
        deadline = time.monotonic() + within_s
        try:
            while self._count(_LEFT) and time.monotonic() < deadline:
                self.commands.run(("scancel", "--quiet", *self._which()))
                time.sleep(_PAUSE_S)
            left = self.alive()
        except SlurmError as error:
            return str(error)
        return f"{left} after {within_s:g} s" if left else ""

    def _which(self) -> tuple[str, str]:
        return f"--name={checked(self.name)}", f"--user={getpass.getuser()}"

    def _count(self, states: str) -> int:
        """One line of squeue for each job; of an array, for all of its tasks that wait."""
        answer = self.commands.run(("squeue", "--noheader", *self._which(), f"--states={states}", "--format=%A"))
        return len(answer.split())


@contextmanager
def slurm_workers(wanted: SlurmJobs, tell: Callable[[str], None]) -> Iterator[Workers]:
    """Workers in Slurm jobs, which are submitted here and are gone after this block.

    Raises:
        SimulationError: they cannot be submitted; within the block: they all ended before the sweep did.
    """
    name = f"clearway-sweep-{secrets.token_hex(6)}"
    jobs = NamedJobs(name)
    jobs.alive()  # no Slurm, no sweep
    stack = ExitStack()
    try:
        folder = _private_folder(name)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        refusals: list[str] = []
        cluster = SLURMCluster(
            job_cls=_job_class(refusals),
            job_name=name,
            log_directory=str(folder),
            local_directory=_configured("local-directory") or str(folder),
            security=_security(folder),
            scheduler_options=_scheduler_options(),
            silence_logs="critical",
            **_job_options(wanted),
        )
        stack.callback(_cancel, jobs, tell)
        stack.callback(_close, cluster, timeout=_CANCEL_S)
        client = Client(cluster)
        stack.callback(_close, client)
        cluster.scale(jobs=wanted.jobs)
        yield _InSlurm(client, jobs, folder, refusals)
    finally:
        # An impatient second Ctrl-C must not keep jobs from being cancelled.
        with answered(lambda _: signal.SIG_IGN, *ENDING):
            stack.close()


@dataclass(frozen=True, slots=True)
class _InSlurm:
    client: Any
    jobs: NamedJobs
    folder: Path
    refusals: list[str]

    def answers(self, function: Callable[..., T], tasks: Sequence[Task]) -> Iterator[tuple[int, T]]:
        with undisturbed():
            futures = {self.client.submit(function, *task, pure=False): place for place, task in enumerate(tasks)}
        looked = time.monotonic()
        while futures:
            with undisturbed():
                with suppress(TimeoutError):
                    wait(list(futures), timeout=LONGEST_WAIT_S, return_when="FIRST_COMPLETED")
                there = [(future, self._answer(future)) for future in futures if future.done()]
            for future, answer in there:
                if answer is not None:
                    yield futures.pop(future), answer[0]
            if any(answer for _, answer in there):
                looked = time.monotonic()
            elif time.monotonic() - looked >= _LOOK_S:
                self._look()
                looked = time.monotonic()

    def _answer(self, future: Any) -> tuple[Any] | None:
        """None: its worker went before it could be fetched; Dask computes it again."""
        try:
            return (future.result(timeout=_LOOK_S),)
        except TimeoutError:
            if future.status == "error":  # the task's own
                raise
            return None
        except KilledWorker:
            raise SimulationError(
                "a task has ended its worker again and again: more memory, or a longer time limit?" + self._last_words()
            ) from None

    def _look(self) -> None:
        """Slurm may have refused the jobs, or ended them all."""
        if self.refusals:
            raise SimulationError(f"sbatch: {self.refusals[0]}")
        try:
            alive = self.jobs.alive()
        except SlurmError:
            return  # it may answer next time; the workers do not need it
        if not alive:
            raise SimulationError("all Slurm jobs have ended, but not their work" + self._last_words())

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("*.err"), key=lambda path: path.stat().st_mtime)
        said = " ".join(word for path in logs[-1:] for word in path.read_text(errors="replace").split())
        return f"; the last one's last words: ...{said[-_LAST_WORDS:]}" if said else ""


def _cancel(jobs: NamedJobs, tell: Callable[[str], None]) -> None:
    if left := jobs.cancel(_CANCEL_S):
        tell(f"jobs may be left, remove them with 'scancel --name={jobs.name}': {left}")


def _close(part: Any, **options: Any) -> None:
    with suppress(Exception):  # what is left of it is cancelled by name
        part.close(**options)


def _job_class(refusals: list[str]) -> type:
    class Job(SLURMJob):  # type: ignore[misc]
        async def start(self) -> None:
            try:
                await super().start()
            except RuntimeError as error:  # dask would only log it, and wait for ever
                words = str(error).partition("stderr:\n")[2] or str(error)
                refusals.append(" ".join(words.split()).removeprefix("sbatch: error: "))

    return Job


def _job_options(wanted: SlurmJobs) -> dict[str, Any]:
    processes = wanted.processes or _configured("cores") or 1
    memory = wanted.memory or _configured("memory")
    options: dict[str, Any] = {
        "cores": processes,
        "processes": processes,  # threads would share one interpreter lock
        "memory": memory or f"{processes * _GIB_PER_PROCESS} GiB",
        "queue": wanted.partition,
        "account": wanted.account,
        "walltime": wanted.walltime,
        "worker_extra_args": [*(_configured("worker-extra-args") or []), *_NO_DASHBOARD],
    }
    return {key: value for key, value in options.items() if value is not None}


def _configured(key: str) -> Any:
    return dask.config.get(f"jobqueue.slurm.{key}", None)


def _scheduler_options() -> dict[str, Any]:
    return {"dashboard": False, "dashboard_address": _UNSEEN} | (_configured("scheduler-options") or {})


def _private_folder(name: str) -> Path:
    """For the key and the jobs' output; nodes must be able to read it."""
    shared = Path(_configured("shared-temp-directory") or Path.home()).expanduser()
    try:
        return Path(tempfile.mkdtemp(prefix=f".{name}-", dir=shared))
    except OSError as error:
        raise SimulationError(f"{shared}: {error.strerror}; set jobqueue.slurm.shared-temp-directory") from None


def _security(folder: Path) -> Security:
    """A certificate that signs itself: a process that has its key belongs to this sweep."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={folder.name}"]
    try:
        subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError) as error:
        raise SimulationError(f"openssl cannot make a certificate for the workers: {error}") from None
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in roles},
        **{f"tls_{role}_key": key for role in roles},
    )
