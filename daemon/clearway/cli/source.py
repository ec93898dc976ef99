"""Where the commands read from and ask, and as whom. Answers have the form of the REST API, wherever they come from."""

import os
import pwd
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from clearway.api.plan_schemas import ExplanationView, VerdictView
from clearway.api.report_schemas import AuditCheckView, AuditView, ReportView
from clearway.api.schemas import (
    CalibrationView,
    EvictionList,
    EvictionView,
    LeaderList,
    RequestView,
    RollingList,
    RollingView,
    RollingWhatIf,
    StepList,
    WalltimeAdviceView,
    WhatIfView,
)
from clearway.api.status_schemas import StatusView
from clearway.client import TOKEN, TOKEN_FILE, read_token
from clearway.config.access import ClientConfig
from clearway.drain.request import DrainRequest
from clearway.model.audit import AuditKind
from clearway.model.orders import MoveKind
from clearway.model.requests import RequestKind


class Source(Protocol):
    """Every call raises ``ClearwayError`` (one line) where there is no answer, or it is a refusal."""

    def status(self) -> StatusView: ...

    def evictions(self, state: str | None, limit: int) -> EvictionList:
        """Newest first; ``state`` as the API's parameter has it."""

    def promises(self, limit: int) -> EvictionList:
        """Newest first."""

    def eviction(self, eviction_id: int) -> EvictionView: ...

    def verdicts(self, eviction_id: int) -> tuple[VerdictView, ...]:
        """All of them."""

    def steps(self, eviction_id: int) -> StepList: ...

    def explanation(self, eviction_id: int) -> ExplanationView: ...

    def leaders(self, limit: int) -> LeaderList: ...

    def calibration(self, limit: int) -> CalibrationView: ...

    def report(self, since: str) -> ReportView:
        """``since``: how far to look back, such as 7d."""

    def walltime_advice(self, user: str, name: str) -> WalltimeAdviceView: ...

    def rolling_drains(self, limit: int) -> RollingList: ...

    def rolling_drain(self, rolling_id: int) -> RollingView: ...

    def audit(self, limit: int, kind: AuditKind | None, actor: str | None) -> tuple[AuditView, ...]:
        """Newest first."""

    def audit_check(self) -> AuditCheckView: ...

    def what_if(self, nodes: int, max_delay_s: float, partition: str | None) -> WhatIfView: ...

    def drain_what_if(self, wish: DrainRequest) -> WhatIfView: ...

    def rolling_what_if(self, wish: DrainRequest) -> RollingWhatIf: ...

    def moves_what_if(self, kind: MoveKind) -> WhatIfView: ...

    def ask(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> int:
        """Stores a request for the daemon; returns its number."""

    def request(self, request_id: int) -> RequestView: ...


def user() -> str:
    """The user of this process, which no variable can change."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def actor() -> str:
    """The user of this process; with root's rights also the user that sudo names."""
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return f"{user()} (command line{f', sudo by {behind}' if behind else ''})"


def now() -> datetime:
    return datetime.now(UTC)


_TOKEN_LIMIT_S = 10.0


def api_token(config: ClientConfig) -> str:
    """CLEARWAY_TOKEN, the file of CLEARWAY_TOKEN_FILE or of the configuration, SLURM_JWT, else one made by Slurm.

    Empty where there is none. Raises ``ApiError`` for a file that cannot be read.
    """
    given = os.environ.get(TOKEN)
    file = os.environ.get(TOKEN_FILE) or config.token_file
    if not given and file:
        return read_token(Path(file))
    return (given or os.environ.get("SLURM_JWT") or _token_of_slurm()).strip()


def _token_of_slurm() -> str:
    """A token for the user of this process, for a minute; empty where Slurm makes none."""
    scontrol = shutil.which("scontrol")
    if scontrol is None:
        return ""
    command = [scontrol, "token", "lifespan=60"]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, timeout=_TOKEN_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip().removeprefix("SLURM_JWT=") if done.returncode == 0 else ""
