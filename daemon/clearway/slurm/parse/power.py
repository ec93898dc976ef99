"""Power saving: the limits of ``scontrol show config``, and which nodes are off, or on their way.

A node that is off is ``IDLE+POWERED_DOWN``; marked to go off, and going, ``POWER_DOWN`` and ``POWERING_DOWN``: until
SuspendTimeout is over no job gets it; booting, ``POWERING_UP``, with ``NOT_RESPONDING`` in 22.05 (measured). With
``State=CLOUD`` it is shown while it is off only with ``PrivateData=cloud``; Slurm gives it to jobs all the same.
"""

import re

from clearway.model.cluster import PowerSaving

_OFF = frozenset({"POWERED_DOWN", "POWERING_UP", "POWER_UP"})
_GOING_OFF = frozenset({"POWER_DOWN", "POWERING_DOWN"})
_ASLEEP = _OFF | _GOING_OFF
_BESIDE = frozenset({"CLOUD", "COMPLETING", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED", "RESERVED", "IDLE"})


def read_power_saving(config: str) -> PowerSaving:
    """From ``scontrol show config``; without a ResumeProgram there is none."""
    if _value(config, "ResumeProgram") in ("", "(null)"):
        return PowerSaving()
    return PowerSaving(
        resume_s=_seconds(config, "ResumeTimeout"),
        suspend_s=_seconds(config, "SuspendTimeout"),
        hides_nodes="cloud" not in _value(config, "PrivateData").split(","),
    )


def boot_s(raw_state: str, saving: PowerSaving) -> float | None:
    """Seconds until an idle node could run a job, at most; None where it is awake, or is no node for jobs."""
    base, *flags = raw_state.split("+")
    of_power = _ASLEEP.intersection(flags)
    if base != "IDLE" or not of_power:
        return None
    others = set(flags) - of_power - _BESIDE
    if others - ({"NOT_RESPONDING"} if "POWERING_UP" in of_power else set()):
        return None
    return saving.resume_s + (saving.suspend_s if of_power & _GOING_OFF else 0.0)


def _value(config: str, key: str) -> str:
    found = re.search(rf"^{key}\s*=\s*(\S*)", config, re.MULTILINE)
    return found[1] if found else ""


def _seconds(config: str, key: str) -> float:
    value = _value(config, key)
    return float(value) if value.isascii() and value.isdecimal() else 0.0
