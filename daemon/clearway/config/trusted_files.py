"""Files that decide who may log in, or what is promised: read only where nobody else can have written them."""

import os
import stat
from pathlib import Path
from typing import Literal

from clearway.model.errors import ConfigError

_LARGEST_FILE = 64 * 1024
_MOST_LINKS = 40  # as Linux itself


def read_trusted(
    file: Path,
    what: str,
    *,
    secret: bool,
    folders: bool = False,
    largest: int = _LARGEST_FILE,
    encoding: Literal["ascii", "utf-8"] = "ascii",
) -> str:
    """The text of an ordinary file of root's or of the daemon's user; a ``secret`` one is closed to others as well.

    ``folders``: those on the way to it must be closed to others' changes, too: who may write one can put an older file
    of ours, or none, in its place. Raises ``ConfigError``: one line that names the file.
    """
    forbidden = stat.S_IWGRP | stat.S_IWOTH | (stat.S_IRWXO | stat.S_IXGRP if secret else 0)
    try:
        if folders:
            _refuse_open_folders(file, what)
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


def _refuse_open_folders(file: Path, what: str) -> None:
    """Look at the folders of the name as given, and of every link on its way. Raises ``ConfigError``, ``OSError``."""
    way = file.absolute()
    for _ in range(_MOST_LINKS):
        real = way.parent.resolve() / way.name
        for folder in (*way.parents, *real.parents):
            # A link is looked at, not what it leads to: its folder is looked at as well.
            mode = _mode_of_ours(folder, what)
            # In a sticky folder, such as /tmp, nobody can remove or replace what belongs to others.
            if stat.S_ISDIR(mode) and mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
                raise ConfigError(f"{folder}: mode {stat.S_IMODE(mode):04o} lets others replace {what}; use 0755")
        if not real.is_symlink():
            return
        _mode_of_ours(real, what)
        way = real.parent / real.readlink()
    raise ConfigError(f"{file}: leads through too many links")


def _mode_of_ours(name: Path, what: str) -> int:
    """Of a folder or link; one of strangers is refused."""
    status = name.lstat()
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{name}: must belong to root or to the user that the daemon runs as: {what} lies there")
    return status.st_mode
