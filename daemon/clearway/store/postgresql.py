"""A connection to PostgreSQL on which every wait has an end that the client keeps.

The server's ``statement_timeout`` needs a server that can still say so, and TCP's timeouts pass over a peer, or a proxy
before it, that acknowledges every packet and answers none.
"""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

R = TypeVar("R")
Waiting = Generator[Any, Any, R]


class PatientConnection(psycopg.Connection[Any]):
    patience_s = 30.0

    def wait(self, gen: Waiting[R], *args: Any, **kwargs: Any) -> R:
        return super().wait(self._ending(gen), *args, **kwargs)

    def _ending(self, gen: Waiting[R]) -> Waiting[R]:
        """As ``gen``, which is told of each moment in which nothing came. Out of time, the connection is closed: what
        the server makes of the query is not known, and a rollback would wait as long again.
        """
        ends = time.monotonic() + self.patience_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if time.monotonic() > ends:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.patience_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: R = end.value
            return found
