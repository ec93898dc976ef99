"""All that Slurm shows of jobs, nodes, reservations and partitions, to be compared before and after an operation."""

from __future__ import annotations

from clearway.slurm.parse.nodes import reason_in_force
from tests.slurm.client import NO_ANSWER_YET
from tests.slurm.cluster import SlurmCluster

Fields = dict[tuple[str, str], dict[str, str]]  # by kind and name

# What differs after an operation that has put back all that it touched, and why.
TIMES = "the clock goes on"
ANEW = "Slurm makes it anew for each run of a job"
LOAD = "the machine's own"
ALWAYS = {
    ("job", "RunTime"): TIMES,
    ("job", "LastSchedEval"): TIMES,
    ("job", "AccrueTime"): "Slurm sets it when it next looks at a job that waits",
    ("job", "Scheduler"): "which of Slurm's two schedulers looked last",
    ("node", "CPULoad"): LOAD,
    ("node", "FreeMem"): LOAD,
    ("node", "LastBusyTime"): TIMES,
    ("node", "SlurmdStartTime"): TIMES,
    ("node", "BootTime"): LOAD,
}
OF_A_RUN = {
    ("job", "Restarts"): "it has run once more",
    **dict.fromkeys(
        [
            *(("job", f"{when}Time") for when in ("Submit", "Eligible", "Accrue", "Start", "End", "PreemptEligible")),
            ("job", "SecsPreSuspend"),
        ],
        ANEW,
    ),
}
# Of a job that may start on other nodes, and of the nodes then.
ELSEWHERE = {
    **dict.fromkeys([("job", key) for key in ("NodeList", "BatchHost", "NodeListIndices")], ANEW),
    **dict.fromkeys([("node", key) for key in ("CPUAlloc", "AllocMem", "AllocTRES", "State")], "what runs there"),
}


def all_fields(cluster: SlurmCluster) -> Fields:
    found: Fields = {}
    for kind, name in (
        ("job", "JobId"),
        ("node", "NodeName"),
        ("res", "ReservationName"),
        ("partition", "PartitionName"),
    ):
        for record in cluster.records(kind):
            if kind == "node":
                if not reason_in_force(record.get("Reason", "").partition(" [")[0]):  # 24.11 without slurmdbd keeps it
                    record.pop("Reason", None)
                base, *flags = NO_ANSWER_YET.sub("", record["State"]).split("+")
                record |= {"State": base, "its flags": "+".join(sorted(set(flags) - {"PLANNED"}))}
            found[kind, record[name]] = record
    return found


def changed(
    before: Fields, after: Fields, *allowed: dict[tuple[str, str], str]
) -> dict[tuple[str, str, str], tuple[str, str]]:
    """What is not as before, by kind, name and field, but for what always differs and what is ``allowed`` to."""
    may = ALWAYS.keys() | {each for some in allowed for each in some}
    return {
        (*which, key): (was.get(key, "-"), now.get(key, "-"))
        for which in sorted(before.keys() | after.keys())
        for was, now in [(before.get(which, {}), after.get(which, {}))]
        for key in sorted(was.keys() | now.keys())
        if was.get(key, "-") != now.get(key, "-") and (which[0], key) not in may
    }
