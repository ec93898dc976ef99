"""What cannot be studied; each message is one line for the user."""

from clearway.model.errors import ClearwayError


class TraceError(ClearwayError):
    """A recorded workload that cannot be used; the message names the file and, where there is one, the line."""


class SimulationError(ClearwayError):
    """A simulation that cannot be run as asked, or that broke its own rules; the message says which."""
