"""What a change of an operation means for whom: notices as facts, and their words for each place. Pure.

A job's owner is told what Slurm itself shows of the own job, and the urgent job that it leaves for with its user, as
REST tells them (``api``). Neither the plan's reasons nor an operator's name are told: they may name other jobs.

Nothing is told of a plan that is only proposed (observe mode): none of its jobs ever leaves.

What users have written (names of jobs) may be an attack on what shows it: each place has an escape of its own, and
every such text is bounded. Templates look names up and run nothing (``config.notify.filled``).
"""

import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime

from clearway.config.notify import MailConfig, TextsConfig, filled
from clearway.model.claims import CLAIM, Restart
from clearway.model.losses import is_measured, not_known, told_loss
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
_LEFT = (S.SUSPENDED, S.VACATED, S.QUEUED, S.HELD, S.RETURNED)
SUSPENDED, CANCELLED, PREEMPTED = "suspended", "cancelled", "preempted"
_FATES = {  # what comes next, and how the job is warned
    SUSPENDED: ("goes on when its nodes are free again", "It will be suspended, and go on later."),
    CANCELLED: ("does not run again", "It will be cancelled; what it has not saved by then is lost."),
    PREEMPTED: ("waits in the queue", "It will be requeued; what it has not saved by then is lost."),
}
_LONGEST_WORD = 120  # characters of what a user may have written
_NO_WIDTH = "\u200b"  # what is parted by it looks the same, and means nothing
_MOST_LINES = 50  # of one message; of the rest only the number is told
_SUBJECTS = {
    NoticeKind.WARNED: "job {job_id} is to leave soon",
    NoticeKind.LEFT: "job {job_id} was {what}",
    NoticeKind.RETURNED: "job {job_id} was started again",
    NoticeKind.BEGAN: "job {job_id} did not go on from its newest checkpoint",
    NoticeKind.HELD: "job {job_id} is held in the queue",
    NoticeKind.APPROVAL: "operation {eviction_id} waits for approval",
    NoticeKind.LOOP: "jobs leave again and again",
    NoticeKind.STOPPED: "no job leaves for urgent jobs any more",
    NoticeKind.LATE: "operation {eviction_id} has missed its deadline",
}


def notices_of(before: Operation | None, after: Operation, given: AbstractSet[str], now: datetime) -> Iterator[Notice]:
    """What is new in ``after``, by all channels. ``given``: jobs whose commands Slurm has just taken."""
    waited, was_late = (before.state, before.late) if before is not None else (None, False)
    if after.state is EvictionState.AWAITING_APPROVAL and waited is not after.state:
        yield from _to_operators(NoticeKind.APPROVAL, _approval_key(after), after, now)
    if after.late and not was_late:
        yield from _to_operators(NoticeKind.LATE, f"{after.eviction_id}:late", after, now)
    known = {p.job_id: p for p in before.preemptions} if before is not None else {}
    begins = after.state.acting and not (before is not None and before.state.acting)
    for p in after.preemptions:
        old = known.get(p.job_id)
        if begins or old is None:
            yield from _warning(after, p, now)
        if p.requeued_at is not None:
            yield from _of_job(after, old, p, p.requeued_at, now, given=p.job_id in given)
        yield from _of_restart(after, old, p, now)


def _of_restart(e: Operation, old: Preemption | None, p: Preemption, now: datetime) -> Iterator[Notice]:
    if _began_worse(p) and not (old is not None and _began_worse(old)):
        yield from _messages(NoticeKind.BEGAN, e, p, now, now)


def _began_worse(p: Preemption) -> bool:
    """Not from its newest checkpoint."""
    return p.restart in (Restart.FALLBACK, Restart.SCRATCH)


def _warning(e: Operation, p: Preemption, now: datetime) -> Iterator[Notice]:
    """Where it is to leave, and has not begun to."""
    to_leave = e.state.acting and p.state is S.PLANNED and p.action is not Action.END
    if to_leave and e.plan.deadline - now >= WARNED_BEFORE:
        yield _notice(NoticeKind.WARNED, Channel.OUTPUT, e, p, now, now)


