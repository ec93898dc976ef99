"""Checkpointer "application": the program saves itself, on a signal or by a command of its own.

To restart is to start: the program reads its own file.
"""

from clearway.model.problem import Action
from clearway_checkpoint.driver import Driver


class Application(Driver):
    """Settings: CLEARWAY_APPLICATION_FILE, CLEARWAY_APPLICATION_COMMAND, CLEARWAY_APPLICATION_SIGNAL."""

    name = "application"
    action = Action.APP_CHECKPOINT
    limits = (
        "The program must save itself when it is asked to, and go on from there when it is started again.",
        "Only that the file is new and complete is checked, not that its contents are right.",
        "Tasks that srun has started are not held: what they compute between checkpoint and requeue is repeated.",
    )
