"""``clearway files``: what an administrator installs beside the program, copied out of this installation."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import clearway
from clearway.model.errors import ConfigError

PACKAGE = Path(clearway.__file__).parent
# In a wheel all lies in one folder of the package; pyproject.toml fills it with the same.
_FROM_DEPLOY = ("clearway.toml", "examples", "grafana", "ondemand", "prometheus", "systemd")
_FROM_PLUGINS = ("slurm/job_submit.lua",)
_NOT_FOR_SITES = {".py", ".pyc"}  # what makes the dashboard, and the tests of the rules
_TESTS = "test.yml"


def sources(package: Path = PACKAGE) -> Iterator[tuple[Path, Path]]:
    """Each file with its place below the folder, from a wheel's ``clearway/deploy`` or a source tree.

    Raises:
        ConfigError: when this installation has neither.
    """
    shipped, tree = package / "deploy", package.parents[1]
    if shipped.is_dir():
        found = [(shipped, name) for name in sorted(path.name for path in shipped.iterdir())]
    elif (tree / "deploy").is_dir():
        found = [(tree / "deploy", name) for name in _FROM_DEPLOY]
        found += [(tree / "plugins", name) for name in _FROM_PLUGINS]
    else:
        raise ConfigError(f"this installation has no {shipped}")
    for above, name in found:
        path = above / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in _NOT_FOR_SITES and not file.name.endswith(_TESTS):
                yield file, file.relative_to(above)


def install(folder: Path, package: Path = PACKAGE) -> tuple[Path, ...]:
    """Copies them into this folder; returns what is there now.

    Raises:
        ConfigError: when this installation is not whole, or the folder cannot be written.
    """
    made = []
    try:
        for file, place in sources(package):
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, path)
            path.chmod(0o644)
            made.append(path)
    except OSError as error:
        raise ConfigError(f"cannot copy the files to {folder}: {error}") from error
    return tuple(made)
