"""``clearway lab simulate --config``: what Clearway would have done with the jobs in a site's accounting."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from clearway import bootstrap
from clearway.api.report import report
from clearway.api.report_schemas import ReportView
from clearway.cli import render
from clearway.cli.options import complain
from clearway.cli.report import lines, page
from clearway.config.configuration import Config, load_config
from clearway.estimates.history import HistoryKeeper
from clearway.estimates.learning import History, Requeued
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError
from clearway.model.operations import Preemption
from clearway.model.records import MOST_CASES
from clearway.slurm.process import Commands
from clearway.store.repository import Store
from clearway.telemetry.log import configure_logging
from clearway_lab.commands.options import ReplayOptions
from clearway_lab.commands.progress import replay_bar
from clearway_lab.errors import SimulationError
from clearway_lab.simulator.measures import Spread
from clearway_lab.site import files as site_files
from clearway_lab.site import record as site_record
from clearway_lab.site.daemon import Past, is_urgent, past_of, replay_daemon
from clearway_lab.site.files import Site
from clearway_lab.site.replay import SiteFigures, SiteReplay, recorded, replayed, waits

_SLURM_TIMEOUT_S = 600.0  # months of a busy site
_WORTH_A_BAR = 500  # jobs
_EXIT_S = 1.0  # from the end of a job to its empty nodes, where the database does not know it
_SHOWN = 3  # faults of the record


def simulate_site(asked: ReplayOptions, settings: Path, output: str, *, quiet: bool) -> None:
    """Replay and print.

    Raises:
        ClearwayError: with one line that says which file, command or setting cannot be used.
    """
    config = load_config(settings)
    if not config.preemptors:
        raise SimulationError("the configuration has no [[preemptors]]: no job is urgent")
    answers, name = _answers(asked, config)
    if asked.save is not None:
        site_files.write_folder(asked.save, answers)
    site = site_files.read_site(answers, name)
    of_rules = partial(is_urgent, config)
    site = replace(site, record=site.record.knowing(of_rules))
    if asked.job is not None:
        site = replace(site, record=site.record.as_of(asked.job, of_rules))
    known = _Known.of(config)
    quiet = quiet or output == "json"
    configure_logging("text", quiet=True)

    alone = known.replay(site, config)
    if not alone.urgent:
        raise SimulationError(f"{name}: none of {len(site.record.jobs):,} jobs is urgent by the [[preemptors]] rules")
    with replay_bar("Slurm alone", len(site.record.jobs), _WORTH_A_BAR, silent=quiet) as tick:
        alone.run(tick=tick or (lambda _: None))
    with_clearway = known.replay(site, config)
    with replay_bar("with Clearway", len(site.record.jobs), _WORTH_A_BAR, silent=quiet) as tick:
        found = _with_clearway(with_clearway, config, known, tick or (lambda _: None))
    figures = (recorded(with_clearway), replayed("Slurm alone", alone), replayed("with Clearway", with_clearway))
    if asked.report is not None:
        _write(asked.report, page(found))
    if output == "json":
        runs = [each.as_json() for each in figures]
        urgent = waits(alone, with_clearway)
        render.print_json(
            {
                "trace": name,
                "nodes": len(site.nodes),
                "runs": runs,
                "urgent": urgent,
                "report": found.model_dump(mode="json"),
            }
        )
        return
    _tell_left_out(site, with_clearway)
    render.console().print(_shown(site, figures, found))


def _answers(asked: ReplayOptions, config: Config) -> tuple[dict[str, str], str]:
    if asked.trace is not None:
        return site_files.read_folder(asked.trace), asked.trace.resolve().name
    start, end = asked.from_sacct or ("", "")
    conf = str(config.slurm.conf) if config.slurm.conf else None
    commands = Commands(timeout_s=_SLURM_TIMEOUT_S, slurm_conf=conf)
    asks = site_files.commands(start, end).items()
    return {name: commands.run(command, env=site_record.ENVIRONMENT) for name, command in asks}, f"{start} to {end}"


class _Known:
    """What the daemon's database has learned of this site: how long jobs take to save themselves and to leave."""

    def __init__(self, store: Store | None, config: Config) -> None:
        self._checkpoints = () if store is None else store.checkpoint_history()
        self._restarts = () if store is None else store.restart_history()
        self._history = History() if store is None else HistoryKeeper(store).history(config)
        self._preemptions = [p for e in (() if store is None else store.evictions()) for p in e.preemptions]
        left = [
            (p.vacated_at - p.requeued_at).total_seconds()
            for p in self._preemptions
            if p.vacated_at is not None and p.requeued_at is not None
        ]
        self.exit_s = max(0.1, median(left)) if left else _EXIT_S

    @classmethod
    def of(cls, config: Config) -> "_Known":
        try:
            store = bootstrap.open_store(config)
        except ConfigError:
            return cls(None, config)  # the daemon has not run here
        try:
            return cls(store, config)
        finally:
            store.close()

    def replay(self, site: Site, config: Config) -> SiteReplay:
        return SiteReplay(site.record, site.nodes, config, site.tiers, self.exit_s, self._history)

    def by(self, replay: SiteReplay) -> Past:
        """What the daemon knew when the replay begins; where its database knows of nothing, what sacct tells of it."""
        at = replay.begins
        gone = [p for p in self._preemptions if p.requeued_at is not None and p.requeued_at <= at]
        checkpoints = tuple(each for each in self._checkpoints if each.ended_at <= at)
        restarts = tuple(each for each in self._restarts if each.started_at <= at)
        if not (self._preemptions or self._checkpoints):
            return past_of(replay.record)
        back = sorted(filter(None, map(_return, gone)), key=lambda each: each[0], reverse=True)
        requeued = tuple(each for returned_at, each in back if returned_at <= at)
        return Past(Counter(p.job_id for p in gone), requeued, checkpoints, restarts)


