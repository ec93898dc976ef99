"""The command line beside the database and over REST: the same documents, and the same as REST's own."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearway import client
from clearway.cli import asker, render
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, config
from tests.unit.api.conftest import AUTHORIZED, TOKEN, ApiWorld, make_api
from tests.unit.cli.running import clearway, one_line

__all__ = ["make_api"]

READS = {
    ("status",): "status",
    ("evictions", "list"): "evictions?limit=20",
    ("evictions", "list", "--state", "planned"): "evictions?limit=20&state=planned",
    ("evictions", "show", "1"): "evictions/1",
    ("evictions", "verdicts", "1"): "evictions/1/verdicts",
    ("evictions", "steps", "1"): "evictions/1/steps",
    ("explain", "1"): "evictions/1/explanation",
    ("leaders",): "leaders?limit=20",
    ("calibration",): "calibration?limit=50",
    ("promises",): "promises?limit=20",
    ("rolling", "list"): "rolling-drains?limit=20",
    ("rolling", "show", "1"): "rolling-drains/1",
    ("audit",): "audit?limit=50",
    ("audit", "--verify"): "audit/check",
}


class Both:
    """A daemon whose API and whose database the command line reaches."""

    def __init__(self, api: ApiWorld, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.file = folder / "site.toml"
        self.file.write_text(f'[store]\nurl = "{api.store_url}"\n[[preemptors]]\npartition = ["urgent"]\n')
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(asker, "now", api.clock.now)
        monkeypatch.setattr(asker, "actor", lambda: "ann")
        monkeypatch.setattr(client, "_connected", lambda *_: Unclosed(api.client))
        monkeypatch.setattr(render, "wait_for", self._cycles)

    def _cycles(self, answer: Callable[[], Any]) -> Any:
        while (found := answer()) is None:
            self.api.tick(0.0)
        return found

    def stored(self, *words: str) -> Any:
        return clearway(*words, "--config", self.file)

    def over_rest(self, *words: str) -> Any:
        return clearway(*words, "--api", "http://testserver")


class Unclosed:
    """The test's own connection, which a command must not close."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.headers = httpx.Headers()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self._http.get(path, headers=self.headers, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self._http.post(path, headers={**self.headers, **more.pop("headers", {})}, **more)

    def close(self) -> None: ...


