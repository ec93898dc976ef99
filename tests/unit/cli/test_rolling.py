"""``clearway drain --rolling`` and ``clearway rolling``, as an operator gives them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.cli import asker, database
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World
from tests.unit.cli.running import PATIENT_S, Site

THREE = "n[1-3]"
PATIENT = f"""
from functools import partial
from clearway.cli import app, render
render.wait_for = partial(render.wait_for, limit_s={PATIENT_S})
app.main()
"""


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(asker, "actor", lambda: "root (command line)")
    world = make_world()
    world.submit(Program(save_s=0.5), on=("n1",), ran_s=100, comment=SAVES)
    world.submit(on=("n2",), ran_s=100, user="bob")
    return Site(world, tmp_path)


def test_it_ends_when_the_last_is_back(site: Site) -> None:
    asked = ("drain", THREE, "--rolling", "1", "--reason", "new kernel", "--wait", "--config", str(site.file))
    # In a process of its own: two commands at once would write into one another's standard output.
    with (
        site.cycling(),
        subprocess.Popen([sys.executable, "-c", PATIENT, *asked], stdout=subprocess.PIPE, text=True) as waiting,
    ):
        try:
            for name in ("n1", "n3"):
                while site.world.cluster.nodes[name].available or site.world.store.rolling_drains()[0].nodes(
                    "emptying"
                ):  # type: ignore[arg-type]  # by its word
                    assert waiting.poll() is None
                assert site.run("undrain", name).stdout == f"brought back {name}\n"
            told, _ = waiting.communicate(timeout=PATIENT_S)
        finally:
            waiting.kill()
    assert waiting.returncode == 1  # one was skipped
    first, last = told.splitlines()
    assert first == "rolling drain 1: 3 node(s), 1 at once"
    assert last.startswith("2 node(s) were emptied. 1 skipped: n2: 1 job(s) in the way")


def test_listed_shown_and_cancelled(site: Site) -> None:
    with site.cycling():
        assert site.run("drain", "n[3-6]", "--rolling", 2, "--reason", "new kernel").exit_code == 0
        while len(site.world.store.rolling_drains()[0].nodes("away")) < 2:  # type: ignore[arg-type]  # by its word
            pass
        shown = site.run("rolling", "show", 1).stdout
        assert "2 at once, for root (command line): new kernel" in shown
        assert "under_way: 2 waiting, 2 away." in shown
        assert "Rolling drain 1, 2 at once: 2 waiting, 2 away." in site.run("status").stdout
        (listed,) = site.json("rolling", "list")["items"]
        assert [turn["state"] for turn in listed["turns"]].count("away") == 2
        assert site.run("rolling", "cancel", 1).stdout == "cancelled\n"
        again = site.run("rolling", "cancel", 1)
        assert (again.exit_code, again.stderr) == (1, "clearway: refused: rolling drain 1 is cancelled\n")
    found = site.json("rolling", "show", 1)
    assert [turn["state"] for turn in found["turns"]] == ["away", "away", "skipped", "skipped"]
    assert "n[3-4] stay drained" in site.run("rolling", "list").stdout
    assert "no rolling drain 9" in site.run("rolling", "show", 9).stderr


def test_dry_run_shows_the_batches(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.world.tick()
    backend = SimulatedBackend(site.world.cluster, site.world.clock)
    monkeypatch.setattr(database, "open_backend", lambda *_: backend)
    result = site.run("drain", "n[1-5]", "--rolling", 2, "--dry-run", "-o", "json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(batch["nodes"], batch["jobs"]) for batch in told["batches"]] == [("n[1,3]", 1), ("n[4-5]", 0)]
    assert list(told["skipped"]) == ["n2"]
    table = site.run("drain", "n[1-5]", "--rolling", 2, "--dry-run").stdout
    assert "n[1,3]" in table
    assert "Skipped: n2: 1 job(s) in the way" in table
    assert not site.world.store.rolling_drains()


def test_a_deadline_is_refused(site: Site) -> None:
    result = site.run("drain", "n1", "--rolling", 1, "--deadline", "1h")
    assert result.exit_code == 1
    assert "a rolling drain has no deadline" in result.stderr
