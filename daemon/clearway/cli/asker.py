"""Who asks, and when: the user, the actor of requests, the token that the daemon is shown, and the time."""

import os
import pwd
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from clearway.client import TOKEN, TOKEN_FILE, read_token
from clearway.config.access import ClientConfig


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
    """Empty where there is none. Raises ``ApiError`` for a file that cannot be read."""
    given, file = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE) or config.token_file
    if not given and file:
        return read_token(Path(file))
    return (given or os.environ.get("SLURM_JWT") or _token_of_slurm()).strip()


def _token_of_slurm() -> str:
    """A token for the user of this process, for a minute; empty where Slurm makes none."""
    command = [shutil.which("scontrol") or "", "token", "lifespan=60"]
    if not command[0]:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOKEN_LIMIT_S, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip().removeprefix("SLURM_JWT=") if done.returncode == 0 else ""
