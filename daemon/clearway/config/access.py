"""The sections ``[api]``, ``[access]``, ``[budget]``, ``[client]`` and ``[slurm]``.

They say where the daemon listens, who may do what and what preemption for them may cost, and how the command line
reaches the daemon and the daemon Slurm.
"""

import ipaddress
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from clearway.config.fields import Names, Period, Section, key
from clearway.model.durations import Duration


class Public(StrEnum):
    """What is answered to an asker without identity."""

    HEALTH = "health"
    READING = "reading"


class ApiConfig(Section):
    host: str = key("127.0.0.1", "address to listen on")
    port: int = key(8642, "port to listen on; 0: any free one", ge=0, le=65_535)
    socket: Path | None = key(
        None,
        "path of a Unix socket for the daemon's user and group, instead of host, port and TLS. None: no such socket",
    )
    certificate: Path | None = key(
        None, "file with the certificate for TLS (PEM, with those between), read again at each reload. None: no TLS"
    )
    certificate_key: Path | None = key(
        None, "file with its private key (PEM, without password), which others must not read"
    )
    allowed_hosts: Names = key(
        (),
        "names by which callers address the daemon (the Host header), besides localhost, this machine's name, host, "
        'and addresses; "*": any',
    )
    token_file: Path | None = key(
        None,
        "file with the tokens that `clearway token` makes, one a line, each with a name, a role and an end. None: no "
        "such tokens",
    )

    @property
    def url(self) -> str:
        """Where a process of this machine reaches the daemon."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key go together")
        return self


class AccessConfig(Section):
    """Who may do what over REST. In lists of users, `@NAME` is a Unix group of the daemon's machine."""

    public: Public = key(
        Public.HEALTH,
        "what needs no identity. health: health, metrics and the OpenAPI document. reading: everything that only "
        "reads, jobs of all users included",
    )
    account_metrics: bool = key(
        False,
        "whether /metrics, which needs no identity, names the accounts that cause preemptions and suffer them. false: "
        "each is other",
    )
    slurm_tokens: bool = key(True, "whether tokens that `scontrol token` makes (Slurm's auth/jwt) are an identity")
    slurm_roles: bool = key(
        True, "whether operators of Slurm's accounting have the role operator, and its administrators and root admin"
    )
    viewers: Names = key((), "users and groups that see the jobs of all users, whatever Slurm's PrivateData says")
    operators: Names = key((), "users and groups that may also approve, cancel, pause and resume, and ask for drains")
    admins: Names = key((), "users and groups that may also read the audit trail")
    own_approvals: bool = key(False, "whether an operator may approve evictions for the operator's own urgent jobs")
    proxy_header: str | None = key(
        None,
        "header in which a proxy that knows its users names the one that asks: X-Remote-User ... None: no such proxy",
        pattern=r"^[Xx]-[A-Za-z0-9-]{1,60}$",
    )
    proxy_peers: Names = key(
        (),
        'connections on which that header counts: an address that the proxy alone has, or "unix:USER" for processes of '
        "that user on api.socket",
    )
    monitors: Names = key(
        (),
        "who reads /metrics in a place of its own, which no other caller takes: an address that the monitor alone has, "
        'the name of its token, or "unix:USER" for processes of that user on api.socket',
    )
    jwks_file: Path | None = key(
        None, "JWKS file with the public keys of the site's identity provider, whose tokens are good too. None: no such"
    )
    jwks_user_claim: str = key("sun", "claim of such a token that names the user of the cluster", min_length=1)
    jwks_audience: str | None = key(None, "audience (aud) that such a token must name. None: any", min_length=1)

    @model_validator(mode="after")
    def _knows_its_proxy(self) -> Self:
        if (self.proxy_header is None) != (not self.proxy_peers):
            raise ValueError("proxy_header and proxy_peers go together")
        for peer in self.proxy_peers:
            if not peer.startswith("unix:") and _address(peer).is_loopback:
                raise ValueError(f"proxy_peers: every user of this machine has the address {peer}; use api.socket")
        for monitor in self.monitors:
            if _is_loopback(monitor):
                raise ValueError(f"monitors: every user of this machine has the address {monitor}; name a token")
        return self


def _address(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(peer)
    except ValueError:
        raise ValueError(f'proxy_peers: {peer!r} is neither an address nor "unix:USER"') from None


def _is_loopback(monitor: str) -> bool:
    try:
        return monitor == "localhost" or ipaddress.ip_address(monitor).is_loopback
    except ValueError:  # a name
        return False


def _most(what: str, whose: str, default: int | None = None) -> Any:
    meaning = f"maximum {what} in an hour for one {whose}; 0: all wait for approval; None: no limit"
    return key(default, meaning, ge=0)


def _most_lost(whose: str) -> Any:
    meaning = f"maximum node-hours lost in an hour for one {whose}; 0: no work may be lost; None: no limit"
    return key(None, meaning, ge=0, allow_inf_nan=False)


class BudgetConfig(Section):
    """What preemption may cost within any hour: in all, and for the urgent jobs of one user, account or rule.

    A plan that would exceed it waits for approval. And what follows misuse and loops.
    """

    misuse_pause: Duration = key(
        3_600.0,
        "how long nothing is planned for a user who let another job into the placement of an urgent one; 0: no pause",
    )
    cancelled_pause: Duration = key(
        3_600.0,
        "how long evictions for a user need approval, after an urgent job of the user was given up once others had "
        "left for it; 0: no pause",
    )

    jobs_per_hour: int | None = key(
        None, "maximum jobs preempted in an hour; 0: all evictions wait for approval; None: no limit", ge=0
    )
    lost_node_hours_per_hour: float | None = key(
        None, "maximum node-hours lost in an hour; 0: no work may be lost; None: no limit", ge=0, allow_inf_nan=False
    )
    user_evictions_per_hour: int | None = _most("evictions", "user", 20)
    user_jobs_per_hour: int | None = _most("jobs preempted", "user", 200)
    user_lost_node_hours_per_hour: float | None = _most_lost("user")
    account_evictions_per_hour: int | None = _most("evictions", "account")
    account_jobs_per_hour: int | None = _most("jobs preempted", "account")
    account_lost_node_hours_per_hour: float | None = _most_lost("account")
    rule_evictions_per_hour: int | None = _most("evictions", "rule")
    rule_jobs_per_hour: int | None = _most("jobs preempted", "rule")
    rule_lost_node_hours_per_hour: float | None = _most_lost("rule")
    loop_window: Duration = key(
        6 * 3_600.0,
        "how far back Clearway looks for loops, and how long evictions for a user wait for approval after one; 0: it "
        "does not look",
    )
    loop_repeats: int = key(
        3,
        "a loop: so many times the same job was preempted for the same urgent job, or so many evictions in a row made "
        "jobs leave and their urgent jobs did not start",
        ge=2,
    )


class ClientConfig(Section):
    """For machines that reach the daemon's REST API and not its database."""

    url: str | None = key(
        None,
        "address of the daemon's REST API: https://HOST:PORT, http://HOST:PORT or unix:PATH. None: the commands read "
        "the database",
    )
    token_file: Path | None = key(
        None, "file with the token that the commands show the daemon, alone on its line. None: no such file"
    )
    authority: Path | None = key(
        None,
        "file with the certificate of whoever has signed the daemon's (PEM), beside those that the system believes. "
        "None: no such file",
    )


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
