"""Where ``--distribution`` gets run times from: its own words, a file, Slurm's accounting, the daemon's database."""

from contextlib import closing
from pathlib import Path

from clearway.config.configuration import load_config
from clearway.estimates.run_times import RunKey
from clearway.model.errors import WalltimeError
from clearway.slurm.parse import elapsed_times
from clearway.slurm.process import Commands
from clearway.walltime.distributions import Distribution, Floats, checked_samples, empirical, parse

_MOST_BYTES = 64 * 2**20
_SACCT_TIMEOUT_S = 120.0
_DAYS = 90


def read_distribution(specification: str, unit_s: float, config: Path) -> tuple[Floats | None, Distribution]:
    """What --distribution says, in seconds; and the samples if it is made of them.

    Raises:
        ClearwayError: nothing can be planned for it.
    """
    kind, _, rest = specification.partition(":")
    if kind == "samples":
        samples = read_samples(Path(rest)) * unit_s
    elif kind in {"sacct", "history"}:
        samples = _checked(kind, _from_sacct(rest) if kind == "sacct" else _from_history(rest, config))
    else:
        return None, parse(specification, unit_s)
    return samples, empirical(samples)


def read_samples(file: Path) -> Floats:
    """One time a line; empty lines and what follows ``#`` do not count.

    Raises:
        WalltimeError: the file cannot be read, or a line is no execution time.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise WalltimeError(f"{file} is larger than {_MOST_BYTES // 2**20} MiB")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise WalltimeError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WalltimeError(f"{file} is not a text file") from None
    values: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (entry := line.partition("#")[0].strip()):
            continue
        try:
            value = float(entry)
        except ValueError:
            raise WalltimeError(f"{file}, line {number}: {entry!r:.40} is not a number") from None
        if not 0 <= value < float("inf"):
            raise WalltimeError(f"{file}, line {number}: {entry:.40} is no execution time")
        values.append(value)
    return _checked(str(file), values)


def _checked(source: str, values: list[float]) -> Floats:
    try:
        return checked_samples(values)
    except WalltimeError as error:
        raise WalltimeError(f"{source}: {error}") from None


def _from_sacct(rest: str) -> list[float]:
    asked = _asked("sacct", rest, optional="days")
    days = asked.get("days", str(_DAYS))
    if not days.isdecimal():
        raise WalltimeError(f"sacct: days={days!r:.20} is not a number of days")
    command = elapsed_times.command(asked["user"], asked["name"], int(days))
    found = elapsed_times.read(Commands(timeout_s=_SACCT_TIMEOUT_S).run(command))
    if not found:
        asked_for = f"no job {asked['name']!r} of user {asked['user']!r}"
        raise WalltimeError(f"sacct: {asked_for} has completed in the last {days} days")
    return found


def _from_history(rest: str, config: Path) -> list[float]:
    from clearway.bootstrap import open_store  # noqa: PLC0415 - the other sources need no database

    asked = _asked("history", rest)
    with closing(open_store(load_config(config))) as store:
        records = store.runs_of(RunKey(asked["user"], asked["name"]))
    if not records:
        raise WalltimeError(f"history: no job {asked['name']!r} of user {asked['user']!r} has been seen to end")
    return [each.run_s for each in records]


def _asked(kind: str, rest: str, optional: str = "") -> dict[str, str]:
    """``user=U,name=N``, and the optional key."""
    pairs = [part.partition("=") for part in rest.split(",")]
    found = {key.strip(): value for key, _, value in pairs}
    wanted = {"user", "name"}
    complete = wanted <= set(found) <= wanted | {optional} and len(found) == len(pairs) and all(found.values())
    if not complete:
        more = f"[,{optional}=N]" if optional else ""
        raise WalltimeError(f"write {kind}:user=USER,name=NAME{more}, not {kind}:{rest:.80}")
    return found
