"""Which backend is taken, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from clearway.bootstrap import AUTO, choose_backend
from clearway.config import plugins
from clearway.config.configuration import parse_config
from clearway.model.clock import SystemClock
from clearway.model.errors import ConfigError


class Stub:
    """A backend that can be used, or says why not."""

    def __init__(self, name: str, why_not: str | None, closed: list[str]) -> None:
        self.name, self.why_not, self.closed = name, why_not, closed

    def available(self) -> str | None:
        return self.why_not

    def close(self) -> None:
        self.closed.append(self.name)


Choose = Callable[[str, Mapping[str, str | None]], tuple[str, str, list[str]]]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Name, reason and those closed again; given the configured one, and why each cannot be used (None: it can)."""

    def chosen(wanted: str, why_not: Mapping[str, str | None]) -> tuple[str, str, list[str]]:
        closed: list[str] = []

        def load(_: str, name: str) -> Callable[..., Any]:
            return lambda **_kept: Stub(name, why_not[name], closed)

        monkeypatch.setattr(plugins, "load", load)
        backend, why = choose_backend(parse_config(f'[slurm]\nbackend = "{wanted}"\n', "c"), SystemClock())
        return backend.name, why, closed

    return chosen


def test_auto_takes_the_first_that_can_be_used_and_says_why_not_those_before(choose: Choose) -> None:
    first, *_, last = AUTO
    usable = dict.fromkeys(AUTO)
    assert choose("auto", usable) == (first, 'slurm.backend is "auto"', [])
    others = {name: f"no {name} here" for name in AUTO if name != last}
    name, why, closed = choose("auto", usable | others)
    assert (name, closed) == (last, list(others))
    assert why == "; ".join(['slurm.backend is "auto"', *(f"{each} cannot be used: no {each} here" for each in others)])


def test_a_backend_that_was_asked_for_is_the_only_one_tried(choose: Choose) -> None:
    assert choose("cli", {"cli": None}) == ("cli", 'slurm.backend is "cli"', [])
    with pytest.raises(ConfigError, match=r"slurm\.backend: pyslurm cannot be used: no module"):
        choose("pyslurm", {"pyslurm": "no module", "cli": None})


def test_without_any_all_reasons_are_told(choose: Choose) -> None:
    with pytest.raises(ConfigError) as raised:
        choose("auto", dict.fromkeys(AUTO, "it is down"))
    assert str(raised.value) == "slurm.backend: " + "; ".join(f"{name} cannot be used: it is down" for name in AUTO)


def test_the_preferred_one_comes_first() -> None:
    assert AUTO[0] == "pyslurm"
    assert AUTO[-1] == "cli"
