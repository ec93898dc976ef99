"""``clearway walltime plan`` and ``advice``: how long to ask for, and after which requests to checkpoint."""

import getpass
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Group
from rich.text import Text

from clearway.bootstrap import open_store
from clearway.cli import options, render
from clearway.cli.options import BAD_INPUT, DEFAULT_CONFIG, CommandGroup, Output, OutputOption, errors
from clearway.config.configuration import load_config
from clearway.estimates.history import RunKey
from clearway.model.durations import format_duration
from clearway.model.errors import WalltimeError
from clearway.slurm.process import Commands
from clearway.slurm.site_facts import elapsed_command, read_elapsed
from clearway.walltime.distributions import Discrete, Distribution, Floats, checked_samples, empirical, fits, parse
from clearway.walltime.request_sequence import Costs, SequencePlan, Strategy, chunks, plan

_MOST_BYTES = 64 * 2**20
_SACCT_TIMEOUT_S = 120.0
_DAYS = 90


def read_distribution(specification: str, unit_s: float, config: Path) -> tuple[Floats | None, Distribution]:
    """What --distribution says, in seconds; and the samples if it is made of them. Raises ``ClearwayError``."""
    kind, _, rest = specification.partition(":")
    if kind == "samples":
        samples = read_samples(Path(rest)) * unit_s
    elif kind in {"sacct", "history"}:
        samples = _checked(kind, _from_sacct(rest) if kind == "sacct" else _from_history(rest, config))
    else:
        return None, parse(specification, unit_s)
    return samples, empirical(samples)


