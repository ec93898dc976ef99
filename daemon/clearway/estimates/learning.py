"""What earlier checkpoints and restarts teach about the next ones (docs/explanation/learning.md). Pure.

Records are kept by (user, application, checkpointer), the key. The next checkpoint of a key is expected to take the
value at rank ceil(quantile x (n + 1)) of the n measured, or the largest of them, and a margin. Where the next is drawn
as they were, each rank among all n + 1 is equally likely for it, so it takes no longer with that probability, or with
n / (n + 1) while n is small. A key without records gets the median over all keys of its checkpointer, each counting
once with its own median: the user whose jobs are preempted most often does not decide for the others.

More nodes take longer by the ratio of the CoSim paper's equation (1) for the same MiB on each node, in which the MiB
cancel: max(n / Ba, 1 / Bc) / max(n' / Ba, 1 / Bc). Fewer are not promised to be quicker: the same data may lie on them.

Every answer is the same for every order of the records. Cost: sorting them once, O(n log n).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from statistics import median
from typing import Any, NamedTuple, TypeVar

from clearway.config.configuration import CostsConfig, LearningConfig
from clearway.model.claims import Claims, Restart
from clearway.model.cluster import Job
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.records import CheckpointOutcome, CheckpointRecord, Key, RestartRecord
from clearway.walltime.remaining import RunTimes

R = TypeVar("R", CheckpointRecord, RestartRecord)
LONGEST_APP = 128  # characters of an application's name; Slurm's job names may be longer


class Requeued(NamedTuple):
    """A preemptee that came back: its nodes, and how long it was off nodes."""

    nodes: int
    queued_s: float


@dataclass(frozen=True, slots=True)
class LearnedEstimate:
    """What the next checkpoint of a job is expected to take; ``own`` False: by all keys of its checkpointer."""

    checkpoint_s: float
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How good predictions were. A ratio is actual over predicted; None where nothing could be compared."""

    checkpoints: dict[CheckpointOutcome, int]
    restarts: dict[Restart, int]
    compared: int
    median_ratio: float | None
    share_within: float | None  # share of checkpoints that took no longer than predicted
    median_size_ratio: float | None
    median_restart_ratio: float | None


