"""``clearway report``: what Clearway did or would have done for urgent jobs, as a table, JSON or an HTML page.

The page has a picture of each case: the waits by the plan and in fact, and the nodes of the plan over time. Nodes on
which the same happens have one row. The templates in ``templates/`` extend ``base.html``; what they are given is
escaped.
"""

import errno
import os
import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer

from clearway.api.report_schemas import ReportCase, ReportJob, ReportView
from clearway.cli import options, render
from clearway.model.durations import format_duration
from clearway.model.plan import node_hours
from clearway.model.records import Ending
from clearway.slurm.parse.hostlist import expand

if TYPE_CHECKING:
    from jinja2 import Environment


class ReportOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    HTML = "html"


def report(
    since: Annotated[str, typer.Option(help="How far to look back, such as 7d or 12h.")] = "7d",
    output: Annotated[ReportOutput, typer.Option("--output", "-o", help="Output format.")] = ReportOutput.TABLE,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write to this file; default: standard output.")
    ] = None,
    *,
    site: options.Site,
) -> None:
    """Urgent jobs: what Clearway did or would have done, what happened, and what Slurm's own rule would lose."""
    options.duration_s(since, "--since")
    with options.source(site) as asked:
        found = asked.report(since)
    match output:
        case ReportOutput.JSON:
            text = found.model_dump_json(indent=2) + "\n"
        case ReportOutput.HTML:
            text = page(found)
        case ReportOutput.TABLE:
            text = "\n".join(lines(found)) + "\n" if found.cases else "no urgent job was planned for\n"
    if file is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        _write_closed(file, text)
    except OSError as error:
        options.complain(f"{file}: cannot be written: {error.strerror}")
        raise typer.Exit(options.FAILED) from None


