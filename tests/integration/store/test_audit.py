"""The audit trail on the three databases: nothing is lost, forked, or changed unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from clearway.model.audit import BEFORE_THE_FIRST, AuditCheck, Audited, AuditKind, AuditRow, hash_of
from clearway.model.errors import UnknownEvictionError
from clearway.model.requests import Answer, RequestKind, RequestResult
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction

OTHER_PROCESS = """
import sys
from datetime import UTC, datetime
from clearway.model.audit import Audited, AuditKind
from clearway.store.repository import Store
store = Store(sys.argv[1])
for number in range(int(sys.argv[2])):
    store.audit(Audited(at=datetime.now(UTC), actor=f"other-{number}", kind=AuditKind.TOKEN))
store.close()
"""
THREADS, ENTRIES = 4, 12  # a writer that waits longer than the busy timeout gives up


def entry(actor: str = "ann", kind: AuditKind = AuditKind.TOKEN, **about: object) -> Audited:
    return Audited(at=NOW, actor=actor, kind=kind, about=about)


def test_entries_are_chained(store: Store) -> None:
    assert store.check_audit() == AuditCheck(entries=0, head=BEFORE_THE_FIRST)
    first = store.audit(entry(name="\0 \ud800 ä"))
    second = store.audit(entry(kind=AuditKind.START))
    assert (first.sequence, first.previous, second.previous) == (1, BEFORE_THE_FIRST, first.hash)
    assert second.hash == hash_of(first.hash, second.entry)
    assert store.audit_trail() == (second, first)
    assert store.audit_trail(limit=1, before=2) == (first,)
    assert store.check_audit() == AuditCheck(entries=2, head=second.hash)
    assert first.document() == {
        "about": {"name": "\0 \ud800 ä"},
        "actor": "ann",
        "at": NOW.isoformat(timespec="microseconds"),
        "kind": "token",
        "sequence": 1,
    }


def test_what_is_asked_and_what_comes_of_it(store: Store) -> None:
    saved = store.create_eviction(eviction())
    request_id = store.add_request(RequestKind.APPROVE, saved.eviction_id, "ann", NOW)
    answer = Answer(code=RequestResult.REFUSED, sentence="eviction 1 is completed")
    store.finish_request(request_id, after(1), answer)
    told = [(row.document()["actor"], row.document()["kind"], row.document()["about"]) for row in store.audit_trail()]
    assert told == [
        ("clearway", "answer", {"request_id": 1, "code": "refused", "result": "refused: eviction 1 is completed"}),
        ("ann", "request", {"request_id": 1, "kind": "approve", "eviction_id": 1}),
    ]
    with pytest.raises(UnknownEvictionError):
        store.add_request(RequestKind.CANCEL, 77, "ann", NOW)
    assert store.check_audit().entries == 2, "what was not stored is not recorded"


def test_writers_do_not_fork_the_chain(open_store: Callable[[], Store], database_url: str) -> None:
    stores = [open_store() for _ in range(THREADS)]
    command = [sys.executable, "-c", OTHER_PROCESS, database_url, str(ENTRIES)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def write(number: int) -> list[AuditRow]:
        store = stores[number]
        written = []
        for each in range(ENTRIES):
            written.append(store.audit(entry(f"thread-{number}-{each}")))
            store.add_request(RequestKind.PAUSE, None, f"asker-{number}-{each}", datetime.now(UTC))
        return written

    with ThreadPoolExecutor(THREADS) as pool:
        written = [row for rows in pool.map(write, range(THREADS)) for row in rows]
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    total = ENTRIES * (2 * THREADS + 1)
    check = open_store().check_audit()
    assert (check.entries, check.fault) == (total, "")
    stored = {row.sequence: row for row in open_store().audit_trail(limit=1_000)}
    assert len(stored) == total
    assert all(stored[row.sequence] == row for row in written)
    actors = [row.document()["actor"] for row in stored.values()]
    assert len(set(actors)) == total


@pytest.mark.parametrize(
    ("statements", "entries", "fault"),
    [
        (["UPDATE audit SET entry = REPLACE(entry, 'ann', 'bob') WHERE sequence = 2"], 1, "entry 2 was changed"),
        (["UPDATE audit SET hash = previous WHERE sequence = 2"], 1, "entry 2 was changed"),
        (["DELETE FROM audit WHERE sequence = 2"], 1, "entry 2 is missing"),
        (["DELETE FROM audit WHERE sequence = 1"], 0, "entry 1 is missing"),
        (["DELETE FROM audit WHERE sequence = 4"], 3, "entries after 3 are missing"),
        (["DELETE FROM audit"], 0, "entries after 0 are missing"),
        (["DELETE FROM audit_head"], 4, "entries after 4 are missing"),
        (
            ["DELETE FROM audit WHERE sequence = 2", "UPDATE audit SET sequence = sequence - 1 WHERE sequence > 2"],
            1,
            "entry 2 does not follow from entry 1",
        ),
    ],
)
def test_a_change_shows(store: Store, statements: list[str], entries: int, fault: str) -> None:
    rows = [store.audit(entry(number=number)) for number in range(4)]
    with store._database.writing() as connection:
        for statement in statements:
            connection.execute(text(statement))
    head = rows[entries - 1].hash if entries else BEFORE_THE_FIRST
    assert store.check_audit() == AuditCheck(entries=entries, head=head, fault=fault)


def test_an_entry_made_anew_shows_unless_all_after_it_are(store: Store) -> None:
    rows = [store.audit(entry(number=number)) for number in range(3)]
    forged = entry("eve", number=1).text(2)
    with store._database.writing() as connection:
        values = {"entry": forged, "hash": hash_of(rows[0].hash, forged)}
        connection.execute(text("UPDATE audit SET entry = :entry, hash = :hash WHERE sequence = 2"), values)
    assert store.check_audit().fault == "entry 3 does not follow from entry 2"


def test_retention_takes_nothing_from_it(store: Store) -> None:
    request_id = store.add_request(RequestKind.PAUSE, None, "ann", NOW)
    store.finish_request(request_id, NOW, Answer(sentence="paused"))
    store.prune(after(10**8))
    assert store.request(request_id) is None
    assert store.check_audit().entries == 2


def test_a_long_trail_is_looked_at_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearway.store.request_rows._AT_ONCE", 3)
    for number in range(9):
        store.audit(entry(number=number))
    assert store.check_audit().entries == 9
    with store._database.writing() as connection:
        connection.execute(text("DELETE FROM audit WHERE sequence = 7"))
    assert store.check_audit().fault == "entry 7 is missing"
    assert json.loads(store.audit_trail(limit=1)[0].entry)["sequence"] == 9
