"""What a chaos schedule must never show, judged from outside.

Each command is judged by the cluster and the database as they are before it. The witness shares no code with what it
judges but names. The database remembers for it what an eviction has been, whoever writes over that: triggers note each
one that is called off or ends.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearway.execution.lifecycle import drain_number, is_placement
from clearway.model.cluster import Job, JobState
from tests.simulation.chaos_verdicts import Verdicts

if TYPE_CHECKING:
    from clearway.config.configuration import Config
    from tests.simulation.chaos_world import ChaosDaemon, ChaosWorld

HARM = {"requeue": "requeue", "cancel": "cancel_job", "suspend": "suspend", "signal": "ask_checkpoint"}
# The kinds of steps that announce a command; what only takes back may also follow from the end of an operation.
INTENTS = {name: (kind,) for name, kind in HARM.items()} | {
    "resume": ("resume",),
    "run_again": ("run_again",),
    "start_now": ("start_now",),
    "set_nice": ("first_in_queue", "usual_priority"),
    "attach": ("attach",),
    "detach": ("detach", "delete_placement"),
    "create_reservation": ("create_placement",),
    "update_reservation": ("move_placement",),
    "extend_reservation": ("extend_placement",),
    "delete_reservation": ("delete_placement",),
    "drain": ("drain",),
    "undrain": ("undrain",),
    "set_partitions": ("attach", "detach", "delete_placement"),
}
TAKES_BACK = ("detach", "delete_reservation", "undrain", "resume", "set_partitions")
FOR_SEVERAL = ("drain", "undrain", "detach", "set_partitions", "set_nice")  # one step stands for several commands
UNDOING, ENDED = ("started", "returning", "cancelling"), ("completed", "cancelled", "failed", "superseded")

_TRIGGERS = f"""
CREATE TABLE chaos_marks (eviction_id INTEGER, mark TEXT);
CREATE TABLE chaos_leaving (eviction_id INTEGER, job_id TEXT);
CREATE TABLE chaos_reopened (eviction_id INTEGER, before TEXT, after TEXT);
CREATE TRIGGER chaos_undoing AFTER UPDATE ON evictions
WHEN NEW.state IN {UNDOING + ENDED} AND OLD.state NOT IN {UNDOING}
BEGIN
    INSERT INTO chaos_marks VALUES (NEW.eviction_id, 'undoing');
    INSERT INTO chaos_leaving SELECT eviction_id, job_id FROM preemptions
        WHERE eviction_id = NEW.eviction_id AND state = 'vacating';
END;
CREATE TRIGGER chaos_ended AFTER UPDATE ON evictions WHEN NEW.state IN {ENDED}
BEGIN INSERT INTO chaos_marks VALUES (NEW.eviction_id, 'ended'); END;
CREATE TRIGGER chaos_reopening AFTER UPDATE ON evictions WHEN OLD.state IN {ENDED} AND NEW.state <> OLD.state
BEGIN INSERT INTO chaos_reopened VALUES (NEW.eviction_id, OLD.state, NEW.state); END;
"""


def prepare(database: Path) -> None:
    """Let a database remember what the witness asks for."""
    connection = sqlite3.connect(database)
    connection.executescript(_TRIGGERS)
    connection.close()


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule."""

    seed: int
    violations: tuple[str, ...]
    lines: tuple[str, ...]
    commands: int
    kinds: frozenset[str]  # of its violations
    situations: frozenset[str]
    first_error: BaseException | None

    def describe(self) -> str:
        told = "\n".join(self.lines[-400:])
        again = f"CLEARWAY_CHAOS_SEED={self.seed} tests/run unit -- tests/simulation/test_chaos.py"
        return f"{told}\n{len(self.violations)} violation(s): {'; '.join(self.violations)}\nagain: {again}"


