"""``clearway promise`` and ``clearway promises``, as an operator gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.cli import asker
from tests.simulation.world import World, config
from tests.unit.cli.running import Site

BEAM = ("promise", "--nodes", 2, "--at", "2h", "--for", "8h", "--user", "beam", "--partition", "batch")


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setattr(asker, "actor", lambda: "root (command line)")
    return Site(make_world(config=config(promises={"hold": "1h"})), tmp_path)


def test_asked_for_listed_shown_and_cancelled(site: Site) -> None:
    assert site.run("promises").stdout == "There are none.\n"
    with site.cycling():
        assert site.run(*BEAM, "--reason", "beam time 42").stdout.startswith("promise 1: Its nodes are chosen at ")
        assert site.json(*BEAM, "--user", "laser")["eviction_id"] == 2
        listed = site.run("promises").stdout
        assert "beam,laser" in listed
        assert "8h00m" in listed
        first, second = site.json("promises")["items"]
        assert (first["eviction_id"], second["promise"]["reason"]) == (2, "beam time 42")
        assert "promise " in site.run("evictions", "list").stdout
        assert "for nodes promised from " in site.run("evictions", "show", 1).stdout
        assert site.run("promise", "--cancel", 1).stdout == "cancelled\n"
        again = site.run("promise", "--cancel", 1)
        assert (again.exit_code, again.stderr) == (1, "clearway: refused: eviction 1 is cancelled\n")
        refused = site.run(
            "promise", "--nodes", 9, "--at", "2h", "--for", "8h", "--user", "beam", "--partition", "batch"
        )
        assert (refused.exit_code, refused.stderr) == (1, "clearway: refused: nodes: partition batch has 8, not 9\n")


def test_on_a_narrow_screen_the_reservation_is_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.cycling():
        site.run(*BEAM, "--user", "laser")
    reservation = site.json("promises")["items"][0]["promise"]["reservation"]
    monkeypatch.setenv("COLUMNS", "80")
    shown = site.run("promises").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert reservation in shown
    assert "…" not in shown
    assert "beam,laser" in site.run("promises", "-o", "wide").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("promise", "--nodes", 2),
        (*BEAM[:-4], "--partition", "batch"),
        (*BEAM, "--for", "soon"),
        (*BEAM, "--for", "10s"),
        (*BEAM, "--at", "tomorrow"),
        (*BEAM, "--user", "no one"),
        (*BEAM, "--cancel", 1),
    ],
)
def test_bad_input_is_refused_at_once(site: Site, words: tuple[object, ...]) -> None:
    result = site.run(*words)
    assert result.exit_code == 2
    assert result.stderr
    assert site.world.store.pending_requests() == ()