@pytest.fixture
def both(make_api: Callable[..., ApiWorld], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    settings = config("approve", access={"public": "health", "admins": ["ann"]}, drain={"operators": ["ann"]})
    api = make_api(config=settings)
    for number in range(1, 9):
        saves = number > 4
        api.submit(Program(save_s=3.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES if saves else "")
    api.urgent(2)
    api.tick()
    api.store.add_request("drain", None, "ann", api.clock.now(), '{"nodes": "n[7-8]", "rolling": 1}')
    api.tick()
    api.loop.explain(float("inf"))
    monkeypatch.setenv("CLEARWAY_TOKEN", TOKEN)
    # The API answers in this process: what it logs is not what a command says, whoever has configured logging before.
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    return Both(api, tmp_path, monkeypatch)


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_the_documents_are_those_of_rest(both: Both, words: tuple[str, ...]) -> None:
    """The command line had names of its own, such as preemptor and lists without items."""
    answer = both.api.client.get(f"/api/v1/{READS[words]}", headers=AUTHORIZED)
    if words[0] == "audit":  # the token is an operator's
        assert answer.status_code == 403
        assert "needs the role admin" in one_line(both.over_rest(*words).stderr)
        return
    assert answer.status_code == 200, answer.text
    stored, asked = both.stored(*words, "-o", "json"), both.over_rest(*words, "-o", "json")
    assert (stored.exit_code, asked.exit_code) == (0, 0), stored.stderr + asked.stderr
    assert json.loads(stored.stdout) == json.loads(asked.stdout) == answer.json()
    assert both.stored(*words).stdout == both.over_rest(*words).stdout


def test_what_is_asked_over_rest_is_done(both: Both) -> None:
    paused = both.over_rest("pause")
    assert (paused.exit_code, paused.stdout.splitlines()[-1]) == (0, "paused")  # the daemon's log is there as well
    assert json.loads(both.over_rest("status", "-o", "json").stdout)["paused"] is True
    both.over_rest("resume")
    approved = both.over_rest("evictions", "approve", "--job", "9")
    assert re.search(r"approved: .*\nEviction 1 is preempting", approved.stdout), approved.stderr
    refused = both.over_rest("evictions", "approve", "1")
    assert (refused.exit_code, one_line(refused.stderr)) == (1, "clearway: refused: eviction 1 is preempting")
    drained = both.over_rest("drain", "n6", "-o", "json")
    told = json.loads(drained.stdout[drained.stdout.index("{") :])
    assert (told["code"], told["actor"]) == ("done", "ann"), drained.stderr


def test_what_would_be_is_asked_over_rest(both: Both) -> None:
    for words in (
        ("plan", "--nodes", "2", "--max-delay", "50s"),
        ("drain", "n5", "--dry-run"),
        ("compact", "--dry-run"),
    ):
        result = both.over_rest(*words, "-o", "json")
        assert "feasible" in json.loads(result.stdout), result.stderr
    assert "batches" in json.loads(
        both.over_rest("drain", "n[5-6]", "--rolling", "1", "--dry-run", "-o", "json").stdout
    )


def test_errors_are_one_line(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_line(both.over_rest("evictions", "show", "99").stderr) == "clearway: no eviction 99"
    login = both.file.with_name("login.toml")
    login.write_text('[client]\nurl = "http://testserver"\n')
    assert "beside the database" in one_line(clearway("takeover", "--config", login).stderr)
    monkeypatch.setenv("CLEARWAY_TOKEN", "wrong")
    assert "the token is not valid" in one_line(both.over_rest("evictions", "list").stderr)
    result = both.over_rest("status")
    assert (result.exit_code, "not known whether Clearway runs" in one_line(result.stderr)) == (3, True)


def test_a_daemon_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEARWAY_TOKEN", "x")
    for url in ("http://127.0.0.1:1", f"unix:{tmp_path}/none", "ftp://here", "http://"):
        result = clearway("evictions", "list", "--api", url)
        assert result.exit_code == 1
        assert one_line(result.stderr).startswith("clearway: ")


@pytest.mark.usefixtures("both")
def test_the_configuration_says_where_the_daemon_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARWAY_TOKEN")
    (tmp_path / "own").write_text(TOKEN + "\n")
    file = tmp_path / "login.toml"
    file.write_text(f'[client]\nurl = "http://testserver"\ntoken_file = "{tmp_path}/own"\n')
    result = clearway("evictions", "list", "--config", file, "-o", "json")
    assert len(json.loads(result.stdout)["items"]) == 2, result.stderr
    file.write_text(file.read_text().replace("/own", "/none"))
    assert "the token cannot be read" in one_line(clearway("evictions", "list", "--config", file).stderr)


@pytest.mark.usefixtures("both")
def test_a_program_pages_through_everything() -> None:
    with client.Client("http://testserver", TOKEN) as found:
        assert len(found.verdicts(1)) == 8
        assert [each.eviction_id for each in found.evictions(limit=1).items]
        assert found.status().running
        with pytest.raises(client.ApiError) as refused:
            found.eviction(99)
    assert (refused.value.status, str(refused.value)) == (404, "no eviction 99")


def test_a_busy_daemon_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(client.time, "sleep", waited.append)
    answers = iter([429, 429, 404])

    def handle(_: httpx.Request) -> httpx.Response:
        status = next(answers)
        return httpx.Response(status, json={"detail": "no"}, headers={"Retry-After": "1"})

    http = httpx.Client(base_url="http://x", transport=httpx.MockTransport(handle))
    with client.Client("http://x", http=http) as found, pytest.raises(client.ApiError) as refused:
        found.eviction(1)
    assert (refused.value.status, waited) == (404, [1.0, 1.0])


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b'{"detail": "no such thing"}', "no such thing"),
        (502, b"<html>", "the daemon answers 502 Bad Gateway"),
        (200, b"<html>", "http://x answers, but not as this version of Clearway"),
        (401, b'{"detail": "who?"}', "who? (set CLEARWAY_TOKEN, or run it where `scontrol token` works)"),
    ],
)
def test_an_answer_that_is_none(status: int, body: bytes, told: str) -> None:
    answers = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    with (
        client.Client("http://x", http=httpx.Client(base_url="http://x", transport=answers)) as found,
        pytest.raises(client.ApiError) as refused,
    ):
        found.job("1")
    assert str(refused.value) == told


def test_over_rest_the_clock_of_the_daemon_counts(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's clock stands still while a plan waits; `clearway status` said that it did not run."""
    later = both.api.clock.now() + timedelta(hours=1)
    monkeypatch.setattr(asker, "now", lambda: later)
    assert both.over_rest("status").stdout.startswith("Running in mode approve")
    assert both.stored("status").stdout.startswith("NOT RUNNING")
