"""The options of commands that compute many tasks, and the workers that they ask for."""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clearway.cli import render
from clearway.experiments.sweeps.base import Sweep, Workers, answered
from clearway.experiments.sweeps.local import local_workers
from clearway.model.errors import SimulationError


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


def sweeping(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its last parameter, ``sweep``, which receives them as one record."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    hints = get_type_hints(SweepOptions, include_extras=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(SweepOptions(), name), annotation=hint)
        for name, hint in hints.items()
    ]

    @functools.wraps(command)
    def with_options(*arguments: Any, **options: Any) -> None:
        asked = SweepOptions(**{name: options.pop(name) for name in hints})
        command(*arguments, **options, sweep=asked)

    kept = [parameter for parameter in own if parameter.name != "sweep"]
    with_options.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    return with_options


@contextmanager
def open_sweep(options: SweepOptions, tasks: int | None = None, *, quiet: bool = False) -> Iterator[Sweep]:
    """Workers that are gone after this block, however it ends. ``tasks`` is their number, where it is known.

    ``quiet``: progress is a bar on a terminal, and nothing elsewhere.

    Raises:
        SimulationError: there are no such workers, in one line.
    """
    with _ended_properly(), _workers(options, tasks) as workers, _progress(quiet=quiet) as told:
        yield Sweep(workers, told)


def alone(options: SweepOptions, tasks: int) -> bool:
    """Whether one process would do all these tasks; then this one can."""
    return options.cluster is Cluster.LOCAL and min(_processes(options), tasks) == 1


def tell(line: str) -> None:
    print(render.visible(line), file=sys.stderr, flush=True)


@contextmanager
def _workers(options: SweepOptions, tasks: int | None) -> Iterator[Workers]:
    if options.cluster is Cluster.LOCAL:
        with local_workers(min(_processes(options), tasks or sys.maxsize)) as workers:
            yield workers
        return
    try:
        from clearway.experiments.sweeps.slurm_jobs import SlurmJobs, slurm_workers  # noqa: PLC0415 - Dask is an extra
    except ImportError as error:
        raise SimulationError(
            f"--cluster slurm needs Dask: pip install 'clearway[cluster]' ({error.name or error} is missing)"
        ) from None
    wanted = SlurmJobs(
        jobs=min(options.jobs or 4, tasks or sys.maxsize),
        processes=options.processes,
        memory=options.memory,
        partition=options.partition,
        account=options.account,
        walltime=options.walltime,
    )
    with slurm_workers(wanted, lambda line: tell(f"clearway: {line}")) as workers:
        yield workers


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
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, else a line for every answer."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total, what: None if quiet else tell(f"{done} of {total}: {what}")
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def show(done: int, total: int, what: str) -> None:
            if done == 1:  # another sweep begins
                progress.reset(task, total=total)
            progress.update(task, completed=done, total=total, description=render.visible(what))

        yield show


@contextmanager
def _ended_properly() -> Iterator[None]:
    """A signal to end, or the loss of the terminal, must not leave jobs or processes behind."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    with answered(lambda _: end, *numbers):
        yield
