"""``clearway lab``: what joins the daemon's command line."""

from dataclasses import replace

import typer

from clearway.cli.options import BAD_INPUT, CommandGroup, Output, OutputOption, errors
from clearway_lab.commands.experiment import experiment_app
from clearway_lab.commands.options import Cluster, ReplayOptions, SweepOptions

app = CommandGroup(
    "Study workloads: recorded ones under other schedulers, the papers' experiments, a site's own again.",
    add_completion=False,
)
app.add_typer(experiment_app, name="experiment")


@app.command()
def simulate(asked: ReplayOptions, output: OutputOption = Output.TABLE, *, sweep: SweepOptions) -> None:
    """Replay a recorded workload under one or more schedulers, and print the results."""
    from clearway_lab.commands.simulate import simulate as run  # noqa: PLC0415 - `--help` is quicker without
    from clearway_lab.commands.simulate_site import simulate_site  # noqa: PLC0415

    if (asked.trace is None) == (asked.from_sacct is None):
        raise typer.BadParameter("give either a recorded workload or --from-sacct START END")
    with errors(BAD_INPUT):
        if asked.config is None:
            if asked.trace is None:
                raise typer.BadParameter("--from-sacct needs --config, which says which jobs are urgent")
            if asked.save is not None or asked.report is not None or asked.job is not None:
                raise typer.BadParameter("--save, --report and --job need --config")
            # Workers elsewhere have other working directories.
            run(replace(asked, trace=asked.trace.resolve()), sweep, output.value)
            return
        if asked.save is not None and asked.from_sacct is None:
            raise typer.BadParameter("--save needs --from-sacct")
        if asked.changes_the_record or sweep.cluster is not Cluster.LOCAL:
            raise typer.BadParameter(
                "with --config go only --from-sacct, --save, --job, --report, --quiet and --output"
            )
        simulate_site(asked, asked.config, output.value, quiet=sweep.quiet)
