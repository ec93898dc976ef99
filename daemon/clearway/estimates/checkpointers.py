"""What a checkpointer is: a way to save a running program, to check what was saved, and to bring it back.

A checkpointer has two halves. On the compute node, where there is nothing but a POSIX shell, its driver
(``NAME.sh`` beside the Python file) does the work for the launcher ``clearway-run``. In the daemon its Python class
says what the planner must know (which action it is, how long and how large a checkpoint will be), and runs the same
driver for callers that save a program from Python. A new checkpointer is one Python file with its driver, and
one entry point in the group ``clearway.checkpointers``.

A driver is run as ``sh NAME.sh VERB ...`` with a time limit on each call. It answers in lines ``key=value`` on its
standard output; without ``ok=yes`` it has failed, whatever its exit status says (real checkpointers' exit statuses
cannot be trusted). ``reason`` is one line for people.

=============================================  ==============================================================
verb                                           what it does
=============================================  ==============================================================
``probe [-- PROGRAM ...]``                     can this be done here, for this program: ok, reason, version; perhaps
                                               a warning, which the launcher shows to the job's user. What the program
                                               is seen to run lies in CLEARWAY_STATE (``clearway-commands``)
``start -- PROGRAM ...``                       becomes the program (exec); its exit status is the program's
``checkpoint GENERATION PID``                  saves into this empty folder: ok, reason, size_mib. PID leads the
                                               process group that ``start`` or ``restart`` became. When it failed
                                               the program goes on; when it is done the program may stand
                                               still until SIGCONT
``deaf PID``                                   is there nothing in the program that would hear a request to save itself
                                               now: ok, reason. ``ok=yes`` only with evidence. May be left out
``verify GENERATION``                          is what lies there complete and loadable: ok, reason
``restart GENERATION -- PROGRAM ...``          becomes the restored program; its exit status is the program's. Writes
                                               ``ok=yes`` into ``$CLEARWAY_STATE/restarted`` when the program computes
                                               again, or ``ok=no`` and ``reason=`` when it never will: the launcher
                                               falls back to an older generation only on this word
``broken STATUS``                              was it the checkpointer that ended the program with this exit status,
                                               not the program itself: ok, reason. ``ok=yes`` only with evidence: the
                                               launcher then goes on from the newest generation. Writes ``restarted``
                                               where the program ended before it was seen to run. May be left out
``forget GENERATION``                          removes what ``checkpoint`` keeps elsewhere than in this folder. May be
                                               left out
``end``                                        removes what ``start``, ``restart`` left on the node
=============================================  ==============================================================

``CLEARWAY_STATE`` names a private folder on the node that lives as long as the run; ``CLEARWAY_DIR`` the folder of
generations on the shared file system, where a driver's own files are called ``NAME`` or ``NAME.*``; a checkpointer's
own settings are ``CLEARWAY_<NAME>_*``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clearway.config.configuration import CostsConfig
from clearway.model.problem import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a checkpointer can be used on this node, and for this program."""

    ok: bool
    reason: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What is known of a job before it was ever saved. ``memory_mib`` is for one node."""

    nodes: int
    memory_mib: int
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a checkpoint will take by the checkpointer's model: MiB on disk in all, seconds to save and to restart."""

    size_mib: float
    checkpoint_s: float
    restart_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What came of a checkpoint. ``ok`` means complete on disk; anything else must be treated as no checkpoint."""

    ok: bool
    reason: str = ""
    size_mib: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whether a generation can be restarted from."""

    ok: bool
    reason: str = ""


class Checkpointer(Protocol):
    """One way to save a program. No call raises for what a checkpointer does: the result says ``ok`` or why not."""

    name: str
    action: Action  # APP_CHECKPOINT, SYS_CHECKPOINT or SUSPEND: what planning calls it
    limits: tuple[str, ...]  # what it cannot do, one sentence each, for the documentation

    def probe(self, program: Sequence[str] = ()) -> Probe: ...

    def wrap(self, program: Sequence[str]) -> tuple[str, ...]:
        """The command that starts ``program`` so that it can be saved later."""

    def estimate(self, footprint: Footprint, costs: CostsConfig) -> Estimate:
        """Pure: from the model alone; what history taught is in ``clearway.estimates.learning``."""

    def checkpoint(self, generation: Path, pid: int) -> Saved: ...

    def verify(self, generation: Path) -> Verified: ...

    def restart(self, generation: Path, program: Sequence[str]) -> tuple[str, ...]:
        """The command that goes on with what was saved."""
