"""The report as one HTML page, with a picture of each case. Pure.

A picture shows how long the urgent job waits by the plan and in fact, its deadline, and the nodes of the plan over
time: the jobs that leave, and the urgent job. Nodes on which the same happens have one row. Everything that comes from
Slurm is escaped by the template.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from clearway.api.report_schemas import ReportCase, ReportJob, ReportView
from clearway.cli.page import html
from clearway.model.durations import format_duration
from clearway.model.plan import node_hours
from clearway.model.records import Ending
from clearway.slurm.parse.hostlist import expand

_MOST_ROWS = 24  # groups of nodes in a picture
_MOST_PICTURES = 50  # of the newest cases
_LEFT, _WIDTH, _ROW, _TOP = 110, 790, 20, 30  # pixels
_BY_PLAN, _IN_FACT = "urgent: by plan", "urgent: in fact"  # rows above the nodes; no node has such a name
_ENDINGS = {
    Ending.SERVED: "room was made; the job started",
    Ending.CALLED_OFF: "the plan was begun, and called off or failed",
    Ending.SOONER: "the job started later than it could have",
    Ending.NOT_NEEDED: "the job started in time by itself",
    Ending.WAITS: "the job still waits",
    Ending.GONE: "the job left the queue and was not seen to start",
}

_SHORT = {
    Ending.SERVED: "room made",
    Ending.CALLED_OFF: "called off",
    Ending.SOONER: "later than by plan",
    Ending.NOT_NEEDED: "in time by itself",
    Ending.WAITS: "waits",
    Ending.GONE: "left the queue",
}


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: int
    width: float
    kind: str  # leaves, ends, urgent or waits: its colour
    title: str
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    kind: str  # planned or deadline
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    about: str
    bottom: int  # of the bars
    height: int
    nodes: tuple[tuple[int, str], ...]  # y and name
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Mark, ...]
    left_out: int  # nodes
    groups: bool  # whether a row stands for several nodes


@dataclass(frozen=True, slots=True)
class _Group:
    nodes: list[str]
    jobs: list[ReportJob]  # that leave
    placement: bool  # whether they are for the urgent job


def page(found: ReportView) -> str:
    sums = found.sums
    acted = [case for case in found.cases if case.acted]
    lost = {off: [c.lost_node_s for c in acted if (c.ending is Ending.CALLED_OFF) is off] for off in (False, True)}
    return html(
        "report.html",
        report=found,
        carried=len(lost[False]),
        carried_lost=sum(lost[False]),
        called_off=len(lost[True]),
        called_off_lost=sum(lost[True]),
        observed=sums.cases - len(acted),
        count=count,
        endings=[(_ENDINGS[ending], sums.by_ending.get(ending, 0)) for ending in Ending],
        cases=[
            (case, _row(case), picture(case, found.until) if number < _MOST_PICTURES else None)
            for number, case in enumerate(found.cases)
        ],
        users=[
            (u.user, u.jobs, node_hours(u.lost_node_s), node_hours(u.would_lose_node_s), u.ended_soon)
            for u in found.users
        ],
        hours=node_hours,
        duration=format_duration,
        clock=_clock,
        endings_of=_ENDINGS,
    )


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _row(case: ReportCase) -> tuple[str, ...]:
    saved = "not compared" if case.saved_node_s is None else _signed(case.saved_node_s)
    return (
        case.display_id,
        case.user,
        str(case.num_nodes),
        _SHORT[case.ending],
        _minute(case.expected_start),
        "-" if case.started_at is None else _minute(case.started_at),
        format_duration(case.sooner_s) if case.sooner_s else "-",
        node_hours(case.lost_node_s if case.acted else case.would_lose_node_s),
        saved,
    )


def _signed(node_s: float) -> str:
    return node_hours(node_s) if node_s >= 0 else f"-{node_hours(-node_s)}"


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _minute(at: datetime) -> str:
    return at.strftime("%m-%d %H:%M")


@dataclass(frozen=True, slots=True)
class _Axis:
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
    def ticks(self) -> tuple[Mark, ...]:
        times = [self.first + (self.last - self.first) * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        return tuple(Mark(self.x(at), "tick", at.strftime("%H:%M:%S")) for at in times)

    def x(self, at: datetime) -> float:
        share = (at - self.first) / (self.last - self.first)
        return round(_LEFT + _WIDTH * min(1.0, max(0.0, share)), 1)

    def bar(self, y: int, begin: datetime, end: datetime, kind: str, title: str, label: str) -> Bar:
        return Bar(self.x(begin), y, self.x(end) - self.x(begin), kind, title, label)

    def wide(self, bar: Bar) -> Bar:
        return replace(bar, width=max(1.0, bar.width))


def picture(case: ReportCase, until: datetime) -> Picture:
    waited = case.started_at or case.gone_at or until
    axis, groups = _Axis.of(case, waited), _alike(case)
    rows = groups[:_MOST_ROWS]
    places = {name: _TOP + number * _ROW for number, name in enumerate((_BY_PLAN, _IN_FACT, *map(_called, rows)))}
    bars = _waits(case, places[_BY_PLAN], axis, case.expected_start, case.expected_start)
    bars += _waits(case, places[_IN_FACT], axis, waited, case.started_at)
    for group in rows:
        bars += _happens(case, group, places[_called(group)], axis)
    marks = _marks(case, axis)
    bottom = _TOP + len(places) * _ROW
    paying = sum(1 for each in case.jobs if each.pays)
    did = "left" if case.acted else "would have left"
    return Picture(
        title=f"Nodes of the plan for urgent job {case.display_id}",
        about=f"{count(paying, 'job')} {did}. Start by the plan {_clock(case.expected_start)}, deadline "
        f"{_clock(case.deadline)}, real start {'none' if case.started_at is None else _clock(case.started_at)}.",
        bottom=bottom,
        height=bottom + 40 + 16 * len(marks),
        nodes=tuple((place, name) for name, place in places.items()),
        bars=tuple(bars),
        marks=marks,
        ticks=axis.ticks,
        left_out=sum(len(group.nodes) for group in groups[_MOST_ROWS:]),
        groups=any(len(group.nodes) > 1 for group in rows),
    )


def _marks(case: ReportCase, axis: _Axis) -> tuple[Mark, ...]:
    times = {
        "planned": (case.expected_start, "start by the plan"),
        "deadline": (case.deadline, "deadline"),
        "started": (case.started_at, "real start"),
    }
    return tuple(Mark(axis.x(at), kind, label) for kind, (at, label) in times.items() if at is not None)


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


def _called(group: _Group) -> str:
    first, others = group.nodes[0], len(group.nodes) - 1
    return f"{first} +{others:,}" if others else first


def _waits(case: ReportCase, y: int, axis: _Axis, waited: datetime, started: datetime | None) -> list[Bar]:
    """From submission to the end of the wait; then, where it started, to the end of the picture."""
    begun, name = max(axis.first, case.submitted_at), f"urgent job {case.display_id}"
    until = f"{name} waits from {_clock(begun)} to {_clock(waited)}"
    found = [axis.wide(axis.bar(y, begun, waited, "waits", until, "waits"))]
    if started is not None:
        found.append(axis.bar(y, started, axis.last, "urgent", f"{name} runs from {_clock(started)}", "runs"))
    return found


def _happens(case: ReportCase, group: _Group, y: int, axis: _Axis) -> list[Bar]:
    """On these nodes: jobs leave, and the urgent job runs."""
    found = [_job_bar(job, y, axis) for job in group.jobs]
    if case.started_at is not None and case.acted and case.ending is not Ending.CALLED_OFF and group.placement:
        told = f"urgent job {case.display_id}, started {_clock(case.started_at)}"
        found.append(axis.bar(y, case.started_at, axis.last, "urgent", told, case.display_id))
    return found


def _job_bar(job: ReportJob, y: int, axis: _Axis) -> Bar:
    left = "still there" if job.left_at is None else f"left {_clock(job.left_at)}"
    told = f"job {job.display_id} of {job.user}, {job.action.shown}, {left}"
    begin, end = job.started_at or axis.first, job.left_at or axis.last
    return axis.wide(axis.bar(y, begin, end, "leaves" if job.pays else "ends", told, job.display_id))
