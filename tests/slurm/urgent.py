"""An urgent job that runs until the daemon has seen it run, as one that ends between two cycles is gone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from clearway.model.operations import Eviction
from clearway.model.problem import Action
from tests.oracle.exhaustive import exhaustive
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon

SCRIPT = 'until [ -e "let-go.$SLURM_JOB_ID" ]; do sleep 0.2; done'


def let_go(cluster: SlurmCluster, daemon: RunningDaemon, *job_ids: str) -> None:
    """Wait until the daemon knows that they all run, by an eviction of each one's own; then they end."""

    def seen() -> bool:
        return set(job_ids) <= {e.preemptor.job_id for e in daemon.evictions() if e.started_at}

    daemon.wait_for(seen, 75, f"jobs {', '.join(job_ids)} to be seen running")
    for job_id in job_ids:
        (cluster.work / f"let-go.{job_id}").touch()


def is_the_best(eviction: Eviction) -> None:
    """By exhaustive search on the very problem that the snapshot gave.

    At the cost of the best one: jobs that have run for the same whole seconds make several plans equally good.
    """
    problem, chosen = eviction.plan.problem, eviction.plan.chosen
    least = min(answer[:2] for answer in exhaustive(problem) if answer is not None)
    assert chosen.checkpoint_s is not None
    # A sum of floats is no decimal number: 3 nodes x 9.269 s are 27.807000000000002 node-seconds.
    assert abs(Fraction(str(chosen.lost_work_node_s)) - least[0]) < Fraction(1, 10**6), f"{chosen} of {problem}"
    assert chosen.checkpoint_s // problem.step_s == least[1]
    # The jobs that leave are enough, and leave in time: the others may only end by themselves.
    gone = {planned.job_id for planned in chosen.actions}
    pinned = tuple(
        job if job.job_id in gone else replace(job, options=tuple(o for o in job.options if o.action is Action.END))
        for job in problem.candidates
    )
    assert min(answer[:2] for answer in exhaustive(replace(problem, candidates=pinned)) if answer is not None) == least
