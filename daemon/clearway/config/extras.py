"""What a missing optional package is called, in words that can be acted on wherever Clearway came from."""

import sys
from importlib.metadata import PackageNotFoundError, requires


def how_to_install(extra: str) -> str:
    """The packages of an extra (pyproject.toml) and where they belong: Clearway itself may come from no index."""
    try:
        listed = requires("clearway") or []
    except PackageNotFoundError:  # a source tree that was never installed
        listed = []
    wanted = [each.partition(";")[0].strip() for each in listed if f'extra == "{extra}"' in each.replace("'", '"')]
    packages = " ".join(f"'{each}'" for each in wanted) or f"the packages of the extra {extra!r}"
    return f"install {packages} into Clearway's environment {sys.prefix} (pip install 'clearway[{extra}]')"
