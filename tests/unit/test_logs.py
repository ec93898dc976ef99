"""Log lines: one for each thing that happened, and none that a job wrote."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import structlog

from clearway.model.cluster import Skipped
from clearway.model.errors import SlurmUnavailableError
from clearway.model.events import (
    CalendarRead,
    CommandGiven,
    CycleFailed,
    HandlingFailed,
    JobLeft,
    OperationFinished,
    PlanMade,
    RollingProgress,
)
from clearway.model.operations import EvictionState
from clearway.model.orders import DrainOrder, RollingDrain, RollingState, Turn, TurnState
from clearway.model.plan import Preemptor
from clearway.model.problem import Amounts, Needs, NodeResources
from clearway.model.records import StepRecord
from clearway.model.report import CycleReport, Quarantined, Subject, Waiting
from clearway.telemetry.log import LogLines, configure_logging, get_logger
from tests.builders import NOW, ManualClock, after, eviction, job, plan, preemption, snapshot, urgent_job

HOSTILE = [
    "a\n2026-03-02T12:00:00Z info eviction finished state=completed",
    "a\r\nforged",
    'quote" key=value',
    "\x1b[31mred\x1b[0m",
    "line\u2028separator",
    "\u202eright to left",
    "nul\x00byte",
    "lone\udc80surrogate",
    "back\\slash\\n",
    "x" * 100_000,
]


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("clearway")
    handlers, level, our_level = root.handlers, root.level, ours.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


@pytest.fixture
def text() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("text", stream)
    return stream


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def events(stream: io.StringIO) -> list[str]:
    """Lines without their times."""
    return [line.partition(" ")[2] for line in lines(stream)]


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_can_forge_a_line(value: str) -> None:
    for log_format in ("text", "json"):
        stream = io.StringIO()
        configure_logging(log_format, stream)  # type: ignore[arg-type]
        get_logger().info("cycle", job=value)
        logging.getLogger("uvicorn.error").error("bad request %s", value)
        written = stream.getvalue()
        assert written.count("\n") == 2
        assert len(written.splitlines()) == 2, "no other separator ends a line either"
        assert written.isascii()
        assert all(character.isprintable() or character == "\n" for character in written)
        assert len(written) < 10_000
        assert "forged" not in written.split()


def test_text_values_are_quoted_where_needed(text: io.StringIO) -> None:
    get_logger().info(
        "step", job="12_3", nodes="n[1-4]", why='a "b" c=d', seconds=0.5, paused=True, none=None, empty=""
    )
    assert events(text) == ['info step job=12_3 nodes=n[1-4] why="a \\"b\\" c=d" seconds=0.5 paused=yes empty=""']


def test_json_lines_can_be_read_back() -> None:
    stream = io.StringIO()
    configure_logging("json", stream)
    get_logger().warning("record skipped", id="ä\n\x1b", why=None, count=3)
    record = json.loads(stream.getvalue())
    assert datetime.fromisoformat(record.pop("time")).tzinfo is not None
    assert record == {"level": "warning", "event": "record skipped", "id": "ä\n\x1b", "count": 3}


def test_a_traceback_is_one_line(text: io.StringIO) -> None:
    get_logger().error("cycle failed", exc_info=ZeroDivisionError("a\nb"))
    assert len(lines(text)) == 1
    assert "ZeroDivisionError" in text.getvalue()


def test_libraries_are_quiet_unless_something_is_wrong(text: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("httpx").info("GET /")
    logging.getLogger("sqlalchemy.pool").warning("slow")
    assert events(text) == ["warning slow"]


# -- what the loop tells ---------------------------------------------------------------------------------------


class Told:
    """LogLines with the steps of a made-up store."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.clock = ManualClock(NOW)
        self.write = LogLines(self.clock, lambda number: tuple(s for s in self.steps if s.eviction_id == number)).write

    def step(self, kind: str, result: str = "ok", **fields: Any) -> None:
        defaults: dict[str, Any] = {"eviction_id": 1, "job_id": None, "intended_at": self.clock.now()}
        self.steps.append(StepRecord(step_id=len(self.steps) + 1, kind=kind, result=result, **(defaults | fields)))
        self.write(CommandGiven(kind, result))

    def cycle(self, seconds: float = 2.0, **fields: Any) -> None:
        self.clock.advance(seconds)
        self.write(CycleReport(**({"at": self.clock.now(), "snapshot": snapshot()} | fields)))


@pytest.fixture
def told(text: io.StringIO) -> Told:  # noqa: ARG001 - logging is set up first
    return Told()


