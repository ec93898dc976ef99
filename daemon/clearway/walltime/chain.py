"""A chain: one job that asks for one walltime after the other, and the folder in which it keeps where it is. Pure.

The folder's files and the programs that write them are described in ``plugins/slurm/clearway-chain``, the part of the
launcher that runs in the job. Here is what `clearway walltime submit` puts into it, and how `clearway walltime status`
reads it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clearway.model.errors import WalltimeError
from clearway.walltime.request_sequence import Costs, WalltimeRequest

SLACK_S = 30.0  # Slurm's limit lies so far behind a request at least: to requeue takes a moment
_NUMBERS = ("request", "asked_cs", "saved_cs")
_MOST_S = 365 * 86_400.0


class Stage(StrEnum):
    """What the job's launcher last wrote."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    SAVING = "saving"
    REQUEUED = "requeued"
    ENDED = "ended"
    STOPPED = "stopped"

    @property
    def over(self) -> bool:
        return self in {Stage.ENDED, Stage.STOPPED}


@dataclass(frozen=True, slots=True)
class ChainState:
    """Where a chain is."""

    stage: Stage
    request: int  # counted from 1
    asked_s: float
    saved_s: float  # work that need not be done again
    code: int | None  # the program's exit status, once it has ended
    reason: str


@dataclass(frozen=True, slots=True)
class SlurmView:
    """What squeue says of a job: its state, and why it waits."""

    state: str
    reason: str


def limit_minutes(request_s: float) -> int:
    """Slurm's time limit for a request."""
    return math.ceil((request_s + SLACK_S) / 60)


def plan_text(requests: Sequence[WalltimeRequest]) -> str:
    """The file ``plan``. Raises ``WalltimeError``: a request that no cluster grants."""
    for number, request in enumerate(requests, 1):
        if request.request_s > _MOST_S:
            raise WalltimeError(f"request {number} is longer than a year")
    return "".join(f"{_hundredths(each.milestone_s)} {'yes' if each.checkpoint else 'no'}\n" for each in requests)


def first_state(requests: Sequence[WalltimeRequest], costs: Costs) -> str:
    """The file ``state`` of a chain that was never begun."""
    values = {
        "state": Stage.SUBMITTED.value,
        "request": 1,
        "asked_cs": _hundredths(requests[0].request_s),
        "saved_cs": 0,
        "checkpoint_cs": _hundredths(costs.checkpoint),
        "restart_cs": _hundredths(costs.restart),
        "code": "",
        "reason": "",
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _hundredths(seconds: float) -> int:
    return math.ceil(seconds * 100 - 1e-6)


def parse_state(text: str) -> ChainState:
    """The file ``state``. Raises ``WalltimeError``: it is damaged."""
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    try:
        stage = Stage(found.get("state", ""))
    except ValueError:
        raise WalltimeError(f"state is {found.get('state', '')!r:.40}") from None
    for key in _NUMBERS:
        if not found.get(key, "").isdecimal():
            raise WalltimeError(f"{key} is {found.get(key, '')!r:.40}")
    code = found.get("code", "")
    return ChainState(
        stage=stage,
        request=int(found["request"]),
        asked_s=int(found["asked_cs"]) / 100,
        saved_s=int(found["saved_cs"]) / 100,
        code=int(code) if code.isdecimal() else None,
        reason=found.get("reason", ""),
    )


def parse_queue(text: str) -> dict[str, SlurmView]:
    """Lines of ``squeue --noheader --format='%A|%T|%r'`` by job id; what is no such line is left out."""
    rows = (line.strip().split("|", 2) for line in text.splitlines())
    return {row[0]: SlurmView(row[1], row[2]) for row in rows if len(row) == 3 and row[0].isdecimal()}


def standing(state: ChainState, seen: SlurmView | None, *, asked: bool) -> str:
    """One phrase for the chain's owner; ``asked``: whether Slurm could be asked for its jobs."""
    if state.stage is Stage.ENDED:
        return "done" if state.code == 0 else f"failed: exit status {state.code}"
    if state.stage is Stage.STOPPED:
        return f"stopped: {state.reason}"
    if not asked:
        return state.stage.value
    if seen is None:
        return "stopped: Slurm does not know its job any more; see the job's output"
    if seen.state == "PENDING":
        return "waiting" if seen.reason in {"", "None"} else f"waiting ({seen.reason})"
    if seen.state in {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"}:
        return state.stage.value if seen.state == "RUNNING" else seen.state.lower()
    return f"stopped: Slurm calls its job {seen.state}"
