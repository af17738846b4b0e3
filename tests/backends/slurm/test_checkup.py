"""What `perdure doctor` makes of what it found."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.backends.kind import ActingService, Mark
from perdure.backends.slurm.checkup import Facts, SpoolFacts, findings
from perdure.backends.slurm.config import Config, read_config
from perdure.backends.slurm.records import JobRecord, read_jobs
from tests.backends.slurm.text import MARK, job
from tests.copying import replace

GOOD = {
    "SLURM_VERSION": "22.05.8", "ClusterName": "c", "SlurmctldHost[0]": "h", "SlurmctldPort": "6817",
    "JobRequeue": "1", "MinJobAge": "300 sec", "AccountingStoreFlags": "job_comment,job_env",
    "SlurmUser": "slurm(64030)", "JobCompType": "jobcomp/script", "JobCompLoc": "/x/jobcomp",
    "EpilogSlurmctld": "/x/epilogctld",
}  # fmt: skip
SPOOL = SpoolFacts("/var/spool/perdure", "", 64030, 64030, 0o2770)
WELL = Facts(
    now_s=100.0, user="root", uid=0, config=Config(GOOD, 100.0), logs=(("/a", ""),), spool=SPOOL,
    state_dir="/state", state_free_mib=10_000,
)  # fmt: skip


def bad(facts: Facts) -> list[Any]:
    return [(finding.mark, finding.what) for finding in findings(facts) if finding.mark is not Mark.OK]


def jobs(*texts: str) -> tuple[JobRecord, ...]:
    return read_jobs("".join(texts).encode(), MARK).whole


def configured(**more: Any) -> dict[Any, Any]:
    return {"config": Config({**GOOD, **more}, 100.0)}


def test_a_site_that_is_set_up_well_has_nothing_to_do() -> None:
    assert bad(WELL) == []
    assert all(finding.fix == "" for finding in findings(WELL))


@pytest.mark.parametrize(
    ("changed", "mark", "says"),
    [
        ({"config": None, "controller_error": "no answer"}, Mark.FAIL, "controller cannot be asked: no answer"),
        ({"accounting_error": "refused"}, Mark.WARN, "accounting cannot be asked: refused"),
        (configured(JobRequeue="0"), Mark.FAIL, "JobRequeue=0"),
        (configured(MinJobAge="5 sec"), Mark.WARN, "MinJobAge=5"),
        (configured(RequeueExit="75"), Mark.WARN, "RequeueExit=75"),
        (configured(DependencyParameters="kill_invalid_depend"), Mark.WARN, "kill_invalid_depend"),
        (configured(SchedulerParameters="x=1,kill_invalid_depend"), Mark.WARN, "kill_invalid_depend"),
        (configured(AccountingStoreFlags=""), Mark.WARN, "lacks job_comment"),
        (configured(JobSubmitPlugins="lua"), Mark.WARN, "JobSubmitPlugins=lua"),
        (configured(SLURM_VERSION="19.05.1"), Mark.WARN, "Slurm 19.05.1"),
        (configured(EpilogSlurmctld=""), Mark.WARN, "EpilogSlurmctld is not set"),
        (configured(JobCompType="jobcomp/none"), Mark.WARN, "JobCompType=jobcomp/none"),
        ({"spool": None, **configured(JobCompLoc="", EpilogSlurmctld="")}, Mark.WARN, "no hooks"),
        ({"spool": replace(SPOOL, mode=0o777)}, Mark.FAIL, "everybody may write"),
        ({"spool": replace(SPOOL, uid=0, mode=0o755)}, Mark.FAIL, "user slurm does not own it"),
        ({"spool": SpoolFacts("/x", "No such file")}, Mark.FAIL, "No such file"),
        ({"uid": 7, "user": "ada", "admin_level": "None"}, Mark.FAIL, "own jobs only"),
        ({"uid": 7, "user": "ada", "admin_level": "Operator", "reads_as_owner": False}, Mark.WARN, "is not root"),
        ({"uid": 7, "user": "ada", "admin_level": "", **configured(PrivateData="jobs,usage")}, Mark.FAIL, "hides"),
        ({"logs": (("/a", ""), ("/b", "not there"))}, Mark.FAIL, "1 of 2 logs"),
        ({"logs": tuple((f"/{i}", "" if i else "x") for i in range(20))}, Mark.WARN, "19 of 20 logs"),
        ({"logs": ()}, Mark.WARN, "no job ended recently"),
        ({"jobs": jobs(job(1, stdout="/home/%q.out"))}, Mark.WARN, "cannot be resolved"),
        (
            {"jobs": jobs(*(job(i, before_name=f"ArrayJobId=4 ArrayTaskId={i} ") for i in (5, 6)))},
            Mark.WARN,
            "1 arrays write all",
        ),
        ({"now_s": 130.0}, Mark.FAIL, "30 s apart"),
        ({"node_clocks_ahead": ("n1",)}, Mark.WARN, "clocks of nodes"),
        ({"state_free_mib": 50}, Mark.FAIL, "50 MiB are free"),
        ({"descriptors": 256}, Mark.WARN, "256 files"),
        ({"acting": ActingService("process 7")}, Mark.WARN, "a service acts on this Slurm: process 7"),
        ({"foreign_drains": ("n1",)}, Mark.WARN, "mark of a Perdure"),
    ],
)  # fmt: skip
def test_each_trouble_is_found_with_what_to_do(changed: Mapping[str, Any], mark: Mark, says: str) -> None:
    found = [f for f in findings(replace(WELL, **changed)) if f.mark is mark and says in f.what]
    assert len(found) == 1, findings(replace(WELL, **changed))
    assert found[0].fix


def test_the_service_of_this_state_directory_may_act() -> None:
    own = replace(WELL, acting=ActingService("process 7", is_own=True))
    assert bad(own) == []
    assert "this state directory's service acts on this Slurm: process 7" in [f.what for f in findings(own)]


def test_dependants_are_at_risk_without_the_hook() -> None:
    waiting = jobs(job(1, state="PENDING").replace("Dependency=(null)", "Dependency=afterok:7(unfulfilled),singleton"))
    hooked = replace(WELL, jobs=waiting)
    assert bad(hooked) == []
    assert (Mark.WARN, "jobs wait for others: 1 afterok, 1 singleton") in bad(replace(hooked, spool=None))


def test_the_configuration_is_read_with_its_time() -> None:
    text = f"Configuration data as of 90~{MARK}\nClusterName = c \nMinJobAge   = 300 sec\nEpilog = (null)\n"
    config = read_config(text.encode(), MARK)
    assert (config.time_s, config["ClusterName"], config.number("MinJobAge"), config["Epilog"]) == (90.0, "c", 300, "")


def test_a_hook_that_24_11_numbers_is_found() -> None:
    numbered = {name: value for name, value in GOOD.items() if name != "EpilogSlurmctld"}
    shown = {**numbered, "EpilogSlurmctld[0]": "/x/epilogctld"}
    assert bad(replace(WELL, config=Config(shown, 100.0))) == []


def test_an_operator_is_told_what_only_an_administrator_may_write() -> None:
    own = replace(WELL, user="perdure", uid=999, admin_level="Operator")
    ((mark, what),) = bad(own)
    assert mark is Mark.WARN
    assert "perdure may not write AdminComment" in what
    assert bad(replace(own, admin_level="Administrator")) == []


def test_a_job_that_wants_no_log_is_no_fault_of_the_site() -> None:
    logs = (("/dev/null", "refused: it is a device, not a regular file"),) * 19
    assert bad(replace(WELL, logs=(*logs, ("/a", "")))) == []
    refused = replace(WELL, logs=(*logs, ("/h/a", "refused: Permission denied")))
    (told,) = [finding for finding in findings(refused) if finding.mark is Mark.FAIL]
    assert told.what == "0 of 1 logs of recent jobs can be read"
    assert "as root" not in told.fix
    unable = replace(refused, reads_as_owner=False)
    assert any("as root or with CAP_SETUID" in finding.fix for finding in findings(unable))


def test_hooks_that_slurm_has_and_the_settings_do_not_name_are_not_said_to_be_missing() -> None:
    """`perdure doctor` without --config, where the service's settings lie elsewhere."""
    waits = jobs(job(1, state="PENDING").replace("Dependency=(null)", "Dependency=afterok:7(unfulfilled)"))
    found = [each for each in findings(replace(WELL, spool=None, jobs=waits)) if each.mark is not Mark.OK]
    assert found[0].what == (
        "slurm.conf has Perdure's hooks (EpilogSlurmctld=/x/epilogctld, JobCompLoc=/x/jobcomp), and these settings name"
        " no slurm.spool: hooks are not checked"
    )
    assert all("perdure doctor --config FILE" in each.fix for each in found)
