"""Carries operations out: intent is stored, then Slurm is asked, then the result is stored. What comes next is read
from the lifecycle of the operation's type. ``advance`` goes as far as one snapshot allows and never waits; what Slurm
refuses or does not answer is written down, and the next cycle reads again what comes next.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from clearway.config.configuration import ExecutionConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import why_not_now
from clearway.estimates.checkpoint_load import latest_of
from clearway.execution.commands import HELD, Commander, LookAgain, result_of
from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_batch import CheckpointTurns, JobBatch, Pace, TakenStep
from clearway.execution.job_lifecycle import AWAY, HARMFUL, Command, S, Step, StepContext, next_step, unanswered
from clearway.execution.lifecycle import Lifecycle, Phase, Target, call_off
from clearway.execution.open_operations import OpenOperations, over_budget
from clearway.execution.progress import moved_ends, superseded, with_answer, with_phase, with_plan, with_preemption
from clearway.execution.restraints import Gate
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.errors import CycleEndedError, HaltedError, NotAskedError, SlurmError
from clearway.model.events import CommandGiven, Emit, JobLeft, OperationFinished
from clearway.model.operations import CHECKPOINTS, Eviction, EvictionState, O, Operation, Preemption
from clearway.model.outcome import Outcome
from clearway.model.problem import Action
from clearway.model.records import CheckpointRecord, EndedStep, NewStep, StepLog, Usage
from clearway.store.repository import Store

# More rows than any operation has between two snapshots; a table that does not come to rest is a bug, not a loop.
_MOST_PHASES = 12


# What a snapshot knows of a job, and a look at it alone does not tell, or tells otherwise.
_OF_SNAPSHOTS = (
    *("num_nodes", "cpus", "memory_mib", "gpus", "even_cpus", "excluded_nodes"),
    *("array_limit", "pending_tasks", "array_job_id", "array_task_id"),
)


def _with_fresh(snapshot: ClusterSnapshot, seen: Mapping[str, Job], wanted: Sequence[str]) -> ClusterSnapshot:
    """With these jobs as they are now, and without the wanted ones that are gone; itself where nothing has changed."""

    def completed(job: Job, before: Job | None) -> Job:
        return job if before is None else replace(job, **{name: getattr(before, name) for name in _OF_SNAPSHOTS})

    before = snapshot.job_by_id
    fresh = {job_id: completed(job, before.get(job_id)) for job_id, job in seen.items()}
    other = {job_id for job_id, job in fresh.items() if job != before.get(job_id)} | (set(wanted) - seen.keys())
    if not other:
        return snapshot
    kept = (job for job in snapshot.jobs if job.job_id not in other)
    return replace(snapshot, jobs=(*kept, *(job for job_id, job in fresh.items() if job_id in other)))


@dataclass(frozen=True, slots=True)
class _Turn:
    """The jobs of one operation in one cycle."""

    stuck: dict[str, str]  # what makes another plan necessary, by job or node, and why; more is added
    unasked: frozenset[Command]  # that Slurm did not answer just before
    begin: bool  # jobs may be asked to leave
    # Of jobs on their way out that are in no snapshot any more: what Slurm remembers, and for which it did not answer.
    ended: Mapping[str, Job]
    unknown: Container[str]

    def hides(self, job_id: str, snapshot: ClusterSnapshot) -> bool:
        """Whether it is, or may be, a job that could not be read, or of which Slurm did not answer."""
        missing = job_id not in snapshot.job_by_id and (snapshot.unreadable or job_id in self.unknown)
        return missing or job_id in snapshot.unread_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    commander: Commander
    store: Store
    operations: OpenOperations
    config: ExecutionConfig
    lifecycles: Mapping[type[Operation], Lifecycle[Any]]
    emit: Emit
    learn: Callable[[CheckpointRecord], None]
    gate: Gate
    pace: Pace
    checkpoints: CheckpointTurns
    # Only to go easy on Slurm, and may be forgotten: commands for an operation as a whole that have failed, and
    # commands for jobs that were not given because Slurm did not answer.
    _failed_at: dict[tuple[int, Command], datetime] = field(default_factory=dict)
    _unasked_at: dict[tuple[int, Command], datetime] = field(default_factory=dict)

    def advance(self, operation: O, cycle: CycleContext) -> O:
        """As many steps as this snapshot allows; returns where the operation stands afterwards."""
        others = tuple(other for other in self.operations.others(operation) if other.state.acting)
        cycle = replace(cycle, others=others)
        operation, held = self._advance_whole(operation, cycle)
        if not operation.state.acting or operation.state is EvictionState.PLACING:
            return operation
        # Without what holds them the freed nodes would go to any job: until it stands, no job has to leave.
        refused = self._lately(self._failed_at, operation, cycle.now)
        unheld = not held and not cycle.paused
        cycle = replace(cycle, paused=cycle.paused or not held, refused=refused)
        operation, stuck = self._advance_jobs(operation, cycle)
        if unheld and operation.state in (EvictionState.PREEMPTING, EvictionState.STARTING):
            # What Slurm refuses to hold may be a node that is gone: then only another plan can be held.
            stuck = self.lifecycles[type(operation)].misfits(operation, cycle)
        return self._plan_anew(operation, stuck, cycle)

    def bring_back(
        self, operation: Operation, nodes: Sequence[str], snapshot: ClusterSnapshot, now: datetime
    ) -> SlurmError | None:
        """Let nodes of a drain take jobs again, whose jobs have left; what Slurm said when it did not."""
        target = self.lifecycles[type(operation)].target(operation, Command.UNDRAIN, snapshot)
        return self.commander.give(operation, Command.UNDRAIN, now, replace(target, nodes=tuple(nodes)))

    def let_out_again(self, e: Eviction, now: datetime) -> SlurmError | None:
        """Give a job that waits again all its partitions back: Slurm changes none of a job that runs."""
        return self.commander.give(e, Command.DETACH, now, Target())

    def brought_back_since(self, since: datetime) -> frozenset[str]:
        """Nodes that this daemon has let take jobs again, no earlier."""
        return frozenset(name for name, at in self.commander.brought_back.items() if at >= since)

    def cancel(self, operation: O, now: datetime, outcome: Outcome) -> O:
        """Undo what can be undone; jobs past their point of no return are followed to their end."""
        return self._enter(operation, call_off(operation, outcome), now, None)

    def put_aside(self, operation: Operation, why: str, now: datetime) -> None:
        done = superseded(operation, why, now)
        self.operations.save(done)
        self.emit(OperationFinished(done))

    def _advance_whole(self, e: O, cycle: CycleContext) -> tuple[O, bool]:
        """The operation after its rows; and whether all commands were carried out."""
        lifecycle = self.lifecycles[type(e)]
        done: set[Command] = set()
        for _ in range(_MOST_PHASES):
            phase = lifecycle.next_phase(e, cycle, done)
            if phase is None:
                return e, True
            refused = self._lately(self._failed_at, e, cycle.now)
            if phase.command is not None and (phase.command in refused or not self._may_act(e, cycle)):
                return e, False
            before, e = e, self._enter(e, phase, cycle.now, cycle.snapshot)
            if phase.command is None:
                if e == before:
                    return e, True
                continue
            target = lifecycle.target(e, phase.command, cycle.snapshot)
            error = self.pace.whole(partial(self.commander.give, e, phase.command, cycle.now, target))
            if isinstance(error, HaltedError):
                return e, False
            if error is not None:
                self._failed_at[e.eviction_id, phase.command] = cycle.now
                instead = lifecycle.refused(e, phase.command, error)
                return (e if instead is None else self._enter(e, instead, cycle.now, None)), False
            done.add(phase.command)
        return e, True

    def _may_act(self, e: Operation, cycle: CycleContext) -> bool:
        """The components of a heterogeneous job are of use only together."""
        components = e.plan.components if isinstance(e, Eviction) else ()
        return not self.gate.closed() and self.pace.open_for_whole(cycle.now, components or e.eviction_id)

    def _lately(
        self, failed_at: Mapping[tuple[int, Command], datetime], e: Operation, now: datetime
    ) -> frozenset[Command]:
        pause = timedelta(seconds=self.config.retry_after)
        return frozenset(
            command for (number, command), at in failed_at.items() if number == e.eviction_id and abs(now - at) < pause
        )

    def _enter(self, e: O, phase: Phase, now: datetime, snapshot: ClusterSnapshot | None) -> O:
        before, e = e, with_phase(e, phase, now, snapshot)
        if e != before:
            self._save(before, e, snapshot, now)
        if phase.event:
            self.store.add_event(e.eviction_id, None, now, phase.event)
        if e.state.terminal:
            self.emit(OperationFinished(e))
        return e

    def _advance_jobs(self, e: O, cycle: CycleContext) -> tuple[O, dict[str, str]]:
        """The operation after its jobs' steps; and what makes another plan necessary now, by job or node, and why."""
        waiting = e.state in (EvictionState.PREEMPTING, EvictionState.STARTING)
        # A lost node makes another plan necessary: until there is one, no job should leave for this one.
        stuck: dict[str, str] = {}
        if waiting:
            moved = moved_ends(e, cycle.snapshot, self.config, cycle.now)
            stuck = self.lifecycles[type(e)].misfits(e, cycle) | self._forbidden(e, cycle) | moved
        begin = waiting and not cycle.paused and not stuck
        ended, unknown = self._look_at_gone(e, cycle)
        turn = _Turn(stuck, self._lately(self._unasked_at, e, cycle.now), begin=begin, ended=ended, unknown=unknown)
        batch = JobBatch(e)
        # What frees nodes comes before what puts jobs back into the queue: a cycle may have no time for both.
        for index in sorted(range(len(e.preemptions)), key=lambda each: e.preemptions[each].state in AWAY):
            cycle.alive()
            step = self._next_step(batch, index, turn, cycle)
            if step is not None:
                batch.take(index, step, cycle.snapshot, cycle.now)
                if len(batch.commands) >= self.pace.size:
                    batch = JobBatch(self.pace.batch(partial(self._carry_out, batch, cycle)))
        e = self.pace.batch(partial(self._carry_out, batch, cycle))
        return e, stuck if waiting and not cycle.paused else {}

    def _look_at_gone(self, e: Operation, cycle: CycleContext) -> tuple[Mapping[str, Job], Container[str]]:
        """Jobs that were to leave and are gone: Slurm remembers for a while how they have ended, and in which run."""
        leaving = (p.job_id for p in e.preemptions if p.state is S.VACATING or unanswered(p))
        gone = [job_id for job_id in leaving if job_id not in cycle.snapshot.job_by_id]
        return self.commander.look_at(gone) if gone else ({}, ())

    def _next_step(self, batch: JobBatch[O], index: int, turn: _Turn, cycle: CycleContext) -> Step | None:
        """None: none now."""
        e, p = batch.operation, batch.operation.preemptions[index]
        if (p.state is S.PLANNED and not e.its_turn(p)) or turn.hides(p.job_id, cycle.snapshot):
            return None
        seen = cycle.snapshot.job_by_id.get(p.job_id) or turn.ended.get(p.job_id)
        step = next_step(p, seen, cycle.now, self._context(e, p, cycle))
        if step is None:
            return None
        if step.stuck:
            turn.stuck[p.job_id] = step.note
        if not self._has_its_turn(p, step, turn, cycle):
            return None
        if step.command not in HARMFUL or seen is None:
            return step
        counts = self._counts(e) if p.state is S.PLANNED else {}
        why = self._why_not(e, p, seen, cycle, counts) or self._over_budget(e, p, cycle, batch.usage)
        why = why or self.lifecycles[type(e)].too_much(e, p, seen, step.command, cycle)
        if not why:
            return step
        turn.stuck[p.job_id] = why
        # Where Slurm did not do it the last time, it need not be done any more.
        return Step(S.SPARED, note=why, void=True) if p.state is S.VACATING else None

    def _has_its_turn(self, p: Preemption, step: Step, turn: _Turn, cycle: CycleContext) -> bool:
        if step.command is None:
            return step.state is not p.state
        if p.state.cancellable and not turn.begin and step.command is not Command.RUN_AGAIN:
            return False
        return step.command not in turn.unasked and self.pace.open(cycle.now)

    def _counts(self, e: Operation) -> Mapping[str, int]:
        return self.operations.preemption_counts([p.job for p in e.preemptions])

    def _forbidden(self, e: Operation, cycle: CycleContext) -> dict[str, str]:
        """By job_id, why jobs must not leave any more as planned: the configuration or the job was changed since."""
        found = {}
        for p in e.preemptions:
            seen = cycle.snapshot.job_by_id.get(p.job_id)
            in_its_run = seen is not None and seen.state is JobState.RUNNING and seen.run == p.job.run
            if seen is None or not in_its_run or not p.state.cancellable or p.action is Action.END:
                continue
            if why := self._why_not(e, p, seen, cycle, {}):
                found[p.job_id] = why
        return found

    def _why_not(self, e: Operation, p: Preemption, seen: Job, cycle: CycleContext, counts: Mapping[str, int]) -> str:
        """Why a job may not be made to leave now; ``counts``: earlier preemptions by job_id, as far as asked for."""
        context = PlanningContext(snapshot=cycle.snapshot, config=cycle.config, now=cycle.now, preempted=counts)
        if isinstance(e, Eviction):  # a drain does not ask what would keep its jobs waiting
            context = replace(context, limits=cycle.limits, reservations=cycle.reservations)
        return why_not_now(p, seen, self.lifecycles[type(e)].cause(e), context)

    def _over_budget(self, e: Operation, p: Preemption, cycle: CycleContext, unsaved: Callable[[], Usage]) -> str:
        """Why one more job would exceed what may be taken in an hour; ``unsaved``: by steps that are not stored yet."""
        budget = cycle.config.budget
        if budget.jobs_per_hour is None and budget.lost_node_hours_per_hour is None:
            return ""
        if not p.state.cancellable or p.eternal or not self.lifecycles[type(e)].cause(e).budgeted:
            return ""
        taken, more = self.operations.usage(cycle.now), unsaved()
        both = Usage(taken.jobs + more.jobs, taken.lost_node_s + more.lost_node_s)
        return over_budget(1, p.predicted_lost_node_s, both, budget)

    def _context(self, e: Operation, p: Preemption, cycle: CycleContext) -> StepContext:
        # A kill waits for everything that could still fail: until the last of them is safe, it may be undone. So does
        # a suspension, which would only let the job stand still earlier.
        quick = (Action.KILL, Action.SUSPEND) if p.action is Action.SUSPEND else (Action.KILL,)
        open_saves = [o for o in e.preemptions if o.action not in quick and o.state.cancellable and o is not p]
        asks = p.state is S.PLANNED and p.action in CHECKPOINTS
        common = StepContext(
            latest=latest_of(e, self.config),
            may_ask=asks and self.checkpoints.may_ask(e, p, cycle),
            may_kill=not open_saves,
            wanted=e.state.before_start,
            retry_after=timedelta(seconds=self.config.retry_after),
            give_up_after=self.config.give_up_after,
        )
        return self.lifecycles[type(e)].step_context(e, p, common, cycle)

    def _carry_out(self, batch: JobBatch[O], cycle: CycleContext) -> O:
        """Store the steps, act, and store what came of it job by job; the operation as it stands then."""
        if batch.commands and self.gate.closed():
            batch.drop_commands()
        if not batch.taken:
            return batch.operation
        e, now = batch.operation, cycle.now
        log = StepLog(at=now, begun=batch.log())
        ids = self._save(batch.before, e, cycle.snapshot, now, log)
        if not batch.commands:
            for each in batch.taken:
                self._tell_left(each, e)
            return e
        intents = [step_id for step_id, step in zip(ids, log.begun, strict=True) if step.kind != "event"]
        try:
            again = LookAgain(self.lifecycles[type(e)].looked_at_again(e), partial(self._overtaken, batch, cycle))
            given = self.pace.asking(len(intents), partial(self.commander.give_jobs, e, batch.commands, again))
        except CycleEndedError as ended:
            cut = tuple(EndedStep(step_id, "error", f"cut short: {ended}") for step_id in intents)
            with suppress(CycleEndedError):  # another daemon leads: what is told of the steps is its business
                self.operations.save(e, log=StepLog(at=now, ended=cut))
            raise
        return self._note_results(batch, e, intents, given, now)

    def _overtaken(self, batch: JobBatch[O], cycle: CycleContext, seen: Mapping[str, Job]) -> Mapping[str, str]:
        """By job_id, why jobs of the batch should not leave after all; the command itself minds those that ended."""
        e, lifecycle = batch.before, self.lifecycles[type(batch.before)]
        steps = [each for each in batch.commands if each.step.command in HARMFUL]
        fresh = _with_fresh(cycle.snapshot, seen, lifecycle.looked_at_again(e))
        if fresh is cycle.snapshot:
            return {}
        cycle = replace(cycle, snapshot=fresh)
        if e.state.before_start and (why := lifecycle.in_vain(e, cycle)):
            return dict.fromkeys((each.after.job_id for each in steps), why)
        found = {}
        for each in steps:
            now = fresh.job_by_id.get(each.after.job_id)
            if now is not None and now.state is JobState.RUNNING and now.run == each.after.job.run:
                found[now.job_id] = self._why_not(e, each.before, now, cycle, {})
        return {job_id: why for job_id, why in found.items() if why}

    def _note_results(
        self, batch: JobBatch[O], e: O, intents: Sequence[int], given: Mapping[str, SlurmError | None], now: datetime
    ) -> O:
        """Store what came of each command; one that was held back leaves its job as it was before the batch."""
        done: set[str] = set()
        ended: list[EndedStep] = []
        asked: list[NewStep] = []
        for step_id, each in zip(intents, batch.commands, strict=True):
            p, error = each.after, given[each.after.job_id]
            result = result_of(error)
            ended.append(EndedStep(step_id, result, "" if error is None else str(error)))
            if result == HELD:
                e = with_preemption(e, each.index, each.before)
                if each.step.command is not None and isinstance(error, NotAskedError):
                    self._unasked_at[e.eviction_id, each.step.command] = now
                continue
            told = with_answer(each.before, p, each.step.command, result)
            e = with_preemption(e, each.index, replace(told, attempted_at=now, attempts=p.attempts + 1))
            if error is None:
                done.add(p.job_id)
                if each.step.command is Command.ASK_CHECKPOINT:
                    asked.append(NewStep(p.job_id, "event", f"Job {p.job.display_id} was asked to save itself."))
        self.operations.save(e, done, StepLog(at=now, begun=tuple(asked), ended=tuple(ended)))
        results = {each.after.job_id: step.result for each, step in zip(batch.commands, ended, strict=True)}
        for each in batch.taken:
            if each.step.command is not None:
                self.emit(CommandGiven(each.step.command.value, results[each.after.job_id]))
            if results.get(each.after.job_id) != HELD:
                self._tell_left(each, e)
        return e

    def _tell_left(self, taken: TakenStep, e: Operation) -> None:
        """Once it is known that a job has left, and by Clearway's doing."""
        p = taken.after
        if taken.before.state is S.VACATING and p.state is not S.VACATING and p.requeued_at is not None:
            self.emit(JobLeft(p, p.job.partitions[0] if p.job.partitions else "", e))

    def _plan_anew(self, e: O, stuck: Mapping[str, str], cycle: CycleContext) -> O:
        """Another plan for the rest, keeping what is held and what already left; or what the lifecycle has instead."""
        lifecycle = self.lifecycles[type(e)]
        answer, stuck = (lifecycle.replan(e, stuck, cycle), stuck) if stuck else lifecycle.replan_early(e, cycle)
        if answer is None:
            return e
        if isinstance(answer, Phase):
            return self._enter(e, answer, cycle.now, None)
        before, e = e, with_plan(e, answer, cycle.now)
        self._save(before, e, cycle.snapshot, cycle.now)
        reasons = "; ".join(f"{what}: {why}" for what, why in sorted(stuck.items()))
        again = " anew" if before.preemptions else ""
        self.store.add_event(e.eviction_id, None, cycle.now, f"Planned{again} ({reasons}).")
        return e

    def _save(
        self,
        before: Operation,
        after: Operation,
        snapshot: ClusterSnapshot | None,
        now: datetime,
        log: StepLog | None = None,
    ) -> tuple[int, ...]:
        """What became of checkpoints is remembered before their new states are stored, so that a crash loses none."""
        for record in self.checkpoints.records(before, after, snapshot, now):
            self.learn(record)
        return self.operations.save(after, log=log)
