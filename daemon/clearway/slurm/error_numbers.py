"""Slurm's own error numbers, which pyslurm and slurmrestd pass on: what each means for whoever asked.

1000-1999 is communication, 2000-4999 what slurmctld and slurmd refuse, 5000-5999 sockets, 6000-6999 authentication,
9000 and above slurmrestd. Below are errno's own (connection refused and the like, not permitted).
"""

import errno

from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError

AUTHENTICATION = 1007
INVALID_JOB_ID = 2017
ENDED = (2021, 2084, INVALID_JOB_ID)  # already completing or completed, finished, not known (any more)

_NOT_PERMITTED = frozenset({errno.EPERM, errno.EACCES})
_TIMEOUTS = frozenset({1021, 1022, 1023, 5004})
_STANDBY = frozenset({2027, 2131})


class RefusedError(SlurmRefusedError):
    """Slurm's no, with its number."""

    def __init__(self, message: str, errno: int) -> None:
        super().__init__(message)
        self.errno = errno


def error_for(number: int, text: str) -> SlurmError:
    """The typed error for what Slurm has answered."""
    if number in _TIMEOUTS:
        return SlurmTimeoutError(text)
    if number in _NOT_PERMITTED:
        return RefusedError(text, number)
    if 0 <= number < 2000 or 5000 <= number < 7000 or number in _STANDBY:
        return SlurmUnavailableError(text)
    return RefusedError(text, number)
