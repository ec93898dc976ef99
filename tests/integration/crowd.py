"""A crowd in a process of its own: ``python -m tests.integration.crowd ADDRESS SECONDS CONNECTIONS [TOKEN]``.

Each line of its standard input is a request: method, path and body. They are asked by so many connections at once, one
after another and over again, until the time is over. Whoever is refused connects anew, and waits for nothing. It prints
how many answers there were of each status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from itertools import cycle
from urllib.parse import urlsplit


class Crowd:
    def __init__(self, address: str, token: str, requests: list[bytes]) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._token = token
        self._requests = cycle(requests)
        self.answers: Counter[str] = Counter()

    async def visit(self) -> None:
        """One connection, until it is refused or closed."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            while True:
                writer.write(next(self._requests))
                status = (await reader.readline()).split()[1].decode()
                length = 0
                while (line := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                self.answers[status] += 1
                if length == 0 or status == "429":  # a stream is not read to its end
                    return
                await reader.readexactly(length)
        finally:
            writer.close()

    async def come_again(self) -> None:
        while True:
            with contextlib.suppress(OSError, IndexError, asyncio.IncompleteReadError):
                await self.visit()
            await asyncio.sleep(0.01)


def request(line: str, token: str) -> bytes:
    method, path, *body = line.split(maxsplit=2)
    text = body[0].encode() if body else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n"
    head += "Content-Type: application/json\r\n"
    return (head + f"Authorization: Bearer {token}\r\n" * bool(token) + "\r\n").encode() + text


async def main(address: str, seconds: str, connections: str, token: str = "") -> None:
    crowd = Crowd(address, token, [request(line, token) for line in sys.stdin if line.strip()])
    tasks = [asyncio.create_task(crowd.come_again()) for _ in range(int(connections))]
    await asyncio.sleep(float(seconds))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(crowd.answers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
