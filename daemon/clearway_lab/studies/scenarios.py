"""Problems like the scenarios of the CoSim paper (``clearway.simulation.theta``); durations are its equation (1)."""

import math
from dataclasses import dataclass

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.simulation.theta import CHECKPOINT_INTERVAL_S, MAX_DELAY_S, STEP_S, ScenarioJob, scenario_jobs, write_s

_SIZES = {1: (12, 512), 2: (16, 1_024), 3: (24, 2_048)}  # number of the scenario: jobs, K


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    nodes_needed: int
    jobs: tuple[ScenarioJob, ...]

    def problem(self) -> EvictionProblem:
        return EvictionProblem(
            nodes_needed=self.nodes_needed,
            max_delay_s=MAX_DELAY_S,
            step_s=STEP_S,
            candidates=tuple(_candidate(job) for job in self.jobs),
        )


def scenario(number: int, seed: int, *, node_multiple: int = 128) -> Scenario:
    """Scenario 1, 2 or 3."""
    job_count, nodes_needed = _SIZES[number]
    jobs = scenario_jobs(number, job_count, seed, node_multiple=node_multiple)
    return Scenario(f"Scenario-{number}", nodes_needed, jobs)


def lost_work_node_s(job: ScenarioJob) -> int:
    return job.nodes * job.checkpoint_age_s


def sys_checkpoint_s(job: ScenarioJob) -> float:
    return write_s(job.nodes, job.memory_gb)


def _candidate(job: ScenarioJob) -> Candidate:
    """It waits for the next hourly checkpoint of the application, and for its writing."""
    app_checkpoint_s = CHECKPOINT_INTERVAL_S - job.checkpoint_age_s + write_s(job.nodes, job.app_checkpoint_gb)
    options = (
        Option(Action.KILL, lost_work_node_s=lost_work_node_s(job)),
        Option(Action.APP_CHECKPOINT, checkpoint_s=math.ceil(app_checkpoint_s)),
        Option(Action.SYS_CHECKPOINT, checkpoint_s=math.ceil(sys_checkpoint_s(job))),
    )
    return Candidate(job.job_id, job.nodes, options)
