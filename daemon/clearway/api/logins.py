"""From a bearer token to an identity, whoever has made the token."""

from collections.abc import Callable
from dataclasses import dataclass

from clearway.api.tokens import Tokens
from clearway.config.configuration import Config
from clearway.model.clock import Clock
from clearway.model.identity import Identity


class LoginRefusedError(Exception):
    """``str`` is the reason in one line for the daemon's records; the asker is told no more than that it failed."""


@dataclass(frozen=True, slots=True)
class Logins:
    """Asks each of those that know identities; safe for several threads."""

    tokens: Tokens
    config: Callable[[], Config]
    clock: Clock

    @property
    def configured(self) -> bool:
        """Whether any token at all could be good."""
        return self.tokens.configured

    def identify(self, token: str) -> Identity:
        """Raises ``LoginRefusedError``."""
        entry = self.tokens.find(token)
        if entry is None:
            raise LoginRefusedError("unknown token")
        if entry.ended(self.clock.now()):
            raise LoginRefusedError(f"the token of {entry.identity.name} has ended")
        return entry.identity
