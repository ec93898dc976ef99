"""Takes the steps that the lifecycle table names: intent is stored, then Slurm is asked, then the result is stored.

One call to ``advance`` goes as far as one snapshot allows and never waits. A step that Slurm refuses or does not
answer is written down; what happens next is again read from the table in the next cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import CostsConfig, ExecutionConfig
from clearway.drain.lifecycle import drain_sight, have_to_go, next_drain_phase
from clearway.estimates.checkpoint_load import CheckpointLoad, checkpoint_load_of, checkpoint_write_of, may_begin
from clearway.estimates.checkpoint_order import CheckpointWrite
from clearway.estimates.deadlines import latest_of
from clearway.estimates.outcomes import checkpoint_record
from clearway.execution.commands import Commander
from clearway.execution.job_lifecycle import Command, Rules, Step, next_step
from clearway.execution.lifecycle import Phase
from clearway.execution.open_operations import OpenOperations
from clearway.execution.placement import placement, placement_ends, placement_name
from clearway.execution.progress import (
    in_its_run,
    lost_nodes,
    planned_preemptions,
    spare,
    times,
    with_preemption,
)
from clearway.model.cluster import ClusterSnapshot, JobState, Reservation
from clearway.model.errors import SlurmError
from clearway.model.events import Emit, JobLeft, OperationFinished
from clearway.model.operations import CHECKPOINTS, Eviction, EvictionState, Preemption, PreemptionState
from clearway.model.plan import NoPlan, Plan
from clearway.model.problem import Action
from clearway.model.records import CheckpointRecord
from clearway.preemption.lifecycle import Sight, next_phase
from clearway.relocation.lifecycle import its_turn, lands, may_attach, move_sight, next_move_phase
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store

# More rows than any eviction has between two snapshots; a table that does not come to rest is a bug, not a loop.
_MOST_PHASES = 12


@dataclass(frozen=True, slots=True)
class Sightings:
    """What one cycle saw; ``reservations`` None when nothing under way needed them."""

    snapshot: ClusterSnapshot
    reservations: tuple[Reservation, ...]
    paused: bool = False


# None: not now. NoPlan: a drain is impossible.
Replanner = Callable[[Eviction, frozenset[str], Sightings, datetime], Plan | NoPlan | None]


class Executor:
    """Carries evictions out, one cycle at a time."""

    def __init__(
        self,
        backend: SlurmBackend,
        store: Store,
        operations: OpenOperations,
        config: ExecutionConfig,
        replan: Replanner,
        emit: Emit,
        *,
        learn: Callable[[CheckpointRecord], None] = lambda _: None,
        costs: CostsConfig | None = None,
    ) -> None:
        self._store = store
        self._operations = operations
        self._config = config
        self._replan = replan
        self._emit = emit
        self._learn_record = learn
        self._costs = costs or CostsConfig()
        self._others: list[Eviction] = []  # the other evictions under way, as of the one that advances
        # As of one eviction: see _may_ask.
        self._writes: tuple[Eviction, CheckpointLoad] | None = None
        self._commander = Commander(backend, store, emit, self._grace)
        self._failed_at: dict[tuple[int, Command], datetime] = {}  # only to go easy on Slurm: may be forgotten

    def advance(self, eviction: Eviction, sightings: Sightings, now: datetime) -> Eviction:
        """As many steps as this snapshot allows; returns where the eviction stands afterwards."""
        done: set[Command] = set()
        placed = True
        self._others = [other for other in self._operations.others(eviction) if other.state.acting]
        self._writes = None
        for _ in range(_MOST_PHASES):
            phase = self._next_phase(eviction, sightings, done, now)
            if phase is None:
                break
            if phase.command is not None and self._just_failed(eviction, phase.command, now):
                placed = False
                break
            before = eviction
            eviction = self._enter(eviction, phase, now, sightings.snapshot)
            if phase.command is not None:
                error = self._commander.give(
                    eviction, None, phase.command, now, nodes=self._nodes(eviction, phase.command, sightings.snapshot)
                )
                if error is not None:
                    self._failed_at[eviction.eviction_id, phase.command] = now
                    placed = False
                    if eviction.drain is not None and eviction.state is EvictionState.PLACING and not error.retryable:
                        eviction = self.cancel(eviction, now, f"The nodes cannot be taken: {error}.")
                    break
                done.add(phase.command)
            if eviction == before and phase.command is None:
                break
        if eviction.state.acting and eviction.state is not EvictionState.PLACING:
            # Without its placement the freed nodes would go to anybody: until it stands, no job has to leave.
            paused = sightings.paused or not placed
            eviction = self._advance_preemptions(eviction, replace(sightings, paused=paused), now)
        return eviction

    def _next_phase(self, e: Eviction, sightings: Sightings, done: set[Command], now: datetime) -> Phase | None:
        watch_return = timedelta(seconds=self._config.watch_return)
        if e.drain is None:
            return next_phase(e, self._sight(e, sightings, done, now), now, watch_return)
        if e.drain.move is not None:
            if done:
                return None  # what has come of it is seen first
            moves = move_sight(
                e, e.drain, sightings.snapshot, self._placement_of(e, sightings), paused=sightings.paused
            )
            return next_move_phase(e, e.drain, moves, now, patience=self._patience, watch_return=watch_return)
        if Command.DRAIN in done:
            return None  # which jobs are there is seen when none can come any more
        sight = drain_sight(e, e.drain, sightings.snapshot, paused=sightings.paused)
        if Command.UNDRAIN in done:
            sight = replace(sight, ours=())
        return next_drain_phase(e, e.drain, sight, now, watch_return)

    @staticmethod
    def _nodes(e: Eviction, command: Command, snapshot: ClusterSnapshot) -> tuple[str, ...]:
        """Which nodes a drain's command is about: those that are not so already."""
        if e.drain is None:
            return ()
        ours = drain_sight(e, e.drain, snapshot, paused=False).ours
        return ours if command is Command.UNDRAIN else tuple(name for name in e.drain.nodes if name not in ours)

    def bring_back(self, eviction: Eviction, nodes: Sequence[str], now: datetime) -> SlurmError | None:
        """Let nodes of a drain take jobs again, whose jobs have left; what Slurm said when it did not."""
        return self._commander.give(eviction, None, Command.UNDRAIN, now, nodes=nodes)

    def brought_back_since(self, since: datetime) -> frozenset[str]:
        """Nodes that this daemon has let take jobs again, no earlier."""
        return frozenset(name for name, at in self._commander.brought_back.items() if at >= since)

    def _just_failed(self, e: Eviction, command: Command, now: datetime) -> bool:
        failed = self._failed_at.get((e.eviction_id, command))
        return failed is not None and now - failed < timedelta(seconds=self._config.retry_after)

    def cancel(self, eviction: Eviction, now: datetime, why: str) -> Eviction:
        """Undo what can be undone; jobs past their point of no return are followed to their end."""
        state = EvictionState.CANCELLING if eviction.state.acting else EvictionState.CANCELLED
        return self._enter(eviction, Phase(state, event=why, outcome=why), now, None)

    # -- the eviction as a whole ---------------------------------------------------------------------------

    def _sight(self, e: Eviction, sightings: Sightings, done: set[Command], now: datetime) -> Sight:
        """What is seen, with what this very cycle has already done taken as done."""
        snapshot = sightings.snapshot
        preemptor = snapshot.job_by_id.get(e.preemptor.job_id)
        ours = self._placement_of(e, sightings)
        if Command.DELETE_PLACEMENT in done:
            ours = None
        elif done & {Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT, Command.EXTEND_PLACEMENT}:
            ours = placement(e, now, self._grace)
        if preemptor is not None and Command.ATTACH in done:
            preemptor = replace(preemptor, reservation=e.placement)
        elif preemptor is not None and Command.DETACH in done:
            preemptor = replace(preemptor, reservation=None)
        suspended = {p.job_id for p in e.preemptions if p.state is PreemptionState.SUSPENDED}
        others = [
            job
            for name in e.plan.placement_nodes
            for job in snapshot.jobs_on.get(name, ())
            if job.job_id not in (e.preemptor.job_id, *e.plan.staying)
            and not (job.job_id in suspended and job.state is JobState.SUSPENDED)
        ]
        return Sight(
            preemptor=preemptor,
            placement=ours,
            nodes_free=not others and not snapshot.unreadable,
            placement_ends=placement_ends(e, self._grace),
            extend_when_ends=now + self._grace / 2,
            paused=sightings.paused,
        )

    @staticmethod
    def _placement_of(e: Eviction, sightings: Sightings) -> Reservation | None:
        return next((r for r in sightings.reservations if r.name == e.placement), None)

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=self._config.landing_patience)

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self._config.placement_grace)

    def _enter(self, e: Eviction, phase: Phase, now: datetime, snapshot: ClusterSnapshot | None) -> Eviction:
        changes: dict[str, object] = {}
        if phase.state is not e.state:
            changes |= {"state": phase.state, "state_since": now}
        if phase.command is Command.CREATE_PLACEMENT and not e.placement:
            changes["placement"] = placement_name(e.eviction_id)
        if phase.outcome and phase.outcome != e.outcome:
            changes["outcome"] = phase.outcome
        if phase.started_at is not None:  # the phases after it, still STARTED, say nothing about the start
            changes |= {"started_at": phase.started_at, "outcome": phase.event}
        if phase.state in (EvictionState.STARTED, EvictionState.CANCELLING, EvictionState.CANCELLED):
            changes["preemptions"] = tuple(spare(p, now) if in_its_run(p, snapshot) else p for p in e.preemptions)
        if phase.state.terminal:
            changes["finished_at"] = now
        if phase.late and not e.late:
            changes["late"] = True
        if changes:
            before, e = e, replace(e, **changes)  # type: ignore[arg-type]  # names and types stand just above
            self._learn(before, e, snapshot, now)
            self._operations.save(e)
        if phase.event:
            self._store.add_event(e.eviction_id, None, now, phase.event)
        if e.state.terminal:
            self._emit(OperationFinished(e))
        return e

    # -- its preemptions -----------------------------------------------------------------------------------

    def _advance_preemptions(self, e: Eviction, sightings: Sightings, now: datetime) -> Eviction:
        waiting = e.state in (EvictionState.PREEMPTING, EvictionState.STARTING)
        # A lost node makes another plan necessary: until there is one, no job should leave for this one.
        stuck = self._misfits(e, sightings.snapshot) if waiting else {}
        begin = waiting and not sightings.paused and not stuck
        for index in range(len(e.preemptions)):
            p = e.preemptions[index]
            seen = sightings.snapshot.job_by_id.get(p.job_id)
            if p.state is PreemptionState.PLANNED and not its_turn(e, p):
                continue
            if seen is None and sightings.snapshot.unreadable:
                continue  # it may be the very record that could not be read
            step = next_step(p, seen, now, self._rules(e, p, sightings, now))
            if step is None:
                continue
            if step.stuck:
                stuck[p.job_id] = step.note
            if step.state is p.state and step.command is None:
                continue
            if p.state.cancellable and step.command is not None and not begin:
                continue
            e = self._take(e, index, step, sightings.snapshot, now)
        if waiting and stuck and not sightings.paused:
            return self._plan_anew(e, stuck, sightings, now)
        return e

    def _misfits(self, e: Eviction, snapshot: ClusterSnapshot) -> dict[str, str]:
        """What makes another plan necessary, by job or node."""
        if e.move is not None:
            return {}  # its own table calls it off
        if e.drain is not None:
            return have_to_go(e, e.drain, snapshot)
        return lost_nodes(e, snapshot, self._others)

    def _rules(self, e: Eviction, p: Preemption, sightings: Sightings, now: datetime) -> Rules:
        # A kill waits for everything that could still fail: until the last of them is safe, it may be undone. So does
        # a suspension, which would only let the job stand still earlier.
        quick = (Action.KILL, Action.SUSPEND) if p.action is Action.SUSPEND else (Action.KILL,)
        open_saves = [o for o in e.preemptions if o.action not in quick and o.state.cancellable and o is not p]
        asks = p.state is PreemptionState.PLANNED and p.action in CHECKPOINTS
        return Rules(
            latest=latest_of(e, self._config),
            may_ask=asks and self._may_ask(e, p, sightings.snapshot, now),
            may_kill=not open_saves,
            wanted=e.state.before_start,
            first=e.drain is not None,
            placement=e.placement if e.move is not None else "",
            land=e.move is not None and lands(p, now, self._patience),
            placed=may_attach(e, p, self._placement_of(e, sightings)),
            may_resume=p.state is PreemptionState.SUSPENDED and self._may_resume(e, p, sightings, now),
            kill_when_late=(e.drain.force if e.drain else self._config.late_checkpoint == "kill" and not p.eternal),
            retry_after=timedelta(seconds=self._config.retry_after),
            give_up_after=self._config.give_up_after,
        )

    def _may_ask(self, e: Eviction, p: Preemption, snapshot: ClusterSnapshot, now: datetime) -> bool:
        """Whether this checkpoint is the next over all evictions, and the file system has room for it."""
        write = self._write(e, p, snapshot)
        if write is None or write.own_pace:
            return True  # its claim is gone, or it saves itself at its own pace
        if self._writes is None or self._writes[0] is not e:  # each step makes another eviction of it
            self._writes = (e, self._look_at_writes(e, snapshot, now))
        bandwidth = self._config.checkpoint_bandwidth_mib_s or self._costs.file_system_mib_s
        return may_begin(write, self._writes[1], self._config.concurrent_checkpoints, bandwidth)

    def _look_at_writes(self, e: Eviction, snapshot: ClusterSnapshot, now: datetime) -> CheckpointLoad:
        """The checkpoints of all evictions under way."""
        return checkpoint_load_of(
            (e, *self._others),
            lambda each, p: self._write(each, p, snapshot),
            its_turn,
            lambda each: each is e,
            now,
        )

    def _write(self, e: Eviction, p: Preemption, snapshot: ClusterSnapshot) -> CheckpointWrite | None:
        return checkpoint_write_of(e, p, snapshot, self._costs, self._config)

    def _may_resume(self, e: Eviction, p: Preemption, sightings: Sightings, now: datetime) -> bool:
        """Whether nobody has, or can get, the processors of a suspended job before it is resumed.

        Who was on a node before the suspension has other processors: both ran at once. The snapshot must have seen
        the preemptor out of the placement, in which it alone could start at any moment. Where Slurm refuses us the
        placement, the snapshot alone has to do.
        """
        snapshot = sightings.snapshot
        preemptor = snapshot.job_by_id.get(e.preemptor.job_id)
        attached = preemptor is not None and preemptor.reservation == e.placement
        if e.state.before_start or snapshot.unreadable or p.requeued_at is None:
            return False
        if attached and preemptor is not None and preemptor.state is not JobState.ENDED:
            return False
        covered = any(r.name == e.placement and set(p.job.nodes) <= set(r.nodes) for r in sightings.reservations)
        refused = (Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT)
        if not covered and not any(self._just_failed(e, command, now) for command in refused):
            return False
        others = [o for name in p.job.nodes for o in snapshot.jobs_on.get(name, ()) if o.job_id != p.job_id]
        # Slurm tells whole seconds: who started in the second of the suspension may have these very processors.
        suspended = p.requeued_at.replace(microsecond=0)
        return all(
            o.job_id != e.preemptor.job_id and o.start_time is not None and o.start_time < suspended for o in others
        )

    def _take(self, e: Eviction, index: int, step: Step, snapshot: ClusterSnapshot, now: datetime) -> Eviction:
        p = e.preemptions[index]
        changes: dict[str, object] = {"note": step.note or p.note}
        if step.state is not p.state:
            changes |= {"state": step.state, "state_since": now, "attempted_at": None, "attempts": 0}
            changes |= times(p, step, snapshot, now)
        before, e = e, with_preemption(e, index, replace(p, **changes))  # type: ignore[arg-type]  # names and types stand just above
        self._learn(before, e, snapshot, now)
        self._operations.save(e)
        if step.note:
            self._store.add_event(e.eviction_id, p.job_id, now, f"Job {p.job.display_id}: {step.note}.")
        if step.state is PreemptionState.VACATING and p.state is not PreemptionState.VACATING:
            self._emit(JobLeft(e.preemptions[index], p.job.partitions[0] if p.job.partitions else ""))
        if step.command is not None:
            answered = self._commander.give(e, e.preemptions[index], step.command, now) is None
            p = e.preemptions[index]
            e = with_preemption(e, index, replace(p, attempted_at=now, attempts=p.attempts + 1))
            self._operations.save(e)
            if answered and step.command is Command.ASK_CHECKPOINT:
                self._store.add_event(e.eviction_id, p.job_id, now, f"Job {p.job.display_id} was asked to save itself.")
        return e

    def _plan_anew(self, e: Eviction, stuck: dict[str, str], sightings: Sightings, now: datetime) -> Eviction:
        """Another plan for the rest, keeping placement and what already left; without one the preemptor waits.

        A drain's first plan is made here as well, and where there can be none it is called off.
        """
        if e.move is not None:
            job_id, why = min(stuck.items())
            return self.cancel(e, now, f"Called off: job {job_id}: {why}.")
        plan = self._replan(e, frozenset(stuck), sightings, now)
        if isinstance(plan, NoPlan):
            return self.cancel(e, now, f"Not drained: {plan.why}.")
        if plan is None:
            if not e.late and e.drain is None:
                reasons = "; ".join(f"{job_id}: {why}" for job_id, why in sorted(stuck.items()))
                text = f"Not all nodes will be free in time ({reasons}), and no other plan is possible: it waits."
                self._store.add_event(e.eviction_id, None, now, text)
                e = replace(e, late=True)
                self._operations.save(e)
            return e
        kept = {p.job_id: p for p in e.preemptions}
        for p in planned_preemptions(plan, now):
            old = kept.get(p.job_id)
            if (
                old is None
                or old.state is PreemptionState.SPARED
                or (old.action is not p.action and old.state.cancellable)
            ):
                kept[p.job_id] = p
        wanted = {planned.job_id for planned in plan.chosen.actions}
        preemptions = tuple(p if p.job_id in wanted else spare(p, now, "another plan was made") for p in kept.values())
        before, state = e, EvictionState.PREEMPTING
        e = replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1, state=state)
        self._learn(before, e, sightings.snapshot, now)
        self._operations.save(e)
        reasons = "; ".join(f"{job_id}: {why}" for job_id, why in sorted(stuck.items()))
        self._store.add_event(e.eviction_id, None, now, f"Planned{' anew' if before.preemptions else ''} ({reasons}).")
        return e

    def _learn(self, before: Eviction, after: Eviction, snapshot: ClusterSnapshot | None, now: datetime) -> None:
        """Remember what became of checkpoints: before their new states are stored, so that a crash loses none."""
        now_by_id = {p.job_id: p for p in after.preemptions}
        for p in before.preemptions:
            seen = snapshot.job_by_id.get(p.job_id) if snapshot is not None else None
            record = checkpoint_record(
                before,
                p,
                now_by_id.get(p.job_id, p),
                seen,
                now,
                latest=latest_of(before, self._config),
                costs=self._costs,
            )
            if record is not None:
                self._learn_record(record)
