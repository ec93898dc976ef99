"""A file that slurmctld's job_submit.lua writes to when an urgent job is submitted, so that the daemon looks at once.

Without it such a job is seen when the pause between two cycles is over. To look at a file costs slurmctld nothing, as
more cycles would. Whoever can write to the file can make the daemon look sooner, and nothing else: what it says is not
read.
"""

from pathlib import Path

LOOKS_EVERY_S = 0.1


class WakeFile:
    """Tells of each change of the file since the last look; of none where there is no such file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._seen = self._stamp()

    def changed(self) -> bool:
        seen, self._seen = self._seen, self._stamp()
        return self._seen is not None and self._seen != seen

    def _stamp(self) -> tuple[int, int, int] | None:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
