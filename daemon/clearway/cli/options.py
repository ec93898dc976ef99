"""What the commands share: options, errors in one line, the store, and requests to the loop."""

import functools
import inspect
import os
import pwd
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from clearway.cli import render
from clearway.config.configuration import load_config
from clearway.model.errors import ClearwayError
from clearway.model.requests import OperatorRequest, RequestKind
from clearway.store.base import LARGEST_ID, Store

DEFAULT_CONFIG = Path("/etc/clearway/clearway.toml")
FAILED = 1
BAD_INPUT = 2


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML).")
]
EvictionId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the eviction.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


def commands(about: str, **more: Any) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None, **more)


def complain(text: str) -> None:
    """One line on standard error, without control characters from files or Slurm."""
    print(f"clearway: {render.visible(text)}", file=sys.stderr)


@contextmanager
def errors(status: int = FAILED, before: str = "") -> Iterator[None]:
    """Clearway's own errors are one line on standard error (with this text ``before``), never a traceback."""
    try:
        yield
    except ClearwayError as error:
        complain(f"{before}{error}")
        raise typer.Exit(status) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None


configuration = errors(BAD_INPUT)(load_config)


def actor() -> str:
    """The user of this process, which no variable can change; with root's rights also the user that sudo names."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    behind = os.environ.get("SUDO_USER", "") if uid == 0 else ""
    return f"{user} (command line{f', sudo by {behind}' if behind else ''})"


@contextmanager
def stored(config: Path) -> Iterator[Store]:
    settings = configuration(config)
    from clearway.bootstrap import open_store  # noqa: PLC0415 - the other commands start quicker without

    with errors(), closing(open_store(settings)) as store:
        yield store


def ask(
    kind: RequestKind,
    config: Path,
    eviction_id: int | None = None,
    *,
    document: str = "",
    rolling_id: int | None = None,
    quiet: bool = False,
) -> OperatorRequest:
    """Write a request to the store and wait a little for the daemon's answer, which is printed unless ``quiet``.

    The command ends when no answer comes in time and, unless ``quiet``, when the request is refused.
    """
    with stored(config) as store:
        request_id = store.add_request(kind, eviction_id, actor(), datetime.now(UTC), document, rolling_id)

        def handled() -> OperatorRequest | None:
            request = store.request(request_id)
            return request if request and request.handled_at else None

        answer = render.wait_for(handled)
        if answer is None:
            raise ClearwayError(
                f"the daemon has not answered yet (clearway status); request {request_id} is stored, "
                "and carried out as soon as it does"
            )
    if not quiet:
        print(render.visible(answer.result))
        if answer.refused:
            raise typer.Exit(FAILED)
    return answer


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of a record, each an annotated option, in place of the parameter that takes it."""
    parameters = inspect.signature(command).parameters
    records: dict[str, Any] = {name: own.annotation for name, own in parameters.items() if is_dataclass(own.annotation)}
    shown = [
        each
        for name, own in parameters.items()
        for each in (inspect.signature(records[name]).parameters.values() if name in records else [own])
    ]

    @functools.wraps(command)
    def with_records(**options: Any) -> None:
        for name, record in records.items():
            options[name] = record(**{each.name: options.pop(each.name) for each in fields(record)})
        command(**options)

    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    with_records.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return with_records
