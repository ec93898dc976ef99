"""Tokens for slurmrestd: made and made again, read from files, and told to nobody else."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm.rest_client import Tokens
from tests.unit.slurm.fake_slurmrestd import NOW, FakeSlurmrestd, job, refusal


def token(end: datetime, secret: str = "geheim") -> str:
    parts = ({"alg": "HS256"}, {"exp": int(end.timestamp()), "sun": "clearway"})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, secret])


class Scontrol:
    """Makes tokens of half an hour, numbered."""

    def __init__(self) -> None:
        self.now = NOW
        self.asked: list[str] = []
        self.longest_s = 1_800
        self.error: SlurmError | None = None

    def run(self, argv: Sequence[str]) -> str:
        assert argv[:2] == ["scontrol", "token"]
        self.asked.append(argv[2])
        lifespan_s = int(argv[2].partition("=")[2])
        if self.error is not None:
            raise self.error
        if lifespan_s > self.longest_s:
            raise SlurmRefusedError("scontrol: lifespan too long")
        return f"SLURM_JWT={token(self.now + timedelta(seconds=lifespan_s), f'geheim{len(self.asked)}')}\n"


def test_a_token_is_made_anew_before_it_ends() -> None:
    scontrol = Scontrol()
    tokens = Tokens("jwt", None, scontrol.run, lambda: scontrol.now)
    first = tokens.token()
    scontrol.now += timedelta(seconds=899)
    assert tokens.token() == first
    scontrol.now += timedelta(seconds=2)
    assert tokens.token() != first
    assert scontrol.asked == ["lifespan=1800"] * 2


def test_a_site_that_allows_shorter_ones_alone() -> None:
    scontrol = Scontrol()
    scontrol.longest_s = 600
    tokens = Tokens("jwt", None, scontrol.run, lambda: scontrol.now)
    assert tokens.token()
    assert scontrol.asked == ["lifespan=1800", "lifespan=300"]


def test_none_can_be_made() -> None:
    scontrol = Scontrol()
    scontrol.error = SlurmRefusedError("scontrol: auth/jwt is not configured")
    tokens = Tokens("jwt", None, scontrol.run, lambda: scontrol.now)
    with pytest.raises(SlurmUnavailableError, match=r"scontrol token made no token: .*auth/jwt is not configured"):
        tokens.token()


def test_a_refused_token_is_replaced_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    scontrol, slurm = Scontrol(), FakeSlurmrestd(job())
    backend = slurm.backend(auth="jwt")
    monkeypatch.setattr(backend._client, "_tokens", Tokens("jwt", None, scontrol.run, lambda: NOW))
    backend.snapshot()
    refused = iter([refusal(1007, "Protocol authentication error", 511)])
    plain = slurm._answer

    def first_refused(request: httpx.Request) -> httpx.Response:
        return next(refused, None) or plain(request)

    monkeypatch.setattr(slurm, "_answer", first_refused)
    monkeypatch.setattr(backend._client, "_transport", lambda: httpx.MockTransport(first_refused))
    backend.snapshot()
    assert len(scontrol.asked) == 2
    slurm.answers = {("GET", "/jobs/state/"): refusal(1007, "Protocol authentication error", 511)}
    with pytest.raises(SlurmUnavailableError, match="authentication") as raised:
        backend.snapshot()
    assert len(scontrol.asked) == 3
    assert {headers["x-slurm-user-token"][-7:-1] for headers in slurm.headers} == {"geheim"}
    assert "geheim" not in caplog.text + str(raised.value)


def test_a_token_of_a_file(tmp_path: Path) -> None:
    file, slurm = tmp_path / "token", FakeSlurmrestd(job())
    backend = slurm.backend(auth="jwt", token_file=file)
    for text, mode, says in (
        (None, 0o600, "cannot be read"),
        ("", 0o600, "holds no token of Slurm's"),
        ("geheim", 0o600, "holds no token of Slurm's"),
        (token(NOW - timedelta(seconds=1)), 0o600, "the token ended at 2026-03-02T11:59:59Z"),
        (token(NOW + timedelta(hours=1)), 0o644, "mode 0644"),
    ):
        if text is not None:
            file.write_text(text)
            file.chmod(mode)
        why = backend.available()
        assert why is not None
        assert says in why
        assert "geheim" not in why
    for secret in ("one", "two"):  # the site has put another one there
        file.write_text(f"SLURM_JWT={token(NOW + timedelta(hours=1), secret)}\n")
        file.chmod(0o600)
        assert backend.available() is None
        assert slurm.headers[-1]["x-slurm-user-token"].endswith(secret)
    slurm.answers = {("GET", "/jobs/state/"): refusal(1007, "Protocol authentication error", 511)}
    asked = len(slurm.asked)
    assert "authentication" in (backend.available() or "")
    assert len(slurm.asked) == asked + 1
