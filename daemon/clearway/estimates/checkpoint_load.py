"""The checkpoints of the evictions under way on the file system: which is next, and how long they keep it. Pure.

Model: checkpoints that wait are all ready now; each takes ``seconds`` on the shared file system and must be complete
by its ``latest``. Written one after another, in the order of ``latest`` (Jackson's earliest-due-date rule), all of
them are in time whenever any order has them all in time. The least slack (latest - seconds) is no such order: of one
that takes 10 s and is due in 12 s, and one that takes 1 s and is due in 4 s, it begins the first and misses the
second. Those that cannot be in time any more come last, so that they make no other one late. Of those that are due
together those of one plan are not parted; of one plan those come last whose application has failed to save itself
lately, quick ones come first, and ties end on job_id.

A checkpoint begins only when no more than ``limit`` would be under way and its rate fits into what the others leave of
the bandwidth; one alone may always begin, whatever its estimate says. No checkpoint overtakes the next in order, even
even where a later one would fit: the most urgent would starve. One that takes longer than it was expected to
(``overdue``) keeps no room any more: it may never answer, and the plan gave it no more time than that.

Checkpoints that share the file system (``file_system_s``; see ``planning.formulation.shared_bandwidth``) are all begun
at once: their plan holds however bandwidth is shared among them. Only those of other plans must not become late: one
that began at t, takes w with the whole file system and e besides, and shares it with checkpoints that take W with the
whole file system, itself among them, is complete by t + e + W. Another one may join when that stays in time.

What was promised first is kept (docs/decisions/0037): a plan that is made later counts the time that the checkpoints
of others still take. Each plan's checkpoints are complete within e + W seconds once they may begin (W is the time of
their data with the whole file system, e the longest rest; one after another e = 0), and several plans' within the sum
of these, in any order. A plan that has not begun need not be counted if it is due later, and can wait for as long as
the new plan may take at most.

Cost: O(n) time for the next one, O(n^2) for whether one may join.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from clearway.config.configuration import Config, CostsConfig, ExecutionConfig, Mode
from clearway.estimates.costs import NO_HISTORY, checkpoint_rate_mib_s
from clearway.estimates.learning import History, key_of
from clearway.model.claims import CheckpointHow, saves
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import CHECKPOINTS, Operation, Preemption, PreemptionState, Relocation

_WRITES = PreemptionState.CHECKPOINTING


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWrite:
    """One checkpoint on the file system: that waits, is being written or is complete."""

    job_id: str
    seconds: float  # from its beginning until it is complete
    latest: datetime  # when it must be complete
    rate_mib_s: float = 0.0  # of the file system's bandwidth
    file_system_s: float | None = None  # seconds with the whole file system, which it shares; None: it does not share
    own_pace: bool = False  # the job begins it by itself, before or after ``begun``; it is not asked for
    plan: int = 0  # the number of its eviction
    failures: int = 0  # in a row, of its application's newest checkpoints
    begun: datetime | None = None  # None: it waits
    done: datetime | None = None  # None: it is not complete

    @property
    def occupies_s(self) -> float:
        """Seconds for which it keeps the whole file system, at most."""
        return self.seconds if self.file_system_s is None else self.file_system_s


def next_to_ask(waiting: Iterable[CheckpointWrite], now: datetime) -> CheckpointWrite | None:
    """The first in order; None when nothing waits."""

    def order(write: CheckpointWrite) -> tuple[bool, datetime, int, int, float, str]:
        late = now + timedelta(seconds=write.seconds) > write.latest
        return (late, write.latest, write.plan, write.failures, write.seconds, write.job_id)

    return min(waiting, key=order, default=None)


def _keeps_others_in_time(write: CheckpointWrite, begun: Sequence[CheckpointWrite], *, sharing: bool = False) -> bool:
    """Whether those of other plans that are being written stay in time beside this one; ``sharing``: that share."""
    return all(
        _complete_by(each, begun) + timedelta(seconds=write.occupies_s) <= each.latest
        for each in begun
        if each.done is None and each.plan != write.plan and (each.file_system_s is not None or not sharing)
    )


def _complete_by(write: CheckpointWrite, known: Iterable[CheckpointWrite]) -> datetime:
    """When a checkpoint that has begun is complete at the latest."""
    assert write.begun is not None  # noqa: S101 - the caller has chosen those
    beside_s = sum(each.occupies_s for each in known if each.done is None or each.done >= write.begun)
    return write.begun + timedelta(seconds=write.seconds - write.occupies_s + beside_s)


def overdue(write: CheckpointWrite, begun: Iterable[CheckpointWrite], now: datetime) -> bool:
    """Whether it takes longer than it was expected to. ``begun``: what is or was written beside it, itself included."""
    if write.begun is None or write.done is not None:
        return False
    alone = write.file_system_s is None
    return now > (write.begun + timedelta(seconds=write.seconds) if alone else _complete_by(write, begun))


def approval_s(mode: str, execution: ExecutionConfig) -> float:
    """Seconds that a plan leaves for an operator to approve it; 0 in modes without approval."""
    return execution.approval_time if mode == Mode.APPROVE else 0.0


def latest_of(e: Operation, execution: ExecutionConfig) -> datetime:
    """When nodes must begin to empty for the preemptor to start by its deadline."""
    return e.plan.made_at + timedelta(seconds=e.plan.problem.max_delay_s + approval_s(e.mode, execution))


@dataclass(frozen=True, slots=True)
class CheckpointLoad:
    """Checkpoints that wait, those that are being written, and complete ones that were written beside these."""

    waiting: tuple[CheckpointWrite, ...]
    running: tuple[CheckpointWrite, ...]
    complete: tuple[CheckpointWrite, ...]
    first: CheckpointWrite | None = None  # the next of those that wait to be asked for


def checkpoint_write_of(
    e: Operation,
    p: Preemption,
    snapshot: ClusterSnapshot,
    costs: CostsConfig,
    execution: ExecutionConfig,
    history: History = NO_HISTORY,
) -> CheckpointWrite | None:
    """What this preemption's checkpoint asks of the file system; None where it asks nothing that is known."""
    claims = saves(snapshot.job_by_id.get(p.job_id, p.job))
    if p.action not in CHECKPOINTS or claims is None:
        return None
    own_pace = claims.checkpoint is CheckpointHow.INTERVAL
    file_system_s = next((each.file_system_s for each in e.plan.chosen.actions if each.job_id == p.job_id), None)
    if (own_pace or claims.unanswered_s is not None) and file_system_s is None:
        return None  # when it writes, and for how long, is not known
    return CheckpointWrite(
        job_id=p.job_id,
        seconds=p.predicted_checkpoint_s,
        latest=latest_of(e, execution),
        rate_mib_s=checkpoint_rate_mib_s(p.job, claims, costs),
        file_system_s=file_system_s,
        own_pace=own_pace,
        plan=e.eviction_id,
        failures=history.failures_in_a_row(*key_of(p.job, claims)),
        begun=p.asked_at,
        done=p.checkpointed_at,
    )