@dataclass(frozen=True)
class History:
    """All records that planning goes by; the empty one knows nothing and trusts every application."""

    checkpoints: tuple[CheckpointRecord, ...] = ()
    restarts: tuple[RestartRecord, ...] = ()
    learning: LearningConfig = field(default_factory=LearningConfig)
    costs: CostsConfig = field(default_factory=CostsConfig)
    requeued: tuple[Requeued, ...] = ()  # preemptees that came back, newest first
    run_times: Callable[[str, str], RunTimes] = field(default=lambda *_: RunTimes(), repr=False, compare=False)
    """How long the runs of a user's application lasted."""

    def estimate(self, user: str, app: str, checkpointer: str, nodes: int) -> LearnedEstimate | None:
        """What a checkpoint on so many nodes will take; None when nothing is known of this checkpointer."""
        own = [each for each in self._checkpoints.get(Key(user, app, checkpointer), ()) if each.write_s is not None]
        if own:
            return LearnedEstimate(self._upper(self._write_s(own, nodes)) + self.learning.margin, own=True)
        return self._of_all(checkpointer, nodes)

    def restart_s(self, user: str, app: str, checkpointer: str, nodes: int) -> float | None:
        """From the start of a run until its program computes again; None when this key never said."""
        own = self._restarts.get(Key(user, app, checkpointer), ())
        known = [each.restart_s * self._slowdown(nodes, each.nodes) for each in own if each.restart_s is not None]
        return self._upper(known) if known else None

    @cached_property
    def queueing_s(self) -> Callable[[int], float]:
        """How long a requeued job of so many nodes will wait to run again; 0 while too few have come back."""
        return cache(self._median_wait_s)  # it is asked for each running job

    def _median_wait_s(self, nodes: int) -> float:
        """Of jobs of half to twice the nodes; where these are too few, of all."""
        alike = [each.queued_s for each in self.requeued if nodes <= 2 * each.nodes and each.nodes <= 2 * nodes]
        for waits in (alike, [each.queued_s for each in self.requeued]):
            if len(waits) >= self.learning.min_samples:
                return median(waits)
        return 0.0

    def trusted(self, user: str, app: str, checkpointer: str, now: datetime) -> bool:
        """Whether a checkpoint is worth asking for: not after so many failures in a row, until they are forgiven."""
        forgiven = self.forgiven_at(user, app, checkpointer)
        return forgiven is None or now >= forgiven

    def forgiven_at(self, user: str, app: str, checkpointer: str) -> datetime | None:
        """From when on a checkpoint is worth asking for again; None: it is in any case."""
        key = Key(user, app, checkpointer)
        if self.failures_in_a_row(*key) < self.learning.failures:
            return None
        newest = next(each for each in self._checkpoints[key] if self._has_failed(each))
        return newest.ended_at + timedelta(seconds=self.learning.forgive_after)

    def failures_in_a_row(self, user: str, app: str, checkpointer: str) -> int:
        """How many of the newest checkpoints have failed since one succeeded."""
        count = 0
        for each in self._checkpoints.get(Key(user, app, checkpointer), ()):
            if each.outcome is CheckpointOutcome.SAVED and not self._has_failed(each):
                break
            count += self._has_failed(each)
        return count

    def _has_failed(self, checkpoint: CheckpointRecord) -> bool:
        """One that was said to be saved, too, where the next run could not go on from it."""
        return checkpoint.outcome in _FAILURES or (checkpoint.job_id, checkpoint.run + 1) in self._not_gone_on

    @cached_property
    def _not_gone_on(self) -> frozenset[tuple[str, int]]:
        """Runs, by job and number, that went on from an older checkpoint than the newest, or began anew."""
        return frozenset((each.job_id, each.run) for each in self.restarts if each.restart is not Restart.OK)

    @property
    def checkpointers(self) -> tuple[str, ...]:
        return tuple(sorted({key.checkpointer for key in self.keys}))

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        return tuple(sorted({*self._checkpoints, *self._restarts}))

    def calibration(self, *, key: Key | None = None, checkpointer: str | None = None) -> Calibration:
        """Of one key, of one checkpointer, or of everything."""
        if key is not None:
            return _calibration(self._checkpoints.get(key, ()), self._restarts.get(key, ()))
        return _calibration(
            [each for each in self.checkpoints if checkpointer in (None, each.checkpointer)],
            [each for each in self.restarts if checkpointer in (None, each.checkpointer)],
        )

    @cached_property
    def _checkpoints(self) -> dict[Key, list[CheckpointRecord]]:
        return _by_key(self.checkpoints, lambda each: (each.ended_at, each.asked_at, each.eviction_id, each.job_id))

    @cached_property
    def _restarts(self) -> dict[Key, list[RestartRecord]]:
        return _by_key(self.restarts, lambda each: (each.started_at, each.job_id))

    def _of_all(self, checkpointer: str, nodes: int) -> LearnedEstimate | None:
        """What any application's checkpoint takes: kept, as thousands of jobs ask for the same."""
        kept = self._kept
        if (checkpointer, nodes) not in kept:
            alike = [records for key, records in self._checkpoints.items() if key.checkpointer == checkpointer]
            pool = [times for records in alike if (times := self._write_s(records, nodes))]
            known = sum(map(len, pool)) >= self.learning.min_samples
            kept[checkpointer, nodes] = LearnedEstimate(median(map(median, pool)), own=False) if known else None
        return kept[checkpointer, nodes]

    @cached_property
    def _kept(self) -> dict[tuple[str, int], LearnedEstimate | None]:
        return {}

    def _upper(self, values: Sequence[float]) -> float:
        """What the next one does not exceed with the configured probability, as far as so few can say."""
        rank = math.ceil(self.learning.quantile * (len(values) + 1) - 1e-9)
        return sorted(values)[min(rank, len(values)) - 1]

    def _write_s(self, records: Iterable[CheckpointRecord], nodes: int) -> list[float]:
        """Of those that were measured."""
        return [each.write_s * self._slowdown(nodes, each.nodes) for each in records if each.write_s is not None]

    def _slowdown(self, nodes: int, measured: int) -> float:
        """Equation (1) on so many nodes over equation (1) where it was measured; never below 1."""
        per_file_system, per_node = 1 / self.costs.file_system_mib_s, 1 / self.costs.node_mib_s
        here = max(max(1, nodes) * per_file_system, per_node)
        return max(1.0, here / max(max(1, measured) * per_file_system, per_node))