def _write_closed(file: Path, text: str) -> None:
    """It names users: closed to others (0640, or less by the umask), whatever stood there before. No link is followed:
    who may write to the folder would choose the file.
    """
    if file.is_symlink():
        raise OSError(errno.ELOOP, "it is a link; name the file itself")
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8") as out:  # a pipe or a device
            out.write(text)
        return
    made = file.with_name(f".{file.name[:200]}.{secrets.token_hex(8)}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        made.replace(file)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def lines(found: ReportView) -> list[str]:
    sums = found.sums
    lost, would_lose = node_hours(sums.lost_node_s), node_hours(sums.would_lose_node_s)
    ours, slurms = node_hours(sums.plan_node_s), node_hours(sums.slurm_node_s)
    return [
        f"{'job':>10}  {'user':<10}  {'nodes':>6}  {'planned':<16}  {'ending':<10}  {'sooner':>8}  lost or would lose",
        *(render.visible(_line(case)) for case in found.cases),
        "",
        f"plans: {sums.cases}, for urgent jobs: {sums.urgent_jobs}",
        f"lost: {lost}; would have been lost by plans that were not carried out: {would_lose}",
        f"beside Slurm's own rule, in {sums.compared} plans: {ours} against {slurms}",
        f"plans where Slurm's rule frees too few nodes: {sums.slurm_without_plan}; not compared: {sums.not_compared}",
    ]


def _line(case: ReportCase) -> str:
    at = case.planned_at.strftime("%Y-%m-%d %H:%M")
    told = f"{case.display_id:>10}  {case.user:<10}  {case.num_nodes:>6}  {at}  {case.ending:<10}"
    return f"{told}  {_sooner(case):>8}  {_lost(case)}"


def _sooner(case: ReportCase) -> str:
    return format_duration(case.sooner_s) if case.sooner_s else "-"


def _lost(case: ReportCase) -> str:
    return node_hours(case.lost_node_s if case.acted else case.would_lose_node_s)


# -- the page ------------------------------------------------------------------------------------------------------

_MOST_ROWS = 24  # groups of nodes in a picture
_MOST_PICTURES = 50  # of the newest cases
_LEFT, _WIDTH, _ROW, _TOP = 110, 790, 20, 30  # pixels
_BY_PLAN, _IN_FACT = "urgent: by plan", "urgent: in fact"  # rows above the nodes; no node has such a name
_ENDINGS = {  # in a sentence, and in a table
    Ending.SERVED: ("room was made; the job started", "room made"),
    Ending.CALLED_OFF: ("the plan was begun, and called off or failed", "called off"),
    Ending.SOONER: ("the job started later than it could have", "later than by plan"),
    Ending.NOT_NEEDED: ("the job started in time by itself", "in time by itself"),
    Ending.WAITS: ("the job still waits", "waits"),
    Ending.GONE: ("the job left the queue and was not seen to start", "left the queue"),
}


class Missed(str):
    """The text of a table's cell whose number misses its target: it is shown in red."""

    __slots__ = ()


def templates(*packages: str) -> "Environment":
    """Ours, and those of these packages."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - for pages alone

    made = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in (*packages, "clearway.cli")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.tests["missed"] = lambda cell: isinstance(cell, Missed)
    return made


class Bar(NamedTuple):
    x: float
    y: int
    width: float
    kind: str  # leaves, ends, urgent or waits: its colour
    title: str
    label: str


class Mark(NamedTuple):
    x: float
    kind: str  # planned, deadline or started
    label: str


class Picture(NamedTuple):
    bottom: int  # of the bars
    nodes: list[tuple[int, str]]  # y and name
    bars: list[Bar]
    marks: list[Mark]
    ticks: list[Mark]
    left_out: int  # nodes
    groups: bool  # whether a row stands for several nodes


class _Group(NamedTuple):
    nodes: list[str]
    jobs: list[ReportJob]  # that leave
    placement: bool  # whether they are for the urgent job

    @property
    def name(self) -> str:
        first, others = self.nodes[0], len(self.nodes) - 1
        return f"{first} +{others:,}" if others else first


def page(found: ReportView) -> str:
    acted = [case for case in found.cases if case.acted]
    lost = {off: [c.lost_node_s for c in acted if (c.ending is Ending.CALLED_OFF) is off] for off in (False, True)}
    pictures = [picture(case, found.until) for case in found.cases[:_MOST_PICTURES]]
    known = {
        "report": found,
        "carried": len(lost[False]),
        "carried_lost": sum(lost[False]),
        "called_off": len(lost[True]),
        "called_off_lost": sum(lost[True]),
        "observed": found.sums.cases - len(acted),
        "count": count,
        "endings": [(told, found.sums.by_ending.get(ending, 0)) for ending, (told, _) in _ENDINGS.items()],
        "cases": [(case, _row(case), shown) for case, shown in zip_longest(found.cases, pictures)],
        "users": [
            (u.user, u.jobs, node_hours(u.lost_node_s), node_hours(u.would_lose_node_s), u.ended_soon)
            for u in found.users
        ],
        "hours": node_hours,
        "duration": format_duration,
        "clock": _clock,
        "endings_of": {ending: told for ending, (told, _) in _ENDINGS.items()},
        "study": None,
    }
    return templates().get_template("report.html").render(known)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _row(case: ReportCase) -> tuple[str, ...]:
    saved_node_s, by_plan, began = case.saved_node_s, _minute(case.expected_start), case.started_at
    started = "-" if began is None else _minute(began)
    saved = "not compared" if saved_node_s is None else f"{'-' * (saved_node_s < 0)}{node_hours(abs(saved_node_s))}"
    about = case.display_id, case.user, str(case.num_nodes), _ENDINGS[case.ending][1]
    return *about, by_plan, started, _sooner(case), _lost(case), saved


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _minute(at: datetime) -> str:
    return at.strftime("%m-%d %H:%M")


class _Axis(NamedTuple):
    first: datetime
    last: datetime

    @classmethod
    def of(cls, case: ReportCase, waited: datetime) -> Self:
        """All that happened in the case, and some room on both sides."""
        ends = [each.left_at for each in case.jobs if each.left_at is not None]
        last = max(case.deadline, case.expected_start, waited, *ends)
        first = min(case.submitted_at, case.planned_at)
        span = timedelta(seconds=max(60.0, (last - first).total_seconds()))
        return cls(first - span * 0.25, last + span * 0.15)

    @property
    def ticks(self) -> list[Mark]:
        times = [self.first + (self.last - self.first) * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        return [Mark(self.x(at), "tick", at.strftime("%H:%M:%S")) for at in times]

    def x(self, at: datetime) -> float:
        share = (at - self.first) / (self.last - self.first)
        return round(_LEFT + _WIDTH * min(1.0, max(0.0, share)), 1)

    def bar(self, y: int, begin: datetime, end: datetime, kind: str, title: str, label: str) -> Bar:
        return Bar(self.x(begin), y, max(1.0, self.x(end) - self.x(begin)), kind, title, label)


def picture(case: ReportCase, until: datetime) -> Picture:
    waited = case.started_at or case.gone_at or until
    axis, groups = _Axis.of(case, waited), _alike(case)
    rows = groups[:_MOST_ROWS]
    places = {name: _TOP + at * _ROW for at, name in enumerate((_BY_PLAN, _IN_FACT, *(row.name for row in rows)))}
    bars = _waits(case, places[_BY_PLAN], axis, case.expected_start, case.expected_start)
    bars += _waits(case, places[_IN_FACT], axis, waited, case.started_at)
    for group in rows:
        bars += _happens(case, group, places[group.name], axis)
    times = {
        "planned": (case.expected_start, "start by the plan"),
        "deadline": (case.deadline, "deadline"),
        "started": (case.started_at, "real start"),
    }
    return Picture(
        bottom=_TOP + len(places) * _ROW,
        nodes=[(place, name) for name, place in places.items()],
        bars=bars,
        marks=[Mark(axis.x(at), kind, label) for kind, (at, label) in times.items() if at is not None],
        ticks=axis.ticks,
        left_out=sum(len(group.nodes) for group in groups[_MOST_ROWS:]),
        groups=any(len(group.nodes) > 1 for group in rows),
    )


def _alike(case: ReportCase) -> list[_Group]:
    """The nodes of the plan and of the jobs that leave, grouped by what happens on them, in the jobs' order."""
    jobs_on: dict[str, list[int]] = {}
    for number, job in enumerate(case.jobs):
        for name in expand(job.nodes) if job.nodes else ():
            jobs_on.setdefault(name, []).append(number)
    placement = dict.fromkeys(expand(case.nodes)) if case.nodes else {}
    alike: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for name in placement | dict.fromkeys(jobs_on):
        alike.setdefault((tuple(jobs_on.get(name, ())), name in placement), []).append(name)
    return [_Group(names, [case.jobs[number] for number in on], inside) for (on, inside), names in alike.items()]


def _waits(case: ReportCase, y: int, axis: _Axis, waited: datetime, started: datetime | None) -> list[Bar]:
    """From submission to the end of the wait; then, where it started, to the end of the picture."""
    begun, name = max(axis.first, case.submitted_at), f"urgent job {case.display_id}"
    until = f"{name} waits from {_clock(begun)} to {_clock(waited)}"
    found = [axis.bar(y, begun, waited, "waits", until, "waits")]
    if started is not None:
        found.append(axis.bar(y, started, axis.last, "urgent", f"{name} runs from {_clock(started)}", "runs"))
    return found


def _happens(case: ReportCase, group: _Group, y: int, axis: _Axis) -> list[Bar]:
    found = []
    for job in group.jobs:
        left = "still there" if job.left_at is None else f"left {_clock(job.left_at)}"
        told = f"job {job.display_id} of {job.user}, {job.action.shown}, {left}"
        begin, end = job.started_at or axis.first, job.left_at or axis.last
        found.append(axis.bar(y, begin, end, "leaves" if job.pays else "ends", told, job.display_id))
    if case.started_at is not None and case.acted and case.ending is not Ending.CALLED_OFF and group.placement:
        told = f"urgent job {case.display_id}, started {_clock(case.started_at)}"
        found.append(axis.bar(y, case.started_at, axis.last, "urgent", told, case.display_id))
    return found
