"""``clearway status``, ``leaders``, ``takeover``, ``calibration`` and ``audit``: how it goes, and who did what."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from clearway.api.report_schemas import CalibrationView, StatusView
from clearway.bootstrap import open_store
from clearway.cli import asker, options, render
from clearway.cli.drain import turns
from clearway.cli.evictions import of_tasks, summaries
from clearway.cli.render import Columns, answer, listing, page, visible, when
from clearway.model.audit import AuditKind
from clearway.model.durations import format_duration
from clearway.model.errors import ClearwayError
from clearway.model.operations import EvictionState
from clearway.model.records import CheckpointOutcome
from clearway.model.requests import RequestKind

NOT_RUNNING = 3  # exit status, as of `systemctl status`
_MOST = 100_000


def status(watch: options.WatchOption = False, look: options.Look = options.LOOKING) -> None:
    """Whether a daemon runs and in which mode, what waits for room or approval, and what is under way.

    Exit status 3: no daemon leads, or that cannot be found out.
    """

    def shown() -> bool:
        try:
            with options.source(look.site, told=False) as asked:
                found = asked.status()
        except ClearwayError as error:
            options.complain(f"not known whether Clearway runs: {error}")
            return False
        answer(found, look.output, lambda: page(_shown_status(found, asker.now(), look.output)))
        return found.running

    if not options.watched(shown, watch=watch):
        raise typer.Exit(NOT_RUNNING)


def _shown_status(found: StatusView, now: datetime, output: str) -> Iterator[RenderableType]:
    yield _headline(found, now)
    if found.running:
        yield _through(found)
    yield from (Text(visible(text), style=style) for style, text in _holds(found))
    if found.waiting:
        yield from ("", _urgent_table(found))
    if found.left_to_slurm:
        reasons = ", ".join(f"{reason.value} {count}" for reason, count in found.left_to_slurm.items())
        yield f"Urgent jobs that are left to Slurm, by reason: {reasons}."
    parts = {"Waits for approval (clearway evictions approve NUMBER)": True, "Planned or under way": False}
    for title, waits in parts.items():
        some = [e for e in found.open_evictions if (e.state is EvictionState.AWAITING_APPROVAL) is waits]
        if some:
            yield from ("", summaries(some, output, title))
    for each in found.rolling_drains:
        yield f"Rolling drain {each.rolling_id}, {each.at_once} at once: {turns(each)}."
    if not (found.waiting or found.open_evictions or found.rolling_drains):
        yield "Nothing is planned or under way, and no urgent job waits."


def _through(found: StatusView) -> str:
    why = f" ({found.backend_why})" if found.backend_why else ""
    acts = "" if found.only_observes else "; Clearway acts on this release as its mode says"
    return f"Slurm {found.slurm_version or 'of a version that is not known'} through {found.backend}{why}{acts}."


def _urgent_table(found: StatusView) -> RenderableType:
    more = found.waiting_preemptors - len(found.waiting)
    title = "Urgent jobs that wait" + (f" (the most pressing ones, and {more} more)" if more > 0 else "")
    columns: Columns = {
        "job": lambda each: each.display_id + of_tasks(each.tasks),
        "user": lambda each: each.user,
        ">nodes": lambda each: each.nodes,
        "deadline": lambda each: when(each.deadline),
        ">left": lambda each: format_duration(each.left_s) if each.left_s > 0 else "over",
        ">eviction": lambda each: each.eviction_id or "-",
        "what is done": lambda each: each.why,
    }
    return listing(found.waiting, columns, title)


def _headline(found: StatusView, now: datetime) -> Text:
    mode = f"mode {found.mode.value}" if found.mode else "mode not known"
    since = found.not_running_since
    if found.running:
        beat = format_duration(round(found.heartbeat_age_s or 0.0))
        return Text(visible(f"Running in {mode}. {found.leader} leads; last sign of life {beat} ago."), style="bold")
    if since is None:
        return Text("NOT RUNNING: no daemon has led with this database yet.", style="bold red")
    ago = format_duration(max(0, round((now - since).total_seconds())))
    return Text(f"NOT RUNNING since {when(since)} ({ago} ago): no daemon leads. It was in {mode}.", style="bold red")


def _holds(found: StatusView) -> Iterator[tuple[str, str]]:
    if found.only_observes:
        yield "bold yellow", f"It only observes, whatever its mode: {found.only_observes}."
    if found.refused_rules:
        yield "bold red", f"Not every rule holds: {found.refused_rules}."
    if found.halted:
        yield "bold red", f"No command is given to Slurm: {found.halted}."
    if found.stopped:
        look = "No job is made to leave. Look at these nodes, then: clearway resume"
        yield "bold red", f"Stopped: {found.stopped}. {look}"
    if found.paused:
        yield "bold yellow", "Paused: nothing new is begun."


def audit(
    limit: Annotated[int, typer.Option(min=1, max=_MOST, help="Maximum number of entries, newest first.")] = 50,
    kind: Annotated[AuditKind | None, typer.Option(help="Entries of this kind alone.")] = None,
    actor: Annotated[str | None, typer.Option(help="Entries of this user, token or daemon alone.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no entry was changed or removed; exit status 1 if one was.")
    ] = False,
    noted: Annotated[
        str | None, typer.Option(help="With --verify: a hash noted earlier, which an entry must still have.")
    ] = None,
    look: options.Look = options.LOOKING,
) -> None:
    """The audit trail: requests and their answers, changes of the configuration, refused logins, takeovers."""
    if noted and not verify:
        raise typer.BadParameter("--noted goes with --verify")
    with options.source(look.site) as asked:
        if verify:
            _verify(asked, noted, look.output)
            return
        found = asked.audit(limit, kind, actor)
    if look.output is options.Output.JSON:
        render.print_json({"items": [each.model_dump(mode="json") for each in found], "next_before": None})
    else:
        for each in found:
            about, at = json.dumps(each.about, sort_keys=True), "?" if each.at is None else str(each.at)[:19]
            print(visible(f"{each.sequence:>6}  {at}  {each.kind or '?'}  {each.actor or '?'}  {about}"))


def _verify(asked: options.Source, noted: str | None, output: options.Output) -> None:
    check = asked.audit_check()
    if check.intact and noted and not any(each.hash == noted for each in asked.audit(check.entries or 1, None, None)):
        check = check.model_copy(update={"intact": False, "fault": "no entry has the hash that was noted"})
    if output is options.Output.JSON:
        render.print_document(check)
    elif check.intact:
        print(f"good: {check.entries} entries; the last has the hash {check.head}")
    if not check.intact:
        options.complain(f"audit trail: {check.fault}; {check.entries} entries before are good")
        raise typer.Exit(options.FAILED)


def calibration(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of applications.")] = 50,
    look: options.Look = options.LOOKING,
) -> None:
    """Predicted and actual checkpoint times, and the applications that are not asked to save themselves any more."""
    look.show(lambda asked: asked.calibration(limit), lambda found: page(_calibrated(found, limit)))


def _calibrated(found: CalibrationView, limit: int) -> Iterator[RenderableType]:
    if not found.items:
        yield "no checkpoint has been asked for yet"
        return
    by_name: Columns = {"checkpointer": lambda each: each.checkpointer} | _FIGURES
    by_key: Columns = {"user": lambda each: each.user, "application": lambda each: each.app} | by_name
    by_key |= {">next": lambda each: "-" if each.expected_s is None else format_duration(each.expected_s)}
    by_key |= {"": lambda each: "" if each.trusted else f"not asked: {each.failures_in_a_row} failures in a row"}
    yield from (listing(found.checkpointers, by_name), "", listing(found.items, by_key))
    if found.next_offset is not None:
        yield f"... and more (--limit); {limit} are shown"


# Of checkpoints: the median of actual over predicted seconds, and the share that took no longer.
_FIGURES: Columns = {
    ">saved": lambda each: each.checkpoints[CheckpointOutcome.SAVED],
    ">failed": lambda each: each.checkpoints[CheckpointOutcome.FAILED] + each.checkpoints[CheckpointOutcome.LATE],
    ">actual/predicted": lambda each: "-" if each.median_ratio is None else f"{each.median_ratio:.2f}",
    ">in time": lambda each: "-" if each.share_within is None else f"{each.share_within:.0%}",
}
_WARNING = (
    "the lease was taken without the daemon's consent: it can write nothing more and gives Slurm no new command, but a "
    "command that is under way may still take effect. The daemon that leads next only watches for half of daemon.lease"
)


def leaders(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of leaders, newest first.")] = 20,
    look: options.Look = options.LOOKING,
) -> None:
    """The daemons that have acted on this database, newest first."""
    columns: Columns = {
        ">epoch": lambda leader: leader.epoch,
        "daemon": lambda leader: leader.owner,
        "from": lambda leader: when(leader.began_at),
        "until": lambda leader: when(leader.ended_at),
        "ended": lambda leader: f"{leader.ended or 'leads'}{f' by {leader.ended_by}' if leader.ended_by else ''}",
    }
    look.show(lambda asked: asked.leaders(limit), lambda found: listing(found.items, columns))


def takeover(
    force: Annotated[
        bool, typer.Option("--force", help="Take the lease from a daemon that does not answer, without its consent.")
    ] = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Let another daemon lead: the present leader finishes its cycle and gives up the lease. Needs the database."""
    if not force:
        options.ask(RequestKind.HAND_OVER, options.Site(config=config))
        return
    with options.errors(), closing(open_store(options.configuration(config))) as store:
        owner = store.depose(asker.actor(), asker.now())
    options.complain(_WARNING)
    print(visible(f"taken from {owner}" if owner else "no daemon had the lease"))
