"""What a site's Slurm needs before Perdure acts on it: facts to findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perdure.backends.kind import NOBODY_ACTS, ActingService, CheckResult, Mark
from perdure.backends.slurm.config import Config
from perdure.backends.slurm.records import JobRecord

CLOCKS_APART_S = 5.0
FREE_MIB, FREE_WARN_MIB = 200, 2048
DESCRIPTORS = 1024
MIN_JOB_AGE_S = 60
READABLE = 0.9  # of the sampled logs
DEPENDENCIES = ("afterok", "aftercorr", "afterany", "afternotok", "singleton")
OPERATORS = ("operator", "administrator")


@dataclass(frozen=True, slots=True)
class SpoolFacts:
    """The directory that hooks write to; `error` where it cannot be looked at."""

    path: str
    error: str = ""
    uid: int = 0
    gid: int = 0
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was found out, and when."""

    now_s: float
    user: str
    uid: int
    gids: tuple[int, ...] = ()
    config: Config | None = None
    controller_error: str = ""
    accounting_error: str = ""
    admin_level: str | None = None  # by sacctmgr; None where it could not be asked
    jobs: Sequence[JobRecord] = ()
    reads_as_owner: bool = True  # root, or CAP_SETUID and CAP_SETGID
    logs: Sequence[tuple[str, str]] = ()  # sampled paths, and why each cannot be read ("" where it can)
    node_clocks_ahead: Sequence[str] = ()
    spool: SpoolFacts | None = None
    state_dir: str = ""
    state_free_mib: int | None = None
    descriptors: int = DESCRIPTORS
    acting: ActingService = NOBODY_ACTS
    foreign_drains: Sequence[str] = field(default_factory=tuple)  # nodes with a Perdure's mark, though none acts here


def findings(facts: Facts) -> list[CheckResult]:
    """One or more lines for each check, in the order in which a site is set up."""
    checks = (_slurm, _accounting, _settings, _rights, _logs, _hooks, _clocks, _machine, _dependants, _others)
    return [finding for check in checks for finding in check(facts)]


def _slurm(facts: Facts) -> Iterator[CheckResult]:
    config = facts.config
    if config is None:
        fix = "Run `scontrol ping`; name slurm.conf in SLURM_CONF"
        yield CheckResult(Mark.FAIL, f"the controller cannot be asked: {facts.controller_error}", fix)
        return
    version = config["SLURM_VERSION"]
    known = version.split(".")[:1] >= ["21"] if version[:2].isdecimal() else False
    fix = "" if known else "Perdure is tried on 22.05 and 24.11: try it in shadow mode first"
    yield CheckResult(Mark.OK if known else Mark.WARN, f"Slurm {version}, cluster {config.identity}", fix)


def _accounting(facts: Facts) -> Iterator[CheckResult]:
    config = facts.config
    if config is None:
        return
    if facts.accounting_error:
        fix = "Run `sacctmgr ping`; without accounting, only hooks report attempts put back between two looks"
        yield CheckResult(Mark.WARN, f"accounting cannot be asked: {facts.accounting_error}", fix)
    else:
        yield CheckResult(Mark.OK, "accounting answers")
    if not config.words("AccountingStoreFlags") & {"job_comment"}:
        fix = "Add job_comment to AccountingStoreFlags, so that comments on ended jobs are kept"
        yield CheckResult(Mark.WARN, "AccountingStoreFlags lacks job_comment", fix)


def _settings(facts: Facts) -> Iterator[CheckResult]:
    config = facts.config
    if config is None:
        return
    if config["JobRequeue"] == "0":
        yield CheckResult(
            Mark.FAIL, "JobRequeue=0: jobs are not put back unless they ask for it",
            "Set JobRequeue=1, or let users submit with --requeue",
        )  # fmt: skip
    age_s = config.number("MinJobAge")
    if age_s is not None and age_s < MIN_JOB_AGE_S:
        what = f"MinJobAge={age_s}: the controller forgets jobs {age_s} s after their end"
        yield CheckResult(Mark.WARN, what, f"Set MinJobAge={MIN_JOB_AGE_S} or more (Slurm's own default is 300)")
    for name in ("RequeueExit", "RequeueExitHold"):
        if config[name]:
            what = f"{name}={config[name]}: Slurm itself puts jobs back or holds them for these exit codes"
            yield CheckResult(Mark.WARN, what, "Take out of them the codes that Perdure is to judge")
    killing = "kill_invalid_depend"
    if killing in config.words("DependencyParameters") | config.words("SchedulerParameters"):
        what = "kill_invalid_depend: dependants of a failed job are cancelled before it can be retried"
        yield CheckResult(
            Mark.WARN, what, "Install the hook epilogctld, which decides before dependants see the failure"
        )
    private = config.words("PrivateData") & {"jobs", "nodes"}
    if private and facts.uid != 0 and not _is_operator(facts):
        what = f"PrivateData={config['PrivateData']} hides other users' {' and '.join(private)} from {facts.user}"
        yield CheckResult(Mark.FAIL, what, f"sacctmgr modify user {facts.user} set adminlevel=operator")
    if plugins := config["JobSubmitPlugins"]:
        what = f"JobSubmitPlugins={plugins}: it is asked about each change of a job, too"
        yield CheckResult(Mark.WARN, what, "Try in shadow mode, then `perdure actions` after the first requeue")
    if not any(finding for finding in (config["JobRequeue"] == "0", age_s is not None and age_s < MIN_JOB_AGE_S)):
        yield CheckResult(Mark.OK, f"JobRequeue={config['JobRequeue']}, MinJobAge={age_s}")


