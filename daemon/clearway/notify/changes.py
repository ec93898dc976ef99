"""What a change of an operation means for whom: notices, as facts without words. Pure.

A job's owner is told what Slurm itself shows of the own job, and the urgent job that it leaves for with its user, as
REST tells them (``api``). Neither the plan's reasons nor an operator's name are told: they may name other jobs.

Nothing is told of a plan that is only proposed (observe mode): none of its jobs ever leaves.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.model.claims import CLAIM
from clearway.model.cluster import Job
from clearway.model.notice import Channel, Notice, NoticeKind
from clearway.model.operations import (
    CHECKPOINTS,
    Drain,
    Eviction,
    EvictionState,
    Operation,
    Preemption,
    PreemptionState,
    Promise,
)
from clearway.model.problem import Action

WARNED_BEFORE = timedelta(seconds=30)  # a warning that comes later is of no use
_LONGEST = 200  # characters of one fact
_MESSAGES = (Channel.WEBHOOK, Channel.SLACK, Channel.MAIL)
S = PreemptionState
_LEFT = (S.SUSPENDED, S.VACATED, S.QUEUED, S.RETURNED)


def notices_of(before: Operation | None, after: Operation, given: AbstractSet[str], now: datetime) -> Iterator[Notice]:
    """What is new in ``after``. ``given``: ids of the jobs whose commands Slurm has just taken.

    All channels are named, whether they are on or not.
    """
    waited, was_late = (before.state, before.late) if before is not None else (None, False)
    if after.state is EvictionState.AWAITING_APPROVAL and waited is not after.state:
        yield from _to_operators(NoticeKind.APPROVAL, _approval_key(after), after, now)
    if after.late and not was_late:
        yield from _to_operators(NoticeKind.LATE, f"{after.eviction_id}:late", after, now)
    known = {p.job_id: p for p in before.preemptions} if before is not None else {}
    begins = after.state.acting and not (before is not None and before.state.acting)
    for p in after.preemptions:
        old = known.get(p.job_id)
        if p != old or begins or p.job_id in given:
            change = _Change(after, old, p, begins=begins or old is None, given=p.job_id in given)
            yield from _of_job(change, now)


@dataclass(frozen=True, slots=True)
class _Change:
    """What has become of one job."""

    e: Operation
    old: Preemption | None
    p: Preemption
    begins: bool  # jobs are to leave from now on
    given: bool  # Slurm has just taken a command for it

    @property
    def warned(self) -> bool:
        """Whether it is to leave, and has not begun to."""
        return self.begins and self.e.state.acting and self.p.state is S.PLANNED and self.p.action is not Action.END

    @property
    def left(self) -> bool:
        told = self.old is not None and _has_left(self.old)
        return (self.given and self.p.state is S.VACATING) or (_has_left(self.p) and not told)

    def became(self, state: PreemptionState, *before: PreemptionState) -> bool:
        """Whether it has just come into this state, from one of those before (from any where none is named)."""
        old = None if self.old is None else self.old.state
        return self.p.state is state and old not in (None, state) and (not before or old in before)


def _of_job(change: _Change, now: datetime) -> Iterator[Notice]:
    e, p = change.e, change.p
    if change.warned and e.plan.deadline - now >= WARNED_BEFORE:
        yield _notice(NoticeKind.WARNED, Channel.OUTPUT, e, p, now, now)
    if p.requeued_at is None:
        return
    if change.left:
        yield from (_notice(NoticeKind.LEFT, channel, e, p, p.requeued_at, now) for channel in _MESSAGES)
        # A run of the job that makes claims may write its Comment: then it must be over first. Slurm takes no Comment
        # of a job that is cancelled.
        if not _cancelled(p) and (_has_left(p) or CLAIM not in p.job.comment):
            yield _notice(NoticeKind.LEFT, Channel.COMMENT, e, p, p.requeued_at, now)
    if change.became(S.RETURNED):
        yield from (_notice(NoticeKind.RETURNED, channel, e, p, p.returned_at or now, now) for channel in _MESSAGES)
    if change.became(S.FAILED, S.VACATED, S.QUEUED):
        yield from (_notice(NoticeKind.HELD, channel, e, p, now, now) for channel in _MESSAGES)


def _has_left(p: Preemption) -> bool:
    """As a snapshot has shown. A job that ends while it is requeued may have ended by itself."""
    return p.requeued_at is not None and (p.state in _LEFT or (p.state is S.ENDED and _cancelled(p)))


def _cancelled(p: Preemption) -> bool:
    return p.action is not Action.SUSPEND and not p.job.can_be_requeued


def _notice(kind: NoticeKind, channel: Channel, e: Operation, p: Preemption, at: datetime, now: datetime) -> Notice:
    return Notice(
        key=f"{e.eviction_id}:{p.job_id}:{kind}",
        kind=kind,
        channel=channel,
        at=at,
        created_at=now,
        user=p.job.user,
        job_id=p.job_id,
        eviction_id=e.eviction_id,
        about=_cut(_job_facts(e, p, at)),
    )


def _job_facts(e: Operation, p: Preemption, at: datetime) -> dict[str, str]:
    facts = {
        "job_id": p.job.display_id,
        "job_name": p.job.name,
        "user": p.job.user,
        "eviction_id": str(e.eviction_id),
        "at": shown_time(at),
        "deadline": shown_time(e.plan.deadline),
        "why": _why(e),
        "cause": _cause(e),
        "what": _what(p),
        "saved": _saved(p),
        "next": _next(p),
        "how": _how(p),
    }
    if isinstance(e, Eviction):
        facts |= {"urgent_job": e.preemptor.display_id, "urgent_user": e.preemptor.user}
    return facts


def _why(e: Operation) -> str:
    if isinstance(e, Eviction):
        return f"{_called(e)} needs its nodes"
    if isinstance(e, Promise):
        return f"its nodes are promised from {shown_time(e.order.at)} on"
    return "its nodes are being emptied" if isinstance(e, Drain) else "it goes on on other nodes"


def _cause(e: Operation) -> str:
    """The same without names: a Comment is shown to all who see the job."""
    if isinstance(e, Eviction):
        return "for another job" if e.plan.ordinary else "for an urgent job"
    if isinstance(e, Promise):
        return "for promised nodes"
    return "for a drain of its nodes" if isinstance(e, Drain) else "to go on elsewhere"


def _called(e: Eviction) -> str:
    return f"{'job' if e.plan.ordinary else 'urgent job'} {e.preemptor.display_id} of {e.preemptor.user}"


def _wanted(e: Operation) -> str:
    if isinstance(e, Promise):
        return f"{e.order.nodes} node(s) are promised from {shown_time(e.order.at)} on"
    if not isinstance(e, Eviction):
        return "jobs shall move"
    tasks = f" for {e.plan.tasks} tasks" if e.plan.tasks > 1 else ""
    return f"{_called(e)} needs {e.plan.nodes_needed} node(s){tasks}"


def _for_good(job: Job) -> bool:
    return not job.can_be_requeued


def _what(p: Preemption) -> str:
    if p.action is Action.SUSPEND:
        return "suspended"
    return "cancelled" if _for_good(p.job) else "preempted"


def _saved(p: Preemption) -> str:
    """``what was saved`` in a few words, which fit into a Comment as well."""
    if p.action is Action.SUSPEND:
        return "its memory stays"
    if p.checkpointed_at is not None:
        return f"saved {p.checkpointed_at:%H:%M} UTC"
    if p.actual_lost_node_s is None:
        return "what was not saved is lost"
    return f"not saved: {p.actual_lost_node_s / 3600:.2f} node-hours lost"


def _next(p: Preemption) -> str:
    if p.action is Action.SUSPEND:
        return "goes on when its nodes are free again"
    return "does not run again" if _for_good(p.job) else "waits in the queue"


def _how(p: Preemption) -> str:
    if p.action in CHECKPOINTS:
        return "It will be asked to save itself, and then requeued."
    if p.action is Action.SUSPEND:
        return "It will be suspended, and go on later."
    end = "cancelled" if _for_good(p.job) else "requeued"
    return f"It will be {end}; what it has not saved by then is lost."


def _approval_key(e: Operation) -> str:
    """Of the urgent job, not of the plan: plans for it follow one another while it waits."""
    if isinstance(e, Eviction):
        return f"job {e.preemptor.job_id} {e.preemptor.submit_time:%Y%m%dT%H%M%S}:approval"
    return f"{e.eviction_id}:approval"


def _to_operators(kind: NoticeKind, key: str, e: Operation, at: datetime) -> Iterator[Notice]:
    facts = {
        "eviction_id": str(e.eviction_id),
        "at": shown_time(at),
        "deadline": shown_time(e.plan.deadline),
        "nodes": str(e.plan.nodes_needed),
        "jobs": str(sum(1 for p in e.preemptions if p.action is not Action.END)),
        "lost_node_h": f"{e.predicted_lost_node_s / 3600:.2f}",
        "why": _wanted(e),
        "what": e.outcome,
    }
    if isinstance(e, Eviction):
        facts |= {"urgent_job": e.preemptor.display_id, "urgent_user": e.preemptor.user}
    yield from for_operators(kind, key, facts, at, e.eviction_id)


def for_operators(
    kind: NoticeKind, key: str, facts: Mapping[str, str], at: datetime, eviction_id: int | None = None
) -> Iterator[Notice]:
    """One for each channel that reaches operators."""
    for channel in _MESSAGES:
        yield Notice(
            key=key, kind=kind, channel=channel, at=at, created_at=at, eviction_id=eviction_id, about=_cut(facts)
        )


def shown_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _cut(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: text[:_LONGEST] for name, text in facts.items()}
