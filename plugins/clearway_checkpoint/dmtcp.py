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
        "Timers, memory and files without a name (timerfd, memfd, O_TMPFILE), inotify and io_uring cannot be saved.",
        "Programs with LD_PRELOAD or an empty environment, and programs that start ten others a second, are refused.",
        "A node needs a C compiler and DMTCP's header, or a dmtcp_hold.so that the site has built.",
        "After a node failure what a program printed since its newest image is printed again.",
        "After a restart the program's environment, SLURM_* included, is that of its first start.",
        "DMTCP's coordinator has no authentication: every process that reaches its port can save or end the program.",
    )
