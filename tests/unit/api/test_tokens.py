"""The token file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.api.logins import Tokens, digest_of, new_token
from clearway.model.errors import ConfigError
from clearway.model.requests import Identity, Role
from tests.unit.api.conftest import LINE, TOKEN, token_file

HASH = digest_of(TOKEN)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_modes_that_keep_a_secret(tmp_path: Path, mode: int) -> None:
    found = Tokens(token_file(tmp_path, mode=mode)).find(TOKEN)
    assert found is not None
    assert found.identity == Identity("ann", Role.OPERATOR)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o602, 0o666, 0o601])
def test_modes_that_do_not(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
        Tokens(token_file(tmp_path, mode=mode))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ann\n", "line 1: expected 'NAME ROLE END"),
        (f"ann:{TOKEN}\n", "line 1: expected 'NAME ROLE END"),
        (f"ann operator never {TOKEN}\n", "line 1: expected 'NAME ROLE END"),
        (f"a,b operator never {HASH}\n", "line 1: expected 'NAME ROLE END"),
        (f"ann operator never {HASH}0\n", "line 1: expected 'NAME ROLE END"),
        (f"# comment\n\nann king never {HASH}\n", "line 3: there is no role 'king'; there are user, viewer"),
        (f"ann operator tomorrow {HASH}\n", "line 1: the end is 'never' or a time"),
        (f"ann operator 2027-05-01 {HASH}\n", "line 1: the end is 'never' or a time"),
        (f"ann operator 9999-13-01T00:00:00Z {HASH}\n", "line 1: the end is 'never' or a time"),
        (f"ann operator never {HASH}\nbob viewer never {HASH}\n", "line 2: the same token as ann's"),
        ("x" * 70_000, "larger than"),
        (f"änn operator never {HASH}\n", "other than ASCII"),
    ],
)
def test_bad_token_files(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Tokens(token_file(tmp_path, text))
    assert TOKEN not in str(caught.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(tmp_path / "absent")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(tmp_path)


def test_the_file_is_read_again_and_the_old_tokens_stay_until_they_are_replaced(tmp_path: Path) -> None:
    tokens = Tokens(token_file(tmp_path))
    token, entry = new_token("bob", Role.VIEWER, None)
    token_file(tmp_path, entry.line + "\n")
    assert tokens.read() == (entry,)
    assert tokens.find(TOKEN) is not None
    tokens.entries = tokens.read()
    assert tokens.find(TOKEN) is None
    token_file(tmp_path, "nonsense\n")
    with pytest.raises(ConfigError):
        tokens.read()
    assert tokens.find(token) == entry


def test_an_entry_keeps_name_role_and_end_but_not_the_token(tmp_path: Path) -> None:
    end = datetime(2027, 5, 1, tzinfo=UTC)
    token, entry = new_token("ann", Role.ADMIN, end)
    assert token not in entry.line
    assert len(token) > 40
    assert Tokens(token_file(tmp_path, LINE + entry.line)).find(token) == entry
    assert new_token("ann", Role.ADMIN, end)[0] != token
