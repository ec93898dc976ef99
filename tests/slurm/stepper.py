"""A program that saves itself: it works for so many seconds, counted over all its runs, and exits with a status.

    stepper.py FILE WORK_S CHECKPOINT_S RESTART_S [STATUS]

It works no longer than until FILE.enough is there. On SIGUSR1 it writes how far it is to FILE, which takes
CHECKPOINT_S. When FILE is there it goes on from it, after RESTART_S. What it does, and when, is a line each in
FILE.log. It runs under any Python 3.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    file, work_s, checkpoint_s, restart_s = Path(sys.argv[1]), *map(float, sys.argv[2:5])
    enough, done_s = Path(f"{file}.enough"), 0.0
    if file.exists():
        done_s = float(file.read_text())
        time.sleep(restart_s)
    began = time.monotonic()
    log(file, f"from {done_s:.2f}")
    while (left_s := work_s - done_s - (time.monotonic() - began)) > 0 and not enough.exists():
        if signal.sigtimedwait({signal.SIGUSR1}, min(left_s, 0.1)) is None:
            continue
        done_s += time.monotonic() - began
        time.sleep(checkpoint_s)
        new = file.with_suffix(".new")
        new.write_text(f"{done_s:.2f}")
        new.replace(file)
        log(file, f"saved {done_s:.2f}")
        began = time.monotonic()
    log(file, "done")
    return int(sys.argv[5]) if len(sys.argv) > 5 else 0


def log(file: Path, text: str) -> None:
    descriptor = os.open(f"{file}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, f"{text} @{time.time():.2f}\n".encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
