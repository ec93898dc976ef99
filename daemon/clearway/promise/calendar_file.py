"""The file of ``promises.calendar``: read where nobody else can have written it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from clearway.config.configuration import PromisesConfig
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents, read_calendar

_LARGEST = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFile:
    contents: CalendarContents
    modified: datetime  # when the file was last written; a time to come counts as now
    digest: str  # SHA-256 of its text


def read_file(file: Path, config: PromisesConfig, now: datetime) -> CalendarFile:
    """Raises ``ConfigError``, one line that names the file, where the whole cannot be used."""
    seen = stamp(file)  # before it is read: a file that is replaced meanwhile counts as older than it is, for one look
    text = read_trusted(file, "the calendar", secret=False, folders=True, largest=_LARGEST, encoding="utf-8")
    try:
        contents = read_calendar(text, now, config.calendar_ahead)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    written = datetime.fromtimestamp(seen[0] / 1e9, UTC) if seen else now
    return CalendarFile(contents=contents, modified=min(written, now), digest=sha256(text.encode()).hexdigest())


def stamp(file: Path) -> tuple[int, ...]:
    """What is another one where the file is: empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
