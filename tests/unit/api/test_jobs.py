"""What the API tells of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, config
from tests.unit.api.conftest import ApiWorld

LONG = Program(work_s=100_000)


def told(api: ApiWorld, job_id: str) -> Any:
    answer = api.client.get(f"/api/v1/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_job_that_nothing_is_known_of(api: ApiWorld) -> None:
    api.tick()
    answer = api.client.get("/api/v1/jobs/4711")
    assert answer.status_code == 404
    assert "nothing of job 4711" in answer.json()["detail"]


def test_what_running_jobs_would_lose_now(api: ApiWorld) -> None:
    silent = api.submit(LONG, on=("n1",), ran_s=3_600, user="ann")
    saving = api.submit(LONG, on=("n2",), ran_s=3_600, user="ann", comment=SAVES)
    fixed = api.submit(LONG, on=("n3",), ran_s=3_600, user="ann", requeueable=False)
    api.tick()
    of_silent, of_saving, of_fixed = (told(api, each) for each in (silent, saving, fixed))
    assert of_silent["way"] == "nothing"
    assert of_silent["if_urgent"]["lost_work_node_s"] == of_silent["would_lose_node_s"] == 3_600.5
    assert of_silent["if_urgent"]["sentence"] == ("It would be requeued without a checkpoint and lose 1.0 node-hours.")
    assert "clearway-run" in of_silent["saving"]["advice"]
    assert (of_saving["saving"]["way"], of_saving["saving"]["possible"]) == ("signal", True)
    assert "to go on from there; where there is no time" in of_saving["if_urgent"]["sentence"]
    assert not of_fixed["if_urgent"]["may_leave"]
    assert "--requeue" in of_fixed["saving"]["advice"]


def test_the_whole_story_of_an_eviction(api: ApiWorld) -> None:
    jobs = api.fill()
    urgent = api.urgent(2, work_s=60)
    api.tick()
    api.tick()
    first = told(api, jobs[0])
    (operation,) = first["operations"]
    assert (operation["role"], operation["for_job_id"], operation["for_user"]) == ("preemptee", urgent, "ursula")
    assert operation["preemption"]["action"] == "kill"
    assert "losing" in operation["preemption"]["reason"]
    assert f"urgent job {urgent} of ursula" in first["doing"]
    served = told(api, urgent)
    assert [(each["role"], each["for_job_id"]) for each in served["operations"]] == [("preemptor", urgent)]
    assert served["urgent"] == "rule 1"
    other = told(api, jobs[7])
    assert [each["role"] for each in other["operations"]] == ["candidate"]
    assert "stays" in other["doing"]
    api.run_until(lambda: all(not e.state.acting for e in api.store.evictions()))
    api.tick()
    (operation,) = told(api, jobs[0])["operations"]
    assert operation["preemption"]["actual_lost_work_node_s"] > 0
    assert operation["preemption"]["loss_measured"]
    assert operation["preemption"]["loss"].startswith("It lost "), "a job without a checkpoint: it is known at once"
    assert operation["preemption"]["returned_at"] is not None


def test_when_a_preempted_job_runs_again_and_what_sparing_it_would_have_cost(api: ApiWorld) -> None:
    jobs = api.fill()
    api.urgent(2, work_s=10_000)
    api.tick()
    api.loop.explain(float("inf"))
    api.run_until(lambda: told(api, jobs[0])["operations"][0]["preemption"]["state"] == "queued")
    (operation,) = told(api, jobs[0])["operations"]
    assert operation["runs_again_at"] is None
    assert operation["runs_again_why"].startswith("Too few")
    assert operation["sparing"]["known"]
    assert operation["sparing"]["sentence"].startswith("The best plan without it loses")
    spared = told(api, jobs[7])["operations"][0]["sparing"]
    assert spared["more_lost_work_node_s"] > 0
    assert spared["sentence"].startswith("The best plan with it loses")


def test_a_job_that_is_over_is_told_by_what_is_stored(api: ApiWorld) -> None:
    short = api.submit(Program(work_s=400), on=("n1",), ran_s=300, user="ann")
    others = [api.submit(LONG, on=(f"n{n}",), ran_s=10_000, user="bob") for n in range(2, 9)]
    api.urgent(1, work_s=60)
    api.run_until(lambda: short not in {job.job_id for job in api.tick().snapshot.jobs}, limit_s=3_000, every_s=5)
    gone = told(api, short)
    assert (gone["state"], gone["user"], gone["if_urgent"]) == (None, "ann", None)
    assert [each["role"] for each in gone["operations"]] == ["preemptee"]
    assert others


def test_array_tasks_go_by_either_id(api: ApiWorld) -> None:
    task = api.submit(on=("n1",), ran_s=100, array_job_id="12", array_task_id=3)
    api.tick()
    assert told(api, "12_3")["job_id"] == told(api, task)["job_id"] == task


def test_the_list(api: ApiWorld) -> None:
    jobs = api.fill()
    api.submit(num_nodes=1, user="user1")
    api.tick()

    def listed(**params: Any) -> Any:
        return api.client.get("/api/v1/jobs", params=params).json()

    assert [each["job_id"] for each in listed(state="running")["items"]] == jobs
    assert [each["job_id"] for each in listed(node="n3")["items"]] == [jobs[2]]
    assert {each["state"] for each in listed(user="user1")["items"]} == {"running", "pending"}
    page = listed(limit=3)
    assert (len(page["items"]), page["next_offset"]) == (3, 3)
    assert listed(limit=100, offset=6)["next_offset"] is None
    assert listed(user="nobody")["items"] == []


def test_a_job_on_a_drained_node_is_told_of_the_drain(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(drain={"operators": ["ann"]}))
    stays = api.submit(on=("n1", "n2"), ran_s=600, comment=SAVES)
    headers = {"Authorization": "Bearer correct-horse-battery"}
    body = {"nodes": "n1", "parallel": "leave"}
    assert api.client.post("/api/v1/drains", headers=headers, json=body).status_code == 202
    api.tick()
    api.tick()
    of_it = told(api, stays)
    assert of_it["role"] == "resident"
    assert [each["nodes"] for each in of_it["operations"]] == ["n1"]
    assert "n1 is being emptied" in of_it["doing"]


def test_a_test_of_whether_a_job_saves_itself(api: ApiWorld) -> None:
    program = Program(work_s=100_000, save_s=3.0)
    job_id = api.submit(program, on=("n1",), ran_s=600, user="ann", comment=SAVES)
    api.tick()
    headers = {"Authorization": "Bearer correct-horse-battery"}
    path = f"/api/v1/jobs/{job_id}/test-preemption"
    assert api.client.post(path).status_code == 401
    asked = api.client.post(path, headers=headers)
    assert asked.status_code == 202
    twice = api.client.post(path, headers=headers)
    assert (twice.status_code, "has not begun yet" in twice.json()["detail"]) == (409, True)
    request = asked.headers["Location"]
    api.run_until(lambda: api.client.get(request).json()["handled_at"] is not None, 120)
    (test,) = told(api, job_id)["tests"]
    assert (test["end"], test["restartable"]) == ("saved", None)
    assert 2 <= test["took_s"] <= 5
    assert api.client.get(request).json()["result"] == test["sentence"]
    again = api.client.post(path, headers=headers)
    assert (again.status_code, "ask again in" in again.json()["detail"]) == (409, True)
    assert api.client.post("/api/v1/jobs/4711/test-preemption", headers=headers).status_code == 404
