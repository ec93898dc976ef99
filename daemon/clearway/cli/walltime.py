"""``clearway walltime``: how long to ask for, and after which requests to checkpoint."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Group
from rich.text import Text

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.durations import format_duration
from clearway.errors import WalltimeError
from clearway.walltime.distributions import Discrete, Distribution, Floats, checked_samples, empirical, parse
from clearway.walltime.fit import best_fit
from clearway.walltime.model import Costs, SequencePlan
from clearway.walltime.request_sequence import Strategy, chunks, plan

walltime_app = typer.Typer(
    help="How long to ask for: walltime requests for jobs of unknown length.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MOST_CHUNKS = 200_000
"""More take minutes and hundreds of MiB; epsilon or --chunks says how fine it need be."""
_MOST_BYTES = 64 * 2**20
_BAR = 40
_PLOT_ROWS = 20


class Unit(StrEnum):
    HOURS = "h"
    MINUTES = "m"
    SECONDS = "s"

    @property
    def seconds(self) -> float:
        return {"h": 3_600.0, "m": 60.0, "s": 1.0}[self.value]


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@walltime_app.callback()
def walltime() -> None:
    """Keeps ``plan`` a command of its own, whatever stands beside it."""


@walltime_app.command("plan")
def plan_requests(
    distribution: Annotated[
        str,
        typer.Option(
            help="How long jobs last: exponential:rate=1.0, weibull:scale=1.0,shape=0.5, gamma:shape=2,rate=2, "
            "lognormal:mu=3.0,sigma=0.5, pareto:scale=1.5,shape=3, truncnormal:mu=8,variance=2,low=1,high=20, "
            "uniform:low=1,high=20, beta:a=2,b=2, boundedpareto:low=1,high=20,shape=2.1, or samples:FILE "
            "(one time a line)."
        ),
    ],
    unit: Annotated[Unit, typer.Option(help="Unit of the distribution's parameters and of samples.")] = Unit.HOURS,
    checkpoint_s: Annotated[float, typer.Option(help="Seconds that a checkpoint takes.")] = 360.0,
    restart_s: Annotated[float, typer.Option(help="Seconds that a restart takes.")] = 360.0,
    alpha: Annotated[float, typer.Option(help="Cost of a second asked for.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Cost of a second used.")] = 0.0,
    gamma: Annotated[float, typer.Option(help="Cost of a request, in the same unit.")] = 0.0,
    epsilon: Annotated[float, typer.Option(help="At most so far above the least cost (0.1: 10 %).")] = 1.0,
    strategy: Annotated[
        Strategy, typer.Option(help="Best checkpoints, all, or none; -per: requests of equal steps.")
    ] = Strategy.DYN_PROG_COUNT,
    chunk_count: Annotated[
        int | None,
        typer.Option(
            "--chunks", help="Cut the times into so many steps, instead of what epsilon or the best period says."
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print it.")] = Output.TABLE,
) -> None:
    """The sequence of walltime requests, and of checkpoints, of least expected cost."""
    try:
        costs = Costs(checkpoint_s, restart_s, alpha, beta, gamma)
        samples, times = read_distribution(distribution, unit.seconds)
        _check_size(strategy, times, costs, epsilon, chunk_count)
        planned = plan(strategy, times, costs, epsilon=epsilon, count=chunk_count)
    except WalltimeError as error:
        print(f"clearway: {render.visible(f'walltime plan: {error}')}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    if output is Output.JSON:
        render.print_json(asdict(planned))
    else:
        show(planned, times, samples, unit.seconds)


def read_distribution(specification: str, unit_s: float) -> tuple[Floats | None, Distribution]:
    """What --distribution says, in seconds; and the samples if it is made of them."""
    kind, _, file = specification.partition(":")
    if kind != "samples":
        return None, parse(specification, unit_s)
    samples = read_samples(Path(file)) * unit_s
    return samples, empirical(samples)


def read_samples(file: Path) -> Floats:
    """One time a line; empty lines and what follows ``#`` do not count.

    Raises:
        WalltimeError: the file cannot be read, or a line is no execution time.
    """
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
        if not (entry := line.partition("#")[0].strip()):
            continue
        try:
            value = float(entry)
        except ValueError:
            raise WalltimeError(f"{file}, line {number}: {entry!r:.40} is not a number") from None
        if not 0 <= value < float("inf"):
            raise WalltimeError(f"{file}, line {number}: {entry:.40} is no execution time")
        values.append(value)
    try:
        return checked_samples(values)
    except WalltimeError as error:
        raise WalltimeError(f"{file}: {error}") from None


def _check_size(strategy: Strategy, times: Distribution, costs: Costs, epsilon: float, chunk_count: int | None) -> None:
    if isinstance(times, Discrete) and not strategy.periodic:
        count = len(times.values)
    elif chunk_count is not None:
        count = chunk_count
    elif strategy.periodic:
        return
    else:
        count = chunks(times, costs, epsilon)
    if count > MOST_CHUNKS:
        raise WalltimeError(f"{count:,} steps are more than {MOST_CHUNKS:,}: take a larger --epsilon, or --chunks")


# -- for people ------------------------------------------------------------------------------------------------


def show(planned: SequencePlan, times: Distribution, samples: Floats | None, unit_s: float) -> None:
    """The requests, how likely each is needed, and what all that costs."""
    ends = np.array([request.milestone_s for request in planned.sequence])
    needed = np.append(1.0, times.survival(ends[:-1]))
    right = ("request", "ask for", "work done", "needed")
    rows = render.table(
        "request", "ask for", "work done", "checkpoint", "needed", "", title="Walltime requests, in turn", right=right
    )
    for number, (request, share) in enumerate(zip(planned.sequence, needed, strict=True), 1):
        rows.add_row(
            str(number),
            format_duration(request.request_s),
            format_duration(request.milestone_s),
            "yes" if request.checkpoint else "no",
            f"{share:.2%}" if share >= 0.0001 else "< 0.01%",
            Text("█" * round(_BAR * share) or "▏"),
        )
    ratio = planned.expected_cost / planned.omniscient_cost
    longest = times.high / planned.expected_cost
    notes = [
        "",
        f"expected cost {planned.expected_cost:,.0f} ({planned.strategy}), {ratio:.2f} times that of a known time",
        f"the longest job takes {format_duration(times.high)}, {longest:.1f} times the expected cost",
    ]
    if samples is not None:
        notes += [
            "planned for these samples as they are: a job longer than all of them is not covered",
            _verdict(samples / unit_s),
        ]
    render.console().print(Group(rows, _plot(times, ends), *(Text(render.visible(note)) for note in notes)))


def _verdict(samples: Floats) -> str:
    try:
        return best_fit(samples).verdict
    except WalltimeError as error:
        return f"no fit: {error}"


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