def test_cycles_in_which_nothing_changes_are_silent_but_for_a_heartbeat(told: Told, text: io.StringIO) -> None:
    for _ in range(1 + 300):
        told.cycle(2.0)
    assert len(lines(text)) == 3, "the first one, and one every five minutes"
    told.cycle(2.0, paused=True)
    assert "paused=yes" in lines(text)[-1]
    assert len(lines(text)) == 4


def test_a_preemptor_has_a_line_when_it_comes_when_its_lot_changes_and_when_it_goes(
    told: Told, text: io.StringIO
) -> None:
    preemptor = Preemptor(urgent_job(900, user="bob"), "rule 1", 600, after(600))
    for seconds_left in (300, 298, 296):
        told.cycle(waiting=(Waiting(preemptor, None, f"not enough within {seconds_left}s"),))
    told.cycle(waiting=(Waiting(preemptor, 1, "placing"),))
    told.cycle()
    waits = [line for line in events(text) if line.startswith("info preemptor")]
    assert len(waits) == 3
    assert 'user=bob nodes=2 rule="rule 1"' in waits[0]
    assert 'why="not enough within 300s"' in waits[0]
    assert "eviction=1 why=placing" in waits[1]
    assert waits[2] == "info preemptor waits no more job=900"


def test_a_release_that_was_never_tried_is_told_once_and_so_is_its_end(told: Told, text: io.StringIO) -> None:
    for _ in range(400):
        told.cycle(only_observes="Slurm 31.05.1 is newer than 26.05")
    told.cycle(snapshot=snapshot(slurm_version="26.05.5"))
    said = [line for line in events(text) if not line.startswith("info cycle")]
    assert said == [
        'warning Clearway only observes, whatever daemon.mode says why="Slurm 31.05.1 is newer than 26.05"',
        "info Clearway acts again as daemon.mode says slurm=26.05.5",
    ]


def test_what_cannot_be_read_has_one_line(told: Told, text: io.StringIO) -> None:
    jobs = [job(5, comment="clearway:max_delay=soon")]
    skipped = tuple(Skipped("job", str(n), "State=WEIRD\nforged") for n in range(50))
    for _ in range(3):
        told.cycle(snapshot=snapshot(jobs, skipped=skipped))
    warnings = [line for line in events(text) if line.startswith("warning")]
    assert len(warnings) == 21
    assert warnings[0].startswith("warning comment not understood what=comment id=5 why=")
    assert warnings[-1] == "warning more could not be read count=31"


def test_what_is_wrong_in_a_calendar_has_a_line_when_it_is_new(told: Told, text: io.StringIO) -> None:
    for complaints in (("a is bad",), ("a is bad", "b is bad"), (), ("a is bad",)):
        told.write(CalendarRead(complaints))
    assert [line.partition("calendar")[2] for line in text.getvalue().splitlines()] == [
        ' text="a is bad"', ' text="b is bad"', ' text="a is bad"'
    ]  # fmt: skip
    told.write(CalendarRead(tuple(f"event {number} is bad" for number in range(25))))
    assert "more in the calendar cannot be followed" in text.getvalue().splitlines()[-1]
    assert "count=5" in text.getvalue().splitlines()[-1]


def test_steps_and_events_of_an_eviction(told: Told, text: io.StringIO) -> None:
    placing = eviction(plan(), EvictionState.PLACING, eviction_id=1)
    told.write(PlanMade(placing, 0.012))
    told.step("create_placement")
    told.step("event", detail='Job "x"\nwas asked.', job_id="101")
    told.cycle(open_evictions=(placing,))
    told.cycle(open_evictions=(placing,))
    preempting = replace(placing, state=EvictionState.PREEMPTING)
    told.step("requeue", "refused", job_id="101", detail="Access denied")
    told.cycle(open_evictions=(preempting,))
    done = [line for line in events(text) if not line.startswith("info cycle")]
    assert done[0].startswith("info eviction planned eviction=1 mode=automatic state=placing job=900 nodes=2")
    assert done[1:] == [
        "info step eviction=1 kind=create_placement result=ok",
        r'info event eviction=1 job=101 text="Job \"x\"\nwas asked."',
        'warning step eviction=1 job=101 kind=requeue result=refused detail="Access denied"',
        "info eviction eviction=1 state=preempting before=placing job=900",
    ]


