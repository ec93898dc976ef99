"""From a token to an identity: what is asked of whom, and what is remembered."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clearway.api.logins import KEPT_S, LoginRefusedError, Logins, Tokens, role_of
from clearway.config.access import AccessConfig
from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmUnavailableError
from clearway.model.requests import Identity, Role
from clearway.slurm.identity import SlurmIdentity
from tests.builders import NOW, ManualClock
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, TOKEN, ApiWorld, token_file
from tests.unit.slurm.test_identity import ALICE, jwt

NONE, OPERATOR, ADMINISTRATOR = AdminLevel
ME = pwd.getpwuid(os.getuid()).pw_name
MY_GROUP = grp.getgrgid(os.getgid()).gr_name


@dataclass
class FakeSlurm(SlurmIdentity):
    users: dict[str, str] = field(default_factory=lambda: {ALICE: "cwalice"})  # by token
    levels: dict[str, AdminLevel] = field(default_factory=dict)
    private: frozenset[str] = frozenset()
    down: bool = False
    asked: list[str] = field(default_factory=list)

    def user_of(self, token: str) -> str | None:
        self.asked.append(token)
        if self.down:
            raise SlurmUnavailableError("no answer")
        return self.users.get(token)

    def admin_level(self, user: str) -> AdminLevel:
        return self.levels.get(user, NONE)

    def private_data(self) -> frozenset[str]:
        return self.private


@dataclass
class Site:
    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    access: dict[str, Any] = field(default_factory=dict)

    def logins(self) -> Logins:
        settings = config(access=self.access)
        return Logins(Tokens(token_file(self.folder)), lambda: settings, self.clock, self.slurm)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_token_file_and_slurm_side_by_side(site: Site) -> None:
    logins = site.logins()
    assert logins.identify(TOKEN) == Identity("ann", Role.OPERATOR)
    assert logins.identify(ALICE) == Identity("cwalice", Role.USER)
    with pytest.raises(LoginRefusedError):
        logins.identify(jwt(sun="cwalice", exp=NOW.timestamp() + 5))
    asked = len(site.slurm.asked)
    with pytest.raises(LoginRefusedError):
        logins.identify("no-token-of-anybody")
    assert len(site.slurm.asked) == asked, "what is no JWT costs no question to Slurm"


@pytest.mark.parametrize(
    "user", ["root x", "root (command line)", "ann (command line, sudo by bob)", "a,b", "@wheel", "", "x\n"]
)
def test_a_name_that_could_be_taken_for_another_is_none(site: Site, user: str) -> None:
    """What follows a blank is no part of a name where rights are looked up; a provider may let users choose theirs."""
    site.slurm.users[ALICE] = user
    with pytest.raises(LoginRefusedError):
        site.logins().identify(ALICE)


def test_a_provider_names_users_but_never_root(site: Site) -> None:
    logins = site.logins()
    names = {jwt(sun=user): user for user in ("ann", "root")}
    logins._verify = names.get
    ann, root = names
    assert logins.identify(ann) == Identity("ann", Role.USER)
    assert site.slurm.asked == [], "the provider's keys are at hand"
    with pytest.raises(LoginRefusedError):
        logins.identify(root)
    site.slurm.users[root] = "root"
    site.clock.advance(KEPT_S)
    assert logins.identify(root) == Identity("root", Role.ADMIN)


def test_slurm_is_asked_once_in_a_while(site: Site) -> None:
    logins = site.logins()
    for _ in range(5):
        logins.identify(ALICE)
    assert len(site.slurm.asked) == 1
    del site.slurm.users[ALICE]
    site.clock.advance(KEPT_S)
    with pytest.raises(LoginRefusedError):
        logins.identify(ALICE)


def test_a_token_is_not_known_longer_than_it_lives(site: Site) -> None:
    token = jwt(sun="cwbob", exp=NOW.timestamp() + 10)
    site.slurm.users[token] = "cwbob"
    logins = site.logins()
    logins.identify(token)
    site.clock.advance(10)
    site.slurm.users.clear()
    with pytest.raises(LoginRefusedError):
        logins.identify(token)


def test_what_is_remembered_is_bounded_and_holds_no_token(site: Site) -> None:
    logins = site.logins()
    logins.identify(ALICE)
    for number in range(3_000):
        with pytest.raises(LoginRefusedError):
            logins.identify(jwt(sun="eve", exp=1, n=number))
    assert sum(len(kept) for kept in logins._known.values()) <= 2_048
    assert ALICE not in repr(logins._known)
    asked = len(site.slurm.asked)
    logins.identify(ALICE)
    assert len(site.slurm.asked) == asked, "tokens that were refused have driven out a good one"


def test_a_reload_forgets(site: Site) -> None:
    logins = site.logins()
    logins.identify(ALICE)
    _, take_over = logins.reload(AccessConfig())
    take_over()
    logins.identify(ALICE)
    assert len(site.slurm.asked) == 2


def test_the_site_may_leave_slurm_out(site: Site) -> None:
    site.access["slurm_tokens"] = False
    with pytest.raises(LoginRefusedError):
        site.logins().identify(ALICE)
    assert site.slurm.asked == []


@pytest.mark.parametrize(
    ("user", "access", "level", "role"),
    [
        ("ann", {}, NONE, Role.USER),
        ("ann", {}, OPERATOR, Role.OPERATOR),
        ("ann", {}, ADMINISTRATOR, Role.ADMIN),
        ("root", {}, NONE, Role.ADMIN),
        ("root", {"slurm_roles": False}, NONE, Role.USER),
        ("ann", {"viewers": ["ann"]}, NONE, Role.VIEWER),
        ("ann", {"viewers": ["ann"], "admins": ["ann"]}, NONE, Role.ADMIN),
        ("ann", {"viewers": ["ann"]}, OPERATOR, Role.OPERATOR),
        ("ann", {"operators": ["bob", "@nogroup-of-this-name"]}, NONE, Role.USER),
        (ME, {"slurm_roles": False, "operators": [f"@{MY_GROUP}"]}, NONE, Role.OPERATOR),
        (ME, {"slurm_roles": False, "operators": [MY_GROUP + "x"], "viewers": [f"@{MY_GROUP}"]}, NONE, Role.VIEWER),
        ("no-such-user-here", {"admins": [f"@{MY_GROUP}"]}, NONE, Role.USER),
    ],
)
def test_roles(user: str, access: dict[str, Any], level: AdminLevel, role: Role) -> None:
    assert role_of(user, AccessConfig(**access), level) is role


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiWorld]:
    made = ApiWorld(
        tmp_path, tokens=Tokens(None), slurm=FakeSlurm(levels={"cwalice": OPERATOR}), config=config(access={})
    )
    yield made
    made.client.close()
    made.store.close()


def test_a_user_of_the_cluster_is_the_actor(api: ApiWorld) -> None:
    assert api.client.post("/api/v1/pause", headers=AUTHORIZED).status_code == 401
    asked = api.client.post("/api/v1/pause", headers={"Authorization": f"Bearer {ALICE}"})
    assert (asked.status_code, asked.json()["actor"]) == (202, "cwalice")


def test_while_slurm_cannot_be_asked_nothing_is_refused_for_good(api: ApiWorld) -> None:
    slurm = api.app.state.context.logins._slurm
    slurm.down = True
    headers = {"Authorization": f"Bearer {ALICE}"}
    assert api.client.post("/api/v1/pause", headers=headers).status_code == 503
    slurm.down = False
    assert api.client.post("/api/v1/pause", headers=headers).status_code == 202
