"""Whether Slurm and its nodes are as Clearway needs them.

Nothing is changed; ``SlurmError`` means that a check could not be made. What nodes have is told by a job of a minute at
most, where it was asked for.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from clearway import bootstrap
from clearway.config.configuration import Config
from clearway.doctor.case import Case, Result, advice, clocks, fault, ok, untried
from clearway.eligibility.urgent import name_of, refusals
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError, SlurmError
from clearway.service.leadership import APART_S
from clearway.slurm.releases import only_observed

START_S = 2.0  # Slurm takes up to about this to start the next job once nodes are free
_CLOCK_S = 1.0  # Slurm prints its time to the second
_PARTITION_KEYS = (
    "candidates.partitions",
    "candidates.protected_partitions",
    "compaction.partitions",
    "eternal.partitions",
)
_QOS_KEYS = ("candidates.protected_qos",)
_JOB_S = 60.0
_NOT_ASKED = untried("not asked for", "--job starts a job of a minute at most")


def answers(case: Case) -> Result:
    """By the backend that the daemon would take."""
    try:
        version = case.site.version  # first: a slurmctld that is down is waited for once
        backend, why = bootstrap.choose_backend(case.config, SystemClock())
    except (ConfigError, SlurmError) as error:
        return fault(
            str(error),
            "run it where squeue and scontrol work for this user: Slurm's commands on the PATH, munge, slurm.conf "
            "(slurm.conf in [slurm], or SLURM_CONF), slurmctld up (scontrol ping)",
        )
    backend.close()
    return ok(f"Slurm {version} through {backend.name} ({why})")


def release(case: Case) -> Result:
    why = only_observed(case.site.version, case.config.slurm.act_on_release)
    if why:
        return advice(f"{why}; until then it only observes", "docs/howto/operate.md, a new release of Slurm")
    return ok("one that Clearway acts on")


def rights(case: Case) -> Result:
    """Tried without harm: Slurm is asked to delete a reservation that does not exist."""
    site = case.site
    if case.slurm.may_reserve():
        return ok(f"{case.user} may requeue the jobs of others and make reservations")
    if not site.accounting:
        remedy = f"run the daemon as {site.slurm_user}: User={site.slurm_user} in a drop-in of clearway.service"
        return fault(f"{case.user} has no rights: without slurmdbd only root and {site.slurm_user} have", remedy)
    return fault(
        f"Slurm refuses {case.user} what operators may do",
        f"sacctmgr -i add user {case.user} Account=root; sacctmgr -i modify user {case.user} set AdminLevel=Operator",
    )


def draining(case: Case) -> Result | None:
    """Only where the configuration lets nodes be drained."""
    config = case.config
    if not (config.compaction.enabled or config.drain.operators or config.drain.owners):
        return None
    site = case.site
    if case.slurm.may_drain():
        return ok(f"{case.user} may drain nodes")
    return fault(
        f"Slurm refuses {case.user} to drain nodes, which [drain] or [compaction] asks for",
        f"sacctmgr -i modify user {case.user} set AdminLevel=Admin"
        if site.accounting
        else f"run the daemon as {site.slurm_user}",
    )


def clock(case: Case) -> Result | None:
    theirs = case.site.clock
    if theirs is None:
        return None
    then = f"Clearway does nothing at {APART_S:.0f} s or more"
    return clocks(case.site_read_at - theirs, APART_S + _CLOCK_S, "slurmctld", then)


def slurmdbd(case: Case) -> Result | None:
    if not case.site.accounting:
        return None
    if case.site.qos is None:
        return fault(
            f"slurmdbd does not answer: {case.site.qos_unknown}",
            "systemctl status slurmdbd; its log (LogFile of slurmdbd.conf) says why, such as that its MariaDB is down",
        )
    return ok(f"answers; {_counted(len(case.site.qos), 'QoS', 'QoS')}")


def names(case: Case) -> Iterator[Result]:
    """Every partition and QoS of the configuration is one of Slurm's."""
    config, site = case.config, case.site
    unknown = _unknown(config, "partition", _PARTITION_KEYS, {each.name for each in site.partitions})
    if site.qos is not None or not site.accounting:
        unknown += _unknown(config, "QoS", _QOS_KEYS, set(site.qos or ()))
    yield from unknown
    if not config.preemptors:
        yield fault("no [[preemptors]] rule: no job will ever be urgent", "clearway init writes a first rule")
    elif not unknown:
        yield ok("every partition and QoS of the configuration is Slurm's")
    urgent = {name for rule in config.preemptors for name in rule.partition}
    for each in site.partitions:
        if not each.up and each.name in urgent:
            remedy = f"scontrol update Partition={each.name} State=UP"
            yield advice(f"partition {each.name} is for urgent jobs and is not UP", remedy)


