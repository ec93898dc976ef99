"""Tells listeners that what is shown has changed, and nothing else: what it is, they read by the ordinary routes, which
know what each of them may see.

A listener costs an event that it waits for. Whether anything has changed is found out once a cycle, and only while
somebody listens.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ALIVE_EVERY_S = 15.0  # a sign of life: proxies cut connections on which nothing comes
LONGEST_S = 300.0  # then the listener asks again, and its token is looked at again


@dataclass(frozen=True, eq=False, slots=True)
class _Listener:
    loop: asyncio.AbstractEventLoop
    called: asyncio.Event

    def call(self) -> None:
        self.loop.call_soon_threadsafe(self.called.set)


@dataclass(eq=False)
class Feed:
    """Any thread may call ``look`` and ``close``; ``events`` belongs to an event loop."""

    _listeners: set[_Listener] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: object = None
    _closed: bool = False

    def look(self, shown: Callable[[], object]) -> None:
        """Call the listeners if what is ``shown`` now differs from what was shown before."""
        with self._lock:
            if not self._listeners:
                self._shown = None
                return
        now = shown()
        with self._lock:
            changed, self._shown = now != self._shown, now
        if changed:
            self._call_all()

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._closed = True
        self._call_all()

    def _call_all(self) -> None:
        with self._lock:
            for each in self._listeners:
                each.call()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @contextmanager
    def _listening(self) -> Iterator[_Listener]:
        listener = _Listener(asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.discard(listener)

    async def events(self) -> AsyncIterator[bool]:
        """True: something has changed, as the first one always says; False: nothing has, for ``ALIVE_EVERY_S``."""
        with self._listening() as listener:
            end = listener.loop.time() + LONGEST_S
            yield True
            while not self._closed and listener.loop.time() < end:
                try:
                    await asyncio.wait_for(listener.called.wait(), ALIVE_EVERY_S)
                except TimeoutError:
                    yield False
                else:
                    listener.called.clear()
                    if not self._closed:
                        yield True