def _is_operator(facts: Facts) -> bool:
    owner = facts.config["SlurmUser"] if facts.config else ""
    return facts.uid == 0 or f"({facts.uid})" in owner or (facts.admin_level or "").lower() in OPERATORS


def _is_administrator(facts: Facts) -> bool:
    """Whether Slurm lets it do all that root may."""
    owner = facts.config["SlurmUser"] if facts.config else ""
    return facts.uid == 0 or f"({facts.uid})" in owner or (facts.admin_level or "").lower() == "administrator"


def _rights(facts: Facts) -> Iterator[CheckResult]:
    if facts.config is None:
        return
    if _is_operator(facts):
        yield CheckResult(Mark.OK, f"{facts.user} may act on everybody's jobs")
        if not _is_administrator(facts):
            what = f"{facts.user} may not write AdminComment: decisions on jobs in the queue are written to Comment,"
            fix = f"To have both: sacctmgr modify user {facts.user} set adminlevel=administrator"
            yield CheckResult(Mark.WARN, f"{what} where that is empty", fix)
    elif facts.admin_level is None and facts.accounting_error:
        what = f"whether {facts.user} may act on others' jobs is not known"
        yield CheckResult(Mark.WARN, what, "Run this again when accounting answers")
    else:
        what = f"{facts.user} may act on its own jobs only, and drain no node"
        yield CheckResult(Mark.FAIL, what, f"sacctmgr modify user {facts.user} set adminlevel=operator")
    if not facts.reads_as_owner:
        yield CheckResult(Mark.WARN, f"{facts.user} is not root: logs of others are read only where everybody may",
                      "Run the service as root, or with CAP_SETUID and CAP_SETGID in AmbientCapabilities")  # fmt: skip


def _logs(facts: Facts) -> Iterator[CheckResult]:
    if facts.config is None:
        return
    logs = [(path, why) for path, why in facts.logs if not path.startswith("/dev/")]
    if thrown := len(facts.logs) - len(logs):
        yield CheckResult(Mark.OK, f"{thrown} of the last jobs keep no log (-o /dev/null): their users want none")
    if not logs:
        yield CheckResult(
            Mark.WARN, "no job ended recently whose log could be tried", "Submit one, then run this again"
        )
    else:
        refused = [(path, why) for path, why in logs if why]
        share = 1 - len(refused) / len(logs)
        what = f"{len(logs) - len(refused)} of {len(logs)} logs of recent jobs can be read"
        if refused:
            path, why = refused[0]
            fix = f"For example {path}: {why}. Run the service where jobs' files are, {_with_rights(facts)}"
            yield CheckResult(Mark.WARN if share >= READABLE else Mark.FAIL, what, fix)
        else:
            yield CheckResult(Mark.OK, what)
    left = [job for job in facts.jobs if "%" in job.stdout or "%" in job.stderr]
    if left:
        what = f"{len(left)} jobs have a pattern in a log's path that cannot be resolved, for example {left[0].stdout}"
        yield CheckResult(
            Mark.WARN, what, "Use patterns that `sbatch` documents; their failures are judged without a log"
        )
    tasks_of = ((job.stdout, job.job_id.partition("_")[0]) for job in facts.jobs if "_" in job.job_id and job.stdout)
    shared = Counter(tasks_of)
    if torn := [path for (path, _), tasks in shared.items() if tasks > 1]:
        what = f"{len(torn)} arrays write all their tasks' output to one file, for example {torn[0]}"
        yield CheckResult(Mark.WARN, what, "Ask their owners for -o %A_%a.out: a line in a shared file is hearsay")


def _with_rights(facts: Facts) -> str:
    return "which this user may enter" if facts.reads_as_owner else "as root or with CAP_SETUID and CAP_SETGID"


