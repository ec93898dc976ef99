"""A site's own months again, without Clearway and with it: what its rules would have done to which jobs. Pure.

Which jobs are urgent is what the site's own rules say of each record. The machine is one pool of ``nodes``, which
every partition has whole. The record does not say what a job could have saved, nor how much memory it held: every
preempted job is requeued and loses its work, where in truth jobs that make checkpoints lose less.

The runs: ``easy`` (submission order, no job is urgent), ``urgent first`` (urgent jobs stand before all others, none
is preempted), and Clearway with the configured planner and with each other rule as its planner.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from clearway.config.configuration import Config, PreemptorRule
from clearway.eligibility.urgent import matching_rule
from clearway.model.cluster import JobState
from clearway.model.errors import SimulationError
from clearway.planning.base import Planner
from clearway.simulation.checkpoint_models import NoCheckpoints
from clearway.simulation.cluster_view import as_slurm, names_of
from clearway.simulation.engine import Replay, Scheduler
from clearway.simulation.measures import Spread
from clearway.simulation.schedulers.clearway import Clearway
from clearway.simulation.schedulers.easy import Easy
from clearway.simulation.traces.trace import Trace

RULES = ("slurm-default", "youngest-first", "youngest-prune", "loss-per-node-prune")


@dataclass(frozen=True, slots=True)
class UrgentJobs:
    """The urgent jobs: the number of the rule in the configuration, by job_id."""

    rules: tuple[PreemptorRule, ...]
    rule_of: dict[int, int]

    def by_rule(self) -> dict[str, int]:
        """How many jobs each rule makes urgent, by its name."""
        counts = Counter(self.rule_of.values())
        return {rule.name or f"rule {place + 1}": counts[place] for place, rule in enumerate(self.rules)}

    def max_delay_s(self, job_id: int) -> float:
        return self.rules[self.rule_of[job_id]].max_delay


@dataclass(frozen=True, slots=True)
class SiteRun:
    """The result of one run. ``late`` urgent jobs waited longer than their rule allows."""

    name: str
    planner: str | None  # None: no job is preempted
    urgent_wait_s: Spread
    late: int
    other_wait_s: Spread | None  # None: there are urgent jobs only
    lost_node_h: float
    preempted_jobs: int
    preemptions: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find_urgent(trace: Trace, rules: tuple[PreemptorRule, ...]) -> UrgentJobs:
    """The jobs of the record that are urgent, by the first rule that matches.

    Raises:
        SimulationError: no job is urgent, so that there is nothing to compare.
    """
    rule_of: dict[int, int] = {}
    for job in trace.jobs:
        rule = matching_rule(as_slurm(job, JobState.PENDING), rules)
        if rule is not None:
            rule_of[job.job_id] = rules.index(rule)
    if not rule_of:
        if not rules:
            raise SimulationError("the configuration has no [[preemptors]]: no job is urgent")
        raise SimulationError(f"{trace.name}: none of {len(trace.jobs):,} jobs is urgent by the [[preemptors]] rules")
    return UrgentJobs(rules, rule_of)


def mark_urgent(trace: Trace, urgent: UrgentJobs) -> Trace:
    return replace(trace, jobs=tuple(replace(job, urgent=job.job_id in urgent.rule_of) for job in trace.jobs))


def schedulers(
    trace: Trace, config: Config, planners: Iterable[tuple[str, Callable[[], Planner]]]
) -> Iterator[tuple[str, str | None, Scheduler]]:
    """Each run's name, planner and scheduler, in the order in which they are shown."""
    partitions = tuple(sorted({names_of(job).partition for job in trace.jobs}))
    without = config.model_copy(update={"preemptors": ()})

    def clearway(by: Config, planner: Planner | None) -> Scheduler:
        return Clearway(NoCheckpoints(), config=by, planner=planner, max_delay_s=None, partitions=partitions)

    yield "easy", None, Easy()
    yield "urgent first", None, clearway(without, None)
    for place, (name, make) in enumerate(planners):
        yield "clearway" if place == 0 else name, name, clearway(config, make())


def evaluate(name: str, planner: str | None, replayed: Replay, urgent: UrgentJobs) -> SiteRun:
    """The run's figures.

    Raises:
        SimulationError: no urgent job fits the machine.
    """
    theirs = [outcome for outcome in replayed.outcomes if outcome.job.urgent]
    others = [outcome for outcome in replayed.outcomes if not outcome.job.urgent]
    if not theirs:
        raise SimulationError(f"no urgent job fits {replayed.nodes:,} nodes")
    return SiteRun(
        name=name,
        planner=planner,
        urgent_wait_s=Spread.of([outcome.wait_s for outcome in theirs]),
        late=sum(outcome.wait_s > urgent.max_delay_s(outcome.job.job_id) for outcome in theirs),
        other_wait_s=Spread.of([outcome.wait_s for outcome in others]) if others else None,
        lost_node_h=sum(outcome.job.size * outcome.lost_s for outcome in replayed.outcomes) / 3_600,
        preempted_jobs=sum(outcome.preemptions > 0 for outcome in replayed.outcomes),
        preemptions=sum(outcome.preemptions for outcome in replayed.outcomes),
    )


def untold(config: Config) -> tuple[str, ...]:
    """What the record cannot tell for this configuration, one sentence each."""
    found = ["the record does not say what a job could have saved: a preempted job loses its work"]
    if any(rule.comment for rule in config.preemptors):
        found.append("the record holds no Comments: a rule with comment = true matches no job")
    if config.candidates.allow_suspend:
        found.append("the record does not say how much memory a job held: no job is suspended")
    if config.budget.jobs_per_hour is not None or config.budget.lost_node_hours_per_hour is not None:
        found.append("[budget] is not kept: every plan is carried out")
    return tuple(found)