def _of_job(
    e: Operation, old: Preemption | None, p: Preemption, left_at: datetime, now: datetime, *, given: bool
) -> Iterator[Notice]:
    """``given``: Slurm has just taken a command for it."""
    was = None if old is None else old.state
    has_just_left = _has_left(p) and not (old is not None and _has_left(old))
    if has_just_left or (given and p.state is S.VACATING):
        yield from _messages(NoticeKind.LEFT, e, p, left_at, now)
        # A run of the job that makes claims may write its Comment: then it must be over first. Slurm takes no Comment
        # of a job that is cancelled.
        if _fate(p) != CANCELLED and (_has_left(p) or CLAIM not in p.job.comment):
            yield _notice(NoticeKind.LEFT, Channel.COMMENT, e, p, left_at, now)
    if p.state is S.RETURNED and was not in (None, S.RETURNED):
        yield from _messages(NoticeKind.RETURNED, e, p, p.returned_at or now, now)
    if p.state is S.HELD and was is not S.HELD:
        yield from _messages(NoticeKind.HELD, e, p, now, now)


def _has_left(p: Preemption) -> bool:
    """As a snapshot has shown. A job that ends while it is requeued may have ended by itself."""
    return p.requeued_at is not None and (p.state in _LEFT or (p.state is S.ENDED and _fate(p) == CANCELLED))


def _messages(kind: NoticeKind, e: Operation, p: Preemption, at: datetime, now: datetime) -> Iterator[Notice]:
    return (_notice(kind, channel, e, p, at, now) for channel in _MESSAGES)


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
    fate = _fate(p)
    then, how = _FATES[fate]
    why, cause = _why(e)
    return {
        "job_id": p.job.display_id,
        "job_name": p.job.name,
        "user": p.job.user,
        "eviction_id": str(e.eviction_id),
        "at": shown_time(at),
        "deadline": shown_time(e.plan.deadline),
        "why": why,
        "cause": cause,
        "what": fate,
        "saved": _saved(p),
        "next": then,
        "began": not_known(p) if p.restart is None else told_loss(p),
        "how": "It will be asked to save itself, and then requeued." if p.action in CHECKPOINTS else how,
        **_urgent(e),
    }


def _urgent(e: Operation) -> dict[str, str]:
    if not isinstance(e, Eviction):
        return {}
    return {"urgent_job": e.preemptor.display_id, "urgent_user": e.preemptor.user}


def _fate(p: Preemption) -> str:
    """What becomes of the job, as ``what`` says it."""
    if p.action is Action.SUSPEND:
        return SUSPENDED
    return PREEMPTED if p.job.can_be_requeued else CANCELLED


def _why(e: Operation) -> tuple[str, str]:
    """And the same without names: a Comment is shown to all who see the job."""
    match e:
        case Eviction():
            return f"{_called(e)} needs its nodes", "for another job" if e.plan.ordinary else "for an urgent job"
        case Promise():
            return f"its nodes are promised from {shown_time(e.order.at)} on", "for promised nodes"
        case Drain():
            return "its nodes are being emptied", "for a drain of its nodes"
        case _:
            return "it goes on on other nodes", "to go on elsewhere"


def _called(e: Eviction) -> str:
    return f"{'job' if e.plan.ordinary else 'urgent job'} {e.preemptor.display_id} of {e.preemptor.user}"


def _wanted(e: Operation) -> str:
    if isinstance(e, Promise):
        return f"{e.order.nodes} node(s) are promised from {shown_time(e.order.at)} on"
    if not isinstance(e, Eviction):
        return "jobs shall move"
    tasks = f" for {e.plan.tasks} tasks" if e.plan.tasks > 1 else ""
    return f"{_called(e)} needs {e.plan.nodes_needed} node(s){tasks}"


def _saved(p: Preemption) -> str:
    """``what was saved`` in a few words, which fit into a Comment as well."""
    if p.action is Action.SUSPEND:
        return "its memory stays"
    if p.checkpointed_at is not None:
        return f"saved {p.checkpointed_at:%H:%M} UTC"
    if p.actual_lost_node_s is None:
        return "what was not saved is lost"
    if not is_measured(p):
        return f"not saved since its last checkpoint: {p.actual_lost_node_s / 3600:.2f} node-hours"
    return f"not saved: {p.actual_lost_node_s / 3600:.2f} node-hours lost"


