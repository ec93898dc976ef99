"""docs/explanation/track-record.md is made from what tests say of the faults that they hold."""

from __future__ import annotations

from collections import Counter

import pytest

from docs.reference.track_record import LOOKS, faults

LONGEST = 120  # a line of the page, beside its test


def test_each_fault_is_one_sentence_and_is_told_once() -> None:
    told = Counter(fault.sentence for fault in faults())
    assert len(told) >= 60
    assert {sentence: count for sentence, count in told.items() if count > 1} == {}
    assert [each for each in told if len(each) > LONGEST or not each.endswith(".") or ". " in each] == []


@pytest.mark.parametrize("look", LOOKS)
def test_each_kind_of_look_has_found_something(look: str) -> None:
    assert any(fault.found_by == look for fault in faults())


def test_no_fault_was_found_by_anything_else() -> None:
    assert {fault.found_by for fault in faults()} == LOOKS.keys()
