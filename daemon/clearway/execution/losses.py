"""What jobs have lost by leaving, as measured: once their next run says how it went on. The one place that reckons it.

Until then a record has what is lost if the next run goes on from the newest checkpoint (``progress.times``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from clearway.estimates.costs import unsaved_s
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import with_preemption
from clearway.model.claims import Restart, read_claims
from clearway.model.cluster import Job
from clearway.model.events import Emit, LossMeasured
from clearway.model.operations import Eviction, Preemption
from clearway.model.problem import Action
from clearway.model.records import RestartRecord
from clearway.store.repository import Store

_STAY = (Action.END, Action.SUSPEND)
_RUNS = 50  # of a job that are looked through for work that is lost with the newest one's


@dataclass(slots=True)
class LossKeeper:
    """What it remembers may be lost: after a start all jobs in the queue tell again how their runs began."""

    store: Store
    operations: OpenOperations
    emit: Emit
    _waiting: list[tuple[Job, RestartRecord]] = field(default_factory=list, init=False)

    def forget(self) -> None:
        self._waiting = []

    def follow(self, told: Iterable[tuple[Job, RestartRecord]], now: datetime) -> None:
        """``told``: jobs that have just said how their run began, and what they said."""
        self._waiting.extend(told)
        waiting, self._waiting = self._waiting, []
        self._waiting = [each for each in waiting if not self._measure(*each, now)]

    def _measure(self, job: Job, record: RestartRecord, now: datetime) -> bool:
        """False: it is not settled yet whether the job leaves."""
        involved = self.store.involvements(job.job_id, seen=job, limit=_RUNS)
        known = [(each.eviction_id, p) for each in involved if (p := each.preemption) is not None]
        left = [(number, p) for number, p in known if p.requeued_at is not None and p.action not in _STAY]
        if known and began_within_its_run(known[0][1], job, record):
            return self._measure_broken(known[0], job, record, [p for _, p in left], now)
        if left and left[0][1].job.restart_count < record.run:
            (number, p), *earlier = left
            return self._keep(number, p, measured(p, job, record, p.requeued_at or now, [q for _, q in earlier]))
        return True

    def _measure_broken(
        self,
        newest: tuple[int, Preemption],
        job: Job,
        record: RestartRecord,
        earlier: Sequence[Preemption],
        now: datetime,
    ) -> bool:
        """What a save has cost that ended the program."""
        number, p = newest
        if p.requeued_at is not None or not p.state.terminal:
            return p.requeued_at is not None  # if it leaves, its next run tells of all that
        broken = now - timedelta(seconds=record.restart_s or 0.0)
        return self._keep(number, p, measured(p, job, record, broken, earlier))

    def _keep(self, eviction_id: int, p: Preemption, after: Preemption) -> bool:
        if p.restart is not None:
            return True
        before = self.operations.get(eviction_id)
        index = max(index for index, each in enumerate(before.preemptions) if each.job_id == p.job_id)
        self.operations.keep_loss(before, e := with_preemption(before, index, after))
        if isinstance(e, Eviction):
            self._keep_in_report(e, after)
        self.emit(LossMeasured(p, after, p.job.partitions[0] if p.job.partitions else "", e))
        return True

    def _keep_in_report(self, e: Eviction, after: Preemption) -> None:
        for case in self.store.cases_since(e.preemptor.submit_time):
            if case.eviction_id == e.eviction_id and case.closed_at is not None:  # others are followed
                lost = {after.job_id: after.actual_lost_node_s}
                jobs = (
                    replace(each, actual_lost_node_s=lost.get(each.job_id, each.actual_lost_node_s))
                    for each in case.jobs
                )
                self.store.keep_case(replace(case, jobs=tuple(jobs)))


def measured(
    p: Preemption, job: Job, record: RestartRecord, end: datetime, earlier: Sequence[Preemption]
) -> Preemption:
    """The preemption with what it has lost: the work since the image that ``job``, the next run, went on from, and the
    time of the restart.

    ``earlier``: how the job left before, newest first: work that was carried on from run to run is lost with the
    newest one's. Of runs that ended by another hand nothing is known; they count for nothing.
    """
    nodes, restart_s = max(1, p.job.num_nodes), record.restart_s or 0.0
    claims, _ = read_claims(job)
    image = None if claims is None else claims.last
    if image is not None and image > end:  # this run has saved itself meanwhile
        image = None
    if record.restart is Restart.OK and image is None:
        lost_node_s = p.actual_lost_node_s or 0.0
    elif record.restart is Restart.SCRATCH:
        lost_node_s = _lost_node_s(p, None, end, earlier)
    else:
        lost_node_s = _lost_node_s(p, image or _began(p), end, earlier)
    lost_node_s += restart_s * nodes
    return replace(p, restart=record.restart, restart_s=restart_s, actual_lost_node_s=round(lost_node_s, 3))


def began_within_its_run(p: Preemption, job: Job, record: RestartRecord) -> bool:
    """Whether the program was started again in the run in which it was asked to save itself: the save has ended it."""
    if p.asked_at is None or p.job.run != job.run or record.restart is Restart.OK:
        return False
    before, _ = read_claims(p.job)
    said = None if before is None else before.restart
    # A later run may say only after it was asked how it began itself.
    return (job.restart_count == 0 or said is not None) and said is not record.restart


def _lost_node_s(p: Preemption, image: datetime | None, end: datetime, earlier: Sequence[Preemption]) -> float:
    """Node-seconds computed since ``image``, those aside that were lost before; None: since the job began anew."""
    lost_node_s, newer = _ran_node_s(p, image, end), p
    counted_node_s = 0.0  # as lost by earlier departures
    for each in earlier:
        if (image is not None and image >= _began(newer)) or each.restart is Restart.SCRATCH:
            break
        restart_node_s = (each.restart_s or 0.0) * max(1, each.job.num_nodes)
        counted_node_s += max(0.0, (each.actual_lost_node_s or 0.0) - restart_node_s)
        ran_node_s = _ran_node_s(each, image, each.requeued_at or _began(newer))
        lost_node_s += max(0.0, ran_node_s - counted_node_s)
        counted_node_s = max(0.0, counted_node_s - ran_node_s)
        newer = each
    return lost_node_s


def _ran_node_s(p: Preemption, image: datetime | None, end: datetime) -> float:
    start = _began(p)
    return unsaved_s(p.job, start if image is None else max(start, image), end) * max(1, p.job.num_nodes)


def _began(p: Preemption) -> datetime:
    return p.job.start_time or p.job.submit_time
