"""``clearway audit``: who did what, and whether the record of it is whole."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from clearway.cli import options, render
from clearway.model.audit import AuditCheck, AuditKind, AuditRow
from clearway.store.base import Store

_PAGE = 100


def audit(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of entries, newest first.")] = 50,
    kind: Annotated[AuditKind | None, typer.Option(help="Entries of this kind alone.")] = None,
    actor: Annotated[str | None, typer.Option(help="Entries of this user, token or daemon alone.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no entry was changed or removed; exit status 1 if one was.")
    ] = False,
    noted: Annotated[
        str | None, typer.Option(help="With --verify: a hash noted earlier, which an entry must still have.")
    ] = None,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """The audit trail: requests and their answers, changes of the configuration, refused logins, takeovers."""
    if noted and not verify:
        raise typer.BadParameter("--noted goes with --verify")
    with options.stored(config) as store:
        if verify:
            _verify(store, noted, output)
            return
        found = _found(store, limit, kind, actor)
        if output is options.Output.JSON:
            render.print_json([_document(row) for row in found])
        else:
            for row in found:
                print(render.visible(_line(row)))


def _found(store: Store, limit: int, kind: AuditKind | None, actor: str | None) -> list[AuditRow]:
    found: list[AuditRow] = []
    for row in _all(store):
        document = row.document()
        if (kind is None or document.get("kind") == kind) and (actor is None or document.get("actor") == actor):
            found.append(row)
            if len(found) == limit:
                break
    return found


def _all(store: Store) -> Iterator[AuditRow]:
    """Newest first."""
    before: int | None = None
    while page := store.audit_trail(limit=_PAGE, before=before):
        yield from page
        before = page[-1].sequence


def _document(row: AuditRow) -> dict[str, Any]:
    return row.document() | {"sequence": row.sequence, "previous": row.previous, "hash": row.hash}


def _line(row: AuditRow) -> str:
    document = row.document()
    about = json.dumps(document.get("about", {}), sort_keys=True)
    at = str(document.get("at", "?"))[:19].replace("T", " ")
    return f"{row.sequence:>6}  {at}  {document.get('kind', '?')}  {document.get('actor', '?')}  {about}"


def _verify(store: Store, noted: str | None, output: options.Output) -> None:
    check = store.check_audit()
    if check.intact and noted and not any(row.hash == noted for row in _all(store)):
        check = AuditCheck(entries=check.entries, head=check.head, fault="no entry has the hash that was noted")
    if output is options.Output.JSON:
        fields = {"intact": check.intact, "entries": check.entries, "head": check.head, "fault": check.fault}
        render.print_json(fields)
    elif check.intact:
        print(f"good: {check.entries} entries; the last has the hash {check.head}")
    if not check.intact:
        options.complain(f"audit trail: {check.fault}; {check.entries} entries before are good")
        raise typer.Exit(options.FAILED)
