"""A Slurm cluster in memory: jobs, nodes and reservations, driven by events; ``scheduler`` says what starts.

It follows what a real Slurm was measured to do where Clearway depends on it: a requeued job is COMPLETING until
its processes have gone, then waits for 121 s unless StartTime=now is set while it is PENDING; IGNORE_JOBS
reservations keep freed nodes, and those to come keep out jobs that would not have ended by then; a suspended job keeps
its nodes. It decides nothing for Clearway.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

from clearway.model.cluster import AdminLevel, Job, JobState, Node, Reservation
from clearway.model.limits import Limits
from clearway.simulation.first_fit import FreeResources
from clearway.simulation.jobs import HOLD_S, FileSystem, Ills, Program, Ran, SimulatedJob, submitted_job
from clearway.simulation.scheduler import Rules, Scheduler, holds

NO_ANSWER = "IDLE+NOT_RESPONDING"  # until slurmctld's next ping is answered
ENDED_JOBS_KEPT_S = 300.0  # Slurm's MinJobAge


@dataclass
class SimulatedCluster:
    """All state of the cluster; ``advance(now)`` plays every event up to ``now``."""

    now: datetime
    kill_wait_s: float = 5.0
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, SimulatedJob] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    switch_of: dict[str, str] = field(default_factory=dict)  # node to leaf switch; empty: without topology
    admin_levels: dict[str, AdminLevel] = field(default_factory=dict)  # by user
    limits: Limits = field(default_factory=Limits)  # shown; of these the scheduler here knows who may use a partition
    licenses: dict[str, int] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    ills: Ills = field(default_factory=Ills)
    history: list[Ran] = field(default_factory=list)
    next_id: int = 1
    file_system_mib_s: float = inf
    drains_for: str = ""  # Slurm drains each node that a job leaves for this reason, as where an epilog fails
    dies_after_s: float | None = None  # how long each job takes to die; None: as its program says
    answers_after_s: float = 0.0  # how long a node that is brought back is NOT_RESPONDING; real ones up to a second
    oversubscribed: list[str] = field(default_factory=list)  # jobs that were resumed over others, as Slurm lets them
    _answers_at: dict[str, datetime] = field(default_factory=dict)  # nodes that were brought back, and when they answer
    # When, a running number, what happens then (``_on_...``) to which job; void when its epoch is another by then.
    _events: list[tuple[datetime, int, str, str, int]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._file_system = FileSystem(self.now, self.file_system_mib_s)
        self.free = FreeResources()
        self._next_look = self.now  # of a scheduler that does not look at each event

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.nodes[node.name] = node
            self.free.add(node)

    def submit(
        self,
        program: Program | None = None,
        *,
        num_nodes: int = 1,
        cpus_per_node: int | None = None,
        on: Iterable[str] = (),
        ran_s: float = 0.0,
        saved_s: float = 0.0,
        **fields: Any,
    ) -> str:
        """Queue a job, or with ``on`` let it run on these nodes, since ``ran_s`` seconds; returns its id.

        Without ``cpus_per_node`` it takes whole nodes. ``saved_s`` of its work is safe already. ``fields`` are
        those of ``model.Job``.
        """
        job_id, submitted = self.new_id(), self.now - timedelta(seconds=ran_s)
        first = next(iter(self.nodes.values()))
        job = submitted_job(job_id, first, submitted, num_nodes, cpus_per_node, fields)
        cpus = first.cpus if cpus_per_node is None else cpus_per_node
        entry = SimulatedJob(job, program or Program(), cpus, usual_priority=job.priority + job.nice)
        self.jobs[job_id] = entry
        if job.pending_tasks > 1:
            entry.job = job = replace(job, array_job_id=job_id)
        if nodes := tuple(on):
            self._start(entry, nodes, submitted)
        entry.saved_s = saved_s  # done in this very run: set after it began
        return job_id

    def new_id(self) -> str:
        """The next that is free; after the last id come the first ones again."""
        while True:
            found, last = self.next_id, self.rules.last_job_id
            self.next_id = found + 1 if found < last else self.rules.first_job_id
            if str(found) not in self.jobs:
                return str(found)

    def running(self) -> tuple[SimulatedJob, ...]:
        return tuple(entry for entry in self.jobs.values() if entry.job.state is JobState.RUNNING)

    def bring_back(self, name: str) -> None:
        """A drained node takes jobs again, once it has answered slurmctld's next ping."""
        waits = self.answers_after_s > 0
        state = NO_ANSWER if waits else "IDLE"
        self.nodes[name] = replace(self.nodes[name], available=not waits, raw_state=state, reason="")
        if waits:
            self._answers_at[name] = self.now + timedelta(seconds=self.answers_after_s)

    def advance(self, now: datetime) -> None:
        """Play everything that happens up to ``now``."""
        for name in [name for name, at in self._answers_at.items() if at <= now]:
            del self._answers_at[name]
            if self.nodes[name].raw_state == NO_ANSWER:
                self.nodes[name] = replace(self.nodes[name], available=True, raw_state="IDLE")
        self.schedule()
        while (at := self._next_moment()) is not None and at <= now:
            if not self._events or at < self._events[0][0]:
                self.now = max(self.now, at)
            else:
                self._happens()
            self.schedule()
        self.now = max(self.now, now)
        self.schedule()
        forgotten = self.now - timedelta(seconds=ENDED_JOBS_KEPT_S)
        for job_id in [i for i, e in self.jobs.items() if e.ended_at is not None and e.ended_at < forgotten]:
            del self.jobs[job_id]

    def _next_moment(self) -> datetime | None:
        """When something happens, or the scheduler looks."""
        at = self._events[0][0] if self._events else None
        if self.rules.every_s == 0:
            return at
        return self._next_look if at is None else min(at, self._next_look)

    def _happens(self) -> None:
        at, _, kind, job_id, epoch = heapq.heappop(self._events)
        entry = self.jobs.get(job_id)
        if entry is not None and entry.epoch == epoch:
            self.now = max(self.now, at)
            getattr(self, f"_on_{kind}")(entry)

    def _at(self, when: datetime, kind: str, entry: SimulatedJob) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, kind, entry.job.job_id, entry.epoch))

    def _after(self, seconds: float, kind: str, entry: SimulatedJob) -> None:
        self._at(self.now + timedelta(seconds=seconds), kind, entry)

    def begin(self, entry: SimulatedJob, nodes: tuple[str, ...]) -> None:
        """The scheduler starts it. Where a prolog fails, it is held and the node is drained."""
        ill = [name for name in nodes if name in self.ills.prologs]
        if not ill:
            self._start(entry, nodes, self.now)
            return
        for name in ill:
            self.drain(name, "Prolog error")
        entry.held_by_admin = True
        entry.become(JobState.PENDING, priority=0, reason="launch failed requeued held")
        entry.job = replace(entry.job, restart_count=entry.job.restart_count + 1)

    def _start(self, entry: SimulatedJob, nodes: tuple[str, ...], at: datetime) -> None:
        self.free.take(entry, [self.nodes[name] for name in nodes])
        entry.epoch += 1
        entry.base_s = entry.saved_s
        entry.requeued = False
        entry.asked_at = None
        entry.stood_s = 0.0
        entry.runs.append(nodes)
        boots = entry.program.boot_s > 0
        entry.become(
            JobState.CONFIGURING if boots else JobState.RUNNING,
            reason="None",
            start_time=(start := at.replace(microsecond=0)),  # Slurm keeps whole seconds
            end_time=None if (limit_s := entry.job.time_limit_s) is None else start + timedelta(seconds=limit_s),
            over_time_s=entry.job.over_time_s or int(self.rules.over_time_limit_s),
            nodes=nodes,
            cpus=entry.cpus_per_node * len(nodes),
            memory_mib=entry.job.memory_mib or self.nodes[nodes[0]].memory_mib,
        )
        if boots:
            self._at(at + timedelta(seconds=entry.program.boot_s), "booted", entry)
        else:
            self._run(entry, at)

    def _run(self, entry: SimulatedJob, at: datetime) -> None:
        """Let it compute from ``at`` on, and plan what comes of that."""
        if len(entry.runs) > 1 and entry.stood_s == 0:
            if entry.program.trap_s:
                self._after(entry.program.trap_s, "trapped", entry)
            else:
                self._on_trapped(entry)
        program = entry.program
        self._compute(entry, at)
        self._foresee_limit(entry)
        if program.interval_s:
            passed = max(0.0, (self.now - at).total_seconds())
            ahead = (passed // program.interval_s + 1) * program.interval_s
            self._at(at + timedelta(seconds=ahead), "interval", entry)

    def _compute(self, entry: SimulatedJob, at: datetime) -> None:
        entry.since, entry.held = at, False
        self._at(at + timedelta(seconds=entry.program.work_s - entry.base_s), "done", entry)

    def _foresee_limit(self, entry: SimulatedJob) -> None:
        """By its end as it is now, which may move."""
        at, every_s = entry.job.ends_by, self.rules.limits_every_s
        if at is not None:
            at += timedelta(seconds=-at.timestamp() % every_s if every_s else 0.0)
            self._at(max(at, self.now), "timeout", entry)

    def set_time_limit(self, entry: SimulatedJob, limit_s: int | None) -> None:
        entry.job = job = replace(entry.job, time_limit_s=limit_s)
        if job.state in (JobState.RUNNING, JobState.CONFIGURING) and job.start_time is not None:
            end = None if limit_s is None else job.start_time + timedelta(seconds=limit_s + entry.stood_s)
            entry.job = replace(job, end_time=end)
            self._foresee_limit(entry)

    def begin_later(self, entry: SimulatedJob, at: datetime) -> None:
        entry.job = replace(entry.job, eligible_time=at)
        self._at(at, "eligible", entry)

    def _on_held(self, entry: SimulatedJob) -> None:
        self._compute(entry, self.now)

    def _on_booted(self, entry: SimulatedJob) -> None:
        entry.become(JobState.RUNNING)
        self._run(entry, self.now)

    def _on_done(self, entry: SimulatedJob) -> None:
        entry.saved_s = entry.program.work_s
        self.leave_nodes(entry, "COMPLETED")

    def _on_timeout(self, entry: SimulatedJob) -> None:
        if entry.job.ends_by is None or entry.job.ends_by > self.now:  # its end was moved
            self._foresee_limit(entry)
        else:
            self.leave_nodes(entry, "TIMEOUT")

    def _on_saved(self, entry: SimulatedJob) -> None:
        if entry.program.save_fails:
            if entry.tells:
                entry.claim(state="failed")
            if entry.program.pauses:
                self._compute(entry, self.now)
        else:
            entry.saved_s = entry.done_s(self.now)
            if entry.program.requeues:
                self.end_run(entry, requeue=True)
            elif entry.program.ends:
                self.leave_nodes(entry, entry.program.ends)
            elif entry.tells:
                entry.claim(state="saved", last=int(self.now.timestamp()) + 1)
                if entry.program.pauses:
                    entry.held = True
                    self._after(HOLD_S, "held", entry)

    def _on_written(self, _: SimulatedJob) -> None:
        """No write is complete where another one has begun or stopped since this event was planned."""
        self._file_system.advance(self.now)
        for job_id in self._file_system.complete:
            self._file_system.forget(job_id)
            self._on_saved(self.jobs[job_id])
        self._foresee_write()

    def _foresee_write(self) -> None:
        end = self._file_system.next_end()
        if end is not None:
            for job_id in self._file_system.writers:
                self._at(end, "written", self.jobs[job_id])

    def _on_interval(self, entry: SimulatedJob) -> None:
        entry.saved_s = entry.done_s(self.now)
        entry.claim(last=int(self.now.timestamp()))
        self._after(entry.program.interval_s or 0.0, "interval", entry)

    def _on_gone(self, entry: SimulatedJob) -> None:
        if entry.requeued:
            self.back_in_queue(entry, "REQUEUED", self.rules.requeue_delay_s)
        else:
            self.leave_nodes(entry, "CANCELLED")

    def back_in_queue(self, entry: SimulatedJob, how: str, delay_s: float) -> None:
        self._give_back(entry, how)
        self.wait_again(entry, delay_s)

    def wait_again(self, entry: SimulatedJob, delay_s: float) -> None:
        entry.epoch += 1
        at = self.now + timedelta(seconds=delay_s)
        entry.become(JobState.PENDING, reason="BeginTime", nodes=(), start_time=None, end_time=None, eligible_time=at)
        self._at(at, "eligible", entry)

    def _on_eligible(self, _: SimulatedJob) -> None: ...  # the scheduler sees it by itself

    def _on_trapped(self, entry: SimulatedJob) -> None:
        entry.forget_claims()

    def stop_running(self, entry: SimulatedJob) -> None:
        entry.pause(self.now)
        if entry.job.job_id in self._file_system.writers:
            self._file_system.advance(self.now)
            self._file_system.forget(entry.job.job_id)
            self._foresee_write()

    def _give_back(self, entry: SimulatedJob, how: str) -> None:
        self.free.give_back(entry)
        self.history += entry.ran(self.now, how)
        for name in entry.job.nodes:
            why = self.drains_for or self.ills.epilogs.get(name, "")
            if why and self.nodes[name].available:
                self.drain(name, why)

    def drain(self, name: str, why: str) -> None:
        self.nodes[name] = replace(self.nodes[name], available=False, raw_state="IDLE+DRAIN", reason=why)

    def leave_nodes(self, entry: SimulatedJob, raw_state: str) -> None:
        self.stop_running(entry)
        self._give_back(entry, raw_state)
        entry.ended_at = self.now
        entry.become(JobState.ENDED, raw_state)

    def end_run(self, entry: SimulatedJob, *, requeue: bool) -> None:
        """TERM to all processes; the nodes are free when the last has gone."""
        if entry.job.state is JobState.SUSPENDED:
            self.free.take_cpus(entry)  # what is released at the end must be held until then
        self.stop_running(entry)
        entry.lost_s += entry.base_s - entry.saved_s
        entry.requeued = requeue
        # Slurm counts when it requeues, not when it starts again.
        entry.become(JobState.COMPLETING, restart_count=entry.job.restart_count + requeue)
        hangs = [self.ills.hangs[name] for name in entry.job.nodes if name in self.ills.hangs]
        dies_s = max([min(entry.program.exit_s, self.kill_wait_s), *hangs])
        self._after(dies_s if self.dies_after_s is None else self.dies_after_s, "gone", entry)

    def withdraw(self, entry: SimulatedJob, raw_state: str = "CANCELLED") -> None:
        """Take a waiting job out of the queue."""
        entry.epoch += 1
        entry.ended_at = self.now
        entry.become(JobState.ENDED, raw_state)

    def signalled(self, entry: SimulatedJob) -> None:
        program = entry.program
        if entry.since is not None and (self.now - entry.since).total_seconds() < program.trap_s:
            self.leave_nodes(entry, "FAILED")
            return
        if program.save_s is None and program.save_mib is None:
            return
        entry.asked_at = self.now
        if program.pauses and entry.since is None:
            self._ask_again(entry)
            return
        if program.pauses:
            entry.pause(self.now)
            self._foresee_limit(entry)
        if entry.tells:
            entry.claim(state="saving", asked=int(self.now.timestamp()))
        if program.save_mib is not None:
            self._file_system.begin(entry.job.job_id, program.save_mib, program.save_mib_s, self.now)
            self._foresee_write()
        elif program.save_s is not None:
            self._after(program.save_s, "saved", entry)

    def _ask_again(self, entry: SimulatedJob) -> None:
        """A checkpoint that is under way answers this as well, and one that is complete does so at once."""
        asked = int(self.now.timestamp())
        if not entry.held:
            entry.claim(state="saving", asked=asked)
            return
        entry.claim(state="saved", asked=asked, last=asked)
        entry.pause(self.now)
        self._foresee_limit(entry)
        self._after(HOLD_S, "held", entry)

    def suspend(self, entry: SimulatedJob) -> None:
        """Its processors are free for others, its memory is not."""
        self.stop_running(entry)
        self.free.give_back_cpus(entry)
        entry.suspended_at = self.now
        entry.become(JobState.SUSPENDED, priority=0)

    def resume(self, entry: SimulatedJob) -> None:
        self.free.take_cpus(entry)
        if any(self.free.cpus[name] < 0 for name in entry.job.nodes):
            self.oversubscribed.append(entry.job.job_id)
        stood, end = self.now - (entry.suspended_at or self.now), entry.job.end_time
        entry.stood_s += stood.total_seconds()
        entry.become(JobState.RUNNING, priority=50, end_time=end and end + stood)
        self._run(entry, self.now)

    def schedule(self) -> None:
        """Let the scheduler look at the queue, where it is its time."""
        self.reservations = {n: r for n, r in self.reservations.items() if r.end_time > self.now}
        if self.rules.every_s:
            if self.now < self._next_look:
                return
            self._next_look = self.now + timedelta(seconds=self.rules.every_s)
        Scheduler(self).run()

    def _may_start(self, job: Job) -> bool:
        return not holds(self, self.jobs[job.job_id])
