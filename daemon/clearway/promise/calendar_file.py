"""The file of ``promises.calendar``: taken where nobody else can have written it, and given to a reader."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from clearway.config.configuration import PromisesConfig
from clearway.config.plugins import how_to_install
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents
from clearway.promise.calendar_reader import WAITS_S, CalendarReader, ReadsInProcess

_LARGEST = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFile:
    contents: CalendarContents
    modified: datetime  # when the file was last written; a time to come counts as now
    digest: str  # SHA-256 of its text
    until: datetime  # up to when its events were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a reader was given, and at which time: its answer holds for no other text, and for no other time."""

    file: Path
    seen: tuple[int, ...]  # its stamp, from before it was taken
    digest: str
    now: datetime
    until: datetime

    def outdated(self, now: datetime, most: timedelta) -> bool:
        """Whether an answer must not be taken: it would be older than ``most``, or the file has another text now.

        Raises ``ConfigError`` where the file cannot be taken any more.
        """
        if not self.now <= now <= self.now + most:
            return True
        return stamp(self.file) != self.seen and _digest(_text(self.file)) != self.digest

    def answer(self, reader: CalendarReader) -> CalendarFile | None:
        """None: there is none yet. Raises ``ConfigError``, one line that names the file, where it cannot be used."""
        try:
            contents = reader.answer()
        except ConfigError as error:
            raise ConfigError(f"{self.file}: {error}") from None
        if contents is None:
            return None
        written = datetime.fromtimestamp(self.seen[0] / 1e9, UTC) if self.seen else self.now
        return CalendarFile(contents=contents, modified=min(written, self.now), digest=self.digest, until=self.until)


def begin(file: Path, config: PromisesConfig, now: datetime, reader: CalendarReader) -> Look:
    """Raises ``ConfigError``, one line that names the file, where it cannot be taken."""
    seen = stamp(file)  # before it is read: a file that is replaced meanwhile counts as older than it is, for one look
    text = _text(file)
    if find_spec("icalendar") is None:
        raise ConfigError(f"{file}: promises.calendar needs icalendar: {how_to_install('calendar')}")
    try:
        reader.begin(text, now, config.calendar_ahead)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    until = now + timedelta(seconds=config.calendar_ahead)
    return Look(file=file, seen=seen, digest=_digest(text), now=now, until=until)


def read_file(file: Path, config: PromisesConfig, now: datetime) -> CalendarFile:
    """For those who wait, some seconds at most. Raises ``ConfigError``, one line that names the file."""
    reader = ReadsInProcess(WAITS_S)
    try:
        found = begin(file, config, now, reader).answer(reader)
    finally:
        reader.close()
    if found is None:
        raise ConfigError(f"{file}: there is no answer from its reader")
    return found


def stamp(file: Path) -> tuple[int, ...]:
    """What is another one where the file is: empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _text(file: Path) -> str:
    """Without the mark of its encoding that some programs begin it with."""
    text = read_trusted(file, "the calendar", secret=False, folders=True, largest=_LARGEST, encoding="utf-8")
    return text.removeprefix("\ufeff")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
