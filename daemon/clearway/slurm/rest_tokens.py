"""Slurm's tokens (JWT) for slurmrestd: from a file that the site keeps new, or made by ``scontrol token``.

A token is in no log and in no message. One that ends soon is replaced before it is used; one that Slurm refuses is
dropped, so that the next call takes a new one.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError, SlurmError, SlurmUnavailableError
from clearway.slurm.identity import claims_of, is_jwt
from clearway.slurm.site_settings import Run

LIFESPAN_S = 1800  # what is asked for; a site may allow less (max_token_lifespan)
_SHORTER_S = 300
_ANSWER = re.compile(r"^SLURM_JWT=(\S+)$", re.MULTILINE)


class TokenSource(Protocol):
    def token(self) -> str:
        """A token that is good for a while; "" where none is needed. Raises SlurmUnavailableError without it."""

    def refused(self) -> bool:
        """Slurm has refused the last one. Returns whether the next one may be another."""


class NoToken:
    """slurmrestd knows its callers by their user id (rest_auth/local)."""

    def token(self) -> str:
        return ""

    def refused(self) -> bool:
        return False


class FileToken:
    """Read again before each call: it is small, and a new one counts at once."""

    def __init__(self, file: Path, now: Callable[[], datetime]) -> None:
        self._file = file
        self._now = now

    def token(self) -> str:
        try:
            text = read_trusted(self._file, "Slurm's token", secret=True).strip().removeprefix("SLURM_JWT=")
        except ConfigError as error:
            raise SlurmUnavailableError(str(error)) from None
        if not is_jwt(text):
            raise SlurmUnavailableError(f"{self._file}: holds no token of Slurm's")
        end = _end_of(text)
        if end is not None and end <= self._now():
            raise SlurmUnavailableError(f"{self._file}: the token ended at {end:%Y-%m-%dT%H:%M:%SZ}")
        return text

    def refused(self) -> bool:
        return False


class MadeToken:
    """``scontrol token`` makes one for the user that this process runs as; a new one when half of its time is over."""

    def __init__(self, run: Run, now: Callable[[], datetime]) -> None:
        self._run = run
        self._now = now
        self._token = ""
        self._renew_at = datetime.min.replace(tzinfo=UTC)

    def token(self) -> str:
        now = self._now()
        if not self._token or now >= self._renew_at:
            self._token = ""
            made = self._make()
            end = _end_of(made) or now
            self._token, self._renew_at = made, now + (end - now) / 2
        return self._token

    def refused(self) -> bool:
        again, self._token = bool(self._token), ""
        return again

    def _make(self) -> str:
        for lifespan_s in (LIFESPAN_S, _SHORTER_S):
            try:
                answer = self._run(["scontrol", "token", f"lifespan={lifespan_s}"])
            except SlurmError as error:
                why = str(error)
                continue
            found = _ANSWER.search(answer)
            if found and is_jwt(found[1]):
                return found[1]
            why = "it printed none"
        raise SlurmUnavailableError(f"scontrol token made no token: {why}")


def _end_of(token: str) -> datetime | None:
    seconds = claims_of(token).get("exp")
    if not isinstance(seconds, int) or not 0 <= seconds < 1 << 40:
        return None
    return datetime.fromtimestamp(min(seconds, 1 << 37), UTC)
