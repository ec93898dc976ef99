"""``clearway``: the command line. It reads the store and writes requests to it; it never calls Slurm to change it."""

import getpass
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clearway import __version__
from clearway.cli import launcher as launcher_files
from clearway.cli import render, walltime_chain
from clearway.cli.audit import audit
from clearway.cli.backup import backup, restore, verify
from clearway.cli.calibration import show as show_calibration
from clearway.cli.drain import compact, drain_nodes, promote, rolling_app, undrain
from clearway.cli.experiment import experiment_app
from clearway.cli.job import job, preview
from clearway.cli.leaders import leaders, takeover
from clearway.cli.options import (
    BAD_INPUT,
    DEFAULT_CONFIG,
    ConfigOption,
    EvictionId,
    Output,
    OutputOption,
    ask,
    commands,
    complain,
    configuration,
    errors,
    stored,
    with_options,
)
from clearway.cli.plan_file import run_plan_file
from clearway.cli.sweep_options import ReplayOptions, SweepOptions
from clearway.cli.tokens import make_token
from clearway.cli.walltime import walltime_app
from clearway.config.configuration import load_config
from clearway.estimates.history import read_history
from clearway.estimates.run_times import RunKey, advice_on, sentence
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ClearwayError
from clearway.model.operations import STATE_GROUPS
from clearway.model.requests import RequestKind

