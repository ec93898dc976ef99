"""The token that the command line shows the daemon."""

import os
import shutil
import subprocess
from pathlib import Path

from clearway.client import TOKEN, TOKEN_FILE, read_token
from clearway.config.access import ClientConfig

_LIMIT_S = 10.0


def api_token(config: ClientConfig) -> str:
    """CLEARWAY_TOKEN, the file of CLEARWAY_TOKEN_FILE or of the configuration, SLURM_JWT, else one made by Slurm.

    Empty where there is none. Raises ``ApiError`` for a file that cannot be read.
    """
    given = os.environ.get(TOKEN)
    file = os.environ.get(TOKEN_FILE) or config.token_file
    if not given and file:
        return read_token(Path(file))
    return (given or os.environ.get("SLURM_JWT") or _of_slurm()).strip()


def _of_slurm() -> str:
    """A token for the user of this process, for a minute; empty where Slurm makes none."""
    scontrol = shutil.which("scontrol")
    if scontrol is None:
        return ""
    command = [scontrol, "token", "lifespan=60"]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip().removeprefix("SLURM_JWT=") if done.returncode == 0 else ""
