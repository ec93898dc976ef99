"""What a job says of itself in its Comment: ``clearway:key=value,key=value`` anywhere in the text. Pure.

Its owner can write it, so a claim can only hurt the job that makes it: one that cannot be read, or contradicts what
Slurm knows, counts as none. The Comment outlives a requeue, and a signal that nothing waits for ends a job. So the
launcher's claims bear their run (``run=``, Slurm's restart count) and count in that alone. What users write at
submission means every run; what only a running program can have written, the run it can be shown to be of.

A job with ``grace`` answers nothing: its script was written for Slurm's own ``--signal`` and ``--requeue``
(docs/decisions/0103). It has saved itself when its run is over, or when it has had that long.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial

from clearway.model.cluster import Job
from clearway.model.durations import parse_duration_s

CLOCK_SKEW = timedelta(seconds=5)  # compute nodes' clocks may run ahead by so much
# A claim without a run is older than the run: a program needs a while until a signal does not end it any more.
SETTLING = timedelta(seconds=60)
LONGEST_GRACE_S = 65_535  # that Slurm's --signal takes
CLAIM = "clearway:"  # a Comment without it claims nothing
# ASCII, as job_submit.lua and the launcher see it: what is one word to them must not be two here.
_TOKEN = re.compile(r"(?<!\S)clearway:(\S*)", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


class CheckpointHow(StrEnum):
    SIGNAL = "signal"  # saves itself when it is signalled
    INTERVAL = "interval"  # saves itself at its own pace; one has to wait for it
    NONE = "none"  # cannot be saved, and says so


class Restart(StrEnum):
    """How this run began, when it is not the job's first."""

    OK = "ok"  # from the newest generation
    FALLBACK = "fallback"  # from the one before: the newest was not valid
    SCRATCH = "scratch"  # from the start: no generation was valid


class SaveState(StrEnum):
    SAVING = "saving"
    SAVED = "saved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """A job's own words, syntactically valid; ``last_checkpoint`` below says whether they can be true."""

    max_delay_s: float | None = None
    checkpoint: CheckpointHow | None = None
    signal: str = "USR1"
    to: str = "batch"  # what gets the signal: the batch shell, or the steps
    interval_s: float | None = None
    last: datetime | None = None  # when the newest complete checkpoint was finished
    state: SaveState | None = None
    asked: datetime | None = None  # when the checkpoint that ``state`` speaks of was begun
    took_s: float | None = None
    size_mib: int | None = None
    generation: int | None = None
    checkpointer: str = "application"  # how it is saved: name of a registered checkpointer
    app: str | None = None  # what the program is called: history is kept by user, application and checkpointer
    requeues: bool = False  # puts itself back in the queue once it has saved itself (submitit, Lightning)
    restart: Restart | None = None
    restart_s: float | None = None  # from the start of this run until the program was restored
    run: int | None = None  # the job's restart count when this was said; None: of every run
    grace_s: float | None = None  # of a job that does not answer: what it gets from the signal to its requeue

    @property
    def unanswered_s(self) -> float | None:
        """For how long it is left to save itself without a word; None where it answers, or has a launcher that does."""
        return self.grace_s if self.checkpoint is CheckpointHow.SIGNAL and self.run is None else None


class ClaimError(ValueError):
    """The Comment holds a clearway: token that cannot be read."""


def parse_claims(comment: str) -> Claims | None:
    """The claims in a Comment; None when it makes none. Raises ``ClaimError``: with one sentence that names the key."""
    tokens = _TOKEN.findall(comment)
    if not tokens:
        return None
    pairs: dict[str, str] = {}
    for item in ",".join(tokens).split(","):
        key, equals, value = item.partition("=")
        if not equals or not value:
            raise ClaimError(f"clearway: expected key=value, not {item[:60]!r}")
        if key in pairs:
            raise ClaimError(f"clearway: {_shown(key)} is given twice")
        pairs[key] = value
    known: dict[str, object] = {}
    for key, value in pairs.items():
        if key not in _KEYS:
            raise ClaimError(f"clearway: unknown key {key[:30]!r}; known are {', '.join(sorted(_KEYS))}")
        field, read = _KEYS[key]
        try:
            known[field] = read(value)
        except ValueError as error:
            raise ClaimError(f"clearway: {key}={_shown(value)}: {str(error)[:200]}") from None
    return Claims(**known)  # type: ignore[arg-type]  # the table below pairs each field with its own type


