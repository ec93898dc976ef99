"""The OpenAPI document and the application agree, whatever is asked: no error of ours, no answer without documentation.

Requests are made from the document itself, good ones and bad ones, with an operator's token and without one. What is
drawn is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, ApiWorld, make_api

__all__ = ["make_api"]

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
EXAMPLES = 12  # of each route, good ones and as many bad ones
# That a text is a date to come, or a number no larger than the cluster, no schema says.
NOT_IN_A_SCHEMA = [checks.positive_data_acceptance]


@pytest.fixture
def api(make_api: Callable[..., ApiWorld]) -> ApiWorld:
    """Eight busy nodes, and an eviction that waits for approval; what is told about jobs needs a token."""
    api = make_api(config=config("approve", access={"public": "health"}))
    api.fill()
    api.urgent(2)
    api.tick()
    api.app.state.context.feed.close()  # else a stream would be waited for to its end
    return api


@pytest.mark.fault("Requests to REST led to answers that the OpenAPI document does not name.", found_by="hostile input")
def test_documented_and_real_answers_agree(api: ApiWorld) -> None:
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", api.app)
    wrong: dict[str, str] = {}
    for operation in (each.ok() for each in schema.get_all_operations()):
        for mode in schemathesis.GenerationMode:
            if mode is schemathesis.GenerationMode.NEGATIVE and not (
                operation.query or operation.body or operation.path_parameters
            ):
                continue  # nothing can be wrong about it
            try:
                ask_in_many_ways(operation, mode)
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all are told together
                wrong[f"{operation.label} ({mode})"] = "; ".join(map(str, getattr(error, "exceptions", (error,))))
    assert wrong == {}


def ask_in_many_ways(operation: Any, mode: Any) -> None:
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from([AUTHORIZED, {}]))
    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case: Any, headers: dict[str, str]) -> None:
        case.call_and_validate(headers=headers, excluded_checks=NOT_IN_A_SCHEMA)

    ask()


def test_other_methods_are_refused_and_those_there_are_named(api: ApiWorld) -> None:
    """Where a path is also one of another route, all methods of both count."""
    wrong: list[object] = []
    for path, methods in api.app.openapi()["paths"].items():
        documented = {method.upper() for method in methods}
        concrete = path.replace("{eviction_id}", "1").replace("{request_id}", "1").replace("{rolling_id}", "1")
        concrete = concrete.replace("{job_id}", "1")
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - documented:
            answer = api.client.request(method, concrete, headers=AUTHORIZED)
            if answer.status_code != 405 or set(answer.headers.get("allow", "").split(", ")) != allowed(documented):
                wrong.append((method, path, answer.status_code, answer.headers.get("allow")))
    assert wrong == []


def allowed(documented: set[str]) -> set[str]:
    return documented | ({"HEAD"} if "GET" in documented else set())


def test_everything_of_a_number_may_not_be_there(api: ApiWorld) -> None:
    paths = {path: methods for path, methods in api.app.openapi()["paths"].items() if "{" in path}
    told = {
        (path, method): "404" in operation["responses"] for path in paths for method, operation in paths[path].items()
    }
    assert told
    assert [which for which, is_told in told.items() if not is_told] == []


def test_every_error_is_a_problem_and_what_needs_a_token_says_so(api: ApiWorld) -> None:
    document = api.app.openapi()
    schemes = document["components"]["securitySchemes"]
    assert [(each["type"], each["scheme"]) for each in schemes.values()] == [("http", "bearer")]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            errors = [answer for status, answer in operation["responses"].items() if status >= "400"]
            assert {kind for each in errors for kind in each["content"]} == {"application/problem+json"}, path
            assert bool(operation.get("security")) == ("401" in operation["responses"]), (method, path)


def test_a_mistyped_parameter_is_refused(api: ApiWorld) -> None:
    answer = api.client.get("/api/v1/evictions", params={"sate": "active"}, headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["detail"]) == (422, "'sate': unknown parameter")


@pytest.mark.fault("A body that is no text was answered as a fault of Clearway's.", found_by="hostile input")
def test_a_body_that_is_no_text_is_malformed(api: ApiWorld) -> None:
    as_json = {"Content-Type": "application/json"}
    answer = api.client.post("/api/v1/what-if", content=b"\xff\xfe\x00", headers=AUTHORIZED | as_json)
    assert answer.status_code == 422


@pytest.mark.parametrize("wish", [{"rolling": True}, {"at": 0}, {"deadline": "1795255854"}, {"force": "yes"}])
def test_a_value_of_another_kind_is_refused(api: ApiWorld, wish: dict[str, object]) -> None:
    """Once a drain with ``"rolling": true`` emptied one node after another, and one ``"at": 0`` began in 1970."""
    answer = api.client.post("/api/v1/drains", json={"nodes": "n1"} | wish, headers=AUTHORIZED)
    assert answer.status_code == 422
    assert api.store.pending_requests() == ()
