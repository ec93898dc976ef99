"""``clearway audit``, ``calibration``, ``leaders``, ``takeover``: who did what, how good predictions were, who led."""

import json
from typing import Annotated

import typer
from rich.console import Group

from clearway.api.report_schemas import ApplicationCalibration, AuditView, Calibrated
from clearway.cli import asker, options, render
from clearway.model.audit import AuditKind
from clearway.model.durations import format_duration
from clearway.model.records import CheckpointOutcome
from clearway.model.requests import RequestKind

_MOST = 100_000


@options.with_options
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
            print(render.visible(_entry_line(each)))


def _entry_line(entry: AuditView) -> str:
    about = json.dumps(entry.about, sort_keys=True)
    at = "?" if entry.at is None else str(entry.at)[:19]
    return f"{entry.sequence:>6}  {at}  {entry.kind or '?'}  {entry.actor or '?'}  {about}"


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


@options.with_options
def calibration(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of applications.")] = 50,
    look: options.Look = options.LOOKING,
) -> None:
    """Predicted and actual checkpoint times, and the applications that are not asked to save themselves any more."""
    with options.source(look.site) as asked:
        found = asked.calibration(limit)
    if look.output is options.Output.JSON:
        render.print_document(found)
        return
    if not found.items:
        print("no checkpoint has been asked for yet")
        return
    right = (">saved", ">failed", ">actual/predicted", ">in time")
    by_name = render.table("checkpointer", *right)
    for each in found.checkpointers:
        by_name.add_row(each.checkpointer, *_figures(each))
    by_key = render.table("user", "application", "checkpointer", *right, ">next", "")
    for one in found.items:
        by_key.add_row(one.user, one.app, one.checkpointer, *_figures(one), *_next(one))
    render.console(look.output).print(Group(by_name, "", by_key))
    if found.next_offset is not None:
        print(f"... and more (--limit); {limit} are shown")


def _next(of: ApplicationCalibration) -> tuple[str, str]:
    expected = "-" if of.expected_s is None else format_duration(of.expected_s)
    return expected, "" if of.trusted else f"not asked: {of.failures_in_a_row} failures in a row"


def _figures(of: Calibrated) -> tuple[str, str, str, str]:
    """Median of actual over predicted seconds, and the share of checkpoints that took no longer."""
    count = of.checkpoints
    return (
        str(count[CheckpointOutcome.SAVED]),
        str(count[CheckpointOutcome.FAILED] + count[CheckpointOutcome.LATE]),
        "-" if of.median_ratio is None else f"{of.median_ratio:.2f}",
        "-" if of.share_within is None else f"{of.share_within:.0%}",
    )


_WARNING = (
    "the lease was taken without the daemon's consent: it can write nothing more and gives Slurm no new command, but a "
    "command that is under way may still take effect. The daemon that leads next only watches for half of daemon.lease"
)


@options.with_options
def leaders(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of leaders, newest first.")] = 20,
    look: options.Look = options.LOOKING,
) -> None:
    """The daemons that have acted on this database, newest first."""
    with options.source(look.site) as asked:
        found = asked.leaders(limit)
    columns: render.Columns = {
        ">epoch": lambda leader: leader.epoch,
        "daemon": lambda leader: leader.owner,
        "from": lambda leader: render.when(leader.began_at),
        "until": lambda leader: render.when(leader.ended_at),
        "ended": lambda leader: f"{leader.ended or 'leads'}{f' by {leader.ended_by}' if leader.ended_by else ''}",
    }
    render.answer(found, look.output, lambda: render.listing(found.items, columns))


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
    with options.stored(config) as store:
        owner = store.depose(asker.actor(), asker.now())
    options.complain(_WARNING)
    print(render.visible(f"taken from {owner}" if owner else "no daemon had the lease"))
