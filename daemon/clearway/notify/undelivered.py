"""Why a notice was not said."""

from clearway.model.errors import ClearwayError


class UndeliveredError(ClearwayError):
    """Not now; another try may succeed."""


class NotYetError(UndeliveredError):
    """The moment is wrong, and may be right in a second."""


class BusyError(UndeliveredError):
    """Not this one now; the receiver takes others."""


class UndeliverableError(ClearwayError):
    """No other try will succeed."""


class UnwantedError(UndeliverableError):
    """The owner wants none."""
