"""GET /report: own parts alone where jobs are private; the command line tells the same."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.api.conftest import ApiWorld
from tests.unit.api.test_sight import Busy
from tests.unit.cli.running import clearway
from tests.unit.core.cases import case


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    made = Busy(tmp_path)
    yield made
    made.api.client.close()
    made.api.store.close()


def test_who_sees_what(busy: Busy) -> None:
    whole = busy.get("olga", "report?since=1h").json()
    assert (whole["complete"], whole["sums"]["cases"]) == (True, 1)
    assert {job["user"] for job in whole["cases"][0]["jobs"]} == {"user1", "user2"}
    own = busy.get("user1", "report").json()
    assert not own["complete"]
    assert [share["user"] for share in own["users"]] == ["user1"]
    assert "user2" not in json.dumps(own)
    assert busy.get("stranger", "report").json()["cases"] == []


@pytest.mark.parametrize("since", ["never", "-1", "99999d"])
def test_a_bad_time_is_refused(api: ApiWorld, since: str) -> None:
    assert api.client.get("/api/v1/report", params={"since": since}).status_code == 422


def test_the_command_line(make_api: Callable[..., ApiWorld], tmp_path: Path) -> None:
    api = make_api()
    path = tmp_path / "clearway.toml"
    path.write_text(f'[store]\nurl = "{api.store_url}"\n')
    assert "no urgent job" in clearway("report", "-c", path).stdout
    api.store.keep_case(case("4711"))
    lines = clearway("report", "-c", path).stdout.splitlines()
    assert lines[0].split()[:3] == ["job", "user", "nodes"]
    assert lines[1].split()[0] == "4711"
    assert lines[3].startswith("plans: 1, for urgent jobs: 1")
    assert json.loads(clearway("report", "-c", path, "-o", "json").stdout)["sums"]["cases"] == 1
    page = tmp_path / "report.html"
    done = clearway("report", "-c", path, "-o", "html", "--file", page)
    assert done.exit_code == 0, done.stderr
    assert "<svg" in page.read_text()
    assert clearway("report", "-c", path, "--since", "soon").exit_code == 2


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o640), (0o077, 0o600), (0o000, 0o640)])
def test_the_file_is_closed_to_others(make_api: Callable[..., ApiWorld], tmp_path: Path, umask: int, mode: int) -> None:
    """It names users. What stood there before may have been open to everybody, or be open in another process."""
    api = make_api()
    path, page = tmp_path / "clearway.toml", tmp_path / "report.html"
    path.write_text(f'[store]\nurl = "{api.store_url}"\n')
    page.write_text("older")
    page.chmod(0o666)
    with page.open() as spy:
        before = os.umask(umask)
        try:
            assert clearway("report", "-c", path, "-o", "html", "--file", page).exit_code == 0
        finally:
            os.umask(before)
        assert stat.S_IMODE(page.stat().st_mode) == mode
        assert spy.read() == "older"
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["clearway.toml", "report.html"]


def test_no_link_is_followed_and_a_pipe_is_written_to(make_api: Callable[..., ApiWorld], tmp_path: Path) -> None:
    api = make_api()
    path, link, victim = tmp_path / "clearway.toml", tmp_path / "report.html", tmp_path / "precious"
    path.write_text(f'[store]\nurl = "{api.store_url}"\n')
    victim.write_text("precious")
    link.symlink_to(victim)
    done = clearway("report", "-c", path, "--file", link)
    assert done.exit_code == 1
    assert f"{link}: cannot be written: it is a link; name the file itself" in done.stderr
    assert victim.read_text() == "precious"
    assert link.is_symlink()
    assert clearway("report", "-c", path, "--file", "/dev/null").exit_code == 0
    assert not Path("/dev/null").is_file()
