"""Files that decide who may log in, or what is promised: read only where nobody else can have written them."""

import os
import stat
from pathlib import Path
from typing import Literal

from clearway.model.errors import ConfigError

_LARGEST_FILE = 64 * 1024


def read_trusted(
    file: Path, what: str, *, secret: bool, largest: int = _LARGEST_FILE, encoding: Literal["ascii", "utf-8"] = "ascii"
) -> str:
    """The text of an ordinary file of root's or of the daemon's user; a ``secret`` one is closed to others as well.

    Raises:
        ConfigError: one line that names the file.
    """
    forbidden = stat.S_IWGRP | stat.S_IWOTH | (stat.S_IRWXO | stat.S_IXGRP if secret else 0)
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{file}: {what} must be an ordinary file")
            if mode & forbidden:
                better = "use 0600, or 0640 with the daemon's group" if secret else "use 0644"
                raise ConfigError(f"{file}: mode {mode:04o} lets others read or change {what}; {better}")
            if status.st_uid not in (0, os.geteuid()):
                raise ConfigError(f"{file}: must belong to root or to the user that the daemon runs as")
            text = opened.read(largest + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(text) > largest:
        raise ConfigError(f"{file}: larger than {largest} bytes")
    try:
        return text.decode(encoding)
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: holds something other than {encoding.upper()}") from None
