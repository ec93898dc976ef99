"""The options of commands that compute many tasks, and the workers that they ask for."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from clearway.config.plugins import how_to_install
from clearway_lab.commands.progress import Progress, replay_bar, sweep_progress, tell
from clearway_lab.errors import SimulationError
from clearway_lab.sweeps.local import Sweep, Workers, answered, local_workers

R = TypeVar("R")

_JOBS = 4  # on a cluster, where none is asked for


class Cluster(StrEnum):
    LOCAL = "local"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    cluster: Annotated[
        Cluster, typer.Option(help="Compute on this machine, or in jobs on a Slurm cluster through Dask.")
    ] = Cluster.LOCAL
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of processes; default: one a processor. With slurm: of each job; default: one."
        ),
    ] = None
    jobs: Annotated[int | None, typer.Option(min=1, help="With slurm: number of jobs; default: 4.")] = None
    partition: Annotated[str | None, typer.Option(help="With slurm: the jobs' partition.")] = None
    account: Annotated[str | None, typer.Option(help="With slurm: the jobs' account.")] = None
    walltime: Annotated[str | None, typer.Option(help="With slurm: the jobs' time limit, such as 2:00:00.")] = None
    memory: Annotated[str | None, typer.Option(help="With slurm: the memory of a job, such as 8GiB.")] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress on standard error.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="Recorded workload: SWF, plain or compressed with gzip, bzip2 or xz. With --config: folder of --save."
        ),
    ] = None
    sacct: Annotated[bool, typer.Option("--sacct", help="The file holds what sacct has answered instead.")] = False
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of the machine; default: as the trace says.")] = None
    processors_per_node: Annotated[int, typer.Option(min=1, help="Processors of the trace that make one node.")] = 1
    scheduler: Annotated[str | None, typer.Option(help="Schedulers, separated by commas; default: fcfs,easy.")] = None
    exact_limits: Annotated[bool, typer.Option("--exact-limits", help="Take the actual run times as time limits.")] = (
        False
    )
    urgent_queue: Annotated[
        list[str] | None, typer.Option(help="Jobs of this queue (name or number) are urgent; may be repeated.")
    ] = field(default=None, hash=False)
    inject_urgent: Annotated[
        bool, typer.Option("--inject-urgent", help="Add an urgent job at a busy moment of every 720 hours.")
    ] = False
    seed: Annotated[int, typer.Option(help="Seed of the random urgent jobs and swap times.")] = 0
    save_swf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the recorded jobs that ran to this file, as SWF.")
    ] = None
    from_sacct: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="START END", help="Ask sacct for this period (times as sacct reads them, UTC)."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="Replay what Clearway would have done with this configuration; its rules name the urgent jobs."
        ),
    ] = None
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With --from-sacct: keep Slurm's answers, to replay them elsewhere."),
    ] = None
    job: Annotated[
        int | None, typer.Option(metavar="JOB_ID", help="With --config: begin as it was when this job was submitted.")
    ] = None
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --config: write the report on urgent jobs here, as HTML.")
    ] = None

    @property
    def schedulers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.strip() for name in (self.scheduler or "fcfs,easy").split(",")))

    @property
    def changes_the_record(self) -> bool:
        """Whether something is asked that a site's configuration, or the machine of its record, says itself."""
        asked = self.scheduler or self.urgent_queue or self.exact_limits or self.inject_urgent or self.save_swf
        return bool(asked or self.sacct or self.nodes or self.seed) or self.processors_per_node != 1


@contextmanager
def open_sweep(
    options: SweepOptions, tasks: int | None = None, *, quiet: bool = False, shown: Progress | None = None
) -> Iterator[Sweep]:
    """Workers that are gone after this block, however it ends. ``tasks`` is their number, where it is known.

    ``quiet``: progress is a bar on a terminal, and nothing elsewhere. ``shown``: it is shown by this instead.

    Raises:
        SimulationError: there are no such workers, in one line.
    """
    told = shown or partial(sweep_progress, lines=not quiet, silent=options.quiet)
    with _ended_properly(), _workers(options, tasks) as workers, told() as tell_it:
        yield Sweep(workers, tell_it)


def each_done(
    options: SweepOptions,
    work: Callable[..., R],
    tasks: Mapping[str, tuple[Any, ...]],
    name: Callable[[R], str],
    jobs: int,
    worth: int,
) -> Sequence[R]:
    """What ``work`` makes of each of these tasks, which replay so many ``jobs``.

    This process does them, with a bar from ``worth`` jobs on, where one process would do them all.
    """
    if not alone(options, len(tasks)):
        with open_sweep(options, len(tasks), quiet=True) as workers:
            return workers(work, list(tasks.values()), name)
    found = []
    for what, task in tasks.items():
        with replay_bar(what, jobs, worth, silent=options.quiet) as tick:
            found.append(work(*task, tick))
    return found


def alone(options: SweepOptions, tasks: int) -> bool:
    """Whether one process would do all these tasks; then this one can."""
    return options.cluster is Cluster.LOCAL and min(_processes(options), tasks) == 1


@contextmanager
def _workers(options: SweepOptions, tasks: int | None) -> Iterator[Workers]:
    if options.cluster is Cluster.LOCAL:
        with local_workers(min(_processes(options), tasks or sys.maxsize)) as workers:
            yield workers
        return
    try:
        from clearway_lab.sweeps.slurm_jobs import SlurmJobs, slurm_workers  # noqa: PLC0415 - Dask is an extra
    except ImportError as error:
        raise SimulationError(
            f"--cluster slurm needs Dask: {how_to_install('lab')} ({error.name or error} is missing)"
        ) from None
    same = {name: getattr(options, name) for name in ("processes", "memory", "partition", "account", "walltime")}
    wanted = SlurmJobs(jobs=min(options.jobs or _JOBS, tasks or sys.maxsize), **same)
    with slurm_workers(wanted, lambda line: tell(f"clearway: {line}")) as workers:
        yield workers


def processes_of(options: SweepOptions) -> int:
    """How many compute at a time."""
    if options.cluster is Cluster.SLURM:
        return (options.jobs or _JOBS) * (options.processes or 1)
    return _processes(options)


def _processes(options: SweepOptions) -> int:
    """On this machine.

    Raises:
        SimulationError: an option is given that only jobs have.
    """
    for name in ("jobs", "partition", "account", "walltime", "memory"):
        if getattr(options, name) is not None:
            raise SimulationError(f"--{name} needs --cluster slurm")
    return options.processes or os.cpu_count() or 1


@contextmanager
def _ended_properly() -> Iterator[None]:
    """A signal to end, or the loss of the terminal, must not leave jobs or processes behind."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    with answered(lambda _: end, *numbers):
        yield
