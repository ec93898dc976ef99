"""The token file: one ``NAME ROLE END sha256:HASH`` a line, as ``clearway token`` writes it.

A token is 256 random bits, so its plain SHA-256 keeps the secret: there is nothing to guess. Who reads the file, or a
backup of it, cannot log in with it. END is a time in UTC such as 2027-05-01T00:00:00Z, or ``never``.

The file must belong to root or to the daemon's own user, must not be open to others, and must not be writable by
its group; a group that may read it is allowed, so that root can own it and the daemon's group can read it (0640).
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.model.requests import Identity, Role

NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_FORM = "expected 'NAME ROLE END sha256:HASH', as `clearway token` writes it"
_END = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Entry:
    """One token; ``end`` None: it does not end."""

    identity: Identity
    end: datetime | None
    digest: str

    @property
    def line(self) -> str:
        end = "never" if self.end is None else self.end.astimezone(UTC).strftime(_END)
        return f"{self.identity.name} {self.identity.role.value} {end} {self.digest}"

    def ended(self, now: datetime) -> bool:
        return self.end is not None and self.end <= now


def digest_of(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


def new_token(name: str, role: Role, end: datetime | None) -> tuple[str, Entry]:
    """A token that was never given out before, and its entry; the token itself is kept nowhere."""
    token = "cw_" + secrets.token_urlsafe(32)
    return token, Entry(Identity(name, role), end, digest_of(token))


class Tokens:
    """The entries of the file, as read when made. Without a file there is none."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.entries = self.read()

    @property
    def configured(self) -> bool:
        return self._file is not None

    def read(self) -> tuple[Entry, ...]:
        """What the file has now, without taking it over.

        Raises ``ConfigError``: one line with file and line, never with a token.
        """
        if self._file is None:
            return ()
        return _parse(read_trusted(self._file, "the tokens", secret=True), self._file)

    def find(self, token: str) -> Entry | None:
        """The entry of this token, ended or not. Each is compared in constant time, so that the wait tells nothing."""
        given = digest_of(token)
        found = [entry for entry in self.entries if hmac.compare_digest(given, entry.digest)]
        return found[0] if found else None


def _parse(text: str, file: Path) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            entry = _entry(line)
        except ValueError as error:
            raise ConfigError(f"{file}: line {number}: {error}") from None
        if entry.digest in entries:
            raise ConfigError(f"{file}: line {number}: the same token as {entries[entry.digest].identity.name}'s")
        entries[entry.digest] = entry
    return tuple(entries.values())


def _entry(line: str) -> Entry:
    """Raises ``ValueError`` with a sentence that repeats nothing of the line but a role."""
    words = line.split()
    if len(words) != 4 or not NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[3]):
        raise ValueError(_FORM)
    name, role, end, digest = words
    if role not in set(Role):
        raise ValueError(f"there is no role {role[:20]!r}; there are {', '.join(Role)}")
    try:
        ends = None if end == "never" else datetime.strptime(end, _END).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError("the end is 'never' or a time like 2027-05-01T00:00:00Z") from None
    return Entry(Identity(name, Role(role)), ends, digest)
