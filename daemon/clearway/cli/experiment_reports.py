"""The experiments: each computes its study and writes a report and a table; all of them together, an index besides."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from clearway.cli import render
from clearway.cli.progress import CourseShown, tell
from clearway.cli.sweep_options import SweepOptions, open_sweep, processes_of
from clearway.experiments import (
    compaction_report,
    compaction_study,
    cosim_report,
    cosim_study,
    drain_report,
    drain_study,
    index_report,
    promise_report,
    promise_study,
    realtime_report,
    realtime_study,
    stochastic_report,
    stochastic_study,
    urgent_report,
    urgent_study,
)
from clearway.experiments.course import Course, expected
from clearway.experiments.index_report import Entry
from clearway.model.errors import TraceError

_PATIENCE_S = 10.0  # for one answer of the exhaustive search


def _experiment(
    study: ModuleType, report: ModuleType, found: Callable[[Any], Sequence[str]], table: str
) -> Callable[..., Sequence[str]]:
    """A function of a folder and of what the study asks for: it writes the report and the table there.

    It returns what was found, in sentences.
    """

    def make(out: Path, *asked: Any, **options: Any) -> Sequence[str]:
        made = study.study(*asked, **options)
        _write(out, {"report.html": report.as_html(made), table: report.as_csv(made)})
        return found(made)

    return make


stochastic = _experiment(stochastic_study, stochastic_report, index_report.stochastic, "table2.csv")
compaction = _experiment(compaction_study, compaction_report, index_report.compaction, "compaction.csv")
drain = _experiment(drain_study, drain_report, index_report.drain, "drain.csv")
promises = _experiment(promise_study, promise_report, index_report.promises, "promises.csv")
urgent = _experiment(urgent_study, urgent_report, index_report.urgent, "urgent.csv")
realtime = _experiment(realtime_study, realtime_report, index_report.realtime, "realtime.csv")


def cosim(out: Path, note: Callable[[str], None] = tell) -> Sequence[str]:
    make = _experiment(cosim_study, cosim_report, index_report.cosim, "cosim.csv")
    return make(out, note, patience_s=_PATIENCE_S)


def every(out: Path, traces: Path, seeds: int, days: int, options: SweepOptions) -> Sequence[Entry]:
    """All experiments. An experiment without its workloads is left out and named."""
    drawings = {"compaction": days, "promises": seeds, "urgent": seeds, "realtime": seeds}
    course = Course(expected(drawings, processes_of(options)), time.monotonic)
    shown = CourseShown(course, silent=options.quiet)
    with open_sweep(options, shown=shown.open) as sweep:
        makers: list[tuple[str, Callable[[Path], Sequence[str]]]] = [
            ("stochastic", lambda to: stochastic(to, sweep)),
            ("compaction", lambda to: compaction(to, days, sweep)),
            ("drain", lambda to: drain(to, traces, 0, sweep)),
            ("promises", lambda to: promises(to, traces, seeds, sweep)),
            ("urgent", lambda to: urgent(to, traces, seeds, sweep)),
            ("realtime", lambda to: realtime(to, traces, seeds, sweep)),
        ]
        entries = [_made(name, make, out, shown) for name, make in makers]
    # This experiment measures times, so nothing else computes beside it.
    with shown.open():
        entries.insert(0, _made("cosim", lambda to: cosim(to, shown.note), out, shown))
    _write(out, {"index.html": index_report.as_html(entries)})
    return entries


def _made(name: str, make: Callable[[Path], Sequence[str]], out: Path, shown: CourseShown) -> Entry:
    shown.begin(name)
    try:
        entry = Entry(name, found=make(out / name))
    except TraceError as error:
        tell(f"clearway: experiment {name}: {error}")
        entry = Entry(name, missing=str(error))
    shown.end(made=not entry.missing)
    return entry


def _write(out: Path, texts: Mapping[str, str]) -> None:
    """Texts by file name; the first is what a reader opens."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    print(render.visible(str(out / next(iter(texts)))), flush=True)
