"""What users and Slurm write is shown, and never obeyed: no markup, no terminal escapes, no second line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearway.api import views
from clearway.api.schemas import EvictionList, EvictionSummary, StepView
from clearway.cli import evictions, render
from clearway.model.operations import EvictionState
from clearway.model.plan import Choice, NoPlan, Verdict
from clearway.model.records import StepRecord
from clearway.store.repository import Store
from tests.builders import NOW, eviction, job, plan, urgent_job

HOSTILE = {
    "colours": "\x1b[31mred\x1b[0m",
    "title of the window": "\x1b]0;owned\x07",
    "eight bits": "\x9b31mred",
    "markup": "[bold red]not bold[/bold red] [link=http://evil]x[/link]",
    "overwriting the line": "good\rBAD\x08\x08",
    "a second line": "one\ntwo",
    "right to left": "abc\u202edef",
    "emoji code": ":skull:",
    "half a character": "\udcff",
    "null": "a\x00b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_visible_is_printable_and_loses_nothing(text: str) -> None:
    shown = render.visible(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text
    else:
        assert shown.encode("ascii", "backslashreplace").decode("unicode_escape") == text


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("", "alice", "Jörg Ångström", "日本語", "a\\x1b", "50 % [of] it"):
        assert render.visible(text) == text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_tables_show_hostile_text_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    bad = job("101", user=text, name=text, comment=text, account=text)
    made = plan(urgent_job(nodes=1, user=text, name=text), [bad])
    made = replace(made, verdicts=(Verdict("101", Choice.CHOSEN, "kill", f"reason {text}"),))
    e = eviction(made, EvictionState.PREEMPTING, eviction_id=3, outcome=f"outcome {text}")
    e = replace(e, preemptions=tuple(replace(p, note=f"note {text}") for p in e.preemptions))
    steps = (StepRecord(step_id=1, eviction_id=3, job_id="101", kind="event", intended_at=NOW, detail=f"said {text}"),)
    listed = EvictionList(items=(views.eviction_summary(e, EvictionSummary),), next_offset=None)
    render.answer(listed, "table", lambda: evictions.summaries(listed.items, "table"))
    told = tuple(StepView.model_validate(step) for step in steps)
    evictions.eviction(views.eviction_view(e, Store("sqlite://")), views.verdict_views(e), told, "table")
    evictions.what_if(views.what_if_view(NOW, NoPlan(f"because {text}")), "table")
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    shown = render.visible(text)
    for word in ("reason", "outcome", "note", "said", "because"):
        assert f"{word} {shown}" in printed
    render.print_document(listed)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed)["items"][0]["user"] == text