def rules(case: Case) -> Iterator[Result]:
    """Whether Slurm checks what rules, protections and budgets rest on: else it is the job's own word."""
    config, vouched = case.config, case.site.vouched
    refused = refusals(config.preemptors, vouched)
    yield from (fault(why, "docs/howto/urgent-jobs.md, who may ask") for why in refused.values())
    names = [name_of(rule, place) for place, rule in enumerate(config.preemptors) if rule.anybody]
    for name in names:
        yield advice(f"rule {name}: every user may make jobs urgent by it", "that is what anybody = true says")
    own_word = [("account", "candidates.protected_accounts", config.candidates.protected_accounts)]
    own_word *= not vouched.accounts
    own_word += [("QoS", "candidates.protected_qos", config.candidates.protected_qos)] * (not vouched.qos)
    for kind, key, given in own_word:
        if given:
            what = f"{key}: Slurm takes any {kind} here, so every user can protect jobs by it"
            yield advice(what, "AccountingStorageEnforce=associations,qos, or protected_users, protected_partitions")
    limits = [key for key in type(config.budget).model_fields if key.startswith("account_")]
    if not vouched.accounts and any(getattr(config.budget, key) is not None for key in limits):
        what = "budget.account_*: Slurm takes any account here, so all that a user has taken counts for each"
        yield advice(what, "AccountingStorageEnforce=associations, or limits by user")
    if config.preemptors and not refused and not names:
        yield ok("Slurm checks what every rule rests on")


def kill_wait(case: Case) -> Result:
    site, allowance_s = case.site, case.config.execution.kill_allowance
    wait_s, epilog = site.seconds("KillWait"), site.setting("Epilog")
    needed_s = wait_s + START_S
    told, allowed = f"KillWait {format_duration(wait_s)}", format_duration(allowance_s)
    if allowance_s < needed_s:
        what = f"execution.kill_allowance is {allowed}, shorter than {told} and the start of the next job"
        better = f'[execution] kill_allowance = "{format_duration(round(needed_s + 3))}"'
        return fault(f"{what}: urgent jobs start late", better + (", and the time of the epilog" if epilog else ""))
    if epilog and allowance_s < needed_s + START_S:
        remedy = "add the time that the epilog takes to execution.kill_allowance"
        return advice(f"kill_allowance {allowed}: {told} leaves no time for the epilog {epilog}", remedy)
    return ok(f"{told}{', an epilog' if epilog else ''}: kill_allowance {allowed} suffices")


def own_preemption(case: Case) -> Result:
    """Slurm's own preemption for what is urgent here."""
    site = case.site
    kind = "QoS" if site.preempts_by_qos else "partition"
    urgent = {n for rule in case.config.preemptors for n in (rule.qos if site.preempts_by_qos else rule.partition)}
    both = sorted(urgent & site.preempts.keys())
    if both:
        others = ", ".join(sorted(site.preempts[both[0]]))
        return advice(
            f"Slurm itself preempts {others} for {kind} {both[0]}, whatever work is lost; Clearway comes after it",
            f"{kind} {both[0]} should preempt nothing in Slurm, or PreemptMode=OFF, if Clearway is to choose the jobs",
        )
    if site.preempts:
        return ok(f"on ({site.setting('PreemptType')}), but not for urgent jobs")
    return ok("off: Clearway alone decides which jobs leave")


def exempt_time(case: Case) -> Result | None:
    site, min_runtime_s = case.site, case.config.candidates.min_runtime
    exempt_s = site.seconds("PreemptExemptTime")
    if not exempt_s:
        return None
    exempt = format_duration(exempt_s)
    if min_runtime_s < exempt_s:
        remedy, ours = f'[candidates] min_runtime = "{exempt}", if users count on it', format_duration(min_runtime_s)
        return advice(f"Slurm spares jobs for {exempt} (PreemptExemptTime), Clearway for {ours}", remedy)
    return ok(f"PreemptExemptTime {exempt} is kept (candidates.min_runtime)")


def requeue(case: Case) -> Result:
    if case.site.setting("JobRequeue") == "0" and not case.config.candidates.allow_cancel:
        remedy = "JobRequeue=1 in slurm.conf, or have users submit with --requeue"
        return fault("JobRequeue=0: jobs cannot be requeued unless they say --requeue, so hardly any may leave", remedy)
    return ok("jobs are requeued by default (JobRequeue=1)")


