"""A real Prometheus for tests: Debian's package, a folder of its own, a loopback port, nothing left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.integration.daemon import PATIENT_S, wait_for

SCRAPE_EVERY_S = 2.0  # and as long may a scrape take: on a busy machine half a second would not do
STARTS = 3  # another program may take the port that was free a moment ago


def require(*programs: str) -> None:
    """Skip with the reason where a program is missing, or fail where the tier is required."""
    missing = [name for name in programs if shutil.which(name) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}"
    if "integration" in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").replace(",", " ").split():
        pytest.fail(f"tier integration is required, but {reason}", pytrace=False)
    pytest.skip(reason)


class Prometheus:
    """Scrapes one address as ``job`` and answers queries, itself at ``address``."""

    def __init__(
        self,
        target: str,
        *,
        job: str = "clearway",
        cluster: str = "test",
        rules: Path | None = None,
        alertmanager: str = "",
    ) -> None:
        self.at = 0.0  # when queries are asked about; 0: now
        self._client = httpx.Client(timeout=PATIENT_S)
        self._folder = Path(tempfile.mkdtemp(prefix="clearway-prometheus-"))
        rule_files = f'rule_files: ["{rules}"]\n' if rules else ""
        if alertmanager:
            rule_files += f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n"
        (self._folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {int(SCRAPE_EVERY_S * 1_000)}ms, evaluation_interval: 1s}}\n"
            f"{rule_files}"
            "scrape_configs:\n"
            f"  - job_name: {job}\n"
            f"    static_configs: [{{targets: ['{target}'], labels: {{cluster: {cluster}}}}}]\n"
        )
        self._log = (self._folder / "log").open("wb")
        self._start()

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "prometheus"),
                f"--config.file={self._folder}/prometheus.yml",
                f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        try:
            for _ in range(STARTS - 1):
                wait_for(lambda: self._ended() or self._ready(), 60, "Prometheus")
                if self._ended():
                    self._start()
            wait_for(self._ready, 60, "Prometheus")
        except BaseException as error:
            error.add_note((self._folder / "log").read_text()[-4_000:])
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._client.close()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _ready(self) -> bool:
        assert not self._ended(), "Prometheus has ended"
        try:
            return self._client.get(f"{self.address}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._client.get(f"{self.address}/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        assert not answer.get("warnings"), f"{parameters}: {answer['warnings']}"
        return answer["data"]

    def query(self, expression: str, at: float = 0.0) -> list[Any]:
        """The series of an instant query, at this moment, else at ``self.at``; 0: now."""
        moment = at or self.at
        data = self.get("query", query=expression, **({"time": f"{moment:.3f}"} if moment else {}))
        found: list[Any] = data["result"]
        return found if data["resultType"] in ("vector", "matrix") else [data["result"]]

    def value(self, expression: str) -> float:
        """The only sample of an instant query; 0 where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression}: {found}"
        return float(found[0]["value"][1]) if found else 0.0
