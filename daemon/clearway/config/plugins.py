"""Plugins are found through entry points: a new planner or backend is one file and one entry."""

from importlib.metadata import entry_points
from typing import Any

from clearway.model.errors import ConfigError

PLANNERS = "clearway.planners"
BACKENDS = "clearway.backends"
CHECKPOINTERS = "clearway.checkpointers"
COMMANDS = "clearway.commands"


def names(group: str) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in entry_points(group=group)))


def load(group: str, name: str) -> Any:
    """The class that is registered under this name.

    Raises:
        ConfigError: when there is none, or it cannot be imported.
    """
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except ImportError as error:
            raise ConfigError(f"{name} ({group}) cannot be loaded: {error}") from error
    raise ConfigError(f"unknown {group.removeprefix('clearway.')[:-1]} {name!r}; known are {', '.join(names(group))}")
