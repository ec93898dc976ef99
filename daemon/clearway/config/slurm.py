"""The section ``[slurm]``: how Clearway talks to Slurm."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import field_validator, model_validator

from clearway.config.fields import Period, Section, key

_URL = re.compile(r"unix:(/.+)|(https?)://([^/@?#\s]+?)(:[0-9]{1,5})?", re.ASCII)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class SlurmConfig(Section):
    backend: Literal["auto", "cli", "pyslurm", "rest"] = key(
        "auto",
        "auto: pyslurm when it can be loaded and answers, else the command line tools. rest: slurmrestd at rest_url, "
        "and the command line tools for what it does not offer",
    )
    conf: Path | None = key(None, "path of slurm.conf; None: SLURM_CONF or Slurm's own default")
    timeout: Period = key(20.0, "time limit of one call to Slurm")
    act_on_release: str | None = key(
        None,
        "a release of Slurm, such as 27.05, that Clearway acts on although it was never tried with it; with any other "
        "release newer or older than those tried it only observes, whatever daemon.mode says. None: no such release",
    )
    rest_url: str = key(
        "",
        "where slurmrestd listens: unix:PATH, or https://HOST:PORT, or http://HOST:PORT on this machine. Only with "
        'backend = "rest"',
    )
    rest_auth: Literal["jwt", "local"] = key(
        "jwt",
        "jwt: each call has a token of Slurm's. local: none, as slurmrestd runs as the daemon's own user and knows it "
        "by its Unix socket (rest_auth/local)",
    )
    rest_token_file: Path | None = key(
        None, "file with the token, read again for each call. None: `scontrol token` makes tokens for the daemon's user"
    )

    @field_validator("act_on_release")
    @classmethod
    def _is_a_release(cls, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(r"\d\d\.\d\d", given, re.ASCII):
            raise ValueError(f'must be a release as "27.05", without the number of its version, not {given[:40]!r}')
        return given

    @model_validator(mode="after")
    def _names_slurmrestd(self) -> Self:
        if (self.backend == "rest") != bool(self.rest_url):
            raise ValueError('backend = "rest" and rest_url go together')
        if not self.rest_url:
            return self
        found = _URL.fullmatch(self.rest_url)
        if found is None:
            raise ValueError("rest_url must be unix:PATH, or http:// or https:// with a host and a port alone")
        if found[2] == "http" and found[3] not in _LOOPBACK:
            raise ValueError("rest_url: the token would travel in the clear; use https://")
        if self.rest_auth == "local" and (found[1] is None or self.rest_token_file is not None):
            raise ValueError('rest_auth = "local" needs a Unix socket, and no token')
        return self
