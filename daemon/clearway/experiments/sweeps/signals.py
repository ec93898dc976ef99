"""Signals answered in another way for a while."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_WAIT_S = 0.5  # of a thread that waits while signals wait
Answer = Callable[[int, Any], Any] | int | signal.Handlers | None


@contextmanager
def answered(answer: Callable[[int], Answer], *numbers: int) -> Iterator[None]:
    """Answer these signals as ``answer`` says of each; after this block as before, even if its code changed that."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, answer(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that ask to end wait until this block has ended.

    Their handlers raise. In the middle of other people's code that could leave a lock locked for ever, for which
    another thread waits; or it is lost, because an exception raised while an object is deleted is ignored.
    """
    came: list[int] = []
    try:
        with answered(lambda _: lambda number, _: came.append(number), *ENDING):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)
