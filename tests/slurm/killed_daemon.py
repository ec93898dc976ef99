"""``clearway serve``, or the same daemon that kills or stops itself at one of its calls to Slurm.

CONFIG [before|after|during|stop[@N]:CALL]: it ends before or after its N-th such call (the first), or stops before it,
and goes on with it when it is woken. "stop:change" stops it before each call that changes something in Slurm. "during":
it ends while the command of a whole list is under way, which goes on without it.

The real loop, store and backend; only the moment of death is added, and time for the solver on a busy machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearway import bootstrap
from clearway.api.logins import Tokens
from clearway.config.configuration import load_config
from clearway.model.clock import SystemClock
from clearway.model.cluster import Job
from clearway.model.errors import SlurmError
from clearway.service import server
from clearway.slurm.base import Failures, JobChange
from clearway.telemetry.log import configure_logging

CHANGES = frozenset({
    "create_reservation", "update_reservation", "delete_reservation", "attach", "detach", "signal", "requeue",
    "start_now",
})  # fmt: skip


class Doomed:
    def __init__(self, backend: Any, kill_at: str) -> None:
        self._backend = backend
        self._when, _, self._call = kill_at.partition(":")
        self._when, _, number = self._when.partition("@")
        self._left = int(number or 1)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._backend, name)
        if name == "change_jobs":
            return self._change_jobs
        return self._doomed(name, attribute)

    def _change_jobs(self, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        """One job after another, so that it also ends in the middle of a batch."""
        name, failures = change.value.partition("_batch")[0].partition("_steps")[0], dict[str, SlurmError]()
        if self._when == "during":
            return self._doomed(name, self._backend.change_jobs)(change, jobs, signal)
        for job in jobs:
            failures |= self._doomed(name, self._backend.change_jobs)(change, (job,), signal)
        return failures

    def _doomed(self, name: str, attribute: Any) -> Any:
        if self._call == "change" and name in CHANGES:

            def stopped(*args: Any, **kwargs: Any) -> Any:
                _stop()
                return attribute(*args, **kwargs)

            return stopped
        if name != self._call:
            return attribute

        def doomed(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._when == "during" and self._left == 0:
                subprocess.Popen = _LastCommand  # type: ignore[misc]
                self._left -= 1
            if self._left != 0 or self._when == "after":
                result = attribute(*args, **kwargs)
            if self._left == 0:
                _stop() if self._when == "stop" else os.kill(os.getpid(), signal.SIGKILL)
                result = attribute(*args, **kwargs)
            return result

        return doomed


def _stop() -> None:
    """This very thread gets the signal: sent to the process it could go on for as long as another one takes to."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class _LastCommand(subprocess.Popen[bytes]):
    """SIGKILL to this process once a requeue has begun, which goes on in a session of its own."""

    def __init__(self, argv: Sequence[str], **settings: Any) -> None:
        super().__init__(argv, **settings)
        if "requeue" in argv:
            os.kill(os.getpid(), signal.SIGKILL)


def main(path: Path, kill_at: str) -> int:
    config = load_config(path)
    config = config.model_copy(update={"planning": config.planning.model_copy(update={"time_per_cycle": 20.0})})
    configure_logging(config.daemon.log_format)
    clock = SystemClock()
    backend: Any = bootstrap.open_backend(config, clock)
    if kill_at:
        backend = Doomed(backend, kill_at)
    daemon = bootstrap.build(config, origin=str(path), backend=backend, clock=clock)
    tokens = Tokens(config.api.token_file)
    slurm = bootstrap.open_identity(config, clock)
    return server.Service(
        daemon.loop,
        daemon.metrics,
        tokens,
        slurm=slurm,
        read_config=lambda: load_config(path),
        dispatcher=daemon.dispatcher,
        notifier=server.Notifier(),
    ).run_until_signal()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
