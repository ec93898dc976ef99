"""What is asked of Slurm about its users, and what is made of its answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmError, SlurmUnavailableError
from clearway.slurm.identity import EVERYTHING_PRIVATE, SlurmIdentity, claims_of
from tests.builders import NOW, ManualClock

NO = SlurmUnavailableError("scontrol: slurm_fetch_token: error receiving response: Zero Bytes were transmitted")
DOWN = SlurmUnavailableError("scontrol: Unable to contact slurm controller (connect failure)")


def jwt(signature: str = "c2ln", **claims: Any) -> str:
    def encoded(part: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()

    return f"{encoded({'alg': 'HS256'})}.{encoded(claims)}.{signature}"


ALICE = jwt(sun="cwalice", exp=NOW.timestamp() + 600)


@dataclass
class Controller:
    """slurmctld: gives a token of ten seconds for each of the ``genuine`` ones."""

    genuine: dict[str, str] = field(default_factory=lambda: {ALICE: "cwalice"})
    error: SlurmError = NO
    records: str = ""
    config: str = "PrivateData             = none\n"
    forged_is_good: bool = False
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        if argv[:2] == ["scontrol", "token"]:
            assert env is not None
            token = env["SLURM_JWT"]
            assert token not in " ".join(argv), "other users see the arguments of a process"
            self.asked.append(token)
            user = self.genuine.get(token) or ("root" if self.forged_is_good else None)
            if user is None:
                raise self.error
            return f"SLURM_JWT={jwt(sun=user, exp=1)}\n"
        if "assoc_mgr" in argv:
            return self.records
        if isinstance(self.config, str):
            return self.config
        raise self.config


def identity(controller: Controller) -> SlurmIdentity:
    made = SlurmIdentity(now=ManualClock(NOW).now, slurm_conf=None, timeout_s=5)
    made._run = controller.run  # type: ignore[method-assign, assignment]
    return made


def test_slurm_says_whose_token_it_is() -> None:
    assert identity(Controller()).user_of(ALICE) == "cwalice"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "..",
        f"{ALICE}\n",
        f"{ALICE}=",
        "x" * 5_000,
        f"ä.{ALICE}",
        jwt(sun="cwalice"),
    ],
)
def test_what_is_no_token_of_slurms(token: str) -> None:
    controller = Controller()
    assert identity(controller).user_of(token) is None
    assert set(controller.asked) <= {token, *(each for each in controller.asked if claims_of(each)["sun"] == "root")}


def test_an_empty_token_is_never_asked_about() -> None:
    """An empty SLURM_JWT could be answered with the daemon's own rights."""
    controller = Controller(forged_is_good=True)
    assert identity(controller).user_of("") is None
    assert controller.asked == []


def test_a_slurm_that_takes_forged_tokens_is_not_believed() -> None:
    controller = Controller(forged_is_good=True)
    with pytest.raises(SlurmUnavailableError, match="takes a forged token"):
        identity(controller).user_of(ALICE)


def test_the_token_must_name_the_user_that_slurm_names() -> None:
    """So an answer with the rights of another account gives nothing away."""
    token = jwt(sun="root", exp=NOW.timestamp() + 600)
    assert identity(Controller(genuine={token: "clearway"})).user_of(token) is None


def test_a_controller_that_is_down_is_no_refusal() -> None:
    with pytest.raises(SlurmUnavailableError, match="Unable to contact"):
        identity(Controller(error=DOWN)).user_of(ALICE)


@pytest.mark.parametrize(
    ("records", "level"),
    [
        ("UserName=cwalice(1001) DefAccount=cw DefWckey=(null) AdminLevel=Operator\n", AdminLevel.OPERATOR),
        ("UserName=cwalice(1001) DefAccount=cw DefWckey= AdminLevel=Administrator\n", AdminLevel.ADMINISTRATOR),
        ("UserName=cwalice(1001) DefAccount=cw DefWckey=(null) AdminLevel=Not Set\n", AdminLevel.NONE),
        ("UserName=cwalice2(1002) DefAccount=cw DefWckey=(null) AdminLevel=Operator\n", AdminLevel.NONE),
        ("No users currently cached in Slurm.\n", AdminLevel.NONE),
        ("", AdminLevel.NONE),
    ],
)
def test_rights_in_slurms_accounting(records: str, level: AdminLevel) -> None:
    controller = Controller(records="Current Association Manager state\nUser Records\n" + records)
    assert identity(controller).admin_level("cwalice") is level


def test_a_name_that_is_a_list_is_not_asked_about() -> None:
    with pytest.raises(SlurmError):
        identity(Controller()).admin_level("cwalice,root")


@pytest.mark.parametrize(
    ("config", "private"),
    [
        ("PrivateData             = none\n", set()),
        ("A = 1\nPrivateData             = jobs,usage\n", {"jobs", "usage"}),
        ("nothing of it\n", EVERYTHING_PRIVATE),
        (DOWN, EVERYTHING_PRIVATE),
    ],
)
def test_what_users_may_see_of_each_other(config: Any, private: set[str]) -> None:
    assert identity(Controller(config=config)).private_data() == private
