"""``clearway``: the command line. It reads the store and writes requests to it; it never calls Slurm to change it."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from clearway import __version__
from clearway.cli import eviction_view, site_files, walltime_chain
from clearway.cli import launcher as launcher_files
from clearway.cli.administration import backup, init, make_token, restore, verify
from clearway.cli.asker import now
from clearway.cli.doctor import doctor
from clearway.cli.drain import compact, drain_nodes, promise, promises, promote, rolling_app, undrain
from clearway.cli.evictions import evictions_app, status
from clearway.cli.history import audit, calibration, leaders, takeover
from clearway.cli.job import job, preview, try_saving
from clearway.cli.joined import Joined
from clearway.cli.options import (
    BAD_INPUT,
    DAEMON,
    DECIDE,
    DEFAULT_CONFIG,
    LOOK,
    NODES,
    STUDY,
    ConfigOption,
    EvictionId,
    Output,
    OutputOption,
    Site,
    ask,
    commands,
    complain,
    configuration,
    errors,
    has_api,
    source,
    with_options,
)
from clearway.cli.plan_file import run_plan_file
from clearway.cli.report import report
from clearway.cli.walltime import advice, walltime_app
from clearway.config.configuration import Config, Mode, load_config
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ConfigError
from clearway.model.requests import RequestKind

app = commands(
    "Makes room for urgent jobs on a Slurm cluster, at the least loss of other jobs' work.",
    cls=Joined,
    pretty_exceptions_enable=False,
)
app.command(rich_help_panel=LOOK)(status)
app.add_typer(evictions_app, name="evictions", rich_help_panel=LOOK)
app.command(rich_help_panel=LOOK)(job)
app.command("test-preemption", rich_help_panel=STUDY)(try_saving)
app.command(rich_help_panel=LOOK)(calibration)
app.command(rich_help_panel=LOOK)(report)
app.command(rich_help_panel=LOOK)(leaders)
app.command(rich_help_panel=LOOK)(audit)
app.command("drain", rich_help_panel=NODES)(drain_nodes)
app.command(rich_help_panel=NODES)(undrain)
app.add_typer(rolling_app, name="rolling", rich_help_panel=NODES)
app.command(rich_help_panel=NODES)(promise)
app.command(rich_help_panel=NODES)(promises)
app.command(rich_help_panel=NODES)(compact)
app.command(rich_help_panel=NODES)(promote)
_SBATCHS = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(rich_help_panel=STUDY, context_settings=_SBATCHS)(preview)
app.add_typer(walltime_app, name="walltime", rich_help_panel=STUDY)
walltime_app.command("submit", context_settings={"allow_interspersed_args": False})(walltime_chain.submit)
walltime_app.command("status")(walltime_chain.status)
walltime_app.command("advice")(advice)
app.command(rich_help_panel=DAEMON)(init)
app.command(rich_help_panel=DAEMON)(doctor)
app.command("token", rich_help_panel=DAEMON)(make_token)
app.command(rich_help_panel=DAEMON)(takeover)
app.command(rich_help_panel=DAEMON)(backup)
app.command(rich_help_panel=DAEMON)(verify)
app.command(rich_help_panel=DAEMON)(restore)


@app.command(rich_help_panel=DAEMON)
def serve(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Run the daemon."""
    from clearway import bootstrap  # noqa: PLC0415 - the other commands start quicker without
    from clearway.api.tokens import Tokens  # noqa: PLC0415
    from clearway.service import server  # noqa: PLC0415 - the other commands start quicker without
    from clearway.telemetry.log import configure_logging  # noqa: PLC0415

    settings = _startable(config)
    with errors():
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
    from clearway.doctor.examination import faults  # noqa: PLC0415 - the other commands start quicker without

    try:
        settings = load_config(file)
        found = [f"{file}: {fault}" for fault in faults(settings)]
    except ConfigError as error:
        found = list(error.faults)
    for fault in found:
        complain(fault)
    if found:
        raise typer.Exit(BAD_INPUT)
    return settings


@app.command("check-config", rich_help_panel=DAEMON)
def check_config(file: Annotated[Path, typer.Argument(help="Configuration file (TOML).")]) -> None:
    """Find everything in a configuration file, and in the files it names, that `clearway serve` would refuse.

    So is a calendar that cannot be followed, though the daemon starts and keeps what it has promised.

    Exit status 2 and a line for each. Run it as the daemon's user. Slurm and a database server are not
    asked: `clearway doctor` does that.
    """
    from clearway.doctor.daemon_checks import complaints  # noqa: PLC0415 - the other commands start quicker without

    settings = _startable(file)
    bad = complaints(settings, now())
    for each in bad:
        complain(f"{file}: promises.calendar: {each}")
    if bad:
        raise typer.Exit(BAD_INPUT)
    rules = len(settings.preemptors)
    print(f"{file}: good ({settings.daemon.mode.value} mode, {rules} rule{'s' * (rules != 1)} for urgent jobs)")


