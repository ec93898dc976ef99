"""Tokens that a site's own identity provider signs, by the public keys of a JWKS file (RFC 7517).

Slurm can be given the same file (AuthAltParameters=jwks=FILE). Only signatures by a private key count: with a
symmetric key in the file, everybody who reads it could make tokens.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearway.config.access import AccessConfig
from clearway.config.plugins import how_to_install
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

Verify = Callable[[str], str | None]


def verifier(access: AccessConfig) -> Verify:
    """From a token to its user, None for one that does not hold; without ``access.jwks_file`` for every one.

    The file is read now: after another configuration or SIGHUP another verifier is made.

    Raises:
        ConfigError: the file cannot be used, or PyJWT is not installed.
    """
    if access.jwks_file is None:
        return lambda _: None
    try:
        import jwt  # noqa: PLC0415 - an optional dependency: most sites ask Slurm instead
        import jwt.algorithms  # noqa: PLC0415
    except ImportError:
        raise ConfigError(f"access.jwks_file needs PyJWT: {how_to_install('jwks')}") from None
    if not jwt.algorithms.has_crypto:
        raise ConfigError(f"access.jwks_file needs cryptography: {how_to_install('jwks')}")
    keys = _keys(access.jwks_file)
    claim, audience = access.jwks_user_claim, access.jwks_audience

    def user_of(token: str) -> str | None:
        try:
            header = jwt.get_unverified_header(token)
            key = keys.get(str(header.get("kid", ""))) or (next(iter(keys.values())) if len(keys) == 1 else None)
            if key is None or header.get("alg") not in _ALGORITHMS or key.get("alg", header["alg"]) != header["alg"]:
                return None
            options: Any = {"require": ["exp", claim], "verify_aud": audience is not None}
            claims: dict[str, Any] = jwt.decode(
                token, jwt.PyJWK(key, header["alg"]), algorithms=[header["alg"]], audience=audience, options=options
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        user = claims.get(claim)
        return user if isinstance(user, str) and user else None

    return user_of


def _keys(file: Path) -> dict[str, dict[str, Any]]:
    """The public keys that sign, by their ids."""
    try:
        document = json.loads(read_trusted(file, "the keys", secret=False))
        found = {str(key.get("kid", "")): key for key in document["keys"] if key.get("use", "sig") == "sig"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{file}: not a JWKS file: expected {{'keys': [...]}}") from None
    if any(key.get("kty") not in ("RSA", "EC", "OKP") for key in found.values()):
        raise ConfigError(f"{file}: holds a key that is not public (kty is neither RSA, EC nor OKP)")
    if not found:
        raise ConfigError(f"{file}: holds no key for signatures")
    return found
