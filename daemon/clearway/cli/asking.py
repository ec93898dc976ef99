"""What the commands share: options, errors in one line, the store, and requests to the loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

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


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML).")
]
EvictionId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the eviction.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print it.")]


def complain(text: str) -> None:
    """One line on standard error, whatever a file or Slurm has put into it."""
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


def time_option(text: str, now: datetime) -> datetime:
    from clearway.cli.drain import point_in_time  # noqa: PLC0415 - the other commands start quicker without

    try:
        return point_in_time(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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
    """Write a request to the store and wait a little for the daemon's answer; unless ``quiet`` it is printed.

    Where there is none in time, or where it is refused, the command ends; but a quiet one shows its own refusal.
    """
    from clearway.cli.drain import actor  # noqa: PLC0415 - the other commands start quicker without

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


def _answer(store: Store, request_id: int) -> OperatorRequest | None:
    request = store.request(request_id)
    return request if request and request.handled_at else None
