"""Whether others have to leave for a plan at all: Slurm may have its turn, or nodes may answer in a moment."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from clearway.config.configuration import Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.plan import Plan, Preemptor
from clearway.preemption.detection import waits_since
from clearway.preemption.plan import decide, free_already

# With enough free nodes Slurm starts the job itself; only when it has not done so by then does Clearway step in.
_SLURM_HAS_ITS_TURN_S = 15.0
# ... also where it may preempt jobs by itself, once it has looked at the whole queue. Their grace comes on top, with
# the time until Slurm sees that it is over: it looks at that when it looks at time limits.
_SLURM_PREEMPTS_S = 30.0
# After a start of slurmctld all nodes are without an answer, measured 3 s for eight of them. Slurm itself calls a node
# DOWN after SlurmdTimeout (300 s), which is longer than an urgent job may wait.
MAY_BE_SILENT = timedelta(seconds=30)


class SilentNodes:
    """Nodes that slurmctld waits for, since when, as this daemon has seen it; forgotten when it ends."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def observe(self, nodes: Iterable[Node], now: datetime) -> None:
        """To be called in every cycle: a node that answers in between begins anew."""
        self._since = {node.name: self._since.get(node.name, now) for node in nodes if node.silent}

    def lately(self, now: datetime) -> frozenset[str]:
        """Those that have not been silent for long."""
        return frozenset(name for name, since in self._since.items() if now - since < MAY_BE_SILENT)


def needless(
    preemptor: Preemptor,
    plan: Plan,
    planning: PlanningContext,
    context: CycleContext,
    basis: PlanningBasis,
    may_answer: frozenset[str],
) -> str:
    """Why a plan is not worth storing; empty where it is. ``may_answer``: nodes that may take jobs in a moment."""
    snapshot = context.snapshot
    if context.database_full and context.config.daemon.mode is Mode.OBSERVE:
        return "the database is larger than daemon.database_limit_mib, so that proposals are not stored"
    if preemptor.ordinary and not plan.preemptees:
        return "enough nodes are free; Slurm starts it in its turn"
    waited_s = (context.now - waits_since(preemptor.job)).total_seconds()
    if waited_s < _SLURM_HAS_ITS_TURN_S:
        if not plan.components and free_already(plan, snapshot):
            return "enough nodes are free; Slurm has its turn"
        if snapshot.power_saving.hides_nodes and preemptor.job.reason == "None":
            return "Slurm, which does not show nodes of the cloud that are off, has its turn"
    if not plan.leaving:
        return ""
    grace_s = snapshot.preempt_priorities.grace_s
    turn_s = _SLURM_PREEMPTS_S + (grace_s + TIME_LIMIT_SLACK_S if grace_s else 0.0)
    if waited_s < turn_s and slurm_preempts(preemptor, snapshot):
        return "Slurm preempts jobs for it by itself, and has its turn"
    if _fewer_soon(preemptor, plan, planning, basis, may_answer):
        return "nodes that Slurm waits for may answer in a moment; then fewer jobs leave, or none"
    return ""


def _fewer_soon(
    preemptor: Preemptor, now: Plan, planning: PlanningContext, basis: PlanningBasis, may_answer: frozenset[str]
) -> bool:
    """Whether fewer jobs had to leave if these nodes took jobs."""
    snapshot = planning.snapshot
    silent = {node.name for node in snapshot.nodes if node.name in may_answer and not node.available}
    if not silent:
        return False
    nodes = tuple(replace(node, available=node.available or node.name in silent) for node in snapshot.nodes)
    under_way = under_way_by(basis.operations.all(), preemptor.deadline)
    soon = replace(planning, snapshot=replace(snapshot, nodes=nodes), under_way=under_way)
    plan = decide(preemptor, soon, basis.planner)
    return isinstance(plan, Plan) and len(plan.leaving) < len(now.leaving)


def slurm_preempts(preemptor: Preemptor, snapshot: ClusterSnapshot) -> bool:
    """Whether Slurm may start this preemptor by preempting others by itself, as far as the snapshot tells.

    Who leaves for an urgent job is decided by one of the two. On nodes without other jobs than those that Slurm would
    take, or where one of them suffices for a part of a node. That it could not after all costs a wait; not to see that
    it could costs a second job.
    """
    if not any(snapshot.preempt_priorities.preempts.values()):
        return False
    able = sum(_would_be_free(node, preemptor.job, snapshot) for node in snapshot.nodes)
    return able >= preemptor.nodes


def _would_be_free(node: Node, waiting: Job, snapshot: ClusterSnapshot) -> bool:
    if not node.available or set(waiting.partitions).isdisjoint(node.partitions) or node.name in waiting.excluded_nodes:
        return False
    priorities = snapshot.preempt_priorities
    jobs = [job for job in snapshot.jobs_on.get(node.name, ()) if job.state is not JobState.COMPLETING]
    taken = [priorities.takes(job, waiting) for job in jobs]
    return all(taken) or (not waiting.exclusive and any(taken))