def format_claims(comment: str, **pairs: str | int) -> str:
    """The Comment with these pairs set; other text and other pairs stay as they are."""
    items = (item.partition("=") for item in ",".join(_TOKEN.findall(comment)).split(","))
    merged = {key: value for key, equals, value in items if equals} | pairs
    rest = " ".join(_WORD.findall(_TOKEN.sub("", comment)))
    token = ",".join(f"{key}={value}" for key, value in merged.items())
    return f"{rest} clearway:{token}".strip()


def last_checkpoint(claims: Claims | None, start: datetime, now: datetime) -> datetime:
    """When the work that a kill would lose began: the last believable checkpoint of this run, else its start. A
    checkpoint of an earlier run does not help: what this run has done since its start would be lost.
    """
    if claims is None or claims.last is None or not start <= claims.last <= now + CLOCK_SKEW:
        return start
    return min(claims.last, now)


def _shown(text: str) -> str:
    return text[:30] if text[:30].isprintable() else repr(text[:30])


def _time(value: str) -> datetime:
    seconds = float(_matching(r"[0-9]{9,11}(\.[0-9]{1,6})?", "seconds since 1970", value))
    return datetime.fromtimestamp(seconds, UTC)


def _count(value: str) -> int:
    return int(_matching(r"[0-9]{1,12}", "a whole number", value))


def _grace_s(value: str) -> float:
    seconds = parse_duration_s(value)
    if not 1 <= seconds <= LONGEST_GRACE_S:
        raise ValueError(f"must lie between 1 and {LONGEST_GRACE_S} seconds")
    return seconds


def _matching(pattern: str, what: str, value: str) -> str:
    if not re.fullmatch(pattern, value):
        raise ValueError(f"must be {what}")
    return value


_name = partial(_matching, r"[A-Za-z0-9._+-]{1,64}", "1 to 64 letters, digits or ._+-")

_KEYS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "max_delay": ("max_delay_s", parse_duration_s),
    "checkpoint": ("checkpoint", CheckpointHow),
    "signal": ("signal", partial(_matching, "USR1|USR2|TERM|INT|HUP", "USR1, USR2, TERM, INT or HUP")),
    "to": ("to", partial(_matching, "batch|steps", "batch or steps")),
    "interval": ("interval_s", parse_duration_s),
    "last": ("last", _time),
    "state": ("state", SaveState),
    "asked": ("asked", _time),
    "took": ("took_s", parse_duration_s),
    "size_mib": ("size_mib", _count),
    "generation": ("generation", _count),
    "checkpointer": ("checkpointer", _name),
    "app": ("app", _name),
    "requeues": ("requeues", lambda value: bool(_matching("self", "self", value))),
    "restart": ("restart", Restart),
    "restart_s": ("restart_s", parse_duration_s),
    "run": ("run", _count),
    "grace": ("grace_s", _grace_s),
}


def read_claims(job: Job, of: Job | None = None) -> tuple[Claims | None, str]:
    """A job's claims and, where its Comment cannot be read, the error; unreadable claims count as none. Only what holds
    for its present run, or for the run of ``of``, the same job as seen earlier.
    """
    claims, error = _read(job.comment)
    if claims is None or _holds_for(claims, of or job):
        return claims, error
    lasting = ("max_delay_s", "checkpointer", "app", "requeues", "run")
    return Claims(**{name: getattr(claims, name) for name in lasting}), error


def of_another_run(job: Job) -> bool:
    claims, _ = _read(job.comment)
    return claims is not None and not _holds_for(claims, job)


