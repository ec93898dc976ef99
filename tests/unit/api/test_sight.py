"""What a user is told of other users' jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearway.api.authorization import Own
from clearway.api.logins import Tokens
from clearway.model.cluster import AdminLevel
from clearway.simulation.jobs import Program
from tests.builders import NOW
from tests.simulation.world import config
from tests.unit.api.conftest import ApiWorld, token_file
from tests.unit.api.test_logins import FakeSlurm
from tests.unit.slurm.test_identity import jwt

USERS = ("ursula", "user1", "user5", "stranger")
TOKENS = {user: jwt(sun=user, exp=NOW.timestamp() + 10**6) for user in (*USERS, "olga")}


class Busy:
    """Eight jobs of eight users; room is made for one of ursula's. Jobs are private, and olga is an operator."""

    def __init__(self, folder: Path) -> None:
        users = {token: user for user, token in TOKENS.items()}
        self.slurm = FakeSlurm(users, {"olga": AdminLevel.OPERATOR}, frozenset({"jobs", "usage"}))
        tokens = Tokens(token_file(folder))
        self.api = ApiWorld(folder, tokens=tokens, slurm=self.slurm, config=config("approve", access={}))
        self.jobs = self.api.fill()
        self.urgent = self.api.urgent(2)
        self.api.tick()
        self.leaving = {p.job.user: p.job_id for p in self.api.eviction().preemptions}

    def get(self, user: str, path: str) -> Any:
        return self.api.client.get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {TOKENS[user]}"})

    def what_if(self, user: str) -> Any:
        body = {"nodes": 2, "max_delay": "20s"}
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        return self.api.client.post("/api/v1/what-if", headers=headers, json=body).json()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    made = Busy(tmp_path)
    yield made
    made.api.client.close()
    made.api.store.close()


def test_who_sees_the_eviction(busy: Busy) -> None:
    assert set(busy.leaving) == {"user1", "user2"}
    for user, sees in {"ursula": True, "user1": True, "olga": True, "user5": False, "stranger": False}.items():
        listed = [each["job_id"] for each in busy.get(user, "evictions").json()["items"]]
        waiting = [each["job_id"] for each in busy.get(user, "preemptors").json()["items"]]
        assert listed == waiting == [busy.urgent] * sees, user
        for path in ("", "/steps", "/plans", "/verdicts"):
            assert busy.get(user, f"evictions/1{path}").status_code == (200 if sees else 404), (user, path)
    assert busy.get("stranger", "evictions/1").json()["detail"] == "no eviction 1", "as for one that does not exist"


def test_a_user_whose_job_leaves_sees_it_and_what_it_leaves_for(busy: Busy) -> None:
    own = busy.leaving["user1"]
    told = busy.get("user1", "evictions/1").json()
    assert (told["job_id"], told["user"], told["preemptees"]) == (busy.urgent, "ursula", 2)
    assert [each["job_id"] for each in told["preemptions"]] == [own]
    assert [each["job_id"] for each in busy.get("user1", "evictions/1/verdicts").json()["items"]] == [own]
    assert [a["job_id"] for a in told["plan"]["chosen"]["actions"]] == [own]
    whole = busy.get("olga", "evictions/1").json()
    assert {each["user"] for each in whole["preemptions"]} == {"user1", "user2"}
    assert len(busy.get("olga", "evictions/1/verdicts").json()["items"]) == 8


def test_no_answer_names_the_job_or_the_user_of_another(busy: Busy) -> None:
    paths = (
        "cluster",
        "preemptors",
        "evictions",
        "evictions/1",
        "evictions/1/steps",
        "evictions/1/plans",
        "evictions/1/verdicts",
        "calibration",
        "jobs",
    )
    for user, job in {"ursula": busy.urgent, "user1": busy.leaving["user1"]}.items():
        own = (*paths, f"jobs/{job}")
        text = "".join(busy.get(user, path).text for path in own) + str(busy.what_if(user))
        others = {f"user{n}" for n in range(1, 9)} - {user}
        assert not [other for other in others if f'"{other}"' in text or f"'{other}'" in text]


def test_jobs_of_others_are_as_if_they_were_not_there(busy: Busy) -> None:
    own, other = busy.leaving["user1"], busy.leaving["user2"]
    told = busy.get("user1", f"jobs/{own}").json()
    assert [each["for_job_id"] for each in told["operations"]] == [busy.urgent], "what it leaves for is told"
    assert [each["job_id"] for each in busy.get("user1", "jobs").json()["items"]] == [own]
    assert busy.get("user1", "jobs?user=user2").json()["items"] == []
    hidden = busy.get("user1", f"jobs/{other}")
    assert (hidden.status_code, hidden.json()["detail"]) == (
        404,
        f"Clearway knows nothing of job {other}: neither the queue nor its database has it",
    )
    assert busy.get("olga", f"jobs/{other}").status_code == 200


