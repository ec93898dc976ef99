"""This user's jobs of one name: how many there are, and the end of them all. For jobs under a name of their own."""

import getpass
import time
from dataclasses import dataclass, field

from clearway.model.errors import SlurmError
from clearway.slurm.process import Commands, checked

_ALIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
_LEFT = _ALIVE + ",COMPLETING"  # their processes may still write
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class NamedJobs:
    """Those that Slurm still knows of. Every method but ``cancel`` raises a SlurmError when Slurm does not answer."""

    name: str
    commands: Commands = field(default_factory=lambda: Commands(timeout_s=60.0))

    def alive(self) -> int:
        """How many wait, run or are suspended."""
        return self._count(_ALIVE)

    def cancel(self, within_s: float) -> str:
        """By name, and again until none is left: a submission may have been under way.

        Returns:
            Why jobs may be left; empty when none is.
        """
        deadline = time.monotonic() + within_s
        try:
            while self._count(_LEFT) and time.monotonic() < deadline:
                self.commands.run(("scancel", "--quiet", *self._which()))
                time.sleep(_PAUSE_S)
            left = self.alive()
        except SlurmError as error:
            return str(error)
        return f"{left} after {within_s:g} s" if left else ""

    def _which(self) -> tuple[str, str]:
        return f"--name={checked(self.name)}", f"--user={getpass.getuser()}"

    def _count(self, states: str) -> int:
        """One line of squeue for each job; of an array, for all of its tasks that wait."""
        answer = self.commands.run(("squeue", "--noheader", *self._which(), f"--states={states}", "--format=%A"))
        return len(answer.split())
