"""The first configuration of a site, from what Slurm says of it: commented, and in observe mode. Pure text."""

import re
from collections import Counter
from collections.abc import Iterable

from clearway.config.configuration import CandidatesConfig
from clearway.model.durations import format_duration
from clearway.slurm.site_facts import SiteFacts

_URGENT = re.compile(r"urgent|real-?time|express|emergency|priority|debug-?now|beam|\brt\b", re.IGNORECASE)
_START_S = 5.0  # beside KillWait: Slurm starts the next job within this
_MOST_NAMES = 12
_STATE = "/var/lib/clearway"  # of a daemon whose configuration says nothing else
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*", re.ASCII)


def first_configuration(site: SiteFacts, *, state: str, conf: str = "", urgent: str = "", mib_s: float | None) -> str:
    """TOML text.

    ``conf`` is slurm.conf, where it is not in Slurm's default place; ``urgent`` the partition or QoS of urgent jobs, ""
    as the names suggest; ``mib_s`` what this machine was seen to write, None where that was not measured.
    """
    parts = (
        _head(site, state),
        f'[slurm]\nconf = "{conf}"\n' if conf else "",
        f'[store]\nurl = "sqlite:///{state}/clearway.sqlite"\n' if state != _STATE else "",
        _rule(site, urgent),
        _candidates(site),
        _costs(mib_s),
        _execution(site),
    )
    return "\n".join(filter(None, parts))


def _head(site: SiteFacts, state: str) -> str:
    halt = f'halt_file = "{state}/halt"\n' if state != _STATE else ""
    sizes = Counter((node.cpus, node.memory_mib, node.gpus) for node in site.nodes)
    nodes = [
        f"{count:,} x {cpus} CPUs, {memory / 1_024:,.0f} GiB{''.join(f', {n} {_called(t)}' for t, n in gpus)}"
        for (cpus, memory, gpus), count in sizes.most_common(5)
    ]
    accounting = "with" if site.accounting else "without"
    return f"""\
# Clearway on {_word(site.setting("ClusterName"))}: Slurm {_word(site.version)}, {accounting} slurmdbd.
# Nodes: {"; ".join(nodes) or "none"}.
# Partitions: {_names(p.name for p in site.partitions)}. QoS: {_names(site.qos or ())}.
# Every key is in docs/reference/configuration.md. Next: clearway check-config FILE, clearway doctor.

[daemon]
# It plans and records, and changes nothing. Later: "approve" (an operator confirms), "automatic".
mode = "observe"
{halt}"""


def _called(gres: str) -> str:
    """By the name of ``Node.gpus``: only GPUs have no colon in it."""
    return gres.rstrip(":") if ":" in gres else f"GPU {gres}".rstrip()


def _rule(site: SiteFacts, urgent: str) -> str:
    kind, name = _chosen(site, urgent)
    why = "its name says so" if not urgent else "as asked for"
    if not name:
        known = _names(p.name for p in site.partitions)
        return f"""\
# No partition or QoS looks like one for urgent jobs. Name it here; until then no job is urgent.
#[[preemptors]]
#name = "urgent"
#partition = ["..."]   # one of: {known}
#max_delay = "10m"
"""
    checked = vouched_for(site, kind, name)
    warning = (
        ""
        if checked
        else "# Slurm does not check here who may use it, so by this rule no job is urgent: see clearway doctor.\n"
    )
    return f"""\
{warning}# Jobs of this {"QoS" if kind == "qos" else kind} are urgent ({why}), and wait for max_delay at most.
[[preemptors]]
name = "urgent"
{kind} = ["{name}"]
max_delay = "10m"
"""


def _chosen(site: SiteFacts, urgent: str) -> tuple[str, str]:
    """The kind ("partition" or "qos") and name of what is urgent; two empty texts where nothing looks like that."""
    named = [("partition", each.name) for each in site.partitions] + [("qos", name) for name in site.qos or ()]
    if urgent:
        return ("partition" if ("partition", urgent) in named else "qos"), urgent
    named = [each for each in named if vouched_for(site, *each)]
    found = [each for each in named if _URGENT.search(each[1])][:1] or _in_top_tier(site)
    return found[0] if found and _NAME.fullmatch(found[0][1]) else ("", "")


def vouched_for(site: SiteFacts, kind: str, name: str) -> bool:
    return site.vouched.qos if kind == "qos" else name not in site.vouched.partitions


def _in_top_tier(site: SiteFacts) -> list[tuple[str, str]]:
    """The one partition that has it, where there are several tiers."""
    tiers = sorted({each.tier for each in site.partitions})
    top = [("partition", each.name) for each in site.partitions if each.tier == tiers[-1]]
    top = [each for each in top if vouched_for(site, *each)]
    return top if len(tiers) > 1 and len(top) == 1 else []


def _candidates(site: SiteFacts) -> str:
    exempt_s = site.seconds("PreemptExemptTime")
    lines = ["[candidates]", "# Whose jobs are never preempted:", "#protected_qos = []", "#protected_accounts = []"]
    if exempt_s > CandidatesConfig().min_runtime:
        lines += ["# As Slurm's PreemptExemptTime.", f'min_runtime = "{format_duration(exempt_s)}"']
    if site.setting("JobRequeue") == "0":
        lines += ["# JobRequeue=0 here: only jobs with --requeue can leave."]
    return "\n".join(lines) + "\n"


def _costs(mib_s: float | None) -> str:
    known = "These are guesses, not measured here."
    if mib_s is not None:
        known = "This machine alone wrote so much; if all\n# nodes together write more, say so."
    return f"""\
[costs]
# How fast checkpoints are written, MiB/s: by all nodes together, and by one. {known}
file_system_mib_s = {10_000 if mib_s is None else mib_s:.1f}
node_mib_s = {1_000 if mib_s is None else mib_s:.1f}
"""


def _execution(site: SiteFacts) -> str:
    wait_s, epilog = site.seconds("KillWait"), site.setting("Epilog")
    more = " + the time of the epilog, which is not known: 10s" if epilog else ""
    allowance = format_duration(wait_s + _START_S + (10.0 if epilog else 0.0))
    told = f"# From a requeue to the next job: KillWait ({format_duration(wait_s)}) + 5s{more}.\n"
    text = f'[execution]\n{told}kill_allowance = "{allowance}"\n'
    if site.preempts:
        pairs = [f"{name} preempts {_names(sorted(others))}" for name, others in sorted(site.preempts.items())[:3]]
        how = f"{site.setting('PreemptType')}: {'; '.join(pairs)}; GraceTime {site.grace_s:.0f}s"
        text += f"\n# Slurm itself preempts ({how}).\n# Clearway comes after it; see clearway doctor.\n"
    return text


def _names(names: Iterable[str]) -> str:
    fit = [name for name in names if _NAME.fullmatch(name)]
    more = f", and {len(fit) - _MOST_NAMES} more" if len(fit) > _MOST_NAMES else ""
    return (", ".join(fit[:_MOST_NAMES]) or "none") + more


def _word(text: str) -> str:
    return text if _NAME.fullmatch(text) else "?"
