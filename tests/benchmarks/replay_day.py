"""Recorded days of a real cluster beside their replays: a picture, and the figures of the page's table.

Run from the repository's root as ``python -m tests.benchmarks.replay_day`` (with the dependency group ``bench``): it
writes docs/images/replay-day.svg. What is compared: ``docs/explanation/replay.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clearway.telemetry.log import configure_logging
from tests.simulation.day_cases import FIRST, NEAR, SECOND, THIRD, DayCase, Told, foretold, happened, recorded_cases

PICTURE = Path(__file__).parents[2] / "docs/images/replay-day.svg"
ROOM = 1.08  # beyond the largest value
PANELS: tuple[tuple[str, str, Callable[[Told], float], Callable[[DayCase], bool]], ...] = (
    ("wait of urgent jobs", "s", lambda told: told.wait_s, lambda case: case.wait_is_near),
    ("lost work", "node-s", lambda told: told.lost_node_s, lambda case: case.loss_is_near),
)


def plot(days: Mapping[str, Sequence[DayCase]]) -> None:
    from tests.benchmarks.pictures import save, subplots

    picture, axes = subplots(len(PANELS), len(days), figsize=(4.5 * len(days), 8.4))
    for row, (what, unit, value, near) in zip(axes, PANELS, strict=True):
        for axis, (day, cases) in zip(row, days.items(), strict=True):
            most = ROOM * max(value(told) for case in cases for told in (case.happened, case.foretold))
            low, high = most * (1 - NEAR), most * (1 + NEAR)
            axis.fill_between([0, most], [0, low], [0, high], color="#dddddd", label="within 10 %")
            for colour, name, wanted in (("#2166ac", "right", True), ("#b2182b", "wrong", False)):
                of = [case for case in cases if near(case) is wanted]
                points = [value(case.happened) for case in of], [value(case.foretold) for case in of]
                axis.plot(*points, "o", color=colour, markersize=5, alpha=0.7, label=f"{name}: {len(of)}")
            axis.set(xlim=(-most / 50, most), ylim=(-most / 50, most), aspect="equal", title=f"{day}: {what}")
            axis.set(xlabel=f"happened ({unit})", ylabel=f"foretold ({unit})")
            axis.legend(loc="lower right")
    save(picture, PICTURE)


def tell(day: str, cases: Sequence[DayCase]) -> None:
    for name, means in (("happened", happened(cases)), ("foretold", foretold(cases))):
        print(f"{day}, {name}: wait {means.wait_s:.1f} s, lost {means.lost_node_s:.1f} node-s in the mean")
    for case in cases:
        real, told = case.happened, case.foretold
        print(
            f"{case.job_id:>4}  wait {real.wait_s:5.0f} {told.wait_s:6.1f} {'' if case.wait_is_near else 'wrong':5}"
            f"  lost {real.lost_node_s:6.0f} {told.lost_node_s:6.0f} {'' if case.loss_is_near else 'wrong':5}"
            f"  {','.join(real.jobs)} / {','.join(told.jobs)}"
        )


def main() -> None:
    configure_logging("text", quiet=True)
    days = {
        "first day": recorded_cases(FIRST),
        "second day": recorded_cases(SECOND),
        "third day": recorded_cases(THIRD),
    }
    plot(days)
    for day, cases in days.items():
        tell(day, cases)


if __name__ == "__main__":
    sys.exit(main())
