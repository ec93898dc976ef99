"""The file of ``promises.calendar``: taken where nobody else can have written it, and given to a reader."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from clearway.config.configuration import PromisesConfig
from clearway.config.plugins import how_to_install
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents, Version, uid_of
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


_NEVER = datetime.min.replace(tzinfo=UTC)
CALENDAR = "calendar"  # the name of the value in the store
_MOST_HOSTS = 8  # containers may have a new name each time


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarMemory:
    """What is remembered of the calendar, so that an older copy of it takes nothing back.

    Two hosts that take turns may have different files, and a file may be put back from a backup. So the database keeps
    when the newest file that was followed was written, the newest version of each event, and which host's file has had
    which events. Older files and older versions change nothing. What a file lacks withdraws a promise only on a host
    whose file has had it: then it was taken out.
    """

    modified: datetime = _NEVER  # of the newest file that was followed
    digest: str = ""
    host: str = ""  # that followed it
    versions: Mapping[str, Version] = field(default_factory=dict)  # the newest, by the key of the event
    had: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by host: UIDs that its file has had

    @classmethod
    def of(cls, stored: Any) -> Self:
        """``stored``: what the store has by the name of ``CALENDAR``, None included."""
        if stored is None:
            return cls()
        return cls(
            modified=datetime.fromisoformat(stored["modified"]),
            digest=stored["digest"],
            host=stored["host"],
            versions={key: (version[0], version[1]) for key, version in stored["versions"].items()},
            had={host: tuple(uids) for host, uids in stored["had"].items()},
        )

    def stored(self) -> dict[str, object]:
        return {
            "modified": self.modified.isoformat(),
            "digest": self.digest,
            "host": self.host,
            "versions": {key: list(version) for key, version in self.versions.items()},
            "had": {host: list(uids) for host, uids in self.had.items()},
        }

    def why_older(self, file: CalendarFile) -> str:
        """Half a sentence; empty where the file is the newest that is known."""
        if file.digest == self.digest or file.modified >= self.modified:
            return ""
        when = f"{_shown(file.modified)}, not {_shown(self.modified)}"
        return f"is older than the one that was followed on {self.host} ({when})"

    def outdated(self, file: CalendarFile) -> frozenset[str]:
        """UIDs of events of which the file has an older version than was followed before."""
        versions = file.contents.versions
        return frozenset(
            uid_of(key) for key, known in self.versions.items() if key in versions and _older(versions[key], known)
        )

    def taken_out(self, uid: str, host: str, file: CalendarFile) -> bool:
        """Whether the file of this host has had the event, and has it no more."""
        return uid not in file.contents.uids and uid in self.had.get(host, ())

    def after(self, file: CalendarFile, host: str, followed: Collection[str]) -> Self:
        """``followed``: UIDs of events that are promised or asked for; no others are remembered."""
        versions = {key: known for key, known in self.versions.items() if uid_of(key) in followed}
        for key, version in file.contents.versions.items():
            if uid_of(key) in followed and not (key in versions and _older(version, versions[key])):
                versions[key] = version
        own = tuple(sorted({*self.had.get(host, ()), *file.contents.uids} & set(followed)))
        others = [(name, uids) for name, uids in self.had.items() if name != host]
        return replace(
            self,
            modified=max(self.modified, file.modified),
            digest=file.digest,
            host=host,
            versions=versions,
            had=dict([*others[1 - _MOST_HOSTS :], (host, own)]),
        )


def _older(version: Version, known: Version) -> bool:
    """By its SEQUENCE, then by its LAST-MODIFIED where both have one."""
    if version[0] != known[0]:
        return version[0] < known[0]
    return bool(version[1] and known[1]) and version[1] < known[1]


def _shown(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