app = commands(
    "Makes room for urgent jobs on a Slurm cluster, at the least loss of other jobs' work.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
evictions_app = commands("Planned, active and past evictions.")
app.add_typer(evictions_app, name="evictions")
app.add_typer(walltime_app, name="walltime")
app.add_typer(experiment_app, name="experiment")
app.add_typer(rolling_app, name="rolling")
walltime_app.command("submit", context_settings={"allow_interspersed_args": False})(walltime_chain.submit)
walltime_app.command("status")(walltime_chain.status)
app.command()(job)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(preview)
app.command()(compact)
app.command()(promote)
app.command("token")(make_token)
app.command()(backup)
app.command()(verify)
app.command()(restore)
app.command()(audit)


Which = StrEnum("Which", [*STATE_GROUPS, "all"])  # type: ignore[misc]


@app.command()
def serve(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Run the daemon."""
    from clearway import bootstrap  # noqa: PLC0415 - the other commands start quicker without
    from clearway.api.tokens import Tokens  # noqa: PLC0415
    from clearway.service import server  # noqa: PLC0415 - the other commands start quicker without
    from clearway.telemetry.log import configure_logging  # noqa: PLC0415

    settings = configuration(config)
    with errors():
        configure_logging(settings.daemon.log_format)
        tokens = Tokens(settings.api.token_file)
        daemon = bootstrap.build(settings, origin=str(config.resolve()))
        serving = server.serve(
            daemon.loop, daemon.metrics, tokens, slurm=daemon.identity, read_config=lambda: load_config(config)
        )
        raise typer.Exit(serving)


@app.command("check-config")
def check_config(file: Annotated[Path, typer.Argument(help="Configuration file (TOML).")]) -> None:
    """Check a configuration file; exit status 2 names the first offending key."""
    settings = configuration(file)
    from clearway import bootstrap  # noqa: PLC0415 - see serve

    with errors(BAD_INPUT, f"{file}: planning.planner: "):
        bootstrap.open_planner(settings)
    rules = len(settings.preemptors)
    print(f"{file}: good ({settings.daemon.mode.value} mode, {rules} rule{'s' * (rules != 1)} for urgent jobs)")


@app.command()
def launcher(
    folder: Annotated[Path, typer.Argument(help="Folder that all nodes can read, such as /usr/local/bin.")],
) -> None:
    """Copy clearway-run, clearway-criu and the checkpointers' drivers, which compute nodes need, into a folder."""
    with errors():
        for path in launcher_files.install(folder):
            print(path)
        print(launcher_files.ABOUT_THE_HELPER)


@app.command()
def plan(
    problem: Annotated[Path | None, typer.Option(help="Solve the problem in this file; needs no Slurm.")] = None,
    planner: Annotated[str, typer.Option(help="Planner for --problem.")] = "eviction-dp",
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Plan for an urgent job of N nodes.")] = None,
    max_delay: Annotated[str, typer.Option(help="With --nodes: its maximum delay (90s, 10m, 1h30m).")] = "10m",
    partition: Annotated[str | None, typer.Option(help="With --nodes: its partition.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --nodes: also show what every other decision would cost.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a plan and do nothing: for a problem file, or for an urgent job on the cluster as it is now."""
    if (problem is None) == (nodes is None):
        complain("plan: give either --problem FILE or --nodes N")
        raise typer.Exit(BAD_INPUT)
    if problem is not None:
        raise typer.Exit(run_plan_file(problem, planner, output.value))
    try:
        delay_s = parse_duration_s(max_delay)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings = configuration(config)
    with errors():
        from clearway.cli import dry_run  # noqa: PLC0415 - see serve
        from clearway.cli.explain import show_dry_run  # noqa: PLC0415

        answer = dry_run.eviction(settings, nodes or 0, delay_s, partition)
        if explain:
            show_dry_run(settings, answer, output.value)
        else:
            render.what_if(answer, output.value)


@app.command()
def status(config: ConfigOption = DEFAULT_CONFIG, output: OutputOption = Output.TABLE) -> None:
    """Whether the daemon is alive, and what is under way."""
    with stored(config) as store:
        render.status(store, datetime.now(UTC), output.value, configuration(config).daemon.halt_file)


@app.command()
def calibration(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of applications.")] = 50,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Predicted and actual checkpoint times, and the applications that are not asked to save themselves any more."""
    with stored(config) as store:
        show_calibration(read_history(store, configuration(config)), datetime.now(UTC), limit, output.value)


@app.command()
def explain(
    eviction_id: EvictionId, config: ConfigOption = DEFAULT_CONFIG, output: OutputOption = Output.TABLE
) -> None:
    """Why these jobs and not others: what every other decision would have cost."""
    from clearway.cli.explain import show  # noqa: PLC0415 - see serve

    with stored(config) as store:
        eviction = store.eviction(eviction_id)
        explanation = store.explanation(eviction_id)
        if explanation is None:
            raise ClearwayError(
                f"eviction {eviction_id} is not explained yet: the daemon explains plans between its cycles"
            )
        show(eviction, explanation, output.value)


@walltime_app.command("advice")
def walltime_advice(
    name: Annotated[str, typer.Option(help="The application as the job calls it, else the job's name.")],
    user: Annotated[str | None, typer.Option(help="User of the jobs; default: you.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time limits and run times of the jobs of this name that the daemon has seen end."""
    key = RunKey(user or getpass.getuser(), name)
    with stored(config) as store:
        found = advice_on(store.runs_of(key))
        if found is None:
            raise ClearwayError(f"no job {name!r} of user {key.user!r} has been seen to end")
    if output is Output.JSON:
        render.print_json(key._asdict() | asdict(found) | {"advice": sentence(found)})
    else:
        print(sentence(found))


@evictions_app.command("list")
def list_evictions(
    which: Annotated[Which, typer.Option("--state", help="State of the evictions.")] = Which["all"],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of evictions, newest first.")] = 20,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """List evictions, newest first."""
    with stored(config) as store:
        render.evictions(store.evictions(states=STATE_GROUPS.get(which.value), limit=limit), output.value)


@evictions_app.command("show")
def show_eviction(
    eviction_id: EvictionId, config: ConfigOption = DEFAULT_CONFIG, output: OutputOption = Output.TABLE
) -> None:
    """One eviction: the plan, a reason for every job, the trade-off curve, every step."""
    with stored(config) as store:
        render.eviction(store.eviction(eviction_id), store.steps(eviction_id), output.value)


@evictions_app.command()
def approve(eviction_id: EvictionId, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Let a planned eviction be carried out."""
    ask(RequestKind.APPROVE, config, eviction_id)


@evictions_app.command()
def cancel(eviction_id: EvictionId, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Undo an eviction; jobs past their point of no return are followed until they run again."""
    ask(RequestKind.CANCEL, config, eviction_id)


@app.command()
def pause(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Begin nothing new until `clearway resume`; jobs that have left already are followed to their return."""
    ask(RequestKind.PAUSE, config)


@app.command()
def resume(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Go on after `clearway pause`."""
    ask(RequestKind.RESUME, config)


@app.command()
def halt(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Stop what is under way at once: no command is given to Slurm until `clearway unhalt`.

    When neither the database nor the daemon answers, create the file `daemon.halt_file` (/var/lib/clearway/halt).
    """
    ask(RequestKind.HALT, config)


@app.command()
def unhalt(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Go on after `clearway halt`."""
    ask(RequestKind.UNHALT, config)


app.command()(leaders)
app.command()(takeover)
app.command("drain")(drain_nodes)
app.command()(undrain)


@app.command()
@with_options
def simulate(asked: ReplayOptions, output: OutputOption = Output.TABLE, *, sweep: SweepOptions) -> None:
    """Replay a recorded workload under one or more schedulers, and print the results."""
    from clearway.cli.simulate import simulate as run  # noqa: PLC0415 - see serve
    from clearway.cli.simulate_site import simulate_site  # noqa: PLC0415

    if (asked.trace is None) == (asked.from_sacct is None):
        raise typer.BadParameter("give either a recorded workload or --from-sacct START END")
    with errors(BAD_INPUT):
        if asked.trace is not None and asked.config is None:
            # Workers elsewhere have other working directories.
            run(replace(asked, trace=asked.trace.resolve()), sweep, output.value)
            return
        if asked.config is None:
            raise typer.BadParameter("--from-sacct needs --config, which says which jobs are urgent")
        if asked.trace is not None and not asked.sacct:
            raise typer.BadParameter("--config needs --sacct or --from-sacct: other records do not name users")
        if asked.changes_the_record:
            raise typer.BadParameter("with --config go only --sacct, --from-sacct, --nodes, --seed and --output")
        simulate_site(asked, asked.config, sweep, output.value)


@app.command("simulate-cluster")
def simulate_cluster(
    once: Annotated[bool, typer.Option("--once", help="End after the first urgent job.")] = False,
    speed: Annotated[float, typer.Option(min=1, max=600, help="Simulated seconds per second.")] = 60.0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the REST API; 0: any free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random jobs.")] = 7,
) -> None:
    """Run the daemon on a simulated cluster of 4,392 nodes and watch it make room for an urgent job."""
    from clearway.cli import demo  # noqa: PLC0415 - see serve

    with errors():
        raise typer.Exit(demo.run(once=once, speed=speed, port=port, seed=seed))


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
    app()