def _holds_for(claims: Claims, job: Job) -> bool:
    if claims.run is not None:
        return claims.run == job.restart_count
    if claims.checkpoint is not CheckpointHow.SIGNAL:
        return True  # without a signal nothing can be ended too early, and times are compared with the run's start
    told = [at for at in (claims.asked, claims.last) if at is not None]
    if told and job.start_time is not None:
        return any(at >= job.start_time for at in told)
    if job.restart_count == 0:
        return True
    # What only a running program says. Launchers wrote an app before they wrote runs; users who name one for a handler
    # of their own lose a little.
    running = told or claims.state is not None or (claims.app is not None and claims.to == "batch")
    return not running or claims.requeues


def may_be_signalled(claims: Claims, job: Job, now: datetime) -> bool:
    """Whether a signal for a checkpoint can be sent now: one that comes before its handler would end the job."""
    return claims.run is not None or job.start_time is None or now - job.start_time >= SETTLING


@lru_cache(maxsize=16_384)
def _read(comment: str) -> tuple[Claims | None, str]:
    """Every job is asked several times a cycle, and Comments seldom change."""
    try:
        return parse_claims(comment), ""
    except ClaimError as error:
        return None, str(error)


def tells_restart(job: Job) -> bool:
    """Whether its launcher says how each run goes on; of a program that saves itself only the program knows."""
    claims, _ = read_claims(job)
    return claims is not None and claims.run is not None and claims.checkpointer != "application"


def saves(job: Job) -> Claims | None:
    """The claims of a job that can be checkpointed; None of any other."""
    claims, _ = read_claims(job)
    return claims if claims is not None and claims.checkpoint not in (None, CheckpointHow.NONE) else None


def unanswered_s(job: Job) -> float | None:
    """See ``Claims.unanswered_s``."""
    claims = saves(job)
    return None if claims is None else claims.unanswered_s


def answers(job: Job) -> bool:
    """Whether it has a launcher that answers by now. What its owner writes over its mark is no answer."""
    claims = saves(job)
    return claims is not None and claims.run is not None


def has_had_its_time(job: Job, asked: datetime | None, now: datetime) -> bool:
    """Whether a job that gives no answer has been left to save itself for as long as it says.

    Where the clock was set back by more than that, it counts as over: nobody knows, and the job waits for its end.
    """
    grace_s = unanswered_s(job)
    return asked is not None and grace_s is not None and abs((now - asked).total_seconds()) >= grace_s


def _since(claimed: datetime | None, asked: datetime) -> bool:
    """Whether a job's clock (whole seconds) says that something happened after it was asked for."""
    return claimed is not None and claimed >= asked.replace(microsecond=0)


def checkpointed_since(claims: Claims | None, asked: datetime) -> bool:
    """Whether a job claims a complete checkpoint that was begun (signal) or finished (interval) after ``asked``."""
    if claims is None or claims.last is None:
        return False
    if claims.checkpoint is CheckpointHow.SIGNAL:
        return claims.state is SaveState.SAVED and _since(claims.asked, asked) and _since(claims.last, asked)
    return _since(claims.last, asked) and claims.last > asked


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What a job says of itself when it is asked to save itself, or was asked at a certain time."""

    claims: Claims | None
    saved: bool  # completely, since it was asked
    failed: bool  # since it was asked
    begun: bool  # since it was asked, whatever came of it
    may_be_signalled: bool  # now

    @property
    def how(self) -> CheckpointHow:
        return (self.claims and self.claims.checkpoint) or CheckpointHow.NONE


def save_report(job: Job, now: datetime, asked: datetime | None, of: Job | None = None) -> SaveReport:
    """``asked``: when it was asked, if it was. ``of``: see ``read_claims``."""
    claims, _ = read_claims(job, of)
    state = None if claims is None or not _since(claims.asked, asked or now) else claims.state
    return SaveReport(
        claims,
        saved=checkpointed_since(claims, asked or now),
        failed=state is SaveState.FAILED,
        begun=state is not None,
        may_be_signalled=claims is not None and may_be_signalled(claims, job, now),
    )
