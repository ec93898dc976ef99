"""What the commands share: options, errors in one line, the store, and requests to the loop."""

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import RenderableType
from typer.core import TyperGroup

from clearway.api.schemas import RequestView
from clearway.bootstrap import open_store
from clearway.cli import render
from clearway.cli.asker import api_token
from clearway.cli.database import Database
from clearway.client import URL, Client
from clearway.config.configuration import Config, load_config
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ClearwayError
from clearway.model.records import LARGEST_ID
from clearway.model.requests import RequestKind, RequestResult

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
F = TypeVar("F", bound=Callable[..., Any])
# Where a command reads and asks. Every call raises ``ClearwayError`` where there is no answer, or it is a refusal.
Source = Client | Database

_WATCH_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"
DEFAULT_CONFIG = Path("/etc/clearway/clearway.toml")
FAILED = 1
BAD_INPUT = 2

LOOK, DECIDE, NODES = "See what happens", "Decide", "Empty nodes and move jobs"
STUDY, DAEMON = "Ask what would happen, and study", "Run the daemon"
USES = (LOOK, DECIDE, NODES, STUDY, DAEMON)  # in the order in which `clearway --help` lists them


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML).")
]
ApiOption = Annotated[
    str | None,
    typer.Option(
        "--api",
        envvar=URL,
        help="Ask the daemon at https://HOST:PORT, http://HOST:PORT or unix:PATH; default: client.url, else the "
        "database.",
    ),
]
EvictionId = Annotated[int, typer.Argument(max=LARGEST_ID, help="Number of the eviction.")]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Output format; wide: every column, however narrow the terminal is.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every 2 seconds, until Ctrl-C.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a command reads and asks."""

    config: ConfigOption = DEFAULT_CONFIG
    api: ApiOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a command shows what it reads, and where it reads that."""

    output: OutputOption = Output.TABLE
    config: ConfigOption = DEFAULT_CONFIG
    api: ApiOption = None

    @property
    def site(self) -> Site:
        return Site(config=self.config, api=self.api)

    def show(self, wanted: Callable[[Source], M], told: Callable[[M], RenderableType], *, watch: bool = False) -> None:
        def shown() -> None:
            with source(self.site) as asked:
                found = wanted(asked)
            render.answer(found, self.output, lambda: told(found))

        watched(shown, watch=watch)


LOOKING = Look()  # where no option says otherwise


class ByUse(TyperGroup):
    """A group whose help lists its commands by what they are used for: their ``rich_help_panel``."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        uses: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                use = getattr(command, "rich_help_panel", None)
                about = command.get_short_help_str(formatter.width)
                uses.setdefault(use if isinstance(use, str) else "Commands", []).append((name, about))
        for use in sorted(uses, key=lambda use: USES.index(use) if use in USES else 0):
            with formatter.section(use):
                formatter.write_dl(uses[use])


class CommandGroup(typer.Typer):
    def __init__(self, about: str, cls: type[TyperGroup] = ByUse, **more: Any) -> None:
        named = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            help=about, no_args_is_help=True, rich_markup_mode=None, cls=cls, context_settings=named, **more
        )

    def command(self, *named: Any, **more: Any) -> Callable[[F], F]:
        register = super().command(*named, **more)

        def registered(command: F) -> F:
            register(_with_options(command))
            return command

        return registered


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


@contextmanager
def source(site: Site, *, told: bool = True) -> Iterator[Source]:
    """The daemon's API where an address is known, else its database. Where ``told``, an error ends the command."""
    settings = _settings(site)
    with errors() if told else nullcontext():
        if url := site.api or settings.client.url:
            with _client(url, settings) as client:
                yield client
            return
        with closing(open_store(settings)) as store:
            yield Database(store, settings)


@contextmanager
def daemon(site: Site) -> Iterator[Client]:
    """What only the running daemon knows, such as its newest look at the cluster."""
    settings = _settings(site, f"set {URL} to the daemon's address, such as https://host:8642, or name its file: ")
    url = site.api or settings.client.url
    with errors(), _client(url or settings.api.url, settings, None if url else settings.api.certificate) as client:
        yield client


def _client(url: str, settings: Config, authority: Path | None = None) -> Client:
    return Client(url, api_token(settings.client), authority=authority or settings.client.authority)


def has_api(site: Site) -> bool:
    return bool(site.api or _settings(site).client.url)


def _settings(site: Site, hint: str = "") -> Config:
    """A machine that is told where the daemon answers needs no configuration file."""
    if site.api and site.config == DEFAULT_CONFIG and not os.access(site.config, os.R_OK):
        return Config()
    with errors(BAD_INPUT, hint):
        return load_config(site.config)


def ask(
    kind: RequestKind,
    site: Site,
    eviction_id: int | None = None,
    *,
    document: str = "",
    rolling_id: int | None = None,
    quiet: bool = False,
) -> RequestView:
    """Store a request and wait a little for the daemon's answer, which unless ``quiet`` is printed and must be good."""
    with source(site) as asked:
        request_id = asked.ask(kind, eviction_id, document=document, rolling_id=rolling_id)

        def handled() -> RequestView | None:
            request = asked.request(request_id)
            return request if request.handled_at else None

        answer = render.wait_for(handled)
        if answer is None:
            stored = f"request {request_id} is stored, and carried out as soon as it does"
            raise ClearwayError(f"the daemon has not answered yet (clearway status); {stored}")
    if not quiet and refused(answer):
        complain(answer.result)
        raise typer.Exit(FAILED)
    if not quiet:
        print(render.visible(answer.result))
    return answer


def duration_s(text: str, option: str = "") -> float:
    """Of an option of this name; what is no duration ends the command."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}" if option else str(error)) from None


def refused(answer: RequestView) -> bool:
    return answer.code is not RequestResult.DONE


def watched(show: Callable[[], T], *, watch: bool) -> T:
    """What ``show`` returns; with ``watch`` it is called again and again, until the user ends it."""
    while watch:
        if sys.stdout.isatty():
            print(_CLEAR, end="")
        try:
            show()
            time.sleep(_WATCH_S)
        except KeyboardInterrupt:
            raise typer.Exit from None
    return show()


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of a record, each an annotated option, in place of the parameter that takes it."""
    parameters = inspect.signature(command).parameters
    records: dict[str, Any] = {name: own.annotation for name, own in parameters.items() if is_dataclass(own.annotation)}
    shown: list[inspect.Parameter] = []
    for name, own in parameters.items():
        shown += inspect.signature(records[name]).parameters.values() if name in records else [own]

    @functools.wraps(command)
    def with_records(**options: Any) -> None:
        for name, record in records.items():
            options[name] = record(**{each.name: options.pop(each.name) for each in fields(record)})
        command(**options)

    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    with_records.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return with_records
