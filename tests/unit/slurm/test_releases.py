"""On which releases of Slurm Clearway acts, and how slurmctld's version is found out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from clearway.config.configuration import parse_config
from clearway.model.errors import ConfigError, SlurmUnavailableError
from clearway.slurm.cli import CliBackend
from clearway.slurm.releases import TRIED, only_observed, refused, release_of
from clearway.slurm.site_settings import CONFIG_EVERY_S, VERSION_AGAIN_S
from tests.unit.slurm.fake_slurm import Clock, FakeSlurm


def says(version: str) -> str:
    return f"SLURM_VERSION           = {version}\nPreemptType             = preempt/none\n"


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("24.11.5", "24.11"),
        ("22.05.8", "22.05"),
        ("26.05", "26.05"),
        ("27.05.0-0rc1", "27.05"),
        ("slurm-wlm 24.11.5", ""),
        ("24.111.5", ""),
        ("", ""),
        ("(null)", ""),
        ("٢٤.11.5", ""),
    ],
)
def test_the_release_of_a_version(version: str, release: str) -> None:
    assert release_of(version) == release


def test_rows_go_from_the_oldest_to_the_newest() -> None:
    assert [row.name for row in TRIED] == sorted({row.name for row in TRIED})
    assert all(release_of(row.name) == row.name for row in TRIED)


@pytest.mark.parametrize(
    "version", ["22.05.8", "23.02.7", "23.11.10", "24.05.0", "24.11.5", "25.05.3", "25.11.2", "26.05.5"]
)
def test_it_acts_on_what_was_tried_and_between(version: str) -> None:
    assert only_observed(version) == ""
    assert not refused(version)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("26.11.0", 'Slurm 26.11.0 is newer than 26.05, the newest .* slurm.act_on_release = "26.11" lets it act'),
        ("27.05.0-0rc1", "newer than 26.05"),
        ("21.08.8", "Slurm 21.08.8 is older than 22.05, the oldest"),
    ],
)
def test_it_only_observes_what_was_not_tried_until_the_site_says_otherwise(version: str, told: str) -> None:
    assert re.search(told, only_observed(version))
    assert refused(version)
    assert only_observed(version, release_of(version)) == ""
    assert not refused(version, release_of(version))
    assert only_observed(version, "28.05") == only_observed(version)  # that one release, and no other


def test_a_version_that_is_not_known_is_not_acted_on_and_not_refused() -> None:
    """What is under way is not called off for it."""
    assert "SLURM_VERSION" in only_observed("")
    assert only_observed("", "27.05") == only_observed("nonsense") == only_observed("")
    assert not refused("")


@pytest.mark.parametrize("given", ['"27.05"', '"26.11"'])
def test_the_release_in_the_configuration(given: str) -> None:
    assert parse_config(f"[slurm]\nact_on_release = {given}\n", "c").slurm.act_on_release == given.strip('"')


@pytest.mark.parametrize("given", ['"27.05.1"', '"newest"', "27.05", '""', '"27.5"', '["27.05"]'])
def test_a_release_that_is_none_is_refused_in_one_line(given: str) -> None:
    with pytest.raises(ConfigError, match=r"slurm\.act_on_release: must be") as raised:
        parse_config(f"[slurm]\nact_on_release = {given}\n", "c")
    assert "\n" not in str(raised.value)


def test_slurmctlds_version_takes_no_query_of_its_own(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    slurm.shown["config"] = says("24.11.5")
    first = backend.snapshot()
    assert (first.slurm_version, first.queries) == ("24.11.5", 5)
    assert (backend.snapshot().slurm_version, backend.snapshot().queries) == ("24.11.5", 2)
    slurm.shown["config"] = says("25.05.3")
    clock.now += timedelta(seconds=CONFIG_EVERY_S)
    assert backend.snapshot().slurm_version == "25.05.3"


def test_a_version_that_was_known_stays(
    backend: CliBackend, slurm: FakeSlurm, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.shown["config"] = says("24.11.5")
    backend.snapshot()
    for strange in ("", "SLURM_VERSION = (null)\n", "SLURM_VERSION\n"):
        slurm.shown["config"] = strange
        clock.now += timedelta(seconds=CONFIG_EVERY_S)
        assert backend.snapshot().slurm_version == "24.11.5"
    run = slurm.run

    def refuses(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        if "config" in argv:
            raise SlurmUnavailableError("scontrol: error: no")
        return run(argv, env=env)

    monkeypatch.setattr(slurm, "run", refuses)
    clock.now += timedelta(seconds=CONFIG_EVERY_S)
    assert backend.snapshot().slurm_version == "24.11.5"


def test_a_version_that_is_not_known_is_soon_asked_for_again(
    backend: CliBackend, slurm: FakeSlurm, clock: Clock
) -> None:
    slurm.shown["config"] = "PreemptType             = preempt/none\n"
    assert backend.snapshot().slurm_version == ""
    slurm.shown["config"] = says("26.05.5")
    assert backend.snapshot().slurm_version == ""
    clock.now += timedelta(seconds=VERSION_AGAIN_S)
    assert backend.snapshot().slurm_version == "26.05.5"
