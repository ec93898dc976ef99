"""``clearway token``: a token for REST, which is shown once and kept nowhere."""

import os
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import options
from clearway.config.configuration import Config
from clearway.model.audit import Audited, AuditKind
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ConfigError
from clearway.model.requests import Role

_LONGEST = timedelta(days=3_660)


def make_token(
    name: Annotated[str, typer.Argument(help="Name of the person or program; a user's own name for a user.")],
    role: Annotated[Role, typer.Option(help="What the token may do; each role includes those before it.")],
    valid: Annotated[str, typer.Option(help="How long it is good (90d, 12h), at most ten years; 0: for ever.")] = "90d",
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Make a token, add its hash to the token file, and print it once; `systemctl reload clearway` takes it over."""
    from clearway.api.tokens import NAME, Tokens, new_token  # noqa: PLC0415 - the other commands start quicker without

    settings = options.configuration(config)
    if not NAME.fullmatch(name):
        raise typer.BadParameter("a name has letters, digits and ._@- alone, 64 at most")
    end = _end(valid, datetime.now(UTC).replace(microsecond=0))
    with options.errors():
        file = _file(settings)
        if file.exists():
            Tokens(file)  # refuses a file that the daemon would refuse
        token, entry = new_token(name, role, end)
        _audit(settings, entry.line.rpartition(" ")[0])
        _append(file, entry.line)
    print(token)
    until = "does not end" if end is None else f"ends {end:%Y-%m-%d %H:%M} UTC"
    print(f"clearway: {file}: {name}, role {role.value}, {until}; the token is shown only now", file=sys.stderr)


def _end(valid: str, now: datetime) -> datetime | None:
    try:
        lasts = timedelta(seconds=parse_duration_s(valid))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error)) from None
    if lasts > _LONGEST:
        raise typer.BadParameter("a token is good for ten years at most; 0: for ever")
    return now + lasts if lasts else None


def _file(settings: Config) -> Path:
    if settings.api.token_file is None:
        raise ConfigError("the configuration names no api.token_file")
    return settings.api.token_file


def _audit(settings: Config, what: str) -> None:
    """Before there is a database nothing can be recorded; the daemon's start will name the token all the same."""
    from clearway.bootstrap import open_store  # noqa: PLC0415 - see above

    try:
        opened = open_store(settings)
    except ConfigError:
        return
    with closing(opened) as store:
        audited = Audited(at=datetime.now(UTC), actor=options.actor(), kind=AuditKind.TOKEN, about={"token": what})
        store.audit(audited)


def _append(file: Path, line: str) -> None:
    """A file that is there keeps its owner and mode; a new one is its maker's alone."""
    try:
        with os.fdopen(os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb+") as opened:
            end = opened.seek(0, os.SEEK_END)
            complete = not end or (opened.seek(end - 1), opened.read(1))[1] == b"\n"
            opened.write(("" if complete else "\n").encode() + line.encode() + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
