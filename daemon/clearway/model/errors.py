"""Typed errors. Each says whether trying the same thing again can help; only ``loop.run`` catches them all."""


class ClearwayError(Exception):
    """Base of everything Clearway raises on purpose; its text is one line for an administrator."""

    retryable = False


class ConfigError(ClearwayError):
    """A configuration file that cannot be used; the message names the file and the key. ``faults`` are all that was
    found, a line each; the message is the first one, with how many more there are.
    """

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults or (message,)


class ProblemFileError(ClearwayError):
    """A problem file that cannot be used; the message names the file and the field."""


class StoreError(ClearwayError):
    """The database cannot be reached or holds something impossible."""

    retryable = True


class UnstorableError(StoreError):
    """The database works, but cannot hold this value: another try would not help, and others are not concerned."""

    retryable = False


class SchemaError(StoreError):
    """The database was made by another Clearway, from whose schema this one cannot migrate."""

    retryable = False

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what, self.remedy = what, remedy


class UnknownEvictionError(ClearwayError):
    """No eviction has this id."""


class TransitionError(ClearwayError):
    """A state was to be entered that cannot follow the present one; nothing was done. A bug of Clearway's."""


class ClusterError(ClearwayError):
    """The database belongs to another cluster than the one that Slurm's commands reach; nothing was done."""


class DrainError(ClearwayError):
    """Nodes that cannot be drained or brought back as asked; the message says which and why."""


class RequestError(ClearwayError):
    """An operator's request that is refused; the message says why."""


class TooManyRequestsError(ClearwayError):
    """An actor has asked for as much as one may ask for; nothing was stored."""

    retryable = True


class SlurmError(ClearwayError):
    """Base of what goes wrong between Clearway and Slurm."""


class SlurmUnavailableError(SlurmError):
    """Slurm did not answer, or the backend itself is broken; the next cycle may succeed."""

    retryable = True


class SlurmTimeoutError(SlurmUnavailableError):
    """A call took longer than its time limit and was ended; whether Slurm acted on it is unknown."""


class NotAskedError(SlurmUnavailableError):
    """Slurm did not answer just before, so it was not given the command at all: nothing was done."""


class SlurmRefusedError(SlurmError):
    """Slurm answered and said no (permissions, a state that does not allow it, an unknown object)."""


class HaltedError(SlurmError):
    """The stop switch was thrown after the intent was stored: Slurm was not given the command."""

    retryable = True


class OvertakenError(SlurmError):
    """A look at the jobs just before shows that what was decided on has changed: nothing was done."""

    retryable = True


class JobNotRunningError(SlurmRefusedError):
    """The job is not in the run that a decision was made for; acting on it would hurt other work."""


class AlreadyGoneError(JobNotRunningError):
    """The job leaves its nodes, or waits again: this call did not make it do so."""


class WalltimeError(ClearwayError):
    """A distribution, samples or costs for which no walltime requests can be planned; the message says which."""


class CycleEndedError(BaseException):
    """Ends a cycle at once, without any further effect; only ``service`` catches it. Not an ``Exception``: what handles
    jobs or requests one by one, and puts aside the one that fails, must let it pass.
    """


class LeaseLostError(CycleEndedError):
    """This daemon may not act (any more): another one has taken over, or its lease could not be renewed in time."""


class SnapshotTooOldError(CycleEndedError):
    """What was seen of the cluster is too old to go by; the next cycle looks again."""
