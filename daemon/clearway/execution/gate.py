"""The stop switch: whether commands may be given to Slurm at this very moment. Asked before each of them.

A cycle can take seconds and give hundreds of commands, so what was true at its beginning is not enough. Three ways
lead to the switch, so that one of them works when the others do not: a request in the database (command line and REST;
it counts from when it is stored, not from when the loop reads it), and a file, which needs neither the database nor the
daemon's API. When in doubt, the switch is thrown: a file that cannot be looked at counts as there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clearway.store.repository import Store

_ABSENT = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Gate:
    """``file`` halts the daemon while it exists; ``others`` say why nothing may be done for other reasons."""

    store: Store
    file: Path | None = None
    others: tuple[Callable[[], str], ...] = ()

    def closed(self) -> str:
        """Why no command may be given now, half a sentence; empty where one may.

        Raises ``StoreError`` when the database does not answer, so that nothing may be done either.
        """
        return self.closed_here() or told(self.store.halted_by())

    def closed_here(self) -> str:
        """As far as that can be known without the database."""
        return next((why for other in self.others if (why := other())), "") or halted_by_file(self.file)


def halted_by_file(file: Path | None) -> str:
    """Half a sentence where the file is there, or where that cannot be known; empty otherwise."""
    if file is None:
        return ""
    try:
        file.lstat()
    except _ABSENT:
        return ""
    except OSError as error:
        return f"halted: {file} cannot be looked at ({error.strerror})"
    return f"halted by the file {file}"


def told(actor: object) -> str:
    """The sentence for a halt that was asked for; ``actor`` is empty where there is none."""
    return f"halted by {actor} (clearway unhalt)" if actor else ""
