"""``clearway calibration``: how good predictions were."""

from typing import Annotated

import typer
from rich.console import Group

from clearway.api.schemas import ApplicationCalibration, Calibrated
from clearway.cli import options, render
from clearway.model.durations import format_duration
from clearway.model.records import CheckpointOutcome


@options.with_options
def calibration(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of applications.")] = 50,
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """Predicted and actual checkpoint times, and the applications that are not asked to save themselves any more."""
    with options.source(site) as asked:
        found = asked.calibration(limit)
    if output is options.Output.JSON:
        render.print_document(found)
        return
    if not found.items:
        print("no checkpoint has been asked for yet")
        return
    right = (">saved", ">failed", ">actual/predicted", ">in time")
    by_name = render.table("checkpointer", *right)
    for each in found.checkpointers:
        by_name.add_row(each.checkpointer, *_figures(each))
    by_key = render.table("user", "application", "checkpointer", *right, ">next", "")
    for one in found.items:
        by_key.add_row(one.user, one.app, one.checkpointer, *_figures(one), *_next(one))
    render.console(output.value).print(Group(by_name, "", by_key))
    if found.next_offset is not None:
        print(f"... and more (--limit); {limit} are shown")


def _next(of: ApplicationCalibration) -> tuple[str, str]:
    expected = "-" if of.expected_s is None else format_duration(of.expected_s)
    return expected, "" if of.trusted else f"not asked: {of.failures_in_a_row} failures in a row"


def _figures(of: Calibrated) -> tuple[str, str, str, str]:
    """Median of actual over predicted seconds, and the share of checkpoints that took no longer."""
    count = of.checkpoints
    return (
        str(count[CheckpointOutcome.SAVED]),
        str(count[CheckpointOutcome.FAILED] + count[CheckpointOutcome.LATE]),
        "-" if of.median_ratio is None else f"{of.median_ratio:.2f}",
        "-" if of.share_within is None else f"{of.share_within:.0%}",
    )
