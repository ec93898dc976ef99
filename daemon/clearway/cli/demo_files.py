"""What a second terminal needs to talk to the demo: a configuration, a token, and a file that exports both."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clearway.api.tokens import new_token
from clearway.cli.options import actor
from clearway.config.configuration import Mode
from clearway.eligibility.authorization import user_of
from clearway.model.requests import Role
from clearway.simulation import theta


class DemoFiles:
    """Files in a folder that is this user's alone, and goes when the demo ends."""

    def __init__(self, folder: Path, port: int, mode: Mode) -> None:
        self._folder = folder
        user = user_of(actor())
        self._token, entry = new_token(user, Role.ADMIN, None)
        self.tokens = folder / "tokens"
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(entry.line + "\n")
        self.config = theta.demo_config(folder, user, port, mode)

    def write(self, address: str) -> Path:
        """The file to source, for the daemon that listens at this address."""
        config = self._folder / "clearway.toml"
        document = self.config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        document["api"]["port"] = urlsplit(address).port  # 0 took any free one
        config.write_text(toml(document))
        # Over REST the daemon's own clock counts: it stands still while a plan waits for approval.
        exports = {
            "CLEARWAY_CONFIG": str(config),
            "CLEARWAY_URL": address,
            "CLEARWAY_TOKEN": self._token,
            "API": f"{address}/api/v1",
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        programs = Path(sys.executable).parent
        if (programs / "clearway").exists():  # this one, wherever another is installed
            lines.append(f"export PATH={shlex.quote(str(programs))}:$PATH")
        found = self._folder / "env"
        found.touch(mode=0o600)
        found.write_text("\n".join(lines) + "\n")
        return found


def toml(document: Mapping[str, Any]) -> str:
    """Tables of plain values, and lists of such tables. What JSON writes of them, TOML reads."""
    lines = []
    for name, content in document.items():
        tables, head = (content, f"[[{name}]]") if isinstance(content, list) else ([content], f"[{name}]")
        for table in tables:
            lines += [head, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
