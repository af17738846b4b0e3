"""Records of Slurm's as it writes them: drawn ones with words that it knows."""

from __future__ import annotations

from random import Random

from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.config import Config
from perdure.backends.slurm.records import JobRecord
from perdure.slurm_words.states import ATTEMPT_STATES
from tests.copying import replace
from tests.recorded.drawn import NOW

OFTEN = ("PENDING", "RUNNING", "COMPLETING", "FAILED", "CANCELLED", "TIMEOUT", "COMPLETED", "SPECIAL_EXIT", "NODE_FAIL")
REASONS = (
    "", "Priority", "Resources", "BeginTime", "Dependency", "JobHeldUser", "JobHeldAdmin", "NonZeroExitCode",
    "RaisedSignal:9(Killed)", "BadConstraints", "launch_failed_requeued_held", "job_requeued_in_held_state",
    "NodeDown", "TimeLimit", "SpecialExit", "PartitionDown", "DependencyNeverSatisfied",
)  # fmt: skip
DEPENDENCIES = (
    "", "", "afterok:7(failed)", "afterok:7_*(unfulfilled)", "afterany:7,afterok:8(failed)", "singleton",
    "aftercorr:7_1(failed)?afternotok:8+5", "after what",
)  # fmt: skip
IDS = ("7", "7_1", "8", "7+0", "7+1", "8_2")
COMMENTS = ("", "", "perdure:retry=never", "perdure:min-nodes=1", "perdure: failed 2020-09-13 12:26:40: why", "theirs")
PATHS = ("", "/home/out", "/home/slurm-7.out", "/home/slurm-%j.out", "/home/%x-%A_%a.%N", "/dev/null", "/home/o\\\\%j")


def _instant(rng: Random) -> int:
    return int(NOW) - rng.choice((0, 1, 60, 61, 300, 3600, 3601, -1, -2, -120))


def a_record(record: JobRecord, rng: Random) -> JobRecord:
    """As the controller shows a job."""
    state = rng.choice(OFTEN) if rng.random() < 0.8 else rng.choice(tuple(ATTEMPT_STATES))
    waits = state in ("PENDING", "SPECIAL_EXIT")
    return replace(
        record,
        job_id=rng.choice(IDS),
        raw_id=rng.choice((7, 8, 9)),
        name=rng.choice(("train", "a b")),
        uid=rng.choice((0, 1000, 1001)),
        state=state,
        reason=rng.choice(REASONS),
        priority=rng.choice((0, 1, 7)),
        exit_code=rng.choice((0, 0, 1, 75, 139)),
        nodes=() if waits else record.nodes,
        start_s=None if waits and rng.random() < 0.5 else _instant(rng),
        end_s=rng.choice((None, _instant(rng))),
        submit_s=_instant(rng),
        preempt_s=rng.choice((None, None, _instant(rng))),
        dependency=rng.choice(DEPENDENCIES),
        comment=rng.choice(COMMENTS),
        admin_comment=rng.choice(COMMENTS),
        stdout=rng.choice(PATHS),
        stderr=rng.choice(PATHS),
        work_dir="/home",
        tasks=rng.choice((0, 1, 2, 4)),
        is_batch=rng.random() < 0.85,
        is_cron=rng.random() < 0.1,
        per_node=rng.choice(("", "gres:gpu:4", "gres/gpu:h100:2")),
    )


def a_row(row: AccountingRow, rng: Random) -> AccountingRow:
    """As accounting shows a start."""
    word = rng.choice(OFTEN) if rng.random() < 0.8 else rng.choice((*ATTEMPT_STATES, "CANCELLED by 0", "OUT_OF_ME+"))
    return replace(
        row,
        job_id=rng.choice(IDS),
        raw_id=rng.choice((7, 8, 9)),
        state=word,
        reason=rng.choice(REASONS),
        uid=rng.choice((-1, 0, 1000)),
        start_s=rng.choice((None, _instant(rng), _instant(rng))),
        end_s=rng.choice((None, _instant(rng), _instant(rng))),
        submit_s=_instant(rng),
        exit_code=rng.choice((0, 1, 11, 75)),
        stdout=rng.choice(PATHS),
    )


def a_config(config: Config, rng: Random) -> Config:
    """Settings that are asked for, some as they ought to be."""
    said = {
        "ClusterName": ("c", ""), "AccountingStorageType": ("accounting_storage/slurmdbd", "accounting_storage/none"),
        "AccountingStorageEnforce": ("limits", "associations,safe", ""), "RequeueExit": ("75", "75,100-110", ""),
        "RequeueExitHold": ("3", ""), "JobRequeue": ("1", "0"), "MinJobAge": ("300 sec", "0 sec", "2 sec"),
        "PrivateData": ("none", "jobs,usage"), "SlurmUser": ("slurm(64030)", "root(0)"), "Epilog": ("/site/epilog", ""),
        "EpilogSlurmctld": ("/x/epilogctld", ""), "JobCompType": ("jobcomp/script", "jobcomp/none"),
        "JobCompLoc": ("/x/jobcomp", ""), "ResumeProgram": ("", "/x"), "PreemptMode": ("OFF", "REQUEUE"),
        "KillWait": ("30 sec",), "SlurmctldParameters": ("", "preempt_send_user_signal"), "JobFileAppend": ("0", "1"),
        "DependencyParameters": ("", "kill_invalid_depend"), "SLURM_VERSION": ("22.05.8", "24.11.1", "19.05"),
        "PrologFlags": ("", "Alloc,Contain"), "MaxJobCount": ("10000",), "HealthCheckProgram": ("", "/x/healthcheck"),
    }  # fmt: skip
    values = {name: rng.choice(values) for name, values in said.items() if rng.random() < 0.9}
    return replace(config, values=values, time_s=rng.choice((None, NOW, NOW - 3.0, NOW + 90.0)))
