"""DMTCP: saves ordinary programs, of one node or started by srun on several, without privilege or kernel support.

The work is done by ``dmtcp.sh``. Images are written without compression, which on one core would be slower than any
file system.
"""

from clearway.model.problem import Action
from clearway_checkpoint.driver import Driver


class Dmtcp(Driver):
    """The checkpointer ``dmtcp``; its driver's settings are listed at the top of ``dmtcp.sh``."""

    name = "dmtcp"
    action = Action.SYS_CHECKPOINT
    limits = (
        "Containers, statically linked, setuid and 32 bit programs cannot be saved.",
        "With glibc 2.42 and Linux 6.13 or newer DMTCP 4.2.0 and 5.0 end a program at its first checkpoint.",
        "MPI programs are refused: they compute on after a restart, but do not end; independent tasks of srun work.",
        "GPU memory is not saved.",
        "With threads of OpenBLAS (numpy) a program hangs when it starts another; OPENBLAS_NUM_THREADS=1 avoids it.",
        "srun inside the program, and TCP connections to outside of it, cannot be saved.",
        "srun must be written with a double dash: srun [options] -- PROGRAM.",
        "A full disk ends the program with exit status 99; free space is checked before, quotas are not seen.",
        "What a program printed between its checkpoint and its end is printed again after a restart.",
        "After a restart the program's environment, SLURM_* included, is that of its first start.",
        "DMTCP's coordinator has no authentication: every process that reaches its port can save or end the program.",
    )
