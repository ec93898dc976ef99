"""The sections ``[api]`` and ``[access]``: where the daemon listens, and who may do what."""

from enum import StrEnum
from pathlib import Path

from clearway.config.fields import Section, key


class Public(StrEnum):
    """What is answered to an asker without identity."""

    HEALTH = "health"
    READING = "reading"


class ApiConfig(Section):
    host: str = key("127.0.0.1", "address to listen on")
    port: int = key(8642, "port to listen on; 0: any free one", ge=0, le=65_535)
    token_file: Path | None = key(
        None,
        "file with the tokens that `clearway token` makes, one a line, each with a name, a role and an end. None: no "
        "such tokens",
    )


class AccessConfig(Section):
    """Who may do what over REST."""

    public: Public = key(
        Public.HEALTH,
        "what needs no identity. health: health, metrics and the OpenAPI document. reading: everything that only "
        "reads, jobs of all users included",
    )