@app.command(rich_help_panel=DAEMON)
def launcher(
    folder: Annotated[Path, typer.Argument(help="Folder that all nodes can read, such as /usr/local/bin.")],
) -> None:
    """Copy clearway-run, clearway-criu and the checkpointers' drivers, which compute nodes need, into a folder."""
    with errors():
        for path in launcher_files.install(folder):
            print(path)
        print(launcher_files.ABOUT_THE_HELPER)


@app.command(rich_help_panel=DAEMON)
def files(folder: Annotated[Path, typer.Argument(help="Folder to make, such as /usr/share/clearway.")]) -> None:
    """Copy what is installed beside the daemon into a folder.

    That is the systemd unit, the example configuration, Prometheus's rules, Grafana's dashboard and job_submit.lua.
    """
    with errors():
        for path in site_files.install(folder):
            print(path)


@app.command(rich_help_panel=STUDY)
@with_options
def plan(
    problem: Annotated[Path | None, typer.Option(help="Solve the problem in this file; needs no Slurm.")] = None,
    planner: Annotated[str, typer.Option(help="Planner for --problem.")] = "eviction-dp",
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Plan for an urgent job of N nodes.")] = None,
    max_delay: Annotated[str, typer.Option(help="With --nodes: its maximum delay (90s, 10m, 1h30m).")] = "10m",
    partition: Annotated[str | None, typer.Option(help="With --nodes: its partition.")] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="With --nodes, where Slurm can be asked: what every other decision would cost."),
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    site: Site,
) -> None:
    """Make a plan and do nothing: for a problem file, or for an urgent job on the cluster as it is now."""
    if (problem is None) == (nodes is None):
        complain("plan: give either --problem FILE or --nodes N")
        raise typer.Exit(BAD_INPUT)
    if problem is not None:
        raise typer.Exit(run_plan_file(problem, planner, output))
    try:
        delay_s = parse_duration_s(max_delay)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if has_api(site) and not explain:
        with source(site) as asked:
            eviction_view.what_if(asked.what_if(nodes or 0, delay_s, partition), output)
        return
    from clearway.cli import database  # noqa: PLC0415 - see serve
    from clearway.cli.explain import show_dry_run  # noqa: PLC0415

    settings = configuration(site.config)
    with errors():
        answer = database.plan_eviction(settings, nodes or 0, delay_s, partition)
        show_dry_run(settings, answer, output, explain=explain)


@app.command(rich_help_panel=LOOK)
@with_options
def explain(eviction_id: EvictionId, output: OutputOption = Output.TABLE, *, site: Site) -> None:
    """Why these jobs and not others: what every other decision would have cost."""
    from clearway.cli.explain import show  # noqa: PLC0415 - see serve

    with source(site) as asked:
        show(asked.eviction(eviction_id), asked.explanation(eviction_id), output)


@app.command(rich_help_panel=DECIDE)
@with_options
def pause(*, site: Site) -> None:
    """Begin nothing new until `clearway resume`; jobs that have left already are followed to their return."""
    ask(RequestKind.PAUSE, site)


@app.command(rich_help_panel=DECIDE)
@with_options
def resume(*, site: Site) -> None:
    """Go on after `clearway pause`."""
    ask(RequestKind.RESUME, site)


@app.command(rich_help_panel=DECIDE)
@with_options
def halt(*, site: Site) -> None:
    """Stop what is under way at once: no command is given to Slurm until `clearway unhalt`.

    When neither the database nor the daemon answers, create the file `daemon.halt_file` (/var/lib/clearway/halt).
    """
    ask(RequestKind.HALT, site)


@app.command(rich_help_panel=DECIDE)
@with_options
def unhalt(*, site: Site) -> None:
    """Go on after `clearway halt`."""
    ask(RequestKind.UNHALT, site)


@app.command("simulate-cluster", rich_help_panel=STUDY)
def simulate_cluster(
    once: Annotated[bool, typer.Option("--once", help="End after the first urgent job.")] = False,
    speed: Annotated[float, typer.Option(min=1, max=600, help="Simulated seconds per second.")] = 60.0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the REST API; 0: any free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random jobs.")] = 7,
    mode: Annotated[Mode, typer.Option(help="approve: each eviction waits for your approval.")] = Mode.AUTOMATIC,
) -> None:
    """Run the daemon on a simulated cluster of 4,392 nodes and watch it make room for an urgent job."""
    from clearway.cli import demo  # noqa: PLC0415 - see serve

    with errors():
        raise typer.Exit(demo.run(once=once, speed=speed, port=port, seed=seed, mode=mode))


def version(value: bool) -> None:
    if value:
        print(f"clearway {__version__}")
        raise typer.Exit


@app.callback()
def options(
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
