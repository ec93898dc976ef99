"""``clearway status``: whether a daemon runs, in which mode, what waits, and what is under way."""

from collections.abc import Iterator
from datetime import datetime

import typer
from rich.console import Group
from rich.text import Text

from clearway.api.schemas import EvictionSummary
from clearway.api.status_schemas import StatusView
from clearway.cli import options, rolling_view
from clearway.cli.eviction_view import of_tasks, summaries
from clearway.cli.render import Columns, console, listing, print_document, visible, when
from clearway.model.durations import format_duration
from clearway.model.errors import ClearwayError
from clearway.model.operations import EvictionState

NOT_RUNNING = 3  # exit status, as of `systemctl status`


@options.with_options
def status(
    watch: options.WatchOption = False, output: options.OutputOption = options.Output.TABLE, *, site: options.Site
) -> None:
    """Whether a daemon runs and in which mode, what waits for room or approval, and what is under way.

    Exit status 3: no daemon leads, or that cannot be found out.
    """

    def shown() -> bool:
        try:
            with options.source(site, told=False) as asked:
                found = asked.status()
        except ClearwayError as error:
            options.complain(f"not known whether Clearway runs: {error}")
            return False
        _show(found, options.now(), output.value)
        return found.running

    if not options.watched(shown, watch=watch):
        raise typer.Exit(NOT_RUNNING)


def _show(found: StatusView, now: datetime, output: str) -> None:
    if output == "json":
        print_document(found)
        return
    out = console(output)
    out.print(_headline(found, now))
    if found.running:
        why = f" ({found.backend_why})" if found.backend_why else ""
        acts = "" if found.only_observes else "; Clearway acts on this release as its mode says"
        version = found.slurm_version or "of a version that is not known"
        out.print(visible(f"Slurm {version} through {found.backend}{why}{acts}."))
    for style, text in _holds(found):
        out.print(Text(visible(text), style=style))
    if found.waiting:
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
        out.print(Group("", listing(found.waiting, columns, title)))
    if found.left_to_slurm:
        reasons = ", ".join(f"{reason.value} {count}" for reason, count in found.left_to_slurm.items())
        out.print(f"Urgent jobs that are left to Slurm, by reason: {reasons}.")
    waits = [e for e in found.open_evictions if e.state is EvictionState.AWAITING_APPROVAL]
    others = [e for e in found.open_evictions if e.state is not EvictionState.AWAITING_APPROVAL]
    parts: dict[str, list[EvictionSummary]] = {
        "Waits for approval (clearway evictions approve NUMBER)": waits,
        "Planned or under way": others,
    }
    for title, some in parts.items():
        if some:
            out.print(Group("", summaries(some, output, title)))
    for each in found.rolling_drains:
        turns = rolling_view.progress(each)
        out.print(f"Rolling drain {each.rolling_id}, {each.at_once} at once: {turns}.")
    if not (found.waiting or found.open_evictions or found.rolling_drains):
        out.print("Nothing is planned or under way, and no urgent job waits.")


def _holds(found: StatusView) -> Iterator[tuple[str, str]]:
    """What keeps it from acting as its mode says: style and sentence."""
    if found.only_observes:
        yield "bold yellow", f"It only observes, whatever its mode: {found.only_observes}."
    if found.halted:
        yield "bold red", f"No command is given to Slurm: {found.halted}."
    if found.stopped:
        yield (
            "bold red",
            f"Stopped: {found.stopped}. No job is made to leave. Look at these nodes, then: clearway resume",
        )
    if found.paused:
        yield "bold yellow", "Paused: nothing new is begun."


def _headline(found: StatusView, now: datetime) -> Text:
    mode = f"mode {found.mode.value}" if found.mode else "mode not known"
    if found.running:
        beat = format_duration(round(found.heartbeat_age_s or 0.0))
        return Text(visible(f"Running in {mode}. {found.leader} leads; last sign of life {beat} ago."), style="bold")
    since = found.not_running_since
    if since is None:
        return Text("NOT RUNNING: no daemon has led with this database yet.", style="bold red")
    ago = format_duration(max(0, round((now - since).total_seconds())))
    return Text(f"NOT RUNNING since {when(since)} ({ago} ago): no daemon leads. It was in {mode}.", style="bold red")
