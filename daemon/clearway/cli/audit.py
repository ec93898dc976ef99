"""``clearway audit``: who did what, and whether the record of it is whole."""

import json
from typing import Annotated

import typer

from clearway.api.report_schemas import AuditView
from clearway.cli import options, render
from clearway.cli.source import Source
from clearway.model.audit import AuditKind

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
    output: options.OutputOption = options.Output.TABLE,
    *,
    site: options.Site,
) -> None:
    """The audit trail: requests and their answers, changes of the configuration, refused logins, takeovers."""
    if noted and not verify:
        raise typer.BadParameter("--noted goes with --verify")
    with options.source(site) as asked:
        if verify:
            _verify(asked, noted, output)
            return
        found = asked.audit(limit, kind, actor)
    if output is options.Output.JSON:
        render.print_json({"items": [each.model_dump(mode="json") for each in found], "next_before": None})
    else:
        for each in found:
            print(render.visible(_line(each)))


def _line(entry: AuditView) -> str:
    about = json.dumps(entry.about, sort_keys=True)
    at = "?" if entry.at is None else str(entry.at)[:19]
    return f"{entry.sequence:>6}  {at}  {entry.kind or '?'}  {entry.actor or '?'}  {about}"


def _verify(asked: Source, noted: str | None, output: options.Output) -> None:
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