def checkpoint_load_of(
    evictions: Iterable[Operation],
    write: Callable[[Operation, Preemption], CheckpointWrite | None],
    may_begin: Callable[[Operation, Preemption], bool],
    counts_late: Callable[[Operation], bool],
    now: datetime,
) -> CheckpointLoad:
    """The checkpoints of all these evictions; ``may_begin`` says whether one that waits has its turn.

    One that is written long past its time would delay all others: it counts only where its eviction ``counts_late``.
    One that is ``overdue`` before that would make them late as well, and does not count.
    """
    waiting, running, complete = list[CheckpointWrite](), list[CheckpointWrite](), list[CheckpointWrite]()
    for e in evictions:
        for p in e.preemptions:
            if (each := write(e, p)) is None:
                continue
            if p.state is PreemptionState.PLANNED and e.state.before_start and may_begin(e, p):
                waiting.append(each)
            elif p.state is _WRITES and (counts_late(e) or now <= each.latest):
                running.append(each)
            elif each.done is not None:
                complete.append(each)
    running = _without_overdue(running, complete, now)
    first = next_to_ask([each for each in waiting if not each.own_pace], now)
    return CheckpointLoad(tuple(waiting), tuple(running), tuple(complete), first)


def _without_overdue(
    running: Sequence[CheckpointWrite], complete: Sequence[CheckpointWrite], now: datetime
) -> list[CheckpointWrite]:
    """Past their latest moment it is for their eviction to say whether they count."""
    begun = (*running, *complete)
    return [each for each in running if now > each.latest or not overdue(each, begun, now)]


