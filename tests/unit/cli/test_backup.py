"""``clearway backup``, ``verify`` and ``restore``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clearway.model.clock import SystemClock
from clearway.store.repository import Store
from tests.simulation.bad_days import busy
from tests.simulation.world import World
from tests.unit.cli.running import Site, one_line


def test_there_and_back(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world()
    site, file = Site(world, tmp_path), tmp_path / "clearway.gz"
    busy(world)
    world.urgent(1)
    world.tick()
    world.store.release_lease(world.clock.now())

    made = site.run("backup", file)
    assert (made.exit_code, site.run("verify").exit_code, site.run("verify", file).exit_code) == (0, 0, 0)
    assert "SHA-256" in made.stdout
    again = site.run("backup", file)
    assert (again.exit_code, one_line(again.stderr)) == (1, f"clearway: {file}: is there already")

    refused = site.run("restore", file)
    assert refused.exit_code == 1
    assert "have not ended; --force" in one_line(refused.stderr)
    restored = site.run("restore", file, "--force")
    assert restored.exit_code == 0, restored.stderr
    assert "clearway resume" in restored.stdout
    (replaced,) = tmp_path.glob("clearway.gz.replaced-*")
    assert str(replaced) in restored.stdout.replace("\n", "")
    store = Store(world.store_url)
    assert store.get_value("paused") is True
    store.close()


def test_not_while_a_daemon_leads(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world()
    site, file = Site(world, tmp_path), tmp_path / "clearway.gz"
    assert site.run("backup", file).exit_code == 0
    assert world.store.take_lease("host:etc", SystemClock().now(), 3_600).owner == "host:etc"
    refused = site.run("restore", file, "--force")
    assert refused.exit_code == 1
    assert "host:etc leads with this database" in one_line(refused.stderr)


def test_what_is_wrong_is_told(make_world: Callable[..., World], tmp_path: Path) -> None:
    site, file = Site(make_world(), tmp_path), tmp_path / "clearway.gz"
    file.write_text("not a backup\n")
    for command in ("verify", "restore"):
        result = site.run(command, file)
        assert result.exit_code == 1
        assert f"{file}: cannot be read" in one_line(result.stderr)
    site.file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/nowhere.sqlite"\n')
    for command in (("backup", tmp_path / "new.gz"), ("verify",)):
        assert "no such database" in one_line(site.run(*command).stderr)
    assert not (tmp_path / "new.gz").exists()