class Witness(Verdicts):
    """Judges every command to the cluster, and what is left in the end."""

    def __init__(self, world: ChaosWorld) -> None:
        super().__init__()
        self.world = world
        self.violations: list[str] = []
        self.kinds_found: set[str] = set()
        self.first_error: BaseException | None = None
        self.commands = 0
        self.counted: dict[str, int] = defaultdict(int)
        self._database = sqlite3.connect(world.path)
        self._used: set[tuple[int, str]] = set()  # steps, and the command that was given for them
        self._left: dict[tuple[Any, ...], datetime] = {}  # runs that were ended or suspended; when that was stored
        self.budgets: list[tuple[datetime, int | None]] = []  # until when, and how many jobs an hour

    def close(self) -> None:
        self._database.close()

    def violation(self, text: str, error: BaseException | None = None, kind: str = "") -> None:
        self.kinds_found.add(kind)
        self.world.log(f"VIOLATION {text}")
        self.violations.append(text)
        self.first_error = self.first_error or error

    def command(self, daemon: ChaosDaemon, name: str, args: tuple[Any, ...]) -> None:
        """Called just before the cluster gets it."""
        self.commands += 1
        self.counted[name] += 1
        about = args[0]
        job = about if isinstance(about, Job) else self.world.job(about) if name in _OF_JOBS else None
        what = f"{daemon.name}: {name} {job.job_id if job else getattr(about, 'name', about)}"
        self.world.log(what)
        step = self._intent(name, job)
        if step is None:
            if name not in TAKES_BACK or not self._over(name, job, args):
                self.violation(f"{what}: no intent was stored before")
            return
        eviction_id = step[1]
        marks = {mark for (mark,) in self._ask("SELECT mark FROM chaos_marks WHERE eviction_id = ?", eviction_id)}
        if "ended" in marks and name not in TAKES_BACK:
            self.violation(f"{what}: eviction {eviction_id} had ended")
        if name in HARM and job is not None:
            self._judge_harm(daemon, name, job, what, eviction_id, "undoing" in marks)

    def _ask(self, query: str, *values: Any) -> list[Any]:
        return self._database.execute(query, values).fetchall()

    def _intent(self, name: str, job: Job | None) -> Any:
        """The newest step that announces this command and was neither finished nor used."""
        kinds = INTENTS[name]
        marks = ", ".join("?" * len(kinds))
        query = f"SELECT step_id, eviction_id, job_id FROM steps WHERE kind IN ({marks}) AND finished_at IS NULL"
        for step_id, eviction_id, job_id in self._ask(f"{query} ORDER BY step_id DESC", *kinds):
            if job is not None and job_id is not None and job_id != job.job_id:
                continue
            if (step_id, name) in self._used and name not in FOR_SEVERAL:
                continue
            self._used.add((step_id, name))
            return step_id, eviction_id
        return None

    def _over(self, name: str, job: Job | None, args: tuple[Any, ...]) -> bool:
        """Whether what is taken back belongs to an operation that has ended: its end is the intent."""
        if name == "undrain":
            number = drain_number(args[1])
            found = self._ask("SELECT state FROM evictions WHERE eviction_id = ?", number)
        else:
            placement = job.reservation if job is not None else args[0]
            found = self._ask("SELECT state FROM evictions WHERE placement = ?", placement)
        return bool(found) and all(state in ENDED for (state,) in found)

    def _judge_harm(self, daemon: ChaosDaemon, name: str, job: Job, what: str, eviction_id: int, undoing: bool) -> None:
        ((kind, approved_by, mode),) = self._ask(
            "SELECT kind, approved_by, mode FROM evictions WHERE eviction_id = ?", eviction_id
        )
        planned = self._ask(
            "SELECT state, action FROM preemptions WHERE eviction_id = ? AND job_id = ? ORDER BY position DESC LIMIT 1",
            eviction_id,
            job.job_id,
        )
        if not planned:
            self.violation(f"{what}: it is in no plan of eviction {eviction_id}")
            return
        state, action = planned[0]
        expected = "checkpointing" if name == "signal" else "vacating"
        if state != expected:
            self.violation(f"{what}: its preemption is {state}, not {expected}")
        leaving = self._ask("SELECT 1 FROM chaos_leaving WHERE eviction_id = ? AND job_id = ?", eviction_id, job.job_id)
        if undoing and not leaving:
            self.violation(f"{what}: eviction {eviction_id} had started or was called off")
        if mode != "automatic" and kind == "eviction" and not approved_by:
            self.violation(f"{what}: eviction {eviction_id} of mode {mode} was not approved")
        if kind == "eviction":
            self.judge_promise(daemon, name, job, what, eviction_id, approved_by)
        if kind != "drain":  # an operator has named the nodes
            self._judge_guards(daemon.loop.config, name, job, what, eviction_id, action)
        unasked = kind == "eviction" and not approved_by and not self.was_asked(job, eviction_id)
        self._note_end(daemon, name, job, what, eviction_id, unasked=unasked)

    def _note_end(
        self, daemon: ChaosDaemon, name: str, job: Job, what: str, eviction_id: int, *, unasked: bool
    ) -> None:
        seen = self.world.job(job.job_id)
        ends = name != "signal" and seen is not None and seen.run == job.run and seen.state is JobState.RUNNING
        if ends:
            self._left.setdefault(job.run, self._first_intended(eviction_id, job))
            if unasked:
                self._judge_budget(daemon.loop.config, self._left[job.run], what)

    def _first_intended(self, eviction_id: int, job: Job) -> datetime:
        kinds = [kind for name, kind in HARM.items() if name != "signal"]
        marks = ", ".join("?" * len(kinds))
        query = f"SELECT MIN(intended_at) FROM steps WHERE eviction_id = ? AND job_id = ? AND kind IN ({marks})"
        ((at,),) = self._ask(query, eviction_id, job.job_id, *kinds)
        return datetime.fromisoformat(at)

    def _judge_guards(self, config: Config, name: str, job: Job, what: str, eviction_id: int, action: str) -> None:
        rules = config.candidates
        marks = ", ".join("?" * len(HARM))
        query = f"SELECT COUNT(*) FROM steps WHERE eviction_id = ? AND job_id = ? AND kind IN ({marks})"
        ((intents,),) = self._ask(query, eviction_id, job.job_id, *HARM.values())
        if intents > 1:
            return  # past its first harmful step: protection comes too late
        if "urgent" in job.partitions:
            self.violation(f"{what}: it is urgent itself")
        if job.user in rules.protected_users:
            self.violation(f"{what}: its user {job.user} is protected")
        if name == "cancel" and not rules.allow_cancel:
            self.violation(f"{what}: cancelling is not allowed")
        if name == "suspend" and not rules.allow_suspend:
            self.violation(f"{what}: suspending is not allowed")
        if action == "kill" and not rules.allow_kill:
            self.violation(f"{what}: killing is not allowed")
        before = sum(1 for run in self._left if run[0] == job.job_id and run != job.run)
        if before >= rules.max_preemptions:
            self.violation(f"{what}: it was preempted {before} times before")

    def _judge_budget(self, config: Config, intended_at: datetime, what: str) -> None:
        """By when it was first intended: where a command is repeated, the budget may be another one by now."""
        limits = [config.budget.jobs_per_hour, *(limit for until, limit in self.budgets if until >= intended_at)]
        limit = None if None in limits else max(each for each in limits if each is not None)
        hour = intended_at - timedelta(hours=1)
        gone = sum(1 for at in self._left.values() if hour <= at <= intended_at)
        if limit is not None and gone > limit:
            self.violation(f"{what}: {gone} jobs within an hour, the budget is {limit}")

    def at_the_end(self) -> None:
        """All faults are over, and all daemons have had their time."""
        cluster = self.world.cluster
        for eviction_id, before, after in self._ask("SELECT * FROM chaos_reopened"):
            self.violation(f"eviction {eviction_id} was {before} and became {after} again")
        for eviction_id, state in self._ask(
            f"SELECT eviction_id, state FROM evictions WHERE state NOT IN {ENDED}"
            " AND state NOT IN ('proposed', 'awaiting_approval', 'scheduled')"
        ):
            if state != "placing" or not self._waits_for_another(eviction_id):
                self.violation(f"eviction {eviction_id} is still {state}")
        for reservation in cluster.reservations.values():
            if is_placement(reservation):
                self.violation(f"reservation {reservation.name} is left")
        for entry in cluster.jobs.values():
            if entry.job.state is not JobState.ENDED:
                self._judge_what_is_left(entry.job)
        for name, node in cluster.nodes.items():
            if drain_number(node.reason) is not None:
                self.violation(f"node {name} is still drained: {node.reason}")
        self.all_as_before()
        self.who_was_asked_goes_on()
        self.records_are_history()
        for job_id in self.urgent_jobs_with_room():
            self.violation(f"job {job_id} is urgent, has room and waits", kind="liveness")
        if cluster.oversubscribed:
            self.violation(f"jobs {cluster.oversubscribed} were resumed over others")

    def _waits_for_another(self, eviction_id: int) -> bool:
        """Whether an operator has to approve another component of its heterogeneous job first."""
        components = self.world.store.eviction(eviction_id).plan.components
        waiting = self._ask("SELECT preemptor_job_id FROM evictions WHERE state = 'awaiting_approval'")
        return any(job_id in components for (job_id,) in waiting)

    def _judge_what_is_left(self, job: Job) -> None:
        if job.reservation:
            self.violation(f"job {job.job_id} is still in reservation {job.reservation}")
        if job.state is JobState.SUSPENDED:
            self.violation(f"job {job.job_id} is still suspended")
        if job.nice < 0:
            self.violation(f"job {job.job_id} still has the Nice that it was given")
        if job.eligible_time is not None and job.eligible_time > self.world.clock.now() + timedelta(days=1):
            self.violation(f"job {job.job_id} may start on {job.eligible_time} only")


_OF_JOBS = ("set_partitions", "start_now", "attach", "detach")
