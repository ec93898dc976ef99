"""``clearway``: the command line. It reads the store and writes requests to it; it never calls Slurm to change it."""

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from clearway import __version__, bootstrap
from clearway.api.logins import Tokens
from clearway.cli import options, walltime_chain
from clearway.cli.administration import adopt, backup, doctor, init, restore, token, verify
from clearway.cli.asker import now
from clearway.cli.drain import compact, drain, promise, promises, promote, rolling_app, undrain
from clearway.cli.evictions import evictions_app
from clearway.cli.explain import explain, plan
from clearway.cli.job import job, preview, try_saving
from clearway.cli.launcher import files, launcher
from clearway.cli.report import report
from clearway.cli.status import audit, calibration, leaders, status, takeover
from clearway.cli.walltime import advice, walltime_app
from clearway.config import plugins
from clearway.config.configuration import Config, Mode, load_config
from clearway.doctor.daemon_checks import complaints
from clearway.doctor.examination import faults, refused_on_site
from clearway.model.errors import ConfigError
from clearway.model.requests import RequestKind
from clearway.telemetry.log import configure_logging

_EXTRAS = ("lab",)  # commands that are known where they are not installed; each has an extra of its name


class Joined(options.ByUse):
    """The daemon's own commands, and those that packages beside it add.

    These are entry points of the group ``clearway.commands``. Each names a Typer application, which is loaded when its
    command is called, or all commands are listed.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins.names(plugins.COMMANDS) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (*_EXTRAS, *plugins.names(plugins.COMMANDS)):
            return own
        try:
            joined = plugins.load(plugins.COMMANDS, cmd_name)
        except ConfigError:
            joined = _missing(cmd_name)
        made: Any = typer.main.get_command(joined)
        made.name, made.rich_help_panel = cmd_name, options.STUDY
        return made


def _missing(name: str) -> typer.Typer:
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    @made.command(context_settings=anything, help=f"Not installed: the extra {name}.")
    def missing() -> None:
        options.complain(f"{name} is not installed: {plugins.how_to_install(name)}")
        raise typer.Exit(options.FAILED)

    return made


def below(command: Any) -> dict[str, Any]:
    """The commands of a group, joined ones as well, by name; none where it is no group."""
    if not isinstance(command, options.ByUse):
        return {}
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def serve(config: options.ConfigOption = options.DEFAULT_CONFIG) -> None:
    """Run the daemon."""
    from clearway.service import server  # noqa: PLC0415 - the other commands start quicker without

    settings = _startable(config)
    with options.errors():
        configure_logging(settings.daemon.log_format)
        tokens = Tokens(settings.api.token_file)
        daemon = bootstrap.build(settings, origin=str(config.resolve()))
        serving = server.Service(
            daemon.loop,
            daemon.metrics,
            tokens,
            slurm=daemon.identity,
            read_config=lambda: load_config(config),
            dispatcher=daemon.dispatcher,
            notifier=server.Notifier(),
        ).run_until_signal()
        raise typer.Exit(serving)


def _startable(file: Path) -> Config:
    """The configuration, if the daemon can start with it; else everything that it would refuse, and exit status 2."""
    try:
        settings = load_config(file)
        found = [f"{file}: {fault}" for fault in faults(settings)]
    except ConfigError as error:
        found = list(error.faults)
    _end_with(found)
    return settings


def _end_with(found: list[str]) -> None:
    for each in found:
        options.complain(each)
    if found:
        raise typer.Exit(options.BAD_INPUT)


def check_config(file: Annotated[Path, typer.Argument(help="Configuration file (TOML).")]) -> None:
    """Find everything in a configuration file, and in the files it names, that `clearway serve` would refuse.

    So is a calendar that cannot be followed, though the daemon starts and keeps what it has promised.

    Slurm is asked whether it checks what rules rest on, and whose the database is; where it does not answer, that is
    left to `clearway doctor`.

    Exit status 2 and a line for each. Run it as the daemon's user. A database server is not asked.
    """
    settings = _startable(file)
    _end_with([f"{file}: {each}" for each in refused_on_site(settings)])
    _end_with([f"{file}: promises.calendar: {each}" for each in complaints(settings, now())])
    rules = len(settings.preemptors)
    print(f"{file}: good ({settings.daemon.mode.value} mode, {rules} rule{'s' * (rules != 1)} for urgent jobs)")


def simulate_cluster(
    once: Annotated[bool, typer.Option("--once", help="End after the first urgent job.")] = False,
    speed: Annotated[float, typer.Option(min=1, max=600, help="Simulated seconds per second.")] = 60.0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the REST API; 0: any free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random jobs.")] = 7,
    mode: Annotated[Mode, typer.Option(help="approve: each eviction waits for your approval.")] = Mode.AUTOMATIC,
) -> None:
    """Run the daemon on a simulated cluster of 4,392 nodes and watch it make room for an urgent job."""
    from clearway.cli import demo  # noqa: PLC0415 - the other commands start quicker without

    with options.errors():
        raise typer.Exit(demo.run(once=once, speed=speed, port=port, seed=seed, mode=mode))


def _asking(kind: RequestKind) -> Callable[..., None]:
    def asking(*, site: options.Site) -> None:
        options.ask(kind, site)

    return asking


_DECISIONS = {
    RequestKind.PAUSE: "Begin nothing new until `clearway resume`; jobs that have left already are followed to their "
    "return.",
    RequestKind.RESUME: "Go on after `clearway pause`.",
    RequestKind.HALT: "Stop what is under way at once: no command is given to Slurm until `clearway unhalt`.\n\n"
    "When neither the database nor the daemon answers, create the file `daemon.halt_file` (/var/lib/clearway/halt).",
    RequestKind.UNHALT: "Go on after `clearway halt`.",
}
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {  # by use, in the order of `clearway --help`
    options.LOOK: (status, job, calibration, report, leaders, audit, explain),
    options.NODES: (drain, undrain, promise, promises, compact, promote),
    options.STUDY: (try_saving, preview, plan, simulate_cluster),
    options.DAEMON: (
        init,
        doctor,
        token,
        takeover,
        backup,
        verify,
        restore,
        adopt,
        serve,
        check_config,
        launcher,
        files,
    ),
}
_MORE: dict[Callable[..., None], dict[str, Any]] = {
    try_saving: {"name": "test-preemption"},
    preview: {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}},  # sbatch's own
}

app = options.CommandGroup(
    "Makes room for urgent jobs on a Slurm cluster, at the least loss of other jobs' work.",
    cls=Joined,
    pretty_exceptions_enable=False,
)
for use, own in _COMMANDS.items():
    for each in own:
        app.command(rich_help_panel=use, **_MORE.get(each, {}))(each)
for kind, about in _DECISIONS.items():
    app.command(kind.value, help=about, rich_help_panel=options.DECIDE)(_asking(kind))
app.add_typer(evictions_app, name="evictions", rich_help_panel=options.LOOK)
app.add_typer(rolling_app, name="rolling", rich_help_panel=options.NODES)
app.add_typer(walltime_app, name="walltime", rich_help_panel=options.STUDY)
walltime_app.command(context_settings={"allow_interspersed_args": False})(walltime_chain.submit)
walltime_app.command()(walltime_chain.status)
walltime_app.command()(advice)


def version(value: bool) -> None:
    if value:
        print(f"clearway {__version__}")
        raise typer.Exit


@app.callback()
def about_itself(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options of clearway itself."""


def main() -> None:
    _keep_for_answers()
    app()


def _keep_for_answers() -> None:
    """Standard output that a program reads gets our answers only: HiGHS prints lines of its own there, unasked."""
    stdout = sys.stdout
    if not isinstance(stdout, TextIOWrapper) or stdout.isatty():
        return
    ours, buffering = os.dup(stdout.fileno()), 1 if stdout.write_through else -1
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)
    sys.stdout = os.fdopen(ours, "w", buffering, stdout.encoding, stdout.errors)
