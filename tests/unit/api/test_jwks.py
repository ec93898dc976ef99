"""Tokens of a site's own identity provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearway.api.logins import verifier
from clearway.config.access import AccessConfig
from clearway.model.errors import ConfigError
from tests.builders import NOW

jwt = pytest.importorskip("jwt", reason="PyJWT comes with clearway[jwks]")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="so does cryptography")

LATER = int(NOW.timestamp()) + 10**9
KEY, OTHER = (rsa.generate_private_key(public_exponent=65_537, key_size=2_048) for _ in range(2))


def public(key: Any, **more: Any) -> dict[str, Any]:
    return dict(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)) | more


def access(folder: Path, *keys: dict[str, Any], mode: int = 0o644, **more: Any) -> AccessConfig:
    file = folder / "jwks.json"
    file.write_text(json.dumps({"keys": keys}))
    file.chmod(mode)
    return AccessConfig(jwks_file=file, **more)


def signed(claims: dict[str, Any], key: Any = KEY, algorithm: str = "RS256", **header: Any) -> str:
    return str(jwt.encode({"exp": LATER} | claims, key, algorithm=algorithm, headers=header))


def test_a_token_by_a_key_of_the_file(tmp_path: Path) -> None:
    verify = verifier(access(tmp_path, public(KEY, kid="one"), public(OTHER, kid="two")))
    assert verify(signed({"sun": "ann"}, kid="one")) == "ann"
    assert verify(signed({"sun": "bob"}, OTHER, kid="two")) == "bob"
    assert verify(signed({"sun": "ann"}, kid="two")) is None
    assert verify(signed({"sun": "ann"}, kid="three")) is None
    assert verify(signed({"sun": "ann"})) is None, "of two keys none is meant"


@pytest.mark.parametrize(
    "claims", [{}, {"sun": ""}, {"sun": 7}, {"sun": "ann", "exp": 1}, {"sun": "ann", "exp": None}, {"name": "ann"}]
)
def test_a_token_without_a_user_or_an_end(tmp_path: Path, claims: dict[str, Any]) -> None:
    token = jwt.encode({k: v for k, v in ({"exp": LATER} | claims).items() if v is not None}, KEY, algorithm="RS256")
    assert verifier(access(tmp_path, public(KEY)))(token) is None


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    """The key is known to everybody: a token that is 'signed' with it as a secret must not hold."""
    verify = verifier(access(tmp_path, public(KEY)))
    head, body, _ = signed({"sun": "root"}).split(".")
    unsigned = jwt.encode({"exp": LATER, "sun": "root"}, None, algorithm="none")
    known = public(KEY)["n"]  # PyJWT refuses the key's usual forms as a secret; an attacker does not
    shared = jwt.encode({"exp": LATER, "sun": "root"}, known, algorithm="HS256")
    others = signed({"sun": "root"}, OTHER)
    for token in (unsigned, shared, f"{head}.{body}.", f"{head}.{body}.AAAA", others, "a.b.c", ""):
        assert verify(token) is None


def test_claim_and_audience_are_the_sites_choice(tmp_path: Path) -> None:
    verify = verifier(access(tmp_path, public(KEY), jwks_user_claim="preferred_username", jwks_audience="clearway"))
    assert verify(signed({"preferred_username": "ann", "aud": "clearway"})) == "ann"
    assert verify(signed({"preferred_username": "ann", "aud": "mail"})) is None
    assert verify(signed({"preferred_username": "ann"})) is None
    assert verify(signed({"sun": "ann", "aud": "clearway"})) is None


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    for bad in ("", "[]", "{}", '{"keys": [1]}'):
        (tmp_path / "bad").write_text(bad)
        with pytest.raises(ConfigError, match="not a JWKS file"):
            verifier(AccessConfig(jwks_file=tmp_path / "bad"))
    with pytest.raises(ConfigError, match="no key for signatures"):
        verifier(access(tmp_path, public(KEY, use="enc")))
    with pytest.raises(ConfigError, match="not public"):
        verifier(access(tmp_path, {"kty": "oct", "k": "c2VjcmV0"}))
    with pytest.raises(ConfigError, match="mode 0666"):
        verifier(access(tmp_path, public(KEY), mode=0o666))
    with pytest.raises(ConfigError, match="cannot be read"):
        verifier(AccessConfig(jwks_file=tmp_path / "absent"))
