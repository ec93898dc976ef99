"""What the commands share: options, errors in one line, the store, and requests to the loop."""

import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from clearway.cli import render
from clearway.cli.plan_file import BAD_INPUT
from clearway.config.configuration import Config, load_config
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ClearwayError
from clearway.model.requests import OperatorRequest, RequestKind
from clearway.store.base import LARGEST_ID, Store

DEFAULT_CONFIG = Path("/etc/clearway/clearway.toml")
FAILED = 1
T = TypeVar("T")
_POLL_S = 0.5


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML).")
]
EvictionId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the eviction.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


def complain(text: str) -> None:
    """One line on standard error, without control characters from files or Slurm."""
    print(f"clearway: {render.visible(text)}", file=sys.stderr)


@contextmanager
def errors() -> Iterator[None]:
    """Clearway's own errors are one line on standard error, never a traceback."""
    try:
        yield
    except ClearwayError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None


def configuration(path: Path) -> Config:
    try:
        return load_config(path)
    except ClearwayError as error:
        complain(str(error))
        raise typer.Exit(BAD_INPUT) from None


def duration_option(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def actor() -> str:
    """The user of this process, which no variable can change; with root's rights also the user that sudo names."""
    user = _user_name(os.getuid())
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return f"{user} (command line{f', sudo by {behind}' if behind else ''})"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def stored(config: Path) -> Iterator[Store]:
    settings = configuration(config)
    with errors():
        from clearway.bootstrap import open_store  # noqa: PLC0415 - the other commands start quicker without

        store = open_store(settings)
        try:
            yield store
        finally:
            store.close()


def ask(
    kind: RequestKind,
    eviction_id: int | None,
    config: Path,
    document: str = "",
    rolling_id: int | None = None,
    *,
    quiet: bool = False,
) -> OperatorRequest:
    """Write a request to the store and wait a little for the daemon's answer, which is printed unless ``quiet``.

    The command ends when no answer comes in time and, unless ``quiet``, when the request is refused.
    """
    with stored(config) as store:
        request_id = store.add_request(kind, eviction_id, actor(), datetime.now(UTC), document, rolling_id)
        answer = render.wait_for(lambda: _answer(store, request_id))
    if answer is None:
        complain(
            f"the daemon has not answered yet (clearway status); request {request_id} is stored, "
            "and carried out as soon as it does"
        )
        raise typer.Exit(FAILED)
    if quiet:
        return answer
    print(render.visible(answer.result))
    if answer.refused:
        raise typer.Exit(FAILED)
    return answer


def poll_until(seen: Callable[[], T | None]) -> T:
    """Look every half second, for as long as it takes."""
    while (found := seen()) is None:
        time.sleep(_POLL_S)
    return found


def _answer(store: Store, request_id: int) -> OperatorRequest | None:
    request = store.request(request_id)
    return request if request and request.handled_at else None
