"""The replay of a workload on a machine, event by event: ``replay(jobs, nodes, scheduler)``.

Model. A machine has ``nodes`` equal units (whole nodes or processors, as the trace counts sizes). A job asks for
``size`` of them, computes for ``run_s`` in truth and for at most ``limit_s`` as far as a scheduler may know. Between
two events nothing changes. At each instant first all ends and departures happen, then all submissions, then the
scheduler is asked once. The engine draws nothing at random; what a scheduler draws follows from ``machine.seed``: the
same trace, scheduler and seed give the same result.

A scheduler (``Scheduler``) is told what happens and acts through the ``Machine``:

- ``machine.start(job)`` gives a waiting job nodes, or a suspended one its own nodes back;
- ``machine.preempt(job, leave_s=, saved_s=, return_s=, keep_nodes=)`` takes a running job off. It holds its nodes
  for ``leave_s`` more (swapping out, writing a checkpoint; 0: killed). ``saved_s`` of its work survives (None: all
  of it). When it starts again it first spends ``return_s`` (swapping in, reading the checkpoint). With
  ``keep_nodes`` it is suspended: it returns to the very same nodes, which until then serve only jobs that are
  started ``beside`` it. Without, it waits like any other and may return anywhere.
  ``Scheduler.returned(job)`` is called when it has left its nodes;
- ``machine.wake_at(time_s)`` has ``schedule`` called then, though nothing may happen;
- ``machine.free``, ``running`` (by expected end), ``suspended``, ``leaving`` and ``free_later()`` say what there is.

So the checkpoint models are arguments: a kill is ``saved_s=0`` (or the work at the last checkpoint), a system-level
checkpoint ``leave_s=write, return_s=read``, a suspension in memory ``leave_s=swap out, return_s=swap in,
keep_nodes=True``. What preemption costs is kept for every job: ``lost_s`` (work done again) and ``overhead_s`` (held
nodes, but did not compute). At the end of a replay the machine's busy time is checked against
work asked + work lost + overhead, to the node-second.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop
from math import inf
from operator import attrgetter
from typing import NamedTuple, Protocol, cast

from clearway_lab.errors import SimulationError
from clearway_lab.simulator.machine import Machine, ReplayedJob, State
from clearway_lab.traces.trace import TraceJob, in_order

LARGEST_MACHINE = 20_000_000  # nodes or processors: twice the largest machine of today
_RUNNING = State.RUNNING  # an enumeration's members are found slowly
_LATEST_S = 1e11  # three thousand years: what comes later is not in a calendar


class Scheduler(Protocol):
    """Decides which job starts next. One object schedules one replay."""

    name: str

    def begin(self, machine: Machine) -> None: ...

    def submitted(self, job: ReplayedJob) -> None: ...

    def ended(self, job: ReplayedJob) -> None:
        """Its nodes are free."""

    def returned(self, job: ReplayedJob) -> None:
        """A preempted job has left its nodes; it waits, or is suspended."""

    def schedule(self) -> None:
        """Called once at each instant, after all other calls of that instant."""


class Outcome(NamedTuple):
    """The result for one job; seconds."""

    job: TraceJob
    start_s: float
    end_s: float
    lost_s: float
    saved_s: float
    overhead_s: float
    preemptions: int

    @property
    def response_s(self) -> float:
        return self.end_s - self.job.submit_s

    @property
    def wait_s(self) -> float:
        """All time that it did not compute: in the queue, suspended, or doing work again."""
        return self.response_s - self.job.run_s

    @property
    def slowdown(self) -> float:
        return self.response_s / self.job.run_s


_OUTCOME, _MADE = attrgetter("trace", *Outcome._fields[1:]), tuple.__new__


@dataclass(frozen=True, slots=True)
class Replay:
    """A whole replay: the outcome of every job by submission, and the machine's node-seconds."""

    scheduler: str
    nodes: int
    outcomes: tuple[Outcome, ...]
    too_large: tuple[TraceJob, ...]  # asked for more nodes than there are: left out
    busy_node_s: float


