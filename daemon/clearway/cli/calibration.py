"""What ``clearway calibration`` prints."""

from dataclasses import asdict
from datetime import datetime

from rich.console import Group

from clearway.cli import render
from clearway.estimates.learning import Calibration, History
from clearway.model.durations import format_duration
from clearway.model.records import CheckpointOutcome


def show(history: History, now: datetime, limit: int, output: str) -> None:
    """A line for each checkpointer, and for each user, application and checkpointer."""
    keys = history.keys[:limit]
    if output == "json":
        render.print_json(
            {
                "checkpointers": {
                    name: asdict(history.calibration(checkpointer=name)) for name in history.checkpointers
                },
                "applications": [
                    key._asdict()
                    | asdict(history.calibration(key=key))
                    | {"trusted": history.trusted(*key, now), "failures_in_a_row": history.failures_in_a_row(*key)}
                    for key in keys
                ],
            }
        )
        return
    if not history.keys:
        print("no checkpoint has been asked for yet")
        return
    right = (">saved", ">failed", ">actual/predicted", ">in time")
    by_name = render.table("checkpointer", *right)
    for name in history.checkpointers:
        by_name.add_row(name, *_figures(history.calibration(checkpointer=name)))
    by_key = render.table("user", "application", "checkpointer", *right, ">next", "")
    for key in keys:
        estimate = history.estimate(*key, 1)
        expected = "-" if estimate is None else format_duration(estimate.checkpoint_s)
        why = "" if history.trusted(*key, now) else f"not asked: {history.failures_in_a_row(*key)} failures in a row"
        by_key.add_row(*key, *_figures(history.calibration(key=key)), expected, why)
    render.console().print(Group(by_name, "", by_key))
    if len(history.keys) > limit:
        print(f"... and {len(history.keys) - limit} more")


def _figures(of: Calibration) -> tuple[str, str, str, str]:
    """Median of actual over predicted seconds, and the share of checkpoints that took no longer."""
    count = of.checkpoints
    return (
        str(count[CheckpointOutcome.SAVED]),
        str(count[CheckpointOutcome.FAILED] + count[CheckpointOutcome.LATE]),
        "-" if of.median_ratio is None else f"{of.median_ratio:.2f}",
        "-" if of.share_within is None else f"{of.share_within:.0%}",
    )
