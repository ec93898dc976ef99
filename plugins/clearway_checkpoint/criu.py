"""CRIU: the kernel's own view of a process tree, written to disk and made again, for programs that take no part in it.

It needs root on the node, which the root helper ``clearway-criu`` has through sudo; the driver ``criu.sh`` says how.
"""

from clearway.model.problem import Action
from clearway_checkpoint.driver import Driver


class Criu(Driver):
    name = "criu"
    action = Action.SYS_CHECKPOINT
    limits = (
        "Needs CRIU 4.2 or newer, sudo and the helper clearway-criu on every node, and a shared folder for root.",
        "One node only: no MPI, no steps started by srun.",
        "Programs run under no_new_privs: setuid programs (ping, sudo, newgrp) get no rights in them.",
        "Files must be at the same path on the other node; one that was removed meanwhile makes a restart fail.",
        "No containers, no namespaces of their own, no connections to processes outside the job's program.",
        "What stays on its node is refused: System V objects, POSIX shared memory, daemons, terminals of its own.",
        "A program that is saved ends; if the eviction is called off, it is restarted from its image.",
        "The other node needs the same libraries and no older processor.",
        "GPUs only through cuda-checkpoint, which is experimental: tried by hand, on one GPU.",
    )
