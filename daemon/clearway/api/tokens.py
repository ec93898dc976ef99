"""The tokens that may change something over REST: a file with one ``name:token`` a line.

The file must belong to root or to the daemon's own user, must not be open to others, and must not be writable by
its group; a group that may read it is allowed, so that root can own it and the daemon's group can read it (0640).
"""

import hmac
import os
import re
import stat
from pathlib import Path

from clearway.model.errors import ConfigError

SHORTEST_TOKEN = 16
_LARGEST_FILE = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_TOKEN = re.compile(r"[!-~]+")  # what a header can carry


class Tokens:
    """The tokens of the file, read when made and when told to ``reload``. Without a file nothing can be changed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._tokens: tuple[tuple[str, bytes], ...] = ()
        self.reload()

    @property
    def configured(self) -> bool:
        return self._file is not None

    def reload(self) -> None:
        """Read the file again; when it cannot be used, the old tokens stay.

        Raises:
            ConfigError: one line with file and line, never with a token.
        """
        if self._file is not None:
            self._tokens = _parse(_read(self._file), self._file)

    def actor(self, token: str) -> str | None:
        """The name of this token. Each one is compared in constant time, so that the wait tells nothing."""
        given, found = token.encode(errors="replace"), None
        for name, known in self._tokens:
            if hmac.compare_digest(given, known):
                found = name
        return found


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{file}: a token file must be an ordinary file")
            if mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP):
                raise ConfigError(
                    f"{file}: mode {mode:04o} lets others read or change the tokens; use 0600, or 0640 with the "
                    "daemon's group"
                )
            if status.st_uid not in (0, os.geteuid()):
                raise ConfigError(f"{file}: must belong to root or to the user that the daemon runs as")
            text = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(text) > _LARGEST_FILE:
        raise ConfigError(f"{file}: larger than {_LARGEST_FILE} bytes")
    if not text.isascii():
        raise ConfigError(f"{file}: holds something other than ASCII")
    return text.decode("ascii")


def _parse(text: str, file: Path) -> tuple[tuple[str, bytes], ...]:
    tokens: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, token = (part.strip() for part in line.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            raise ConfigError(f"{file}: line {number}: expected name:token")
        if len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
            raise ConfigError(f"{file}: line {number}: a token has at least {SHORTEST_TOKEN} printable characters")
        if name in tokens:
            raise ConfigError(f"{file}: line {number}: {name} is given twice")
        tokens[name] = token.encode()
    if len(set(tokens.values())) != len(tokens):
        raise ConfigError(f"{file}: two names share one token")
    return tuple(tokens.items())