def test_filters_tell_nothing_of_others(busy: Busy) -> None:
    """Whether another user's job left for the same urgent job cannot be found out by asking for it."""
    other = busy.leaving["user2"]
    for asked in (f"job_id={other}", "user=user2"):
        assert busy.get("user1", f"evictions?{asked}").json()["items"] == []
        assert len(busy.get("olga", f"evictions?{asked}").json()["items"]) == 1
    for asked in (f"job_id={busy.urgent}", "user=ursula", f"job_id={busy.leaving['user1']}", "user=user1"):
        assert len(busy.get("user1", f"evictions?{asked}").json()["items"]) == 1, asked
    assert len(busy.get("olga", f"preemptors?job_id={busy.urgent}&user=ursula").json()["items"]) == 1
    assert busy.get("olga", "preemptors?user=user1").json()["items"] == []


def test_who_may_test_a_job(busy: Busy) -> None:
    def asked(user: str) -> int:
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        path = f"/api/v1/jobs/{busy.leaving['user1']}/test-preemption"
        status: int = busy.api.client.post(path, headers=headers).status_code
        return status

    assert asked("stranger") == 404, "as for one that is not there"
    busy.slurm.private = frozenset()
    busy.api.clock.advance(120)
    assert [asked(user) for user in ("stranger", "user1", "olga")] == [403, 202, 202]
    document = busy.api.store.pending_requests()[0].document
    assert '"operator":false' in document


def test_without_private_data_every_user_sees_every_job(busy: Busy) -> None:
    busy.slurm.private = frozenset()
    told = busy.get("stranger", "evictions/1").json()
    assert {each["user"] for each in told["preemptions"]} == {"user1", "user2"}
    assert len(busy.what_if("stranger")["plan"]["verdicts"]) == 8


def test_what_if_shows_own_jobs_alone(busy: Busy) -> None:
    verdicts = busy.what_if("user1")["plan"]["verdicts"]
    assert [each["job_id"] for each in verdicts] in ([], [busy.leaving["user1"]])
    assert len(busy.what_if("olga")["plan"]["verdicts"]) == 8


def test_the_placement_is_told_to_viewers_alone(busy: Busy) -> None:
    """Who knows its name could submit other jobs into it."""
    headers = {"Authorization": f"Bearer {TOKENS['olga']}"}
    busy.api.client.post("/api/v1/evictions/1/approve", headers=headers)
    busy.api.tick()
    name = busy.api.eviction().placement
    assert name
    for private in (frozenset({"jobs"}), frozenset[str]()):
        busy.slurm.private = private
        for user, sees in {"olga": True, "ursula": False, "user1": False}.items():
            text = "".join(busy.get(user, path).text for path in ("evictions", "evictions/1", "evictions/1/steps"))
            assert (name in text) == sees, user


def test_a_request_is_shown_to_its_asker_and_to_viewers(busy: Busy) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['olga']}"}
    path = busy.api.client.post("/api/v1/pause", headers=headers).headers["Location"].removeprefix("/api/v1/")
    assert [busy.get(user, path).status_code for user in ("olga", "stranger")] == [200, 404]


def test_run_times_of_others_are_private(busy: Busy) -> None:
    assert busy.get("user1", "walltime/advice?user=user2&name=x").status_code == 403
    assert busy.get("user1", "walltime/advice?user=user1&name=x").status_code == 404
    assert busy.get("olga", "walltime/advice?user=user2&name=x").status_code == 404


def test_users_ask_for_drains_where_owners_may(busy: Busy) -> None:
    body = {"nodes": "n1"}
    for owners, status in ((False, 403), (True, 202)):
        busy.api.loop.reconfigure(config("approve", access={}, drain={"owners": owners}))
        busy.api.tick()
        headers = {"Authorization": f"Bearer {TOKENS['user1']}"}
        assert busy.api.client.post("/api/v1/drains", headers=headers, json=body).status_code == status


def test_sentences_without_others() -> None:
    own = Own(frozenset({"12"}), frozenset({"13", "bob", "7_2"}))
    told = own.told("job 13 of bob, after 12; clearway_17_ab and 7_2 (bob). 130 s, bobby")
    assert told == ("job (not yours) of (not yours), after 12; (not yours) and (not yours) ((not yours)). 130 s, bobby")


def test_a_drain_that_is_imagined_tells_nothing_of_others(busy: Busy) -> None:
    """Whether a stranger's job can save itself shows in a plan as well as in its refusal."""

    def asked(user: str, nodes: str) -> Any:
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        return busy.api.client.post("/api/v1/drains/what-if", headers=headers, json={"nodes": nodes})

    saver = busy.api.submit(Program(save_s=5), on=("n6",), comment="clearway:checkpoint=signal", user="user6")
    assert saver
    busy.api.tick()
    answers = [asked("user5", nodes) for nodes in ("n5", "n6", "n5,n6")]
    assert [each.status_code for each in answers] == [200, 403, 403]
    assert len({each.text for each in answers[1:]}) == 1
    assert "hides what they can do" in answers[1].json()["detail"]
    assert asked("user1", "n5").text == answers[1].text
    assert asked("olga", "n[5-6]").status_code == 200
    busy.slurm.private = frozenset()
    busy.api.clock.advance(3_600)
    assert asked("user5", "n6").status_code == 200