def _hooks(facts: Facts) -> Iterator[CheckResult]:
    config = facts.config
    if facts.spool is None and (named := _named_hooks(facts)):
        what = f"slurm.conf has Perdure's hooks ({', '.join(named)}), and these settings name no slurm.spool"
        yield CheckResult(Mark.WARN, f"{what}: hooks are not checked", _OTHER_SETTINGS)
        return
    if facts.spool is None:
        fix = "Set slurm.spool, JobCompLoc and EpilogSlurmctld: see `keep dependants from seeing` in docs/how-to.md"
        yield CheckResult(Mark.WARN, "no hooks: dependants of a job see its failure before it is retried", fix)
        return
    spool = facts.spool
    if spool.error:
        yield CheckResult(Mark.FAIL, f"slurm.spool {spool.path}: {spool.error}", f"install -d -m 2770 {spool.path}")
        return
    if spool.mode & 0o002:
        yield CheckResult(Mark.FAIL, f"slurm.spool {spool.path}: everybody may write to it", f"chmod o-w {spool.path}")
    elif config is not None and not _may_write(spool, config["SlurmUser"]):
        owner = config["SlurmUser"].partition("(")[0]
        what = f"slurm.spool {spool.path}: slurmctld's user {owner} does not own it, and its group may not write"
        yield CheckResult(Mark.FAIL, what, f"chown {owner} {spool.path}, or make it of a shared group with mode 2770")
    else:
        yield CheckResult(Mark.OK, f"slurm.spool {spool.path} takes what hooks write")
    if config is not None:
        for name, wanted in (("JobCompLoc", "JobCompType=jobcomp/script"), ("EpilogSlurmctld", "")):
            if name == "JobCompLoc" and config["JobCompType"] != "jobcomp/script":
                what = f"JobCompType={config['JobCompType']}: it reports no ends"
                yield CheckResult(Mark.WARN, what, f"Set {wanted}")
            elif not config[name]:
                yield CheckResult(Mark.WARN, f"{name} is not set", f"Set {name} to Perdure's script of that name")


_OTHER_SETTINGS = "Name the settings of the service: perdure doctor --config FILE; or set slurm.spool"


def _named_hooks(facts: Facts) -> list[str]:
    """What slurm.conf names of our hooks, which are scripts of these names."""
    config = facts.config
    if config is None:
        return []
    hooks = {"EpilogSlurmctld": "epilogctld", "JobCompLoc": "jobcomp"}
    return [f"{key}={config[key]}" for key, script in hooks.items() if config[key].rpartition("/")[2] == script]


def _may_write(spool: SpoolFacts, slurm_user: str) -> bool:
    """Whether slurmctld's user may write there, as far as the mode shows."""
    uid = slurm_user.partition("(")[2].rstrip(")")
    return uid in ("0", str(spool.uid)) or bool(spool.mode & 0o020)


def _clocks(facts: Facts) -> Iterator[CheckResult]:
    told_s = facts.config.time_s if facts.config else None
    if told_s is not None:
        apart_s = abs(told_s - facts.now_s)
        what = f"slurmctld's clock and this machine's are {apart_s:.0f} s apart"
        late = apart_s > CLOCKS_APART_S
        yield CheckResult(Mark.FAIL if late else Mark.OK, what, "Run chrony or ntpd on both" if late else "")
    if facts.node_clocks_ahead:
        names = ", ".join(facts.node_clocks_ahead[:5])
        yield CheckResult(Mark.WARN, f"clocks of nodes are ahead of slurmctld's: {names}", "Run chrony or ntpd on them")


def _machine(facts: Facts) -> Iterator[CheckResult]:
    free = facts.state_free_mib
    if free is not None:
        mark = Mark.FAIL if free < FREE_MIB else Mark.WARN if free < FREE_WARN_MIB else Mark.OK
        fix = "" if mark is Mark.OK else "Name another with --state DIR, or make room"
        yield CheckResult(mark, f"{free} MiB are free for the state directory {facts.state_dir}", fix)
    few = facts.descriptors < DESCRIPTORS
    fix = f"ulimit -n {DESCRIPTORS}, or LimitNOFILE={DESCRIPTORS} in the service's unit" if few else ""
    yield CheckResult(Mark.WARN if few else Mark.OK, f"{facts.descriptors} files may be open at once", fix)


def _dependants(facts: Facts) -> Iterator[CheckResult]:
    kinds = Counter(
        kind for job in facts.jobs for kind in DEPENDENCIES if f",{kind}" in f",{job.dependency.replace('?', ',')}"
    )
    if facts.config is None:
        return
    if not kinds:
        yield CheckResult(Mark.OK, "no job waits for another")
        return
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    hooked = facts.spool is not None and bool(facts.config and facts.config["EpilogSlurmctld"])
    install = "Install the hook epilogctld, so that none of them sees a failure that is retried"
    fix = "" if hooked else _OTHER_SETTINGS if _named_hooks(facts) else install
    yield CheckResult(Mark.OK if hooked else Mark.WARN, f"jobs wait for others: {told}", fix)


def _others(facts: Facts) -> Iterator[CheckResult]:
    if facts.acting.told:
        mark, fix = (Mark.OK, "") if facts.acting.is_own else (Mark.WARN, "A second one may only watch")
        whose = "this state directory's service" if facts.acting.is_own else "a service"
        yield CheckResult(mark, f"{whose} acts on this Slurm: {facts.acting.told}", fix)
    elif facts.foreign_drains:
        names = ", ".join(facts.foreign_drains[:5])
        what = f"nodes carry the mark of a Perdure, though none acts on this machine: {names}"
        yield CheckResult(Mark.WARN, what, "See that no service on another machine acts on this Slurm")
    elif facts.config is not None:
        yield CheckResult(Mark.OK, "no other service acts on this Slurm from this machine")
