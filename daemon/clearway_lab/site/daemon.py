"""The daemon of a replay: its own cycle, on a simulated cluster and a database of its own.

That has what a daemon would have known when the replay begins; where the site's own database does not say it, sacct's
word of the runs before does. Each run that was requeued then counts as a preemption by Clearway: sacct does not say who
requeued it.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from clearway import bootstrap
from clearway.config.configuration import Config, Mode
from clearway.eligibility.urgent import matching_rule
from clearway.estimates.learning import Requeued, key_of
from clearway.model.claims import Claims, SaveState
from clearway.model.cluster import Job
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.promise.calendar_reader import WAITS_S
from clearway.simulation.backend import SimulatedBackend
from clearway.store.repository import Store
from clearway_lab.site.record import RecordedJob, Run, SiteRecord
from clearway_lab.site.replay import SiteReplay


@dataclass(frozen=True, slots=True)
class Past:
    """``preempted``: how often each job was; ``requeued``: the preemptees that came back, newest first."""

    preempted: Mapping[str, int] = field(default_factory=dict)
    requeued: tuple[Requeued, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    restarts: tuple[RestartRecord, ...] = ()


class ReplayStore(Store):
    def __init__(self, url: str, past: Past) -> None:
        super().__init__(url)
        self._past = past
        for checkpoint in past.checkpoints:
            self.record_checkpoint(checkpoint)
        for restart in past.restarts:
            self.record_restart(restart)

    def preemption_counts(self, jobs: Iterable[Job]) -> dict[str, int]:
        asked = {job.job_id: job for job in jobs}
        counts = {job_id: count for job_id, count in self._past.preempted.items() if job_id in asked}
        for job_id, count in super().preemption_counts(asked.values()).items():
            counts[job_id] = counts.get(job_id, 0) + count
        return counts

    def requeued(self) -> tuple[Requeued, ...]:
        return (*super().requeued(), *self._past.requeued)


_OUTCOMES = {SaveState.SAVED: CheckpointOutcome.SAVED, SaveState.FAILED: CheckpointOutcome.FAILED}


def past_of(record: SiteRecord) -> Past:
    at = record.begins
    if at is None:
        return Past()
    checkpoints: list[CheckpointRecord] = []
    restarts: list[RestartRecord] = []
    returns: list[tuple[Run, Requeued]] = []
    preempted: dict[str, int] = {}
    for job in record.earlier:
        begun = [run for run in job.runs if run.start <= at]
        ended = [run for run in begun if run.ended_by(at)]
        if count := sum(run.requeued for run in ended):
            preempted[str(job.job_id)] = count
        checkpoints += _checkpoints(job, ended)
        restarts += _restarts(job, begun)
        for before, after in zip(ended, begun[1:], strict=False):
            if before.requeued and before.end is not None:
                away_s = (after.start - before.end).total_seconds()
                returns.append((after, Requeued(job.num_nodes, max(0.0, away_s))))
    returns.sort(key=lambda each: each[0].start, reverse=True)
    return Past(preempted, tuple(each for _, each in returns), tuple(checkpoints), tuple(restarts))


def _said(runs: list[Run]) -> Iterator[tuple[int, Run, Claims]]:
    """What each of a job's first runs said of itself."""
    for number, run in enumerate(runs):
        if (told := run.claims) is not None and told.run == number:
            yield number, run, told


def _checkpoints(job: RecordedJob, runs: list[Run]) -> Iterator[CheckpointRecord]:
    for number, run, told in _said(runs):
        outcome = None if told.state is None else _OUTCOMES.get(told.state)
        if not run.requeued or outcome is None or told.asked is None or run.end is None:
            continue
        saved = outcome is CheckpointOutcome.SAVED
        took_s = (told.last - told.asked).total_seconds() if saved and told.last is not None else None
        yield CheckpointRecord(
            eviction_id=0,
            job_id=str(job.job_id),
            run=number,
            **key_of(job.as_slurm(), told)._asdict(),
            action=Action.APP_CHECKPOINT,
            nodes=job.num_nodes,
            asked_at=told.asked,
            ended_at=run.end,
            outcome=outcome,
            predicted_s=0.0,
            actual_s=took_s,
            write_s=took_s,
            size_mib=told.size_mib if saved else None,
        )


def _restarts(job: RecordedJob, runs: list[Run]) -> Iterator[RestartRecord]:
    for number, run, told in _said(runs):
        if number > 0 and told.restart is not None:
            yield RestartRecord(
                job_id=str(job.job_id),
                run=number,
                **key_of(job.as_slurm(), told)._asdict(),
                nodes=job.num_nodes,
                started_at=run.start,
                restart=told.restart,
                restart_s=told.restart_s,
            )


_PLANNING_S = 60.0  # in real seconds: what a replay foretells shall not depend on how busy this machine is


@dataclass(frozen=True, slots=True)
class ReplayDaemon:
    store: Store
    _daemon: bootstrap.Daemon

    def cycle(self) -> CycleReport:
        made = self._daemon.loop.cycle()
        self._daemon.loop.explain(float("inf"))
        return made


def is_urgent(config: Config, job: RecordedJob) -> bool:
    return matching_rule(job.as_slurm(), config.preemptors) is not None


@contextmanager
def replay_daemon(replay: SiteReplay, config: Config, past: Past) -> Iterator[ReplayDaemon]:
    with tempfile.TemporaryDirectory(prefix="clearway-replay-") as folder:
        backend = SimulatedBackend(replay.cluster, replay.clock)
        acting = _acting(config, folder)
        store = ReplayStore(acting.store.url, past)
        made = bootstrap.build(
            acting, origin="simulate", backend=backend, clock=replay.clock, store=store, calendar_waits_s=WAITS_S
        )
        try:
            yield ReplayDaemon(made.store, made)
        finally:
            made.store.close()


def _acting(config: Config, folder: str) -> Config:
    """In automatic mode, on a database of its own. What needs approval stays undone. No job is moved."""
    daemon = {"mode": Mode.AUTOMATIC, "halt_file": None}
    return config.model_copy(
        update={
            "daemon": config.daemon.model_copy(update=daemon),
            "planning": config.planning.model_copy(update={"time_per_cycle": _PLANNING_S}),
            "store": config.store.model_copy(update={"url": f"sqlite:///{folder}/clearway.sqlite"}),
            "compaction": config.compaction.model_copy(update={"enabled": False}),
            "promotion": config.promotion.model_copy(update={"enabled": False}),
        }
    )