def overdue_saves(
    e: Operation, others: Iterable[Operation], snapshot: ClusterSnapshot, config: Config, now: datetime, times: int = 1
) -> list[str]:
    """Ids of jobs that were asked, and were expected to be saved by now; ``times``: within so many times that."""
    waits = ((p, p.asked_at) for p in e.preemptions if p.state is _WRITES)
    late = [p for p, at in waits if at is not None and now > at + timedelta(seconds=p.predicted_checkpoint_s)]
    slow = _writes(((e, p) for p in late), snapshot, config)
    shared = any(each.file_system_s is not None for each in slow)
    begun = _writes(_begun((e, *others)), snapshot, config) if shared else []
    return [each.job_id for each in slow if overdue(each, begun, now - timedelta(seconds=(times - 1) * each.seconds))]


def _begun(operations: Iterable[Operation]) -> Iterator[tuple[Operation, Preemption]]:
    """Checkpoints that are or were written."""
    for e in operations:
        yield from ((e, p) for p in e.preemptions if p.state is _WRITES or p.checkpointed_at is not None)


def _writes(
    saves: Iterable[tuple[Operation, Preemption]], snapshot: ClusterSnapshot, config: Config
) -> list[CheckpointWrite]:
    found = (checkpoint_write_of(e, p, snapshot, config.costs, config.execution) for e, p in saves)
    return [each for each in found if each is not None]


def may_begin(write: CheckpointWrite, load: CheckpointLoad, limit: int, bandwidth_mib_s: float) -> bool:
    """Whether this waiting checkpoint may be asked for now; ``limit`` holds for those that do not share."""
    begun, first = (*load.running, *load.complete), load.first
    if write.file_system_s is not None:
        return (first is None or first.plan == write.plan) and _keeps_others_in_time(write, begun)
    if first is None or first.job_id != write.job_id:
        return False
    asked = [each for each in load.running if not each.own_pace]
    left_mib_s = bandwidth_mib_s - sum(each.rate_mib_s for each in asked)
    has_room = not asked or (len(asked) < limit and write.rate_mib_s <= left_mib_s)
    return has_room and _keeps_others_in_time(write, begun, sharing=True)


def clear_after_s(load: CheckpointLoad, now: datetime, horizon_s: float) -> int:
    """Seconds until all checkpoints are complete that come before those of a new plan, which may take ``horizon_s``."""
    known = (*load.running, *load.complete)
    beside_s, end = 0.0, now
    for each in load.running:
        complete = _complete_by(each, known)
        # What a job saves in its own time is waited for only if it would be late otherwise.
        if each.own_pace and complete + timedelta(seconds=horizon_s) <= each.latest:
            beside_s += each.occupies_s
        else:
            end = max(end, complete)
    plans: defaultdict[int, list[CheckpointWrite]] = defaultdict(list)
    for each in load.waiting:
        if now + timedelta(seconds=each.seconds) <= each.latest:  # the others come last, and make none late
            plans[each.plan].append(each)
    counted_s = before_s = max(beside_s, (end - now).total_seconds())
    for waiting in sorted(plans.values(), key=lambda some: (some[0].latest, some[0].plan)):
        takes_s = sum(each.occupies_s for each in waiting) + max(each.seconds - each.occupies_s for each in waiting)
        before_s += takes_s
        slack_s = (waiting[0].latest - now).total_seconds() - before_s
        if slack_s < horizon_s or waiting[0].latest <= now + timedelta(seconds=horizon_s):
            counted_s += takes_s
    return ceil(counted_s)


def shared_bandwidth(config: Config) -> float | None:
    """MiB/s that the checkpoints of a plan share; None where they are written one after another."""
    if config.planning.checkpoints == "serial":
        return None
    return config.execution.checkpoint_bandwidth_mib_s or config.costs.file_system_mib_s


def file_system_busy_s(
    others: Iterable[Operation], snapshot: ClusterSnapshot, config: Config, now: datetime, horizon_s: float
) -> int:
    """See ``clear_after_s``; 0 where checkpoints are planned one after another."""
    if shared_bandwidth(config) is None:
        return 0
    load = checkpoint_load_of(
        others,
        lambda e, p: checkpoint_write_of(e, p, snapshot, config.costs, config.execution),
        lambda e, _: not isinstance(e, Relocation),  # one that has not begun is called off
        lambda _: False,
        now,
    )
    return clear_after_s(load, now, horizon_s)
