"""The experiments: each computes its study and writes a report and a table; all of them together, an index besides."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clearway.cli import render
from clearway.cli.sweep_options import SweepOptions, open_sweep, tell
from clearway.experiments import (
    compaction_report,
    compaction_study,
    cosim_report,
    cosim_study,
    drain_report,
    drain_study,
    index_report,
    realtime_report,
    realtime_study,
    urgent_report,
    urgent_study,
)
from clearway.experiments import stochastic_report as walltime_report
from clearway.experiments import stochastic_study as walltime_study
from clearway.experiments.index_report import Entry
from clearway.experiments.sweeps.base import Sweep
from clearway.model.errors import TraceError

_PATIENCE_S = 10.0  # for one answer of the exhaustive search


def cosim(out: Path) -> Sequence[str]:
    """What was found, in sentences; so do the others."""
    made = cosim_study.study(tell, patience_s=_PATIENCE_S)
    _write(out, {"report.html": cosim_report.as_html(made), "cosim.csv": cosim_report.as_csv(made)})
    return index_report.cosim(made)


def stochastic(out: Path, sweep: Sweep) -> Sequence[str]:
    made = walltime_study.study(sweep)
    _write(out, {"report.html": walltime_report.as_html(made), "table2.csv": walltime_report.as_csv(made)})
    return index_report.stochastic(made)


def compaction(out: Path, seeds: int, sweep: Sweep) -> Sequence[str]:
    made = compaction_study.study(seeds, sweep)
    _write(out, {"report.html": compaction_report.as_html(made), "compaction.csv": compaction_report.as_csv(made)})
    return index_report.compaction(made)


def drain(out: Path, traces: Path, seed: int, sweep: Sweep) -> Sequence[str]:
    made = drain_study.study(traces, sweep, seed=seed)
    _write(out, {"report.html": drain_report.as_html(made), "drain.csv": drain_report.as_csv(made)})
    return index_report.drain(made)


def urgent(out: Path, traces: Path, seeds: int, sweep: Sweep) -> Sequence[str]:
    made = urgent_study.study(traces, seeds, sweep)
    _write(out, {"report.html": urgent_report.as_html(made), "urgent.csv": urgent_report.as_csv(made)})
    return index_report.urgent(made)


def realtime(out: Path, traces: Path, seeds: int, sweep: Sweep) -> Sequence[str]:
    made = realtime_study.study(traces, seeds, sweep)
    _write(out, {"report.html": realtime_report.as_html(made), "realtime.csv": realtime_report.as_csv(made)})
    return index_report.realtime(made)


def every(out: Path, traces: Path, seeds: int, days: int, options: SweepOptions) -> Sequence[Entry]:
    """All experiments. An experiment without its workloads is left out and named."""
    with open_sweep(options) as sweep:
        makers: list[tuple[str, Callable[[Path], Sequence[str]]]] = [
            ("stochastic", lambda to: stochastic(to, sweep)),
            ("compaction", lambda to: compaction(to, days, sweep)),
            ("drain", lambda to: drain(to, traces, 0, sweep)),
            ("urgent", lambda to: urgent(to, traces, seeds, sweep)),
            ("realtime", lambda to: realtime(to, traces, seeds, sweep)),
        ]
        entries = [_made(name, make, out) for name, make in makers]
    # This experiment measures times, so nothing else computes beside it.
    entries.insert(0, _made("cosim", cosim, out))
    _write(out, {"index.html": index_report.as_html(entries)})
    return entries


def _made(name: str, make: Callable[[Path], Sequence[str]], out: Path) -> Entry:
    try:
        return Entry(name, found=make(out / name))
    except TraceError as error:
        tell(f"clearway: experiment {name}: {error}")
        return Entry(name, missing=str(error))


def _write(out: Path, texts: Mapping[str, str]) -> None:
    """Texts by file name; the first is what a reader opens."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    print(render.visible(str(out / next(iter(texts)))), flush=True)
