"""The lifecycle of evictions: the rows of the table, whose hold is the placement, and plans that are made anew.

placing -> preempting -> starting -> started -> returning -> completed
(before started) -> cancelling -> cancelled | failed
returning, cancelling: the placement stays over the nodes of suspended jobs until they run again
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Cause, Purpose
from clearway.eligibility.under_way import at_own_cost, under_way_for_replan
from clearway.execution.cycle_context import UNDER_WAY, CycleContext, PlanningBasis
from clearway.execution.job_lifecycle import Command, StepContext, unanswered
from clearway.execution.lifecycle import (
    E,
    Lifecycle,
    Phase,
    Target,
    call_off,
    close_phase,
    placement,
    placement_ends,
    placement_phase,
    undo,
)
from clearway.execution.progress import lost_nodes
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import CHECKPOINTS, Eviction, Preemption, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.preemption.candidates import changes_at
from clearway.preemption.occupants import fewer_tasks, is_attached, may_resume, nodes_free, strangers, tasks_inside
from clearway.preemption.plan import decide
from clearway.preemption.pledges import not_approved, over_pledge, pledged, with_left, within_one_node
from clearway.preemption.problem import horizon
from clearway.preemption.proposals import SilentNodes
from clearway.preemption.slow_saves import looked_at_again, slow_saves, sparing_others
from clearway.preemption.validation import ask_misfit, ask_of, cannot_start, over_budget, over_limits, waiting_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of an eviction, from a snapshot and a list of reservations taken after its last change."""

    preemptor: Job | None
    placement: Reservation | None
    nodes_free: bool  # no job but the preemptor, and jobs suspended for it, is on the placement's nodes
    placement_ends: datetime
    extend_when_ends: datetime  # a placement that ends before this and is still needed is extended
    paused: bool = False
    stranger: Job | None = None  # another job than the preemptor that runs, or waits to run, in the placement
    hidden: bool = False  # the preemptor may be there, though its record could not be read
    attached: bool = False  # the preemptor, or a task of its array, could start in the placement, or runs there
    inside: tuple[Job, ...] = ()  # tasks of an array that run in the placement
    # The other components of a heterogeneous job: no job leaves before each has its placement.
    part_lost: str = ""  # the display_id of one that cannot be served any more
    parts_approved: bool = True  # all are carried out
    parts_placed: bool = True  # all have their placements, and are attached to them
    lost: str = ""  # why the plan does not fit any more, where no job leaves yet
    in_vain: Outcome | None = None  # why the preemptor would not start though its nodes were free


