"""The section ``[client]``: where the command line finds the daemon."""

from pathlib import Path

from clearway.config.fields import Section, key


class ClientConfig(Section):
    """For machines that reach the daemon's REST API and not its database."""

    url: str | None = key(
        None,
        "address of the daemon's REST API: https://HOST:PORT, http://HOST:PORT or unix:PATH. None: the commands read "
        "the database",
    )
    token_file: Path | None = key(
        None, "file with the token that the commands show the daemon, alone on its line. None: no such file"
    )
    authority: Path | None = key(
        None,
        "file with the certificate of whoever has signed the daemon's (PEM), beside those that the system believes. "
        "None: no such file",
    )