def read_samples(file: Path) -> Floats:
    """One time a line; empty lines and what follows ``#`` do not count. Raises ``WalltimeError``."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise WalltimeError(f"{file} is larger than {_MOST_BYTES // 2**20} MiB")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise WalltimeError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WalltimeError(f"{file} is not a text file") from None
    values: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        if entry := line.partition("#")[0].strip():
            try:
                values.append(float(entry))
            except ValueError:
                raise WalltimeError(f"{file}, line {number}: {entry!r:.40} is not a number") from None
            if not 0 <= values[-1] < float("inf"):
                raise WalltimeError(f"{file}, line {number}: {entry:.40} is no execution time")
    return _checked(str(file), values)


def _checked(source: str, values: list[float]) -> Floats:
    try:
        return checked_samples(values)
    except WalltimeError as error:
        raise WalltimeError(f"{source}: {error}") from None


def _from_sacct(rest: str) -> list[float]:
    asked = _asked("sacct", rest, optional="days")
    days = asked.get("days", str(_DAYS))
    if not days.isdecimal():
        raise WalltimeError(f"sacct: days={days!r:.20} is not a number of days")
    command = elapsed_command(asked["user"], asked["name"], int(days))
    found = read_elapsed(Commands(timeout_s=_SACCT_TIMEOUT_S).run(command))
    if not found:
        raise WalltimeError(f"sacct: {_no_job(asked)} has completed in the last {days} days")
    return found


def _no_job(asked: dict[str, str]) -> str:
    return f"no job {asked['name']!r} of user {asked['user']!r}"


def _from_history(rest: str, config: Path) -> list[float]:
    asked = _asked("history", rest)
    with closing(open_store(load_config(config))) as store:
        records = store.runs_of(RunKey(asked["user"], asked["name"]))
    if not records:
        raise WalltimeError(f"history: {_no_job(asked)} has been seen to end")
    return [each.run_s for each in records]


def _asked(kind: str, rest: str, optional: str = "") -> dict[str, str]:
    pairs = [part.partition("=") for part in rest.split(",")]
    found = {key.strip(): value for key, _, value in pairs}
    wanted = {"user", "name"}
    if not (wanted <= set(found) <= wanted | {optional} and len(found) == len(pairs) and all(found.values())):
        more = f"[,{optional}=N]" if optional else ""
        raise WalltimeError(f"write {kind}:user=USER,name=NAME{more}, not {kind}:{rest:.80}")
    return found


walltime_app = CommandGroup("How long to ask for: walltime requests for jobs of unknown length.")

MOST_CHUNKS = 200_000  # more take hundreds of MiB; a larger epsilon or fewer --chunks is the way out
LONGEST_S = 300.0  # the steps usually take seconds, but the time may grow with their square: then it gives up
_BAR = 40
_SHORT_BAR = 24  # beside the other columns on a terminal of 80
_PLOT_ROWS = 20


class Unit(StrEnum):
    HOURS = "h"
    MINUTES = "m"
    SECONDS = "s"

    @property
    def seconds(self) -> float:
        return {Unit.HOURS: 3_600.0, Unit.MINUTES: 60.0, Unit.SECONDS: 1.0}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceOptions:
    distribution: Annotated[
        str,
        typer.Option(
            help="How long jobs last: exponential:rate=1.0, weibull:scale=1.0,shape=0.5, gamma:shape=2,rate=2, "
            "lognormal:mu=3.0,sigma=0.5, pareto:scale=1.5,shape=3, truncnormal:mu=8,variance=2,low=1,high=20, "
            "uniform:low=1,high=20, beta:a=2,b=2, boundedpareto:low=1,high=20,shape=2.1; samples:FILE (one time a "
            "line); sacct:user=USER,name=NAME[,days=90] (completed jobs in Slurm's accounting), "
            "history:user=USER,name=NAME (the daemon's database)."
        ),
    ]
    unit: Annotated[Unit, typer.Option(help="Unit of the distribution's parameters, and of the times in a file.")] = (
        Unit.HOURS
    )
    checkpoint_s: Annotated[float, typer.Option(help="Duration of a checkpoint, seconds.")] = 360.0
    restart_s: Annotated[float, typer.Option(help="Duration of a restart, seconds.")] = 360.0
    alpha: Annotated[float, typer.Option(help="Cost per second requested.")] = 1.0
    beta: Annotated[float, typer.Option(help="Cost per second used.")] = 0.0
    gamma: Annotated[float, typer.Option(help="Cost per request, in the same unit.")] = 0.0
    epsilon: Annotated[float, typer.Option(help="Allowed excess over the least cost (0.1: 10 %).")] = 1.0
    strategy: Annotated[
        Strategy, typer.Option(help="Best checkpoints, all, or none; -per: requests of equal steps.")
    ] = Strategy.DYN_PROG_COUNT
    chunk_count: Annotated[
        int | None,
        typer.Option(
            "--chunks", help="Number of steps that the times are cut into; default: by epsilon or the best period."
        ),
    ] = None
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML), for history:.")
    ] = DEFAULT_CONFIG

    @property
    def costs(self) -> Costs:
        """Raises ``WalltimeError`` where one is negative, or asking costs nothing."""
        return Costs(self.checkpoint_s, self.restart_s, self.alpha, self.beta, self.gamma)

    def plan(self, times: Distribution, costs: Costs) -> SequencePlan:
        """The plan, small enough for an interactive command. Raises ``WalltimeError``."""
        if isinstance(times, Discrete) and not self.strategy.periodic:
            steps = len(times.values)
        elif self.chunk_count is None and self.strategy.periodic:
            steps = 0
        else:
            steps = chunks(times, costs, self.epsilon) if self.chunk_count is None else self.chunk_count
        if steps > MOST_CHUNKS:
            raise WalltimeError(f"{steps:,} steps are more than {MOST_CHUNKS:,}: take a larger --epsilon, or --chunks")
        end = time.monotonic() + LONGEST_S

        def in_time() -> None:
            if time.monotonic() > end:
                raise WalltimeError(f"not done within {LONGEST_S:g} s: take a larger --epsilon, or fewer --chunks")

        return plan(self.strategy, times, costs, epsilon=self.epsilon, count=self.chunk_count, proceed=in_time)


@walltime_app.command("plan")
def plan_requests(asked: SequenceOptions, output: OutputOption = Output.TABLE) -> None:
    """The sequence of walltime requests, and of checkpoints, of least expected cost."""
    with errors(BAD_INPUT, "walltime plan: "):
        costs = asked.costs
        samples, times = read_distribution(asked.distribution, asked.unit.seconds, asked.config)
        planned = asked.plan(times, costs)
    if output is Output.JSON:
        render.print_json(asdict(planned))
    else:
        show(planned, times, samples, asked.unit.seconds)


def show(planned: SequencePlan, times: Distribution, samples: Floats | None, unit_s: float) -> None:
    ends = np.array([request.milestone_s for request in planned.sequence])
    needed = np.append(1.0, times.survival(ends[:-1]))
    columns: render.Columns = {
        ">request": lambda row: row[0],
        ">ask for": lambda row: format_duration(row[1].request_s),
        ">work done": lambda row: format_duration(row[1].milestone_s),
        "checkpoint": lambda row: "yes" if row[1].checkpoint else "no",
        ">needed": lambda row: f"{row[2]:.2%}" if row[2] >= 0.0001 else "< 0.01%",
        "": lambda row: Text("█" * round(_SHORT_BAR * row[2]) or "▏"),
    }
    rows = render.listing(zip(count(1), planned.sequence, needed, strict=False), columns, "Walltime requests, in turn")
    ratio = planned.expected_cost / planned.omniscient_cost
    longest = times.high / planned.expected_cost
    notes = [
        "",
        f"expected cost {planned.expected_cost:,.0f} ({planned.strategy}), {ratio:.2f} times that of a known time",
        f"the longest job takes {format_duration(times.high)}, {longest:.1f} times the expected cost",
    ]
    if samples is not None:
        notes.append("planned for these samples as they are: a job longer than all of them is not covered")
        try:
            notes.append(fits(samples / unit_s)[0].verdict)
        except WalltimeError as error:
            notes.append(f"no fit: {error}")
    render.console().print(render.page([rows, _plot(times, ends), *notes]))


def _plot(times: Distribution, ends: Floats) -> Group:
    """Share of jobs that last longer, over time; each row says which requests end in it."""
    edges = np.linspace(0.0, times.high, _PLOT_ROWS + 1)
    lines = [Text("\nJobs that last longer than ... (numbers: requests that end there)")]
    for begin, end in pairwise(edges):
        share = float(times.survival(np.array([begin]))[0])
        within = [number for number, at in enumerate(ends, 1) if begin < at <= end * (1 + 1e-12)]
        line = Text(f"{format_duration(begin):>8} ")
        line.append(("█" * round(_BAR * share) or "▏").ljust(_BAR))
        if within:
            line.append(f" {within[0]}" if len(within) == 1 else f" {within[0]}-{within[-1]}", style="bold")
        lines.append(line)
    return Group(*lines)


def advice(
    name: Annotated[str, typer.Option(help="The application as the job calls it, else the job's name.")],
    user: Annotated[str | None, typer.Option(help="User of the jobs; default: you.")] = None,
    look: options.Look = options.LOOKING,
) -> None:
    """Time limits and run times of the jobs of this name that the daemon has seen end."""
    with options.source(look.site) as asked:
        found = asked.walltime_advice(user or getpass.getuser(), name)
    if look.output is Output.JSON:
        render.print_document(found)
    else:
        print(render.visible(found.advice))
