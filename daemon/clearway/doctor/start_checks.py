"""What `clearway serve` would refuse and files alone tell: nothing is created, and neither Slurm nor a server is asked.

Each check raises ``ConfigError`` with a line that begins with the key.
"""

import os
import socket
from pathlib import Path

from sqlalchemy import make_url

from clearway.api.logins import Tokens, verifier
from clearway.config import plugins
from clearway.config.configuration import Config
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ClearwayError, ConfigError
from clearway.notify.sending import open_senders
from clearway.service.listening import check_certificate
from clearway.store.database import open_database


def planner(config: Config) -> None:
    _loaded("planning.planner", plugins.PLANNERS, config.planning.planner)


def backend(config: Config) -> None:
    if config.slurm.backend != "auto":
        _loaded("slurm.backend", plugins.BACKENDS, config.slurm.backend)


def slurm_token(config: Config) -> None:
    if config.slurm.rest_token_file is not None:
        try:
            read_trusted(config.slurm.rest_token_file, "Slurm's token", secret=True)
        except ConfigError as error:
            raise ConfigError(f"slurm.rest_token_file: {error}") from None


def _loaded(key: str, group: str, name: str) -> None:
    try:
        plugins.load(group, name)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def slurm_conf(config: Config) -> None:
    if config.slurm.conf is not None:
        _readable("slurm.conf", config.slurm.conf)


def tokens(config: Config) -> None:
    try:
        Tokens(config.api.token_file)
    except ConfigError as error:
        raise ConfigError(f"api.token_file: {error}") from None


def keys(config: Config) -> None:
    try:
        verifier(config.access)
    except ConfigError as error:
        raise ConfigError(f"access.jwks_file: {str(error).removeprefix('access.jwks_file ')}") from None


def store(config: Config) -> None:
    """A SQLite file must be there, or its folder must let it be made: but not by a check."""
    url = config.store.url
    file = make_url(url).database if url.startswith("sqlite") else None
    if file is None or file == ":memory:":
        try:
            open_database(url).engine.dispose()
        except ClearwayError as error:
            raise ConfigError(f"store.url: {error}") from None
        return
    path = Path(file)
    folder = path.parent
    try:
        if path.exists():
            allowed = os.access(path, os.R_OK | os.W_OK) and os.access(folder, os.W_OK | os.X_OK)
        else:
            folder.stat()
            allowed = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"store.url: {path}: {error.strerror or error}") from None
    if not allowed:
        raise ConfigError(f"store.url: {path}: this user may not read and write it and its folder")


def listening(config: Config) -> None:
    api = config.api
    if api.socket is not None:
        if not api.socket.parent.is_dir():
            raise ConfigError(f"api.socket: {api.socket.parent} is not a folder")
        return
    check_certificate(api)
    try:
        socket.getaddrinfo(api.host, api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"api.host: {api.host}: {error.strerror or error}") from None


def notify(config: Config) -> None:
    try:
        open_senders(config.notify, None)
    except ConfigError as error:
        raise ConfigError(f"notify: {error}") from None


def _readable(key: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror or error}") from None
