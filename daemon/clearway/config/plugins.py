"""Plugins, which are found through entry points (a new planner or backend is one file and one entry), and optional
packages.
"""

import sys
from importlib.metadata import PackageNotFoundError, entry_points, requires
from typing import Any

from clearway.model.errors import ConfigError

PLANNERS = "clearway.planners"
BACKENDS = "clearway.backends"
CHECKPOINTERS = "clearway.checkpointers"
COMMANDS = "clearway.commands"


def names(group: str) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in entry_points(group=group)))


def load(group: str, name: str) -> Any:
    """The class that is registered under this name. Raises ``ConfigError``: none is, or it cannot be imported."""
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except ImportError as error:
            raise ConfigError(f"{name} ({group}) cannot be loaded: {error}") from error
    raise ConfigError(f"unknown {group.removeprefix('clearway.')[:-1]} {name!r}; known are {', '.join(names(group))}")


def how_to_install(extra: str) -> str:
    """The packages of an extra (pyproject.toml) and where they belong: Clearway itself may come from no index."""
    try:
        listed = requires("clearway") or []
    except PackageNotFoundError:  # a source tree that was never installed
        listed = []
    wanted = [each.partition(";")[0].strip() for each in listed if f'extra == "{extra}"' in each.replace("'", '"')]
    packages = " ".join(f"'{each}'" for each in wanted) or f"the packages of the extra {extra!r}"
    return f"install {packages} into Clearway's environment {sys.prefix} (pip install 'clearway[{extra}]')"
