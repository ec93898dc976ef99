"""What the doctor asks once: also where no answer came, for which nothing may wait a second time."""

from __future__ import annotations

import pytest

from clearway.doctor.case import Once
from clearway.model.errors import ClearwayError, SlurmUnavailableError


class Asked:
    def __init__(self, answers: bool) -> None:
        self.answers, self.times = answers, 0

    @Once
    def site(self) -> str | None:
        self.times += 1
        if not self.answers:
            raise SlurmUnavailableError("slurmctld is down")
        return None


def test_an_answer_is_kept() -> None:
    asked, other = Asked(answers=True), Asked(answers=True)
    assert [asked.site, asked.site] == [None, None]
    assert (asked.times, other.times) == (1, 0)


def test_a_failure_is_kept() -> None:
    asked = Asked(answers=False)
    for _ in range(2):
        with pytest.raises(ClearwayError, match="slurmctld is down"):
            _ = asked.site
    assert asked.times == 1