def _return(gone: Preemption) -> tuple[datetime, Requeued] | None:
    """When the job was back, and how long it was away; None where it is not back."""
    if gone.vacated_at is None or gone.returned_at is None:
        return None
    away_s = max(0.0, (gone.returned_at - gone.vacated_at).total_seconds())
    return gone.returned_at, Requeued(gone.job.num_nodes, away_s)


def _with_clearway(replay: SiteReplay, config: Config, known: _Known, tick: Callable[[int], None]) -> ReportView:
    """The daemon's own cycle and database, for the time of the replay."""
    with replay_daemon(replay, config, known.by(replay)) as daemon:
        replay.run(daemon.cycle, tick)
        cases = daemon.store.cases_since(replay.begins, MOST_CASES + 1)
    more = len(cases) > MOST_CASES
    return report(cases[:MOST_CASES], replay.begins, replay.clock.now(), more=more)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SimulationError(f"cannot write {path}: {error.strerror}") from None


def _tell_left_out(site: Site, replay: SiteReplay) -> None:
    record = site.record
    for each in record.broken[:_SHOWN]:
        complain(f"{record.name}: {each}; left out")
    if len(record.broken) > _SHOWN:
        complain(f"{record.name}: {len(record.broken):,} lines are broken in all")
    if record.never_ran:
        complain(f"{record.name}: {record.never_ran:,} jobs never ran; left out")
    if replay.left_out:
        complain(f"{record.name}: {replay.left_out:,} jobs fit no partition's nodes as they are now; left out")


def _shown(site: Site, figures: tuple[SiteFigures, ...], found: ReportView) -> Group:
    head = f"{site.record.name}: {len(site.record.jobs):,} jobs on {len(site.nodes):,} nodes"
    columns: render.Columns = {
        "run": lambda run: run.name,
        ">urgent": lambda run: f"{run.urgent_jobs:,}",
        ">wait": lambda run: _time(run.urgent_wait_s, "mean"),
        ">p95": lambda run: _time(run.urgent_wait_s, "p95"),
        ">longest": lambda run: _time(run.urgent_wait_s, "largest"),
        ">late": lambda run: f"{run.late:,}",
        ">others": lambda run: _time(run.other_wait_s, "mean"),
        ">lost h": lambda run: "-" if run.lost_node_h is None else f"{run.lost_node_h:,.1f}",
        ">jobs hit": lambda run: f"{run.preempted_jobs:,}",
    }
    made = render.listing(figures, columns, "Waiting of urgent jobs, and of the others; node-hours lost")
    told = "\n".join(lines(found)) if found.cases else "no urgent job was planned for"
    return Group(Text(render.visible(head)), Text(), made, Text(), Text(told))


def _time(spread: Spread | None, which: str) -> str:
    return "-" if spread is None else format_duration(round(getattr(spread, which)))
