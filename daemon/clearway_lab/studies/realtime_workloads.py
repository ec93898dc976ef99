"""Which jobs are real-time jobs: the three ways of the WCJS paper's section 7.1.3, and its random logs of section 7.3.

All draw from a seed alone, so that every scheduler gets the same jobs.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from random import Random

from clearway_lab.errors import SimulationError
from clearway_lab.simulator.checkpoint_models import MIRA
from clearway_lab.simulator.cluster_view import INSTRUMENT, SHORT, URGENT, names_of
from clearway_lab.studies.offline_optimum import OfflineJob
from clearway_lab.traces.trace import Names, Trace, TraceJob, in_order

SHORT_S = 90 * 60
PARTITIONS = (512, 1_024, 2_048, 4_096, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152)
MEAN_APS_NODES = 2_048
SHORT_PARTITION_S = 2_700  # the longest time limit in the partition for short jobs
RANDOM_BATCH, RANDOM_URGENT, RANDOM_BLOCKS = 5, 2, 16
_INSTRUMENT = Names(user="beam", account=INSTRUMENT, partition=URGENT, qos="", job_name="")


def some_of_all(trace: Trace, percent: int, seed: int, shorter_than_s: float | None = None) -> Trace:
    """So many per cent of the jobs are urgent, drawn from all or from those that run for less than a time.

    Raises:
        SimulationError: when there are not so many.
    """
    rng = Random(f"urgent-{seed}")  # noqa: S311 - a simulation, not a secret
    known = [job.job_id for job in trace.jobs if shorter_than_s is None or job.run_s < shorter_than_s]
    count = round(len(trace.jobs) * percent / 100)
    if count > len(known):
        raise SimulationError(f"{trace.name}: {count} jobs are to be urgent, only {len(known)} are short enough")
    urgent = set(rng.sample(known, count))
    return replace(trace, jobs=tuple(replace(job, urgent=job.job_id in urgent) for job in trace.jobs))


def with_beam_time_jobs(trace: Trace, percent: int, seed: int, run_times_s: Sequence[float], unit_nodes: int) -> Trace:
    """Urgent jobs beside those of the trace: as many as ``percent`` of them, with run times of a beam line's analyses.

    They are submitted uniformly over the trace, on an exponentially distributed number of nodes rounded up to a
    partition, with a time limit of 1 to 2 times the run time.
    """
    rng = Random(f"beam-time-{seed}")  # noqa: S311 - see above
    last_s = max(job.submit_s for job in trace.jobs)
    first_id = max(job.job_id for job in trace.jobs) + 1
    more = []
    for number in range(round(len(trace.jobs) * percent / 100)):
        run_s = max(1, round(rng.choice(run_times_s)))
        nodes = rng.expovariate(1 / MEAN_APS_NODES)
        partition = next((each for each in PARTITIONS if nodes <= each), PARTITIONS[-1])
        submit_s, limit_s = rng.randint(0, last_s), ceil(run_s * rng.uniform(1, 2))
        size = ceil(partition / unit_nodes)
        more.append(TraceJob(first_id + number, submit_s, run_s, size, limit_s, urgent=True, names=_INSTRUMENT))
    return trace.with_jobs(more)


def random_log(seed: int) -> tuple[TraceJob, ...]:
    """Five batch and two urgent jobs on 512 to 8,192 nodes, in blocks of 512.

    The paper gives the sizes; run times of 10 to 120 minutes, limits of 1 to 2 times as much and submissions within
    two hours are chosen here.
    """
    rng = Random(f"log-{seed}")  # noqa: S311 - see above
    jobs = []
    for number in range(1, RANDOM_BATCH + RANDOM_URGENT + 1):
        run_s, submit_s, size = rng.randint(600, 7_200), rng.randint(0, 7_200), 2 ** rng.randint(0, 4)
        limit_s = ceil(run_s * rng.uniform(1, 2))
        jobs.append(TraceJob(number, submit_s, run_s, size, limit_s, urgent=number > RANDOM_BATCH))
    return in_order(jobs)


def with_short_partition(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The same jobs where the site has a partition for batch jobs with short limits, and they are sent there."""
    return [
        replace(job, names=replace(names_of(job), partition=SHORT))
        if not job.urgent and job.limit_s <= SHORT_PARTITION_S
        else job
        for job in jobs
    ]


def as_offline(jobs: Sequence[TraceJob]) -> list[OfflineJob]:
    """The same jobs for the offline optimum, which knows their run times."""
    return [
        OfflineJob(job.job_id, job.size, job.submit_s, job.run_s, job.urgent, MIRA.transfer_s(job.size)) for job in jobs
    ]
