"""GET /walltime/advice: what jobs ask for and take, as the daemon has seen them end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clearway.simulation.jobs import Program
from tests.integration.store.test_history import RUN
from tests.unit.api.conftest import ApiWorld
from tests.unit.cli.running import clearway

ROUTE = "/api/v1/walltime/advice"


def test_jobs_that_ended_are_advised_on(api: ApiWorld) -> None:
    for number in range(12):
        api.submit(Program(work_s=60.0), user="ann", name="fit", on=(f"n{number % 8 + 1}",), time_limit_s=86_400)
    api.run_until(lambda: len(api.store.runs_of(RUN.key._replace(user="ann", app="fit"))) == 12)
    answer = api.client.get(ROUTE, params={"user": "ann", "name": "fit"}).json()
    assert (answer["jobs"], answer["asked_s"], answer["cut"]) == (12, 86_400.0, 0)
    assert 60.0 <= answer["median_s"] <= answer["longest_s"] <= 62.0
    assert answer["advice"].startswith("jobs of this name ask for 1d00h and take 1m")


def test_of_unknown_jobs_nothing_is_said(api: ApiWorld) -> None:
    unknown = api.client.get(ROUTE, params={"user": "ann", "name": "fit"})
    assert unknown.status_code == 404
    assert unknown.json()["detail"] == "no job 'fit' of user 'ann' has been seen to end"
    assert api.client.get(ROUTE, params={"user": "ann"}).status_code == 422


def test_the_command_line_tells_the_same(make_api: Callable[..., ApiWorld], tmp_path: Path) -> None:
    api = make_api()
    path = tmp_path / "clearway.toml"
    path.write_text(f'[store]\nurl = "{api.store_url}"\n')
    options = ("walltime", "advice", "--user", "a", "--name", "solver", "-c", path)
    unknown = clearway(*options)
    assert unknown.exit_code == 1
    assert unknown.stderr == "clearway: no job 'solver' of user 'a' has been seen to end\n"
    api.store.record_runs([RUN])
    assert (
        clearway(*options).stdout
        == "only 1 known: too few to advise; so far they take 1m30s (nine in ten at most 1m30s)\n"
    )
    assert '"median_s": 90.0' in clearway(*options, "-o", "json").stdout
