"""The experiments: each computes its study and writes a report and a table; all of them together, an index besides."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from clearway.cli import render
from clearway_lab.commands.options import SweepOptions, open_sweep, processes_of
from clearway_lab.commands.progress import Course, CourseShown, expected, tell
from clearway_lab.errors import TraceError
from clearway_lab.studies import compaction as compaction_study
from clearway_lab.studies import cosim as cosim_study
from clearway_lab.studies import drain as drain_study
from clearway_lab.studies import page
from clearway_lab.studies import promises as promises_study
from clearway_lab.studies import realtime as realtime_study
from clearway_lab.studies import stochastic as stochastic_study
from clearway_lab.studies import urgent as urgent_study

_PATIENCE_S = 10.0  # for one answer of the exhaustive search


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment. ``found``: sentences with its results; empty where it could not be made, and ``missing`` why.

    The page that leads to all reports (``index.html``) is made from these; every number in it comes from a study.
    """

    name: str  # its folder; the template knows its title, what it asks and how to read its figures
    found: Sequence[str] = ()
    missing: str = ""


def _experiment(study: ModuleType, table: str) -> Callable[..., Sequence[str]]:
    """A function of a folder and of what the study asks for: it writes the report and the table there.

    It returns what was found, in sentences.
    """

    def make(out: Path, *asked: Any, **options: Any) -> Sequence[str]:
        made = study.study(*asked, **options)
        _write(out, {"report.html": study.as_html(made), table: study.as_csv(made)})
        found: Sequence[str] = study.found(made)
        return found

    return make


stochastic = _experiment(stochastic_study, "table2.csv")
compaction = _experiment(compaction_study, "compaction.csv")
drain = _experiment(drain_study, "drain.csv")
promises = _experiment(promises_study, "promises.csv")
urgent = _experiment(urgent_study, "urgent.csv")
realtime = _experiment(realtime_study, "realtime.csv")


def cosim(out: Path, note: Callable[[str], None] = tell) -> Sequence[str]:
    return _experiment(cosim_study, "cosim.csv")(out, note, patience_s=_PATIENCE_S)


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
    _write(out, {"index.html": index_page(entries)})
    return entries


def index_page(entries: Sequence[Entry]) -> str:
    return page.html("index.html", entries=entries)


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
