"""Licenses that are free, held, reserved and promised."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clearway.eligibility.node_usage import licenses_of, pools
from clearway.eligibility.under_way import UnderWay
from clearway.model.errors import SlurmRefusedError
from clearway.model.problem import Amounts
from clearway.model.site import License
from clearway.slurm.parse import FieldError
from clearway.slurm.parse.site import read_licenses
from clearway.slurm.site_settings import licenses_now
from tests.builders import job, snapshot, urgent_job

SHOWN = """\
LicenseName=abaqus Total=10 Used=0 Free=10 Reserved=0 Remote=no
LicenseName=matlab@flex Total=4 Used=1 Free=1 Reserved=2 Remote=yes LastConsumed=3 LastDeficit=2
"""


def test_what_slurm_prints() -> None:
    assert read_licenses(SHOWN) == {"abaqus": License(10), "matlab@flex": License(4, 3, 2)}
    assert read_licenses("No licenses configured in Slurm.\n") == {}
    with pytest.raises(FieldError, match="a license is"):
        read_licenses("LicenseNames: none")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("matlab", {"matlab": 1}),
        ("matlab:2,abaqus=3,matlab", {"matlab": 3, "abaqus": 3}),
        ("matlab@flex:2", {"matlab@flex": 2}),
        ("matlab|abaqus", None),
        ("matlab:x", None),
        ("(null)", None),
    ],
)
def test_what_jobs_ask_for(text: str, found: Mapping[str, int] | None) -> None:
    assert licenses_of(text) == found


def test_they_are_read_only_while_a_waiting_job_asks_for_some() -> None:
    def refused(_: object) -> str:
        raise SlurmRefusedError("no")

    holds, asks = job("1", licenses="abaqus"), urgent_job(licenses="abaqus")
    assert licenses_now(refused, [holds, urgent_job()]) == ({}, 0)
    assert licenses_now(refused, [holds, asks]) == ({}, 1)
    assert licenses_now(lambda _: SHOWN, [asks])[0]["abaqus"] == License(10)


def test_a_pool_is_what_is_there_without_what_no_job_can_give_back() -> None:
    """Of 10, jobs hold 3, 2 and 1, and 2 are used elsewhere; the last job may not leave, another leaves anyway."""
    jobs = [job("1", licenses="a:3"), job("2", licenses="a:2"), job("3", licenses="a:1")]
    asks = urgent_job(licenses="a:4,b")
    seen = snapshot([*jobs, asks], licenses={"a": License(10, used=8, reserved=1)})
    (a, b), holds = pools(asks, seen, UnderWay(), {"2"}, {"1"})
    assert (a.name, a.has, a.held, a.pool) == ("license a", Amounts(10), Amounts(4), Amounts(4))
    assert holds == {"1": {"license a": Amounts(3)}}
    assert (b.has, b.pool) == (Amounts(), Amounts(1)), "of a license that is not known there is none"
