"""The order of Argonne's Blue Gene machines, and the WCJS paper's two queues over it.

The rule of Argonne's Blue Gene machines: large jobs that wait long for their length stand first; EASY behind.

The score is (wait / time limit) ** 3 x size ("WFP", of the scheduler Cobalt that the WCJS paper's baseline
simulates: its section 6.3 names the three quantities, not the formula, which is that of Tang et al., "Fault-aware,
utility-based job scheduling on Blue Gene/P systems"). Whenever a job is submitted or leaves, the queue is ordered
anew; the first job that does not fit keeps its reservation as in EASY, until the order changes. Ties go by submission.

With ``order="small"`` the jobs of the partition ``short`` stand first, and then those on fewer nodes, of which waiting
makes up for as many in a week: Slurm's order where that partition has a higher PriorityTier, PriorityFavorSmall is set,
and age and size have equal weights.

Cost: a sort and a pass over the queue at each event at which a waiting job fits; else a pass that finds that none does.

Real-time jobs beside batch jobs: two queues, and preemption by weighted cost.

Source: "Towards Accommodating Real-time Jobs on HPC Platforms", 2021, DOI 10.48550/arXiv.2103.13130 (the WCJS paper),
section 6.

Algorithm 1: an urgent job whose estimated slowdown (1 + wait / time limit, equation 56) has passed the threshold is
in the high-priority queue; all other jobs are in the other one, which is scheduled by ``wfp`` and only while the
first is empty. Algorithm 2, for those in the first, the highest slowdown first: free nodes serve; else the eligible
batch jobs with the least sum of scores are preempted, by the very planner ``weighted-cost`` that the daemon offers;
else the job waits. How they leave and what they lose is the checkpoint model's matter.

Where the paper is silent: the threshold is its 1.2 (sections 5.4 and 7.2) for every category; a place is any set of
nodes; nodes that preempted jobs are still leaving are kept for the urgent job for which they leave; a job with a higher
slowdown that finds no place does not keep the next ones from theirs.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Literal

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway_lab.baselines import WeightedCost as Planner
from clearway_lab.schedulers.easy import BY_INDEX, Easy
from clearway_lab.simulator.checkpoint_models import NODES, CheckpointModel, JustInTime
from clearway_lab.simulator.cluster_view import SHORT, names_of
from clearway_lab.simulator.machine import ReplayedJob, State

MAX_AGE_S = 7 * 86_400  # Slurm's PriorityMaxAge, if not set


class Wfp(Easy):
    name = "wfp"

    def __init__(self, order: Literal["submission", "wfp", "small"] = "wfp") -> None:
        super().__init__()
        self.by = order

    def schedule(self) -> None:
        self.start_in_order()

    def in_order(self, jobs: Iterable[ReplayedJob]) -> list[ReplayedJob]:
        """These jobs by rank, which time changes."""
        now_s, nodes = self.machine.now_s, self.machine.nodes
        if self.by == "wfp":
            # One loop without calls, as queues are long: a job by its score, then by its index, which is its own.
            ranked = [(-((float(now_s - job.submit_s) / job.limit_s) ** 3) * job.size, job.index, job) for job in jobs]
            return [job for _, _, job in sorted(ranked)]
        if self.by == "small":

            def rank(job: ReplayedJob) -> tuple[float, ...]:
                age = min(1.0, (now_s - job.submit_s) / MAX_AGE_S)
                return (not is_short(job), job.size / nodes - age, job.index)

            return sorted(jobs, key=rank)
        return sorted(jobs, key=BY_INDEX)

    def start(self, job: ReplayedJob) -> None:
        self.machine.start(job)
        self.remove(job)

    def start_in_order(self) -> None:
        """EASY, with the queue by rank. Which job is the first matters only where one fits."""
        if self.queue and min(self.sizes) <= len(self.machine.free):
            self.renew(self.in_order(self.queue))
            super().schedule()


def is_short(job: ReplayedJob) -> bool:
    """Whether it is in the partition for short jobs."""
    return names_of(job.trace).partition == SHORT


class HighPriority(Wfp):
    """A queue for urgent jobs that comes first: while one of them waits, no other job starts. No job is preempted.

    Source: the WCJS paper, section 4.1. Within each of the two queues the order is that of ``wfp``; in the first,
    every job that fits starts, in the second EASY backfilling holds.
    """

    name = "high-priority"

    def schedule(self) -> None:
        for job in self.in_order([job for job in self.queue if job.urgent]):
            if job.size <= len(self.machine.free):
                self.start(job)
        if not any(job.urgent for job in self.queue):
            self.start_in_order()


THRESHOLD = 1.2


class WeightedCost(Wfp):
    name = "weighted-cost"

    def __init__(
        self,
        model: CheckpointModel | None = None,
        *,
        unit_nodes: int = NODES.unit_nodes,
        order: Literal["wfp", "small"] = "wfp",
    ) -> None:
        super().__init__(order)
        self.model = model or JustInTime(replace(NODES, unit_nodes=unit_nodes))
        self.unit_nodes = unit_nodes
        self.planner = Planner()
        self.promised: dict[int, ReplayedJob] = {}  # by index: urgent jobs for which others are leaving

    def submitted(self, job: ReplayedJob) -> None:
        super().submitted(job)
        if job.urgent:  # a second later its slowdown is above the threshold, not at it
            patience_s = round((THRESHOLD - 1) * job.limit_s, 6)  # 0.2 is not a float: 1,199.99 s are 1,200
            self.machine.wake_at(job.submit_s + int(patience_s) + 1)

    def schedule(self) -> None:
        high = [job for job in self.queue if job.urgent and self.estimated_slowdown(job) > THRESHOLD]
        high.sort(key=lambda job: (-self.estimated_slowdown(job), job.index))
        for job in high:
            if job.index not in self.promised:
                self._place(job)
            elif job.size <= len(self.machine.free):
                self.start(job)
        if not any(job.state is State.WAITING for job in high):
            self.start_in_order()

    def estimated_slowdown(self, job: ReplayedJob) -> float:
        """Equation 56 for a job that waits."""
        return 1 + (self.machine.now_s - job.submit_s) / job.limit_s

    def _place(self, job: ReplayedJob) -> None:
        """Lines 1 to 28 of Algorithm 2."""
        leaving = sum(each.size for each in self.machine.leaving.values())
        spoken_for = sum(each.size for each in self.promised.values())
        missing = job.size - (len(self.machine.free) + leaving - spoken_for)
        if missing > 0:
            chosen = self._chosen(job, missing)
            if not chosen:
                return
            for each in chosen:
                self.machine.preempt(each, **asdict(self.model.departure(each, self.machine.now_s)))
            self.promised[job.index] = job
        elif job.size <= len(self.machine.free) - max(0, spoken_for - leaving):
            self.start(job)
        else:
            self.promised[job.index] = job

    def start(self, job: ReplayedJob) -> None:
        self.promised.pop(job.index, None)
        super().start(job)

    def _chosen(self, job: ReplayedJob, missing: int) -> list[ReplayedJob]:
        """The batch jobs that leave for this one; none where there is no eligible set."""
        running = [each for _, _, each in self.machine.running if not each.urgent]
        problem = EvictionProblem(
            nodes_needed=missing * self.unit_nodes,
            max_delay_s=1,  # the rule knows no deadline, and its options take no time
            step_s=1,
            candidates=tuple(self._candidate(each) for each in sorted(running, key=BY_INDEX)),
            preemptor_nodes=job.size * self.unit_nodes,
        )
        best = self.planner.solve(problem).points[-1]
        by_id = {str(each.job_id): each for each in running}
        return [by_id[action.job_id] for action in best.actions] if best.feasible else []

    def _candidate(self, job: ReplayedJob) -> Candidate:
        now_s = self.machine.now_s
        nodes = job.size * self.unit_nodes
        worked_s = job.worked_s(now_s)
        saved_s = self.model.departure(job, now_s).saved_s
        if saved_s is None:
            option = Option(Action.SYS_CHECKPOINT, lost_work_node_s=0)
        else:
            option = Option(Action.KILL, lost_work_node_s=nodes * (worked_s - saved_s))
        return Candidate(
            job_id=str(job.job_id),
            nodes=nodes,
            options=(option,),
            ran_s=worked_s,
            remaining_s=job.limit_s - worked_s,
            waited_s=now_s - job.submit_s - worked_s,
        )