def test_the_leaf_switch_of_a_plan_is_told_where_one_was_asked_for(told: Told, text: io.StringIO) -> None:
    usual = plan()
    nodes = tuple(NodeResources(name, Amounts(1), switch="leaf2") for name in usual.placement_nodes)
    for needs, words in ((Needs(one_switch=True), "nodes=2 switch=leaf2 deadline="), (Needs(), "nodes=2 deadline=")):
        asked = replace(usual, problem=replace(usual.problem, needs=needs, nodes=nodes))
        told.write(PlanMade(eviction(asked, EvictionState.PLACING), 0.012))
        assert words in events(text)[-1]


def test_the_last_steps_are_told_before_the_end(told: Told, text: io.StringIO) -> None:
    open_one = eviction(plan(), EvictionState.RETURNING, eviction_id=1)
    told.cycle(open_evictions=(open_one,))
    told.step("event", detail="Done.")
    told.write(OperationFinished(replace(open_one, state=EvictionState.COMPLETED, outcome="It started.")))
    assert events(text)[-2:] == [
        "info event eviction=1 text=Done.",
        'info eviction finished eviction=1 state=completed job=900 outcome="It started." lost_work_node_s=0',
    ]


def test_steps_of_an_earlier_daemon_are_not_told_again(told: Told, text: io.StringIO) -> None:
    told.step("create_placement", intended_at=after(-10))
    told.step("attach", intended_at=after(1))
    told.cycle(open_evictions=(eviction(plan(), EvictionState.PREEMPTING, eviction_id=1),))
    assert [line for line in events(text) if " step " in line] == ["info step eviction=1 kind=attach result=ok"]


def test_a_job_that_leaves(told: Told, text: io.StringIO) -> None:
    told.write(JobLeft(preemption(job(101, user="eve\nforged"), actual_lost_node_s=12.5), "batch", eviction()))
    assert events(text) == [
        r'info job has left its nodes job=101 user="eve\nforged" action=kill partition=batch lost_work_node_s=12.5'
    ]


def test_failing_cycles_do_not_fill_the_log(told: Told, text: io.StringIO) -> None:
    for second in range(400):
        told.clock.advance(1)
        told.write(CycleFailed(SlurmUnavailableError(f"squeue: no answer within {second}.0 s")))
    told.cycle()
    failures = [line for line in events(text) if "cycle" in line]
    assert failures[:3] == [
        'error cycle failed error="SlurmUnavailableError: squeue: no answer within 0.0 s" failures=1',
        'error cycle failed error="SlurmUnavailableError: squeue: no answer within 300.0 s" failures=301',
        "info cycles succeed again failures=400",
    ]


def test_a_bug_shows_its_traceback_once(told: Told, text: io.StringIO) -> None:
    for _ in range(3):
        told.write(CycleFailed(KeyError("nodes")))
    assert len(lines(text)) == 1
    assert "exception=" in text.getvalue()


def test_what_is_passed_over_has_a_line_and_one_traceback(told: Told, text: io.StringIO) -> None:
    for times in (1, 2):
        failed = Quarantined(Subject.JOB, "12 in a plan", "ValueError: what?", times, after(times))
        told.write(HandlingFailed(failed, ValueError("what?")))
    first, second = text.getvalue().splitlines()
    assert "handling failed" in first
    assert "12 in a plan" in first
    assert "Traceback" not in second


def test_a_rolling_drain_tells_what_it_skips_and_how_it_ends(told: Told, text: io.StringIO) -> None:
    turns = tuple(Turn(f"n{number}") for number in range(1, 24))
    order = DrainOrder(nodes=tuple(turn.node for turn in turns), actor="root")
    before = RollingDrain(rolling_id=3, order=order, at_once=1, turns=turns, created_at=NOW)
    one = replace(before, turns=(replace(turns[0], state=TurnState.SKIPPED, note="bad disk"), *turns[1:]))
    told.write(RollingProgress(before, one))
    told.write(RollingProgress(one, one))
    assert events(text) == ['warning node skipped rolling_drain=3 node=n1 why="bad disk"']
    rest = tuple(replace(turn, state=TurnState.SKIPPED, note="refused") for turn in turns)
    told.write(
        RollingProgress(one, replace(one, turns=rest, state=RollingState.CANCELLED, outcome="Stopped: refused."))
    )
    assert len(events(text)) == 1 + 20 + 2
    assert events(text)[-2:] == [
        "warning more were skipped rolling_drain=3 count=2",
        'info rolling drain finished rolling_drain=3 state=cancelled outcome="Stopped: refused."',
    ]