@dataclass(frozen=True)
class EvictionLifecycle(Lifecycle[Eviction]):
    """Where Slurm refuses a command the preemptor waits; its placement's end bounds how long."""

    basis: PlanningBasis
    silent: SilentNodes
    # When to look next for another plan for jobs that are slow to save themselves; may be forgotten.
    _looks: dict[int, tuple[object, datetime]] = field(default_factory=dict)

    def next_phase(self, e: Eviction, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        observation = observe(e, cycle, done)
        if e.plan.components and e.state.before_start:
            observation = self._with_parts(e, observation, cycle.snapshot)
        return next_phase(e, observation, cycle.now, cycle.config.execution.watch_return)

    def _parts(self, e: Eviction) -> list[Eviction]:
        """The evictions of the other components of its heterogeneous job."""
        own, components = e.preemptor.job_id, e.plan.components
        others = [o for o in self.basis.operations.others(e) if isinstance(o, Eviction)]
        return [o for o in others if o.preemptor.job_id in components and own in o.plan.components]

    def _with_parts(self, e: Eviction, seen: Observation, snapshot: ClusterSnapshot) -> Observation:
        by_job = {part.preemptor.job_id: part for part in self._parts(e)}
        for job_id in e.plan.components:
            job, part = snapshot.job_by_id.get(job_id), by_job.get(job_id)
            if job_id == e.preemptor.job_id or (job is not None and job.state.holds_nodes):
                continue
            if part is None or part.state.undoing:
                return replace(seen, part_lost=job_id if job is None else job.display_id)
            approved, placed = seen.parts_approved and part.state.acting, seen.parts_placed and bool(part.placement)
            placed = placed and job is not None and job.reservation == part.placement
            seen = replace(seen, parts_approved=approved, parts_placed=placed)
        return seen

    def target(self, e: Eviction, command: Command, snapshot: ClusterSnapshot) -> Target:
        """A preemptor that was not seen may be in the placement all the same, and could never start without it."""
        guests = [job.job_id for job in strangers(e, snapshot)]
        if e.preemptor.job_id not in snapshot.job_by_id:
            guests.append(e.preemptor.job_id)
        inside = snapshot.jobs_in.get(e.placement, ()) if command is Command.DETACH else ()
        tasks = sorted(job.job_id for job in inside if is_attached(e, job) and job.job_id != e.preemptor.job_id)
        return Target(job_ids=(e.preemptor.job_id, *tasks), guests=tuple(guests))

    def refused(self, e: Eviction, command: Command, error: SlurmError) -> Phase | None:
        """A preemptor that Slurm does not admit where room was to be made is left to Slurm."""
        if command is not Command.ATTACH or not e.plan.pin or error.retryable or e.state is not E.PLACING:
            return None
        outcome = Outcome(OutcomeCode.NODES_REFUSED, f"Slurm does not admit it to partition {e.plan.pin} ({error})")
        return replace(call_off(e, outcome), late=True)

    def cause(self, e: Eviction) -> Cause:
        plan, ordinary = e.plan, e.plan.ordinary
        asked = (plan.preemptor, plan.rule, plan.problem.max_delay_s, plan.deadline)
        preemptor = Preemptor(*asked, ordinary=ordinary, only_opportunistic=ordinary)
        return Cause(Purpose.PREEMPTION, preemptor, budgeted=not e.approved_by)

    def looked_at_again(self, e: Eviction) -> tuple[str, ...]:
        return (e.preemptor.job_id, *(each for each in e.plan.components if each != e.preemptor.job_id))

    def in_vain(self, e: Eviction, cycle: CycleContext) -> str:
        waiting = (cycle.snapshot.job_by_id.get(job_id) for job_id in self.looked_at_again(e))
        waits = all(job is not None and job.state is JobState.PENDING for job in waiting)
        if not waits:
            return f"the {e.plan.called} {e.preemptor.display_id} does not wait any more"
        if (found := _in_vain(e, cycle)) is not None:
            return found.why
        return _changed_ask(e, cycle)

    def too_much(self, e: Eviction, p: Preemption, seen: Job, command: Command, cycle: CycleContext) -> str:
        asks = command is Command.ASK_CHECKPOINT
        return over_pledge(e, p, seen, cycle.now, late_kills=cycle.late_kills, asks=asks)

    def misfits(self, e: Eviction, cycle: CycleContext) -> dict[str, str]:
        lost = lost_nodes(e, cycle.snapshot, cycle.others) | fewer_tasks(e, cycle.snapshot)
        return lost | ({e.preemptor.job_id: changed} if (changed := _changed_ask(e, cycle)) else {})

    def step_context(self, e: Eviction, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:
        # A kill waits for the saves of all components: until the last of them is safe, it may be undone.
        saves = (o for part in self._parts(e) for o in part.preemptions) if e.plan.components else ()
        may_kill = not any(o.action in CHECKPOINTS and o.state.cancellable for o in saves)
        return replace(
            common,
            may_kill=common.may_kill and may_kill,
            may_resume=p.state is PreemptionState.SUSPENDED and may_resume(e, p, cycle),
            kill_when_late=cycle.late_kills and not p.eternal,
        )

    def replan(self, e: Eviction, stuck: Mapping[str, str], cycle: CycleContext) -> Plan | Phase | None:
        """A plan for what an eviction still needs; without one the preemptor waits, which is told once."""
        # A node may only have been too slow to answer: another job would leave in vain.
        if not self.silent.lately(cycle.now).isdisjoint(stuck):
            return None
        if inside := list(tasks_inside(e, cycle.snapshot)):  # the other tasks are planned for by themselves
            return _started(e, inside, cycle.now)
        time, impossible = self.basis.time, self.basis.impossible
        now = waiting_now(e.plan, cycle.snapshot, cycle.config, frozenset({e.placement}))
        ident, asks = f"eviction {e.eviction_id}", (e.revision, frozenset(stuck), now and ask_of(now))
        if impossible.why(ident, asks, cycle.now) is not None or time.left_s(UNDER_WAY) <= 0:
            return None
        context, found = self._plan_without(e, now, stuck, cycle)
        if not isinstance(found, NoPlan):
            return found
        if now is not None and found.curve is not None:
            until = changes_at(context, None if now.ordinary else now.deadline, horizon(now, context))
            impossible.remember(ident, asks, "no other plan is possible", until)
        if e.plan.components:
            why = f"not all nodes of component {e.preemptor.display_id} will be free in time ({_listed(stuck)})"
            return undo(OutcomeCode.CALLED_OFF, why)
        if changed := _changed_ask(e, cycle):  # it might never start where it is placed
            return undo(OutcomeCode.CALLED_OFF, f"The {e.plan.called} {changed}, and no other plan is possible")
        text = f"Not all nodes will be free in time ({_listed(stuck)}), and no other plan is possible: it waits."
        return None if e.late else Phase(e.state, event=text, late=True)

    def replan_early(self, e: Eviction, cycle: CycleContext) -> tuple[Plan | None, Mapping[str, str]]:
        slow = slow_saves(e, cycle)
        asks, (before, until) = (e.revision, slow.keys()), self._looks.get(e.eviction_id, (None, cycle.now))
        if not slow:
            self._looks.pop(e.eviction_id, None)
        looked = asks == before and cycle.now < until
        if not slow or looked or self.basis.time.left_s(UNDER_WAY) <= 0 or any(tasks_inside(e, cycle.snapshot)):
            return None, slow
        now = waiting_now(e.plan, cycle.snapshot, cycle.config, frozenset({e.placement}))
        _, found = self._plan_without(e, now, slow, cycle)
        plan = sparing_others(e, found, () if cycle.late_kills else slow)
        again = looked_at_again(plan, cycle.now)
        if again is None:
            return plan, slow
        self._looks[e.eviction_id] = asks, again
        return None, slow

    def _plan_without(
        self, e: Eviction, now: Preemptor | None, stuck: Collection[str], cycle: CycleContext
    ) -> tuple[PlanningContext, Plan | Phase | NoPlan]:
        """For what is left, without what is ``stuck``; else one by which those that are not saved leave unsaved.
        Where late ones are killed at the latest moment anyway (``late_checkpoint``) they have until then.
        """
        states = {PreemptionState.PLANNED} | ({PreemptionState.CHECKPOINTING} if not cycle.late_kills else set())
        saves = (p for p in e.preemptions if p.action in CHECKPOINTS and p.state in states and not unanswered(p))
        late = frozenset(stuck) & {p.job_id for p in saves}
        under_way = under_way_for_replan(e, cycle.others, stuck)
        context = self.basis.context(cycle, under_way)
        found = self._plan_again(e, now, context, cycle)
        if late and sparing_others(e, found) is None:
            beside = self.basis.context(cycle, at_own_cost(under_way, late))
            itself = sparing_others(e, self._plan_again(e, now, beside, cycle), late)
            if itself is not None and (granted := within_one_node(itself, e)) is not None:
                return context, granted
        return context, found

    def _plan_again(
        self, e: Eviction, now: Preemptor | None, context: PlanningContext, cycle: CycleContext
    ) -> Plan | Phase | NoPlan:
        """On the nodes of the partition that it may start in by now; a row where it is planned for as any other job.

        An operator approves what it asks for then, and nobody gets more by changing a job than by submitting it.
        """
        changed, operations = _changed_ask(e, cycle), self.basis.operations
        told = f"The {e.plan.called} {changed}"
        if now is None:
            return undo(OutcomeCode.CALLED_OFF, told) if changed else NoPlan("it is not urgent")
        if changed and e.approved_by:
            return undo(OutcomeCode.CALLED_OFF, f"{told}, and another plan for it has to be approved")
        pinned = cycle.snapshot.job_by_id[e.preemptor.job_id].partitions == (e.plan.pin,)
        with self.basis.time.spending():
            plan = decide(replace(now, only_in=(e.plan.pin,)) if pinned else now, context, self.basis.planner)
        if isinstance(plan, NoPlan):
            return plan
        if over := over_budget(plan, operations.usage_beside(e, cycle.now), cycle.config.budget):
            return NoPlan(over)
        # Of a job that was changed the operator is asked all the same.
        pledge = pledged(plan, e, late_kills=cycle.late_kills)
        if over := (e.approved_by and not plan.ordinary and not_approved(e, plan)) or pledge.asks:
            return undo(OutcomeCode.COSTS_MORE, over)
        plan = replace(plan, pledge=with_left(pledge, e))
        if changed and not plan.ordinary:
            over = over_limits(plan, operations.takings(cycle.now), cycle.config.budget, cycle.snapshot.vouched)
        fresh = replace(plan, ask=ask_of(now, context.limits))
        return undo(OutcomeCode.CALLED_OFF, f"{told}, and {over}") if over else fresh


def _changed_ask(e: Eviction, cycle: CycleContext) -> str:
    return ask_misfit(e.plan, cycle.snapshot, cycle.config, frozenset({e.placement}))


def _in_vain(e: Eviction, cycle: CycleContext) -> Outcome | None:
    """A job that asks for one of Clearway's placements waits in it, or was in it a moment ago."""
    own = frozenset(filter(None, (e.placement, *(other.placement for other in cycle.others))))
    return cannot_start(e.plan, cycle.snapshot, cycle.config, own)


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{what}: {why}" for what, why in sorted(reasons.items()))


def observe(e: Eviction, cycle: CycleContext, done: AbstractSet[Command]) -> Observation:
    """What this very cycle has already done is taken as done."""
    snapshot, now = cycle.snapshot, cycle.now
    attached = Command.DETACH not in done and any(is_attached(e, job) for job in snapshot.jobs_in.get(e.placement, ()))
    grace = timedelta(seconds=cycle.config.execution.placement_grace)
    preemptor, ours = snapshot.job_by_id.get(e.preemptor.job_id), cycle.reservation(e.placement)
    if Command.DELETE_PLACEMENT in done:
        ours = None
    elif done & {Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT, Command.EXTEND_PLACEMENT}:
        ours = placement(e, now, grace)
    if preemptor is not None and Command.ATTACH in done:
        preemptor = replace(preemptor, reservation=e.placement)
    elif preemptor is not None and Command.DETACH in done:
        preemptor = replace(preemptor, reservation=None, partitions=e.preemptor.partitions)
    lost = lost_nodes(e, snapshot, cycle.others) if ours is None and e.state is E.PLACING else {}
    changed = _changed_ask(e, cycle) if e.state is E.PLACING else ""
    return Observation(
        lost=f"The {e.plan.called} {changed}" if changed else _listed(lost),
        preemptor=preemptor,
        in_vain=_in_vain(e, cycle) if e.state.before_start else None,
        hidden=Command.DELETE_PLACEMENT not in done and snapshot.hides(e.preemptor.job_id),
        placement=ours,
        nodes_free=nodes_free(e, snapshot),
        placement_ends=placement_ends(e, grace),
        extend_when_ends=now + grace / 2,
        paused=cycle.paused,
        stranger=next(strangers(e, snapshot), None),
        attached=attached,
        inside=tuple(tasks_inside(e, snapshot)),
    )


def _has_to_be_let_out(e: Eviction, observation: Observation) -> bool:
    """It is in the placement; or it was requeued after its start, and waits in one of its partitions alone."""
    job = observation.preemptor
    if e.placement and (observation.attached or is_attached(e, job)):
        return True
    if job is None or job.state is not JobState.PENDING or job.reservation is not None or not e.plan.pin:
        return False
    return e.is_for(job) and job.partitions == (e.plan.pin,) != e.preemptor.partitions


def next_phase(e: Eviction, observation: Observation, now: datetime, watch_return_s: float) -> Phase | None:
    """The next row for the eviction as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING, E.STARTING):
        return _before_start(e, observation, now)
    # A preemptor that stays in its placement could start there again. Detached first: Slurm refuses to delete a
    # reservation in use, and a running job survives the detaching.
    if _has_to_be_let_out(e, observation):
        return Phase(e.state, Command.DETACH)
    placed = observation.placement
    if e.suspended_nodes:  # it stays over them, and only there
        if held := placement_phase(e, placed):
            return held
        if placed is not None and placed.end_time < observation.extend_when_ends:
            return Phase(e.state, Command.EXTEND_PLACEMENT)
    elif placed is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    closed = close_phase(e, now, watch_return_s)
    if closed is not None and closed.state.terminal and e.placement and observation.hidden:
        # A preemptor that still asks for a placement which is gone could never start: it is let out unseen.
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return closed


def _before_start(e: Eviction, observation: Observation, now: datetime) -> Phase | None:
    job = observation.preemptor
    if job is None and observation.hidden and now < observation.placement_ends:
        return None
    if started := _has_started(e, observation, now):
        return started
    if (pointless := _pointless(e, job)) or job is None:
        return undo(OutcomeCode.POINTLESS, pointless)
    if observation.in_vain is not None:
        return _started(e, observation.inside, now) if observation.inside else call_off(e, observation.in_vain)
    if observation.part_lost:
        return undo(OutcomeCode.CALLED_OFF, f"component {observation.part_lost} of its heterogeneous job has no plan")
    if observation.stranger is not None:
        why = f"Job {observation.stranger.display_id} of user {observation.stranger.user} was in the placement, "
        return undo(OutcomeCode.MISUSED, f"{why}which is for {e.plan.called} {job.display_id} alone")
    if now >= observation.placement_ends:
        why = f"The {e.plan.called} did not start before its placement ended"
        return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.TOO_LATE, why), late=True)
    return _towards_start(e, observation, job, now)


def _has_started(e: Eviction, observation: Observation, now: datetime) -> Phase | None:
    """The row once the preemptor runs; of an array, once as many tasks do as room is made for, or as are left."""
    job, inside = observation.preemptor, observation.inside
    waits = job is not None and job.state is JobState.PENDING
    if inside and (len(inside) >= e.plan.tasks or not waits or now >= observation.placement_ends):
        return _started(e, inside, now)
    return _started(e, (job,), now) if job is not None and job.state.holds_nodes else None


def _towards_start(e: Eviction, observation: Observation, job: Job, now: datetime) -> Phase | None:
    if e.state is E.PLACING and (observation.paused or not observation.parts_approved):
        return None
    if observation.lost and e.placement:  # Slurm refuses it, and no job has left: the preemptor is planned for anew
        return call_off(e, Outcome(OutcomeCode.CALLED_OFF, observation.lost))
    if held := placement_phase(e, observation.placement):  # it is made or moved first
        return held
    if job.reservation != e.placement:
        return Phase(e.state, Command.ATTACH)
    if e.state is E.PLACING:
        return Phase(E.PREEMPTING) if observation.parts_placed else None
    if e.state is E.PREEMPTING and observation.nodes_free:
        return Phase(E.STARTING)
    if not e.late and now > e.plan.deadline:
        return Phase(e.state, event=f"The {e.plan.called} did not start by its deadline; it waits on.", late=True)
    return None


def _pointless(e: Eviction, job: Job | None) -> str:
    """Why the preemptor has no use for this eviction any more; empty while it has."""
    if job is None or job.state is JobState.ENDED:
        return f"The {e.plan.called} is gone"
    if job.state is not JobState.PENDING:
        return ""
    changed = job.num_nodes > e.preemptor.num_nodes or job.partitions not in (e.preemptor.partitions, (e.plan.pin,))
    return f"The {e.plan.called} was changed" if changed else ""


def _started(e: Eviction, jobs: Sequence[Job], now: datetime) -> Phase:
    """The row of an eviction whose preemptor has started; of an array, these of its tasks."""
    starts = [job.start_time for job in jobs if job.start_time is not None]
    what = f"{len(jobs)} task(s) of the" if e.preemptor.pending_tasks > 1 else "The"
    what += f" {e.plan.called} started"
    if starts:
        margin_s = (e.plan.deadline - max(starts)).total_seconds()
        what += f" {abs(margin_s):.1f} s {'before' if margin_s >= 0 else 'after'} its deadline"
    outcome = Outcome(OutcomeCode.STARTED, what)
    return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=max(starts, default=now))
