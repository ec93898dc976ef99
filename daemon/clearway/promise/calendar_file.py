"""The file of ``promises.calendar``: read where nobody else can have written it."""

from datetime import datetime
from pathlib import Path

from clearway.config.configuration import PromisesConfig
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents, read_calendar

_LARGEST = 1024 * 1024  # bytes


def read_file(file: Path, config: PromisesConfig, now: datetime) -> CalendarContents:
    """Raises ``ConfigError``, one line that names the file, where the whole cannot be used."""
    text = read_trusted(file, "the calendar", secret=False, largest=_LARGEST, encoding="utf-8")
    try:
        return read_calendar(text, now, config.calendar_ahead)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def stamp(file: Path) -> tuple[int, ...]:
    """What is another one where the file is: empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
