"""The token that the command line shows the daemon."""

import os
from pathlib import Path

from clearway.cli.daemon_api import token as own_token
from clearway.client import TOKEN, TOKEN_FILE, read_token
from clearway.config.client import ClientConfig


def api_token(config: ClientConfig) -> str:
    """CLEARWAY_TOKEN, the file of CLEARWAY_TOKEN_FILE or of the configuration, else Slurm's own for this user.

    Empty where there is none. Raises ``ApiError`` for a file that cannot be read.
    """
    given = os.environ.get(TOKEN)
    file = os.environ.get(TOKEN_FILE) or config.token_file
    if not given and file:
        return read_token(Path(file))
    return given or own_token()
