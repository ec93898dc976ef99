"""What a plan has promised, and whether it is kept: how much leaves, for whom, and that all else is as it was.

Like all that the witness says it is judged from outside, by the simulated cluster's own history and by what users did.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from clearway.execution.lifecycle import is_placement
from clearway.model.cluster import Job, JobState
from clearway.simulation.jobs import Ran
from clearway.simulation.scheduler import binds, holds, partition_shuts_out
from tests.simulation.chaos_scene import MAINTENANCE

if TYPE_CHECKING:
    from clearway.config.configuration import Config
    from tests.simulation.chaos_world import ChaosDaemon, ChaosWorld

PROMPT_S = 30.0  # a begin time that is so near is no hindrance: jobs take as long to leave
IDLE_S = 150.0  # the placement's grace, and two of the quiet cycles
TO_RUN_AGAIN_S = 200.0  # of the 300 in which Slurm remembers a job that has ended
CYCLES_TO_NOTICE = 3  # that an end has moved
STOPS_AT = 2  # nodes that were lost once jobs had left them for an urgent one
OWN_FIELDS = (
    "priority", "partitions", "time_limit_s", "qos", "account", "requeueable", "num_nodes", "licenses",
    "excluded_nodes", "required_nodes", "name", "features",
)  # fmt: skip
# Ends of a run that nobody asked for.
_BY_ITSELF = ("COMPLETED", "TIMEOUT", "FAILED", "NODE_FAIL", "NODE_FAIL_REQUEUED")
_GONE_FOR_US = ("requeue", "cancel", "suspend")
_HARMFUL = ("requeue", "cancel_job", "suspend")


class Verdicts:
    world: ChaosWorld

    def __init__(self) -> None:
        self.ended_by_users: set[tuple[Any, ...]] = set()  # runs
        self.lost_nodes: set[str] = set()
        self.situations: set[str] = set()  # rare ones that it came by
        self.administered: dict[str, str] = {}  # node to the reason that an administrator gave last; "": brought back
        self.clock_was_set = False  # a new time that lasts is gone by, whether it is right or not
        self.told_to_wait: set[str] = set()  # jobs whose begin somebody has set
        self._before: dict[tuple[str, datetime], dict[str, Any]] = {}
        self._wish: Counter[str] = Counter()  # how often an urgent job was changed
        self._promised: dict[tuple[Any, ...], int] = {}
        self._gone: dict[tuple[Any, ...], set[tuple[Any, ...]]] = defaultdict(set)
        self._idle_since: dict[str, datetime] = {}
        self._maintenance: Any = None
        self._in_time: set[tuple[int, str]] = set()
        self._asked: dict[tuple[Any, ...], Any] = {}  # by run: jobs that were seen as ended by our signal
        self._moved: Counter[tuple[int, str]] = Counter()  # cycles in which a plan counts on an end that has moved
        self._lost: Counter[str] = Counter()  # cycles after which a node was lost that had been freed
        self._resumed = 0  # how often an operator has looked at that

    def violation(self, text: str, error: BaseException | None = None, kind: str = "") -> None:
        raise NotImplementedError

    def _ask(self, query: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    # -- what users have done ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Remember each new job as it was submitted."""
        for entry in self.world.cluster.jobs.values():
            self._before.setdefault(_key(entry.job), _fields(entry))
        self._maintenance = self._maintenance or self.world.cluster.reservations.get(MAINTENANCE)

    @contextmanager
    def somebody_changes(self, job_id: str = "") -> Iterator[None]:
        """What is another one afterwards is as it shall be."""
        self.look()
        jobs = self.world.cluster.jobs
        before = {key: _fields(entry) for key, entry in _by_key(jobs).items()}
        begins = jobs[job_id].job.eligible_time if job_id else None
        yield
        for key, entry in _by_key(jobs).items():
            after, was = _fields(entry), before.get(key, {})  # an array may have begun a task, which is new
            expected = self._before.setdefault(key, after)
            expected |= {name: value for name, value in after.items() if was.get(name) != value}
        if job_id:
            self._wish[job_id] += 1
            for (state,) in self._ask("SELECT state FROM evictions WHERE preemptor_job_id = ?", job_id):
                self.situations.add(f"urgent job changed while {state}")
            if job_id in jobs and jobs[job_id].job.eligible_time != begins:
                self.told_to_wait.add(job_id)

    # -- each harmful command ----------------------------------------------------------------------------------------

    def as_seen(self) -> dict[str, str]:
        """Why Slurm would not start urgent jobs, as a daemon finds it that looks now."""
        self.look()
        found = {}
        for job_id, entry in self.world.cluster.jobs.items():
            if entry.job.state is JobState.RUNNING and (why := self._stays_away(entry)):
                found[job_id] = why
            if "urgent" in entry.job.partitions or job_id in self._wish:
                found[job_id] = self._hindrance(entry)
        return found

    def _hindrance(self, entry: Any) -> str:
        job, now = entry.job, self.world.cluster.now
        if job.state is JobState.ENDED:
            return "it has ended"
        if job.state is not JobState.PENDING:
            return ""
        why = holds(self.world.cluster, entry)
        if why == "BeginTime" and job.eligible_time - now <= timedelta(seconds=PROMPT_S):
            why = ""
        if "urgent" not in job.partitions:
            why = "it is not urgent any more"
        return why or ("it asks for more nodes than there are" if job.num_nodes > len(self.world.cluster.nodes) else "")

    def _stays_away(self, entry: Any) -> str:
        """Why a job that runs would not run again after a requeue."""
        ends = self.world.cluster.now + timedelta(seconds=entry.job.time_limit_s or 0)
        if entry.job.deadline is not None and ends > entry.job.deadline:
            return "its deadline would be over"
        return partition_shuts_out(self.world.cluster, entry.job)

    def after_cycle(self) -> None:
        """A plan that counts on an end which has moved is made anew within a few cycles, or is said to be late."""
        counted = set()
        for eviction_id, job_id, deadline in self._ask(
            "SELECT eviction_id, p.job_id, e.deadline FROM evictions e JOIN preemptions p USING (eviction_id)"
            " WHERE e.kind = 'eviction' AND e.state = 'preempting' AND NOT e.late"
            " AND p.action = 'end' AND p.state = 'planned'"
        ):
            entry = self.world.cluster.jobs.get(job_id)
            if entry is None or entry.job.end_time is None or entry.job.state is not JobState.RUNNING:
                continue
            if entry.job.end_time <= _time(deadline) + timedelta(seconds=1):
                self._in_time.add((eviction_id, job_id))
            elif (eviction_id, job_id) in self._in_time:  # else the plan was late from its beginning
                counted.add((eviction_id, job_id))
        self._moved = Counter({key: self._moved[key] + 1 for key in counted})
        for (eviction_id, job_id), cycles in self._moved.items():
            if cycles == CYCLES_TO_NOTICE:
                self.violation(f"eviction {eviction_id} counts on the end of job {job_id}, which moved", kind="ends")
        self._count_lost()

    def _count_lost(self) -> None:
        """Nodes out of order that a job has left for an urgent one which waits for them still."""
        ((resumed,),) = self._ask("SELECT COUNT(*) FROM requests WHERE kind = 'resume' AND handled_at IS NOT NULL")
        if resumed != self._resumed:
            self._resumed = resumed
            self._lost = Counter(dict.fromkeys(self._lost, -(10**6)))  # only what is lost from now on counts
        epilogs, nodes = self.world.cluster.ills.epilogs, self.world.cluster.nodes
        drained = {name for name, why in epilogs.items() if not nodes[name].available and nodes[name].reason == why}
        if not drained:
            return
        freed = {
            name
            for e in self.world.store.open_evictions()
            if e.kind == "eviction" and e.state.acting and e.state.before_start
            for p in e.preemptions
            if p.requeued_at is not None
            for name in set(p.job.nodes) & set(e.plan.placement_nodes)
        }
        self._lost.update(freed & drained)

    def came_by(self, what: str) -> None:
        """A rare situation: with the steps that were announced and are not finished."""
        for (kind,) in self._ask("SELECT DISTINCT kind FROM steps WHERE finished_at IS NULL"):
            self.situations.add(f"{what}, {kind} intended")

    def judge_promise(
        self, daemon: ChaosDaemon, name: str, job: Job, what: str, eviction_id: int, approved: str
    ) -> None:
        """Called before a job leaves, for what its eviction serves."""
        marks = ", ".join("?" * len(_HARMFUL))
        query = f"SELECT COUNT(*) FROM steps WHERE eviction_id = ? AND job_id = ? AND kind IN ({marks})"
        ((intents,),) = self._ask(query, eviction_id, job.job_id, *_HARMFUL)
        seen = self.world.job(job.job_id)
        if name not in _GONE_FOR_US or intents > 1 or seen is None or seen.run != job.run:
            return
        ((urgent_id,),) = self._ask("SELECT preemptor_job_id FROM evictions WHERE eviction_id = ?", eviction_id)
        urgent = self.world.cluster.jobs.get(urgent_id)
        if urgent is None:
            return
        self._judge_return(daemon, name, job, what)
        lost = [node for node, cycles in self._lost.items() if cycles >= CYCLES_TO_NOTICE]
        if len(lost) >= STOPS_AT and not self.was_asked(job, eviction_id):
            self.violation(f"{what}: nodes {', '.join(lost)} were lost that jobs had left", kind="breaker")
        now_why, then_why = self._hindrance(urgent), daemon.saw.get(urgent_id, "")
        # Another one may have come since the last look.
        if now_why and now_why == then_why and not self.was_asked(job, eviction_id):
            self.violation(f"{what}: in vain, Slurm would not start job {urgent_id}: {now_why}", kind="in vain")
        self._count(urgent, job, what, eviction_id, approved)

    def was_asked(self, job: Job, eviction_id: int) -> bool:
        """It may end by our signal at any moment, so it leaves in any case, to run again."""
        query = "SELECT job FROM preemptions WHERE eviction_id = ? AND job_id = ? AND asked_at IS NOT NULL"
        return any("grace=" in document for (document,) in self._ask(query, eviction_id, job.job_id))

    def _judge_return(self, daemon: ChaosDaemon, name: str, job: Job, what: str) -> None:
        leaving = self.world.cluster.jobs[job.job_id]
        may_be_lost = daemon.config.candidates.allow_cancel
        if name == "requeue" and not may_be_lost and (why := self._stays_away(leaving)) and daemon.saw.get(job.job_id):
            self.violation(f"{what}: it would not come back: {why}", kind="return")

    def _count(self, urgent: Any, job: Job, what: str, eviction_id: int, approved: str) -> None:
        """Of an array or a heterogeneous job, and where it was approved, each eviction is a promise of its own."""
        urgent_id = urgent.job.job_id
        one_of_many = urgent.job.array_job_id is not None or urgent.job.het_job_id is not None
        key = (urgent_id, urgent.job.submit_time, urgent.job.restart_count, self._wish[urgent_id])
        key += (eviction_id,) if approved or one_of_many else ()
        self._promised.setdefault(key, self._planned(eviction_id))
        self._gone[key].add(job.run)
        lost = {n for run in self._runs_gone() for n in run.nodes if not self.world.cluster.nodes[n].available}
        if lost:
            self.situations.add(f"leaves after {min(len(lost), 3)} freed nodes were lost")
        most = self._promised[key] + self._on_one_node()
        if len(self._gone[key]) > most:
            told = f"{len(self._gone[key])} jobs for job {urgent_id}, {self._promised[key]} were planned"
            self.violation(f"{what}: {told}", kind="promise")

    def _runs_gone(self) -> list[Ran]:
        gone = {run[:2] for runs in self._gone.values() for run in runs}
        return [r for r in self.world.cluster.history if (r.job_id, r.restart_count) in gone]

    def _planned(self, eviction_id: int) -> int:
        ((count,),) = self._ask(
            "SELECT COUNT(*) FROM preemptions WHERE eviction_id = ? AND action <> 'end'"
            " AND state NOT IN ('spared', 'failed')",
            eviction_id,
        )
        return int(count)

    def _on_one_node(self) -> int:
        """What one lost node costs at most: all jobs of another one."""
        held = Counter(n for e in self.world.cluster.jobs.values() if e.job.state.holds_nodes for n in e.job.nodes)
        return max(held.values(), default=1)

    # -- at the end --------------------------------------------------------------------------------------------------

    def look_for_idle_placements(self) -> None:
        """In a quiet cycle: a placement whose nodes nobody has, or gets."""
        cluster, now = self.world.cluster, self.world.cluster.now
        held = {name for entry in cluster.jobs.values() for name in entry.job.nodes if entry.job.state.holds_nodes}
        promised = {name for (name,) in self._ask("SELECT placement FROM evictions WHERE kind = 'promise'")}
        ours = [r for r in cluster.reservations.values() if is_placement(r) and r.name not in promised]
        acts = any(each.loop.leadership.leads and not each.stands_back() for each in self.world.daemons)
        idle = [r.name for r in ours if acts and not held & set(r.nodes)]
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        for name, since in self._idle_since.items():
            if now - since > timedelta(seconds=IDLE_S):
                self.violation(f"nobody has the nodes of {name} since {now - since}", kind="idle")

    def all_as_before(self) -> None:
        cluster = self.world.cluster
        for entry in cluster.jobs.values():
            self._judge_fields(entry)
        mine = cluster.reservations.get(MAINTENANCE)
        if self._maintenance is not None and mine != self._maintenance:
            self.violation(f"the maintenance is {mine}", kind="reservation")

    def nodes_as_told(self) -> None:
        """Before all faults are over: what an administrator drained is drained, for the same reason."""
        for name, reason in self.administered.items():
            node = self.world.cluster.nodes[name]
            if reason and (node.available or node.reason != reason) and name not in self.lost_nodes:
                self.violation(f"node {name} was drained for {reason!r}, and is {node.raw_state} {node.reason}")

    def _judge_fields(self, entry: Any) -> None:
        job, before = entry.job, self._before.get(_key(entry.job))
        if job.state not in (JobState.PENDING, JobState.RUNNING) or before is None or job.array_job_id is not None:
            return
        for name, value in _fields(entry).items():
            lost = name == "priority" and (entry.stood_s or entry.suspended_at or entry.held_by_admin)
            of_waiting = name in ("priority", "partitions") and job.state is JobState.RUNNING
            # Its owner has set just what Clearway had set for the start: which of them it was is not to be seen.
            of_waiting |= name == "partitions" and before[name] == ("urgent",) and "urgent" in value
            if value != before[name] and not lost and not of_waiting:
                self.violation(f"job {job.job_id} has {name} {value}, and had {before[name]}", kind="fields")

    def look_for_ended_by_signal(self) -> None:
        """In a quiet cycle, while there is time to run it again: Slurm forgets a job that has ended."""
        for entry in self.world.cluster.jobs.values():
            by_signal = entry.program.ends and entry.asked_at is not None and entry.base_s < entry.program.work_s - 1
            ended = by_signal and entry.job.raw_state == entry.program.ends
            if ended and self.world.cluster.now - entry.ended_at < timedelta(seconds=TO_RUN_AGAIN_S):
                self._asked[entry.job.run] = entry

    def who_was_asked_goes_on(self) -> None:
        """A program that ends once it has saved itself, because it was asked, has not ended its job by that."""
        for run, entry in self._asked.items():
            if entry.job.run == run and entry.job.can_be_requeued:
                self.violation(f"job {entry.job.job_id} ended by our signal, and does not run again", kind="asked")

    def records_are_history(self) -> None:
        """Each run that is said to have left for us has, and has lost no more than it had run."""
        runs = {(r.job_id, r.submit_time, r.restart_count, r.start): r for r in self.world.cluster.history}
        for document, state, action, lost, eviction_id in self._ask(
            "SELECT job, state, action, actual_lost_node_s, eviction_id FROM preemptions WHERE requeued_at IS NOT NULL"
        ):
            seen = json.loads(document)
            key = (seen["job_id"], _time(seen["submit_time"]), seen["restart_count"], _time(seen["start_time"]))
            run = runs.get(key)
            # Slurm shows a requeue by the job itself and one after a node has failed alike, and its own end and ours.
            silent = "grace=" in seen["comment"]
            requeues = silent or "requeues=self" in seen["comment"]
            alike = run is not None and run.how == "NODE_FAIL_REQUEUED" and requeues
            alike |= run is not None and run.how in ("COMPLETED", "FAILED") and silent
            if run is not None and not alike:
                what, limited = f"eviction {eviction_id}, job {run.job_id}", seen["time_limit_s"] is not None
                self._compare(run, state, action, lost or 0.0, what, limited=limited)

    def _compare(self, run: Ran, state: str, action: str, lost: float, what: str, *, limited: bool) -> None:
        # Of a job without a time limit Slurm's list does not show how long it stood suspended.
        ran_s = (run.end - run.start).total_seconds() - (run.stood_s if limited else 0.0) + 2
        if run.how in _BY_ITSELF and action != "suspend" and (state == "returned" or lost):
            self.violation(f"{what}: {state}, {lost:g} node-s lost, and it was {run.how}", kind="records")
        elif run.how == "REQUEUED" and state == "spared":
            self.violation(f"{what}: spared, and it was requeued", kind="records")
        elif lost > ran_s * len(run.nodes) and not self.clock_was_set:
            self.violation(f"{what}: {lost:g} node-s lost, and it ran {ran_s:g} s", kind="records")

    def urgent_jobs_with_room(self) -> list[str]:
        """Those that wait though nodes enough are free for them."""
        cluster, found = self.world.cluster, []
        for entry in cluster.jobs.values():
            job = entry.job
            if job.state is not JobState.PENDING or "urgent" not in job.partitions or job.het_job_id is not None:
                continue
            if job.reason == "JobArrayTaskLimit":  # as many of its tasks run as may at once
                continue
            if not holds(cluster, entry) and not binds(cluster, job) and self._room(entry) >= job.num_nodes:
                found.append(job.job_id)
        return found

    def judge_last(self, job_id: str, config: Config) -> None:
        """It waits still, though a job could leave for it."""
        entry = self.world.cluster.jobs.get(job_id)
        if entry is None or entry.job.state is not JobState.PENDING or holds(self.world.cluster, entry):
            return
        open_budget = config.budget.jobs_per_hour is None and config.daemon.mode == "automatic"
        if open_budget and (name := self._could_be_freed(config)):
            self.violation(f"job {job_id} is urgent and waits, and node {name} could be freed", kind="liveness")

    def _could_be_freed(self, config: Config) -> str:
        """A node whose jobs nobody could object to sending away."""
        cluster, on = self.world.cluster, defaultdict(list)
        for each in cluster.jobs.values():
            for name in each.job.nodes if each.job.state.holds_nodes else ():
                on[name].append(each)
        reserved = {name for r in cluster.reservations.values() for name in r.nodes}
        for name, node in cluster.nodes.items():
            if node.available and name not in reserved and on[name] and all(_may_leave(e, config) for e in on[name]):
                return name
        return ""

    def _room(self, entry: Any) -> int:
        cluster, job = self.world.cluster, entry.job
        reserved = {n for r in cluster.reservations.values() if r.name != job.reservation for n in r.nodes}
        if job.required_nodes:
            return 0
        return sum(
            node.available and name not in reserved and name not in job.excluded_nodes
            and cluster.free.fits(entry, node, 0)
            for name, node in cluster.nodes.items()
        )  # fmt: skip


def _may_leave(entry: Any, config: Config) -> bool:
    job, program = entry.job, entry.program
    quick = program.save_s is None or (program.save_s <= 3 and not program.save_fails and not program.requeues)
    alone = job.array_job_id is None and job.het_job_id is None and len(job.nodes) == 1
    usual = (
        job.state is JobState.RUNNING and job.can_be_requeued and not job.restart_count and entry.job.deadline is None
    )
    return quick and alone and usual and "urgent" not in job.partitions and job.user not in (
        *config.candidates.protected_users, "petra", "beam",
    )  # fmt: skip


def _key(job: Job) -> tuple[str, datetime]:
    return job.job_id, job.submit_time


def _by_key(jobs: Any) -> dict[tuple[str, datetime], Any]:
    return {_key(entry.job): entry for entry in jobs.values()}


def _fields(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry.job, name) for name in OWN_FIELDS} | {"nice": entry.job.nice}


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)  # as SQLite keeps times