def replay(
    jobs: Iterable[TraceJob],
    nodes: int,
    scheduler: Scheduler,
    *,
    seed: int = 0,
    observe: Callable[[Machine], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replay:
    """Run all jobs that fit the machine.

    ``observe`` sees the machine after each instant; ``progress`` hears how many jobs have ended, now and then.

    Raises:
        SimulationError: when the machine is larger than any or the jobs outlast the calendar, when the scheduler
            breaks a rule, or leaves a job waiting for ever.
    """
    if nodes > LARGEST_MACHINE:
        raise SimulationError(f"a machine of {nodes:,} nodes is not replayed: {LARGEST_MACHINE:,} at most")
    ordered = in_order(jobs)
    machine = Machine(nodes, seed)
    scheduler.begin(machine)
    fitting = [job for job in ordered if job.size <= nodes]
    outcomes = _play(machine, fitting, scheduler, observe, progress)
    asked_node_s = sum([each.job.size * (each.job.run_s + each.lost_s + each.overhead_s) for each in outcomes])
    if abs(asked_node_s - machine.busy_node_s) > max(1e-9 * asked_node_s, 1e-3):
        raise SimulationError(
            f"{scheduler.name}: {machine.busy_node_s} node-seconds held, {asked_node_s} accounted for"
        )
    too_large = tuple(job for job in ordered if job.size > nodes) if len(fitting) < len(ordered) else ()
    return Replay(scheduler.name, nodes, outcomes, too_large, machine.busy_node_s)


def _play(
    machine: Machine,
    jobs: Sequence[TraceJob],
    scheduler: Scheduler,
    observe: Callable[[Machine], None] | None,
    progress: Callable[[int], None] | None,
) -> tuple[Outcome, ...]:
    """A job is made when it is submitted and is gone when it has ended, so few exist at a time."""
    events = machine._events  # noqa: SLF001 - the loop is the machine's other half
    end, schedule, tell_end, submit = machine._end, scheduler.schedule, scheduler.ended, scheduler.submitted  # noqa: SLF001
    course = _Course(scheduler, progress)
    note_end, note_job = course.end, course.records.append
    times: list[float] = [job.submit_s for job in jobs]
    times.append(inf)
    next_s, submitted = times[0], 0
    while True:
        now_s = events[0][0] if events and events[0][0] < next_s else next_s
        if now_s > _LATEST_S:
            return course.outcomes(now_s)
        machine.now_s = now_s
        while events and events[0][0] <= now_s:
            _, _, epoch, due = heappop(events)
            if due is None or due.epoch != epoch:
                continue
            if due.state is _RUNNING:
                end(due)
                tell_end(due)
                note_end(due)
            else:
                machine._leave(due)  # noqa: SLF001 - see above
                scheduler.returned(due)
        while next_s <= now_s:
            job = ReplayedJob(jobs[submitted], submitted)
            note_job(job)
            submitted += 1
            next_s = times[submitted]
            submit(job)
        schedule()
        if observe is not None:
            observe(machine)


class _Course:
    """What becomes of the jobs; ``progress`` hears of every thousandth end."""

    __slots__ = ("_ended", "_progress", "_scheduler", "records")

    def __init__(self, scheduler: Scheduler, progress: Callable[[int], None] | None) -> None:
        self._scheduler, self._progress = scheduler, progress
        self._ended = 0
        self.records: list[ReplayedJob | Outcome] = []  # by index: a job until it has ended, then its outcome

    def end(self, job: ReplayedJob) -> None:
        self.records[job.index] = _MADE(Outcome, _OUTCOME(job))
        self._ended += 1
        if self._progress is not None and self._ended % 1_000 == 0:
            self._progress(self._ended)

    def outcomes(self, next_s: float) -> tuple[Outcome, ...]:
        """Of all jobs, when nothing is to come any more, or not for so long."""
        if next_s < inf:
            raise SimulationError(f"the jobs take longer than {_LATEST_S:,.0f} s")
        for record in self.records if self._ended < len(self.records) else ():
            if isinstance(record, ReplayedJob):
                raise SimulationError(f"{self._scheduler.name} left job {record.job_id} {record.state.value} for ever")
        return tuple(cast("list[Outcome]", self.records))
