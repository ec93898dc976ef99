"""The section [slurm]: what must be given for slurmrestd, and what would give its token away."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.config.configuration import parse_config
from clearway.doctor import examination
from clearway.model.errors import ConfigError

REST = 'backend = "rest"\n'


@pytest.mark.parametrize(
    "keys",
    [
        REST + 'rest_url = "unix:/run/slurmrestd/socket"',
        REST + 'rest_url = "unix:/run/slurmrestd/socket"\nrest_auth = "local"',
        REST + 'rest_url = "https://slurm.example.org:6820"\nrest_token_file = "/etc/clearway/slurm.token"',
        REST + 'rest_url = "http://127.0.0.1:6820"',
        REST + 'rest_url = "http://[::1]:6820"',
        REST + 'rest_url = "http://localhost"',
    ],
)
def test_good(keys: str) -> None:
    assert parse_config(f"[slurm]\n{keys}\n", "here").slurm.backend == "rest"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (REST, "go together"),
        ('rest_url = "unix:/run/slurmrestd/socket"', "go together"),
        (REST + 'rest_url = "/run/slurmrestd/socket"', "must be unix:PATH"),
        (REST + 'rest_url = "unix:socket"', "must be unix:PATH"),
        (REST + 'rest_url = "https://u:p@slurm.example.org"', "must be unix:PATH"),
        (REST + 'rest_url = "https://slurm.example.org/slurm"', "must be unix:PATH"),
        (REST + 'rest_url = "http://slurm.example.org:6820"', "in the clear"),
        (REST + 'rest_url = "http://localhost.example.org:6820"', "in the clear"),
        (REST + 'rest_url = "http://127.0.0.1:6820"\nrest_auth = "local"', "Unix socket"),
        (REST + 'rest_url = "unix:/s"\nrest_auth = "local"\nrest_token_file = "/t"', "no token"),
    ],
)
def test_bad(keys: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        parse_config(f"[slurm]\n{keys}\n", "here")
    assert "\n" not in str(raised.value)


def test_a_token_that_others_can_read_is_refused_before_the_start(tmp_path: Path) -> None:
    token = tmp_path / "token"
    keys = f'{REST}rest_url = "unix:/s"\nrest_token_file = "{token}"'
    config = parse_config(f"[slurm]\n{keys}\n", "here")

    def told() -> list[str]:
        return [fault for fault in examination.faults(config) if fault.startswith("slurm.rest_token_file: ")]

    assert len(told()) == 1
    token.write_text("x")
    token.chmod(0o644)
    assert "mode 0644" in told()[0]
    token.chmod(0o600)
    assert told() == []
