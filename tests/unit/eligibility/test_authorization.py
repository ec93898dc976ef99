"""Who may have jobs moved and nodes drained."""

from __future__ import annotations

import pytest

from clearway.config.configuration import DrainConfig
from clearway.eligibility.authorization import may_not_drain, may_not_move
from clearway.model.cluster import AdminLevel
from tests.builders import job, snapshot

LEVELS = {"olga": AdminLevel.OPERATOR, "ada": AdminLevel.ADMINISTRATOR}
NAMED = DrainConfig(operators=("tester",))


def level(user: str) -> AdminLevel:
    return LEVELS.get(user, AdminLevel.NONE)


@pytest.mark.parametrize(
    ("actor", "may"),
    [
        ("root", True),
        ("root (command line)", True),
        ("tester", True),
        ("olga (command line)", True),
        ("ada", True),
        ("alice", False),
        ("rooted", False),
    ],
)
def test_who_may_move_the_jobs_of_all(actor: str, may: bool) -> None:
    assert (may_not_move(actor, NAMED, level) == "") is may


@pytest.mark.parametrize(
    ("nodes", "owners", "may"),
    [(["n1"], True, True), (["n1"], False, False), (["n1", "n2"], True, False), (["n1", "idle-0"], True, False)],
)
def test_an_owner_may_drain_nodes_with_own_jobs_alone_where_the_site_says_so(
    nodes: list[str], owners: bool, may: bool
) -> None:
    seen = snapshot([job("1", ["n1"]), job("2", ["n2"], user="bob")], idle=1)
    assert (may_not_drain("alice", nodes, seen, DrainConfig(owners=owners), level) == "") is may