def _approval_key(e: Operation) -> str:
    """Of the urgent job, not of the plan: plans for it follow one another while it waits. Once more where more jobs
    would leave than was planned.
    """
    if isinstance(e, Eviction):
        again = f":{e.plan.pledge.after}" if e.plan.pledge is not None and e.plan.pledge.asks else ""
        return f"job {e.preemptor.job_id} {e.preemptor.submit_time:%Y%m%dT%H%M%S}:approval{again}"
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
        **_urgent(e),
    }
    return operators_notices(kind, key, facts, at, e.eviction_id)


def operators_notices(
    kind: NoticeKind, key: str, facts: Mapping[str, str], at: datetime, eviction_id: int | None = None
) -> Iterator[Notice]:
    """One for each channel that reaches operators."""
    for to in _MESSAGES:
        yield Notice(key=key, kind=kind, channel=to, at=at, created_at=at, eviction_id=eviction_id, about=_cut(facts))


def shown_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _cut(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: text[:_LONGEST] for name, text in facts.items()}


def plain(text: str) -> str:
    """One line of printable characters: no line break, escape code or direction mark goes through."""
    line = "".join(each if each.isprintable() else "?" for each in text)
    return line if len(line) <= _LONGEST_WORD else f"{line[: _LONGEST_WORD - 3]}..."


def sentence(notice: Notice, texts: TextsConfig, shown: Callable[[str], str] = plain) -> str:
    """What is told, as one line of plain text; ``shown`` is what becomes of each fact."""
    facts = {name: shown(text) for name, text in notice.about.items()}
    return filled(getattr(texts, notice.kind.value), facts).replace("()", "").replace("  ", " ").strip()


def lines(notices: Sequence[Notice], texts: TextsConfig, shown: Callable[[str], str] = plain) -> list[str]:
    """A sentence for each, a bounded number."""
    told = [sentence(each, texts, shown) for each in notices[:_MOST_LINES]]
    more = len(notices) - len(told)
    return [*told, f"... and {more} more."] if more else told


def as_json(notices: Sequence[Notice], texts: TextsConfig) -> bytes:
    """``id`` is the same when a notice has to be sent again, so that a receiver can drop it."""
    told = [
        {
            "id": f"{each.key}",
            "kind": each.kind.value,
            "at": each.at.isoformat(timespec="milliseconds"),
            "user": each.user or None,
            "job_id": each.job_id or None,
            "eviction_id": each.eviction_id,
            "text": sentence(each, texts),
            "about": {name: plain(text) for name, text in each.about.items()},
        }
        for each in notices
    ]
    return json.dumps({"version": 1, "notices": told}).encode()


def as_slack(notices: Sequence[Notice], texts: TextsConfig) -> bytes:
    """Slack's own escapes (& < >) leave no link, no mention and no markup; for Mattermost see ``_in_chat``."""
    text = html.escape("\n".join(lines(notices, texts, _in_chat)), quote=False)
    return json.dumps({"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}).encode()


def _in_chat(text: str) -> str:
    """Mattermost takes Markdown, whatever ``mrkdwn`` says: nobody is called by ``@all``, and nothing is a link."""
    line = plain(text)
    for mark in ("@", "](", "://"):
        line = line.replace(mark, f"{mark[0]}{_NO_WIDTH}{mark[1:]}")
    return line


def as_mail(notices: Sequence[Notice], address: str, config: MailConfig, texts: TextsConfig) -> EmailMessage:
    """Headers hold one line each, whatever users have written."""
    first = notices[0]
    about = filled(_SUBJECTS[first.kind], {name: plain(text) for name, text in first.about.items()})
    if len(notices) > 1:
        about = f"{about}, and {len(notices) - 1} more"
    mail = EmailMessage()
    mail["From"] = config.sender
    mail["To"] = address
    mail["Subject"] = plain(filled(config.subject, {"subject": about}))
    mail["Date"] = format_datetime(first.created_at)
    mail["Message-ID"] = (
        f"<clearway.{first.notice_id}.{first.created_at:%Y%m%d%H%M%S%f}@{config.sender.partition('@')[2]}>"
    )
    mail["Auto-Submitted"] = "auto-generated"  # no answer of an absence assistant comes back
    mail.set_content("\n\n".join(lines(notices, texts)) + "\n\nClearway\n")
    return mail
