"""Licenses, as ``scontrol -o show licenses`` prints them."""

import re

from clearway.model.cluster import License
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError

_NAME = re.compile(r"LicenseName=(\S+)((?: \S+)*)\s*", re.ASCII)


def read_licenses(text: str) -> dict[str, License]:
    """By name. Of a remote one the server may know of more use than Slurm: that is its deficit.

    Raises FieldError for text that is no list of licenses.
    """
    found: dict[str, License] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("No licenses configured"):
            continue
        read = _NAME.fullmatch(line)
        if read is None:
            raise FieldError(f"a license is {line[:40]!r}")
        record = dict(part.partition("=")[::2] for part in read[2].split())
        total, used, reserved, deficit = (
            fields.number(record.get(key, "0"), key) for key in ("Total", "Used", "Reserved", "LastDeficit")
        )
        found[read[1]] = License(total, used + deficit, reserved)
    return found
