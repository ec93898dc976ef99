from __future__ import annotations

import pytest

from clearway.slurm.cli import CliBackend
from tests.one_job import OneJob
from tests.unit.slurm.fake_slurm import Clock, FakeSlurm
from tests.unit.slurm.test_hostile import GOOD


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm(rows=[dict(GOOD)])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def backend(slurm: FakeSlurm, clock: Clock) -> CliBackend:
    backend = OneJob(CliBackend(now=clock, sleep=clock.sleep))
    backend._commands = slurm  # type: ignore[assignment]
    return backend
