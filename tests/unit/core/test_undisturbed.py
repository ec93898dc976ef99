"""The garbage collector does not go through the records of a cluster in the middle of a cycle."""

from __future__ import annotations

import gc
import weakref

import pytest

from clearway.service.loop import undisturbed


class Circle:
    def __init__(self) -> None:
        self.own = self


@pytest.mark.fault("Python's garbage collector took a sixth of each cycle of a large site.", found_by="load")
def test_what_is_old_is_not_gone_through_and_new_circles_are_collected() -> None:
    generations: list[int] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(collected)
    try:
        with undisturbed():
            circle = weakref.ref(Circle())
            records = [[number] for number in range(400_000)]
            gone = circle() is None
    finally:
        gc.callbacks.remove(collected)
    assert len(records) == 400_000
    assert set(generations) == {0}
    assert gone


def test_afterwards_it_collects_as_before() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="a cycle that fails"), undisturbed():
        raise ValueError("a cycle that fails")
    assert gc.get_threshold() == before