def nodes(case: Case) -> Result:
    usable = sum(each.available for each in case.site.nodes)
    if not usable:
        remedy = "sinfo -R says why; start slurmd, or scontrol update NodeName=... State=RESUME"
        return fault(f"none of {len(case.site.nodes)} nodes takes jobs", remedy)
    return ok(
        f"{usable:,} of {len(case.site.nodes):,} take jobs, in {_counted(len(case.site.partitions), 'partition')}"
    )


def _unknown(config: Config, kind: str, keys: Iterable[str], known: set[str]) -> list[Result]:
    """Names of this kind in the rules and under these keys that Slurm does not have."""
    named = [
        (f"[[preemptors]] {rule.name}".rstrip(), name)
        for rule in config.preemptors
        for name in getattr(rule, kind.lower())
    ]
    named += [(key, name) for key in keys for name in attrgetter(key)(config)]
    instead = f"write one that it has: {', '.join(sorted(known)[:12]) or 'none'}"
    return [fault(f"{key}: Slurm has no {kind} {name}", instead) for key, name in named if name not in known]


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def launcher(case: Case) -> Result:
    if not case.asked.job:
        return _NOT_ASKED
    try:
        told = case.node
    except SlurmError as error:
        return fault(
            f"a job of one node did not run: {error}",
            f"free a node, choose its partition (--partition), or let {case.user} run jobs (an association in Slurm)",
        )
    where = told.get("launcher", "absent")
    if where == "absent":
        return fault(
            f"{told.get('node', 'the node')} cannot run {case.asked.launcher}: no job saves itself there",
            "clearway launcher FOLDER, which all nodes read; --launcher PATH if it is not on the PATH of jobs",
        )
    if case.asked.launcher_sum and told.get("sum") != case.asked.launcher_sum:
        return advice(f"{where} on {told['node']} is another version's", f"clearway launcher {Path(where).parent}")
    return ok(f"{where} on {told.get('node')} can be run, and is this version's")


def checkpointers(case: Case) -> Result | None:
    """None where the launcher is not there, which has been told."""
    if not case.asked.job:
        return _NOT_ASKED
    told = {name.partition(".")[2]: text for name, text in case.node.items() if name.startswith("checkpointer.")}
    if not told:
        return None
    work = [name for name, text in told.items() if text.split(" ")[0] == "yes"]
    not_here = [
        f"not {name}: {text.removeprefix('no').strip() or 'no answer'}"
        for name, text in told.items()
        if name not in work
    ]
    what = "; ".join([f"{', '.join(work) or 'none'} can be used", *not_here])
    if "application" in work:
        return ok(what)
    return advice(what, "clearway launcher FOLDER copies the drivers to FOLDER/checkpointers")


def node_clock(case: Case) -> Result | None:
    if not case.asked.job:
        return None
    said = case.node.get("time", "")
    if not said.isdecimal():
        return None
    ahead, other = case.now() - datetime.fromtimestamp(int(said), UTC), f"{case.node.get('node')}"
    then = "its checkpoints count as too old or new"
    return clocks(ahead, APART_S + _JOB_S, other, then, "the node's clock")


def checkpoint_disk(case: Case) -> Result:
    """The folder that jobs save into, beside what all of them would write."""
    folder = case.asked.checkpoints
    if folder is None:
        return untried("not asked for", "--checkpoints FOLDER, the one that jobs save into")
    try:
        usage = shutil.disk_usage(folder)
        writable = folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    except OSError as error:
        return fault(f"{folder}: {error.strerror}", "make it on a file system that every node mounts")
    if not writable:
        return fault(f"{folder} is not a folder that {case.user} may look into", "chmod, or name another folder")
    share = case.config.costs.app_memory_fraction
    needed_gib = sum(each.memory_mib for each in case.site.nodes) * share / 1_024
    free_gib = usage.free / 2**30
    if free_gib < needed_gib:
        return fault(
            f"{free_gib:,.0f} GiB are free in {folder}; if all nodes' jobs save {share:.0%} of their memory, "
            f"{needed_gib:,.0f} GiB are written",
            "make room, or have jobs save elsewhere (clearway-run --dir)",
        )
    return ok(f"{free_gib:,.0f} GiB are free in {folder}; all jobs at once would write {needed_gib:,.0f}")
