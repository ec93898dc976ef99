"""What is asked once in an examination: an answer, or the error that came in its place."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from clearway.model.errors import ClearwayError

T = TypeVar("T")


class Once(Generic[T]):
    """A property that is read at its first use. Where that failed, each use raises the same error and waits no more."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._key = f"_once_{read.__name__}"

    def __get__(self, case: object, _: object = None) -> T:
        kept = vars(case)
        if self._key not in kept:
            try:
                kept[self._key] = (self._read(case), None)
            except ClearwayError as error:
                kept[self._key] = (None, error)
        answer, failed = kept[self._key]
        if failed is not None:
            raise failed
        found: T = answer
        return found
