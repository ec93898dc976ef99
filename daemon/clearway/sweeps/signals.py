"""Signals answered in another way for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = Callable[[int, Any], Any] | int | signal.Handlers | None


@contextmanager
def answered(answer: Callable[[int], Answer], *numbers: int) -> Iterator[None]:
    """Answer these signals as ``answer`` says of each, and after this block as before, whoever changed that."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, answer(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
