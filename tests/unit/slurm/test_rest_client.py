"""Calls to a slurmrestd that is slow, gone, or says something else than agreed: one clear line, in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from clearway.model.errors import (
    LeaseLostError,
    SlurmError,
    SlurmRefusedError,
    SlurmTimeoutError,
    SlurmUnavailableError,
)
from clearway.slurm import rest_client
from clearway.slurm.rest_client import RestClient, Tokens
from tests.builders import NOW
from tests.unit.slurm.fake_slurmrestd import FakeSlurmrestd, job, refusal
from tests.unit.slurm.fences import TestFence

NO_TOKEN = Tokens("local", None, " ".join, lambda: NOW)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (httpx.Response(200, content=b"{"), SlurmUnavailableError, "no JSON"),
        (httpx.Response(200, content=b"[" * 100_000), SlurmUnavailableError, "no JSON"),
        (httpx.Response(200, content=b"7" * 5_000), SlurmUnavailableError, "no JSON"),
        (httpx.Response(200, json=[1]), SlurmUnavailableError, "no object"),
        (httpx.Response(200, json={}), SlurmUnavailableError, "no list of jobs"),
        (httpx.Response(200, json={"jobs": {}}), SlurmUnavailableError, "no list of jobs"),
        (httpx.Response(200, json={"jobs": []}), SlurmUnavailableError, "no last_update"),
        (httpx.Response(200, json={"jobs": [], "last_update": True}), SlurmUnavailableError, "no last_update"),
        (httpx.Response(200, json={"jobs": [], "last_update": 0}), SlurmUnavailableError, "not even a time"),
        (httpx.Response(304), SlurmUnavailableError, "not even a time"),
        (httpx.Response(404, text="Unable to find requested URL"), SlurmUnavailableError, "no such path"),
        (httpx.Response(401, text="Authentication failure"), SlurmUnavailableError, "no such token"),
        (httpx.Response(302, headers={"Location": "http://elsewhere/"}), SlurmUnavailableError, "no JSON"),
        (httpx.Response(500, json={}), SlurmUnavailableError, "status 500"),
        (httpx.Response(200, json={"errors": ["?"]}), SlurmRefusedError, r"\?"),
        (httpx.Response(200, json={"errors": "?"}), SlurmRefusedError, r"\?"),
        (refusal(1007, "Protocol authentication error"), SlurmUnavailableError, "authentication"),
        (refusal(1800, "Unable to contact slurm controller (connect failure)"), SlurmUnavailableError, "contact"),
        (refusal(5004, "Socket timed out"), SlurmTimeoutError, "timed out"),
        (refusal(2002, "Access/permission denied\nor so"), SlurmRefusedError, "denied or so"),
    ],
)  # fmt: skip
def test_what_is_no_answer(answer: httpx.Response, error: type[SlurmError], says: str) -> None:
    slurm = FakeSlurmrestd(job())
    slurm.answers = {("GET", "/jobs/"): answer}
    with pytest.raises(error, match=says) as raised:
        slurm.backend().snapshot()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "MAX_BODY", 1_000)
    slurm = FakeSlurmrestd(job(name="n" * 2_000))
    with pytest.raises(SlurmUnavailableError, match="longer than 1000 bytes"):
        slurm.backend().snapshot()


def test_text_that_is_no_utf8_hides_no_job() -> None:
    """26.05 passes on what users wrote, byte for byte: the document is no UTF-8 then."""
    slurm = FakeSlurmrestd(job(5, name="?one?"), job(6))
    told = httpx.Response(200, json=slurm._document(httpx.Request("GET", "http://x/"), "/jobs/")).content
    slurm.answers = {("GET", "/jobs/"): lambda: httpx.Response(200, content=told.replace(b"?one?", b"caf\xe9\xf0"))}
    snapshot = slurm.backend().snapshot()
    assert {each.job_id: each.name for each in snapshot.jobs} == {"5": "caf\ufffd\ufffd", "6": "job"}
    assert not snapshot.skipped


def test_a_path_that_is_gone_is_looked_for_again() -> None:
    slurm = FakeSlurmrestd(job())
    backend = slurm.backend()
    backend.snapshot()
    assert slurm.version == "v0.0.44"
    del slurm.offer["paths"]["/slurm/v0.0.44/jobs/"]
    slurm.answers = {("GET", "/jobs/state/"): httpx.Response(404, text="Unable to find requested URL")}
    with pytest.raises(SlurmUnavailableError, match="no such path"):
        backend.snapshot()
    slurm.answers = {}
    try:
        backend.snapshot()
        assert slurm.version == "v0.0.43"
    finally:
        slurm.offer["paths"]["/slurm/v0.0.44/jobs/"] = {"get": {}}


@contextmanager
def listening(path: Path, answer: bytes) -> Iterator[str]:
    """A server that takes a request and sends ``answer``, whole or not, and no more."""
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)
                    done.wait(30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"unix:{path}"
        finally:
            done.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_a_call_ends_in_time(tmp_path: Path, answer: bytes) -> None:
    fence = TestFence(None)
    with listening(tmp_path / "s", answer) as url:
        client = RestClient(url, NO_TOKEN, timeout_s=5.2)
        client.fence = fence
        begin = time.monotonic()
        with pytest.raises(SlurmTimeoutError, match=r"did not answer GET within 5\.2 s"):
            client._call("GET", "/x", {}, None, changes=False)
        assert time.monotonic() - begin < 60
    assert fence.kept >= 1


def test_a_change_has_the_time_that_the_fence_gives_it(tmp_path: Path) -> None:
    with listening(tmp_path / "s", b"") as url:
        client = RestClient(url, NO_TOKEN, timeout_s=60)
        client.fence = TestFence(0.3)
        with pytest.raises(SlurmTimeoutError, match=r"within 0\.3 s"):
            client._call("POST", "/x", {}, {}, changes=True)


def test_who_may_not_act_any_more_waits_no_longer(tmp_path: Path) -> None:
    with listening(tmp_path / "s", b"") as url:
        client = RestClient(url, NO_TOKEN, timeout_s=60)
        client.fence = TestFence(60, keeps=0)
        begin = time.monotonic()
        with pytest.raises(LeaseLostError):
            client._call("GET", "/x", {}, None, changes=False)
        assert time.monotonic() - begin < 30


def test_nothing_listens(tmp_path: Path) -> None:
    client = RestClient(f"unix:{tmp_path}/none", NO_TOKEN, timeout_s=5)
    with pytest.raises(SlurmUnavailableError, match=r"slurmrestd at unix:.*/none cannot be asked"):
        client.read("/jobs/")


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see the token."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = RestClient(f"http://127.0.0.1:{server.getsockname()[1]}", NO_TOKEN, timeout_s=1)
        with pytest.raises(SlurmTimeoutError):  # nobody answers, but there it went
            client.read("/jobs/")
        server.settimeout(10)
        server.accept()[0].close()
