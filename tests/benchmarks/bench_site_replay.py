"""How fast a site's weeks are replayed by the daemon's own cycle: it grows with the jobs, and cycles are few.

Run with ``pytest tests/benchmarks/bench_site_replay.py -s``. ``python -m tests.benchmarks.bench_site_replay`` replays a
week of 10,000 jobs on 640 nodes.
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean

from clearway import bootstrap
from clearway.config.configuration import Config
from clearway.model.cluster import Node
from clearway.model.report import CycleReport
from clearway.simulation.backend import SimulatedBackend
from clearway.telemetry.log import configure_logging
from clearway_lab.site.record import RecordedJob, Run, SiteRecord
from clearway_lab.site.replay import SiteReplay

T0 = datetime(2026, 1, 5, tzinfo=UTC)
LOAD = 0.85
TIMES_FOUR = 6.0  # four times the days: 4 where each job takes the same time
CYCLES_AN_URGENT_JOB = 200  # about 50; with a cycle every 2 s a day has 43,200


def machine(count: int) -> list[Node]:
    named = (f"n{at}" for at in range(count))
    return [
        Node(name=n, available=True, raw_state="IDLE", cpus=32, memory_mib=128_000, partitions=("batch", "urgent"))
        for n in named
    ]


def days(jobs: int, nodes: int, urgent: int, number: float, seed: int = 1) -> SiteRecord:
    """Random jobs at an even load; one in ``jobs / urgent`` is urgent, and half of the others save themselves."""
    rng = random.Random(seed)
    span_s = number * 86_400
    sizes = [min(nodes // 2, int(2 ** rng.uniform(0, 6))) for _ in range(jobs)]
    lengths = [rng.expovariate(1) for _ in range(jobs)]
    scale = LOAD * nodes * span_s / sum(n * s for n, s in zip(sizes, lengths, strict=True))
    submits = sorted(rng.uniform(0, span_s) for _ in range(jobs))
    return SiteRecord(
        "days",
        tuple(_job(rng, at, submits[at], sizes[at], lengths[at] * scale, nodes, jobs // urgent) for at in range(jobs)),
    )


def _job(rng: random.Random, at: int, submit_s: float, size: int, runs_s: float, nodes: int, every: int) -> RecordedJob:
    urgent = at % every == 7
    submit, runs = T0 + timedelta(seconds=int(submit_s)), 1_200 if urgent else max(30, int(runs_s))
    run = Run(start=submit, end=submit + timedelta(seconds=runs), elapsed_s=runs, nodes=())
    return RecordedJob(
        job_id=1_000 + at,
        user="ursula" if urgent else f"user{rng.randrange(30)}",
        account="phys",
        partition="urgent" if urgent else "batch",
        qos="normal",
        name="run",
        comment="" if urgent or rng.random() < 0.5 else "clearway:checkpoint=signal",
        submit=submit,
        eligible=submit,
        time_limit_s=int(runs * rng.uniform(1, 3)) + 60,
        num_nodes=nodes // 8 if urgent else size,
        cpus=0,
        memory_mib=0,
        gpus=(),
        features="",
        reservation="",
        priority=1_000 if urgent else 100,
        runs=(run,),
    )


@dataclass
class Replayed:
    spent_s: float  # of processor time
    cycles: int
    urgent_wait_s: float


def replayed(record: SiteRecord, nodes: int, *, clearway: bool) -> Replayed:
    configure_logging("text", quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        rule = {"partition": ["urgent"], "max_delay": "600s"}
        daemon = {"mode": "automatic", "halt_file": None}
        store = {"url": f"sqlite:///{folder}/clearway.sqlite"}
        config = Config.model_validate({"daemon": daemon, "store": store, "preemptors": [rule]})
        site = SiteReplay(record, machine(nodes), config)
        backend = SimulatedBackend(site.cluster, site.clock)
        made = bootstrap.build(config, origin="bench", backend=backend, clock=site.clock)
        cycles = 0

        def cycle() -> CycleReport:
            nonlocal cycles
            cycles += 1
            report = made.loop.cycle()
            made.loop.explain(float("inf"))
            return report

        began = time.process_time()
        site.run(cycle if clearway else None)
        spent_s = time.process_time() - began
        made.store.close()
    starts = site.cluster.first_starts
    waits = [(starts[each] - site.submitted[each]).total_seconds() for each in site.urgent if each in starts]
    return Replayed(spent_s, cycles, fmean(waits))


def test_slurm_alone_takes_the_same_time_for_each_job() -> None:
    short, long = (replayed(days(400 * n, 160, 10, n / 2), 160, clearway=False).spent_s for n in (1, 4))
    print(f"{short:.2f} s for half a day, {long:.2f} s for two days")
    assert long <= TIMES_FOUR * short


def test_cycles_are_few_and_urgent_jobs_start_sooner() -> None:
    record = days(400, 64, 20, 1)
    alone, clearway = (replayed(record, 64, clearway=each) for each in (False, True))
    print(f"{clearway.cycles:,} cycles; they wait {clearway.urgent_wait_s:.0f} s, alone {alone.urgent_wait_s:.0f} s")
    assert clearway.cycles <= CYCLES_AN_URGENT_JOB * 20
    assert clearway.urgent_wait_s < alone.urgent_wait_s


if __name__ == "__main__":
    week = days(10_000, 640, 200, 7)
    print(replayed(week, 640, clearway=False))
    print(replayed(week, 640, clearway=True))
