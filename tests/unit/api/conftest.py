"""The application over a daemon on a simulated cluster whose clock the test moves; no socket, no thread of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from clearway.api.app import create_app
from clearway.api.context import Pulse
from clearway.api.logins import Logins, Tokens, digest_of
from clearway.config.access import AccessConfig, Public
from clearway.model.events import fan_out
from clearway.service.server import api_context
from clearway.slurm.identity import SlurmIdentity
from clearway.telemetry.metrics import Metrics
from tests.simulation.world import Quiet, World, config

TOKEN = "correct-horse-battery"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


LINE = f"ann operator never {digest_of(TOKEN)}\n"


def token_file(folder: Path, text: str = LINE, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


class ApiWorld(World):
    """A ``World`` with the application on top; everybody may read, unless the configuration given says otherwise."""

    def __init__(self, folder: Path, *, tokens: Tokens, slurm: SlurmIdentity | None = None, **fields: Any) -> None:
        fields.setdefault("config", config())
        if "access" not in fields["config"].model_fields_set:
            fields["config"] = fields["config"].model_copy(update={"access": AccessConfig(public=Public.READING)})
        super().__init__(f"sqlite:///{folder}/store.sqlite", **fields)
        self.metrics = Metrics(self.clock, backend="simulated")
        self.metrics.configured(self.config)
        self.pulse = Pulse(self.clock)
        self.woken = 0
        self.store.close()
        quiet = Quiet()
        self.start_daemon(emit=fan_out(quiet, self.metrics.record))
        self.observer = quiet
        self.metrics.leads = lambda: self.loop.leadership.leads
        logins = Logins(tokens, lambda: self.loop.config, self.clock, slurm)
        context = api_context(self.loop, pulse=self.pulse, logins=logins, metrics=self.metrics)
        self.app: FastAPI = create_app(context)
        # Errors of the application are answers here, as they are for a client.
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def tick(self, seconds: float = 0.5) -> Any:
        report = super().tick(seconds)
        self.pulse.beat()
        return report

    def fill(self) -> list[str]:
        """A job on each of the eight nodes; the first has lost least."""
        return [self.submit(on=(f"n{n}",), ran_s=100 * n, user=f"user{n}") for n in range(1, 9)]


@pytest.fixture
def make_api(tmp_path: Path) -> Iterator[Callable[..., ApiWorld]]:
    worlds: list[ApiWorld] = []

    def make(*, tokens: bool = True, **fields: Any) -> ApiWorld:
        folder = tmp_path / str(len(worlds))
        folder.mkdir()
        worlds.append(ApiWorld(folder, tokens=Tokens(token_file(folder) if tokens else None), **fields))
        return worlds[-1]

    yield make
    for world in worlds:
        world.client.close()
        world.store.close()


@pytest.fixture
def api(make_api: Callable[..., ApiWorld]) -> ApiWorld:
    return make_api()