_FAILURES = (CheckpointOutcome.FAILED, CheckpointOutcome.LATE)


def application(job: Job, claims: Claims | None) -> str:
    """What a job's program is called: as it says, else the job's name."""
    return (claims.app if claims is not None and claims.app else job.name)[:LONGEST_APP]


def key_of(job: Job, claims: Claims) -> Key:
    """What this job's history is kept by."""
    return Key(job.user, application(job, claims), claims.checkpointer)


def _by_key(records: Iterable[R], moment: Callable[[R], Any]) -> dict[Key, list[R]]:
    """Newest first."""
    found: defaultdict[Key, list[R]] = defaultdict(list)
    for each in sorted(records, key=moment, reverse=True):
        found[each.key].append(each)
    return dict(found)


def _calibration(checkpoints: Sequence[CheckpointRecord], restarts: Sequence[RestartRecord]) -> Calibration:
    times = [(each.actual_s, each.predicted_s) for each in checkpoints if each.outcome is CheckpointOutcome.SAVED]
    ratios = _ratios(times)
    outcomes = Counter(each.outcome for each in checkpoints)
    ways = Counter(each.restart for each in restarts)
    return Calibration(
        checkpoints={outcome: outcomes[outcome] for outcome in CheckpointOutcome},
        restarts={way: ways[way] for way in Restart},
        compared=len(ratios),
        median_ratio=median_of(ratios),
        share_within=sum(ratio <= 1 for ratio in ratios) / len(ratios) if ratios else None,
        median_size_ratio=median_of(_ratios((each.size_mib, each.predicted_size_mib) for each in checkpoints)),
        median_restart_ratio=median_of(_ratios((each.restart_s, each.predicted_s) for each in restarts)),
    )


def _ratios(pairs: Iterable[tuple[float | None, float | None]]) -> list[float]:
    return [actual / predicted for actual, predicted in pairs if actual is not None and predicted]


def median_of(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def runs_again(p: Preemption, until: datetime | None, history: History, now: datetime) -> tuple[datetime | None, str]:
    """The expected time and what it goes by, as a sentence; None and the sentence where it is not known.

    Both are empty where the job has not left, runs again, or is over. ``until``: when the job that it left for has
    ended at the latest, which a suspended job waits for.
    """
    if p.state is PreemptionState.SUSPENDED:
        if until is None:
            return None, "It goes on when the job that it was suspended for has ended."
        return until, "It goes on when the job that it was suspended for has ended, at its time limit at the latest."
    if not p.on_its_way:
        return None, ""
    since = p.vacated_at or p.requeued_at or now
    waits_s = history.queueing_s(max(1, p.job.num_nodes))
    if not waits_s:
        return None, "Too few preempted jobs have come back so far to say how long that takes."
    expected = since + timedelta(seconds=waits_s)
    if expected <= now:
        return None, "It waits for its turn, and has waited longer than most preempted jobs did."
    return expected, "By the median wait of preempted jobs of about as many nodes."
