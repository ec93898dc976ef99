"""Commands that a package beside the daemon adds to ``clearway``: entry points of the group ``clearway.commands``.

An entry point names a Typer application. It is loaded when its command is called, or all commands are listed.
"""

from typing import Any

import typer.main

from clearway.cli.options import FAILED, STUDY, ByUse, complain
from clearway.config import plugins
from clearway.config.plugins import how_to_install
from clearway.model.errors import ConfigError

EXTRAS = ("lab",)  # commands that are known where they are not installed; each has an extra of its name


def below(command: Any) -> dict[str, Any]:
    """The commands of a group, joined ones as well, by name; none where it is no group."""
    if not isinstance(command, ByUse):
        return {}
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


class Joined(ByUse):
    """The daemon's own commands, and those that have joined."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins.names(plugins.COMMANDS) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (*EXTRAS, *plugins.names(plugins.COMMANDS)):
            return own
        return _joined(cmd_name)


def _joined(name: str) -> Any:
    try:
        app = plugins.load(plugins.COMMANDS, name)
    except ConfigError:
        app = _missing(name)
    made: Any = typer.main.get_command(app)
    made.name = name
    made.rich_help_panel = STUDY
    return made


def _missing(name: str) -> typer.Typer:
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    @made.command(context_settings=anything, help=f"Not installed: the extra {name}.")
    def missing() -> None:
        complain(f"{name} is not installed: {how_to_install(name)}")
        raise typer.Exit(FAILED)

    return made
