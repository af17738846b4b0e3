"""Texts of other programs, whole and with a part left out, doubled, emptied or renumbered: what is read of them."""
# ruff: noqa: E501  (samples are as other programs write them)

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from perdure.backends import owner_requests, script
from perdure.backends.condor import ads
from perdure.backends.slurm import config, links, node_records, records, request, sbatch, spool, submission
from perdure.backends.slurm import queue as slurm_queue
from perdure.backends.slurm.limits import limits_of
from perdure.coordination import playbook, wire
from perdure.coordination.record import ExceptionRecord
from perdure.errors import PerdureError
from perdure.job import inspection, native, options, starts
from perdure.model import job_comment
from perdure.slurm_words import durations, hostlist, reasons, states, tres
from tests.backends.slurm.text import MARK, job, node
from tests.recorded.altered import altered
from tests.recorded.drawn import Drawn, in_words

MANY = 60  # of each sample
SCRIPT = """#!/bin/bash -e
#SBATCH --job-name=train -N2 --ntasks-per-node=4
#SBATCH --gres=gpu:h100:4
#SBATCH -t 1-02:03:04
#SBATCH --open-mode=append --signal=B:USR1@120
#SBATCH -p main,other -o logs/%x-%j.out -w n[1-2] -x n3
# a comment
RUN=/scratch/$USER/$SLURM_JOB_ID
cd $RUN && mkdir -p logs
srun --label -o $RUN/rank-%t.log --error=rank-%t.err python train.py --lr 1 > all.txt 2>&1
torchrun --log-dir=$RUN/torch --nproc-per-node 4 train.py | tee -a "$RUN/tee.log"
mpirun -np 8 --output-filename out ./sim &
if [ -f done ]; then sbatch --dependency=afterok:$SLURM_JOB_ID next.sh; else scontrol requeue $SLURM_JOB_ID; fi
(cd sub; bash -c 'python eval.py >> eval-$SLURM_PROCID.log') || exit 3
test -f model.pt
"""
CONFIG = f"""Configuration data as of 1600000000~{MARK}
BOOT_TIME               = 1599990000~{MARK}
ClusterName             = c
AccountingStorageType   = accounting_storage/slurmdbd
AccountingStorageEnforce = associations,limits
RequeueExit             = 75,100-110
EpilogSlurmctld[0]      = /x/epilogctld
MinJobAge               = 300 sec
SlurmctldHost[0]        = ctl(10.0.0.1)
SlurmctldPort           = 6817
PrivateData             = (null)
"""
STATES = ("DOWN*", "IDLE+DRAIN", "MIXED+DRAIN", "ALLOCATED", "IDLE+CLOUD+POWERED_DOWN", "FUTURE", "IDLE+MAINTENANCE+RESERVED",
          "CANCELLED by 1000", "OUT_OF_ME+", "NODE_FAIL", "COMPLETING", "REQUEUE_HOLD", "BOOT_FAIL", "UNKNOWN")  # fmt: skip
JOBS = (
    job(7, name="a b", comment="perdure:retry=never", tail="AdminComment=x TresPerNode=gres:gpu:2 ")
    + job(
        8, before_name="ArrayJobId=8 ArrayTaskId=1-3,7%2 ", state="PENDING", start="Unknown", nodes="(null)", priority=0
    )
    + job(9, before_name="HetJobId=9 HetJobOffset=1 ", stdout="out", network="a b", cron="CronJob=Yes ")
    + job(
        10,
        name="x\nJobId=7 JobName=y",
        state="FAILED",
        exit_code="1:0",
        end=200,
        required="n[1-2]",
        excluded="n[3,5-6]",
    )
)
NODES = node("n1") + node("n2", "IDLE+DRAIN", "Xid 79") + node("n3", "DOWN*", "Not responding")
PARTITIONS = (
    "PartitionName=main Default=YES State=UP MaxTime=1-00:00:00 DefaultTime=01:00:00 MaxNodes=4 PriorityTier=2 QoS=high\n"
    "PartitionName=other Default=NO State=DOWN MaxTime=UNLIMITED DefaultTime=NONE MaxNodes=UNLIMITED QoS=N/A\n"
)
RESERVATIONS = f"ReservationName=maint StartTime=1600000000~{MARK} EndTime=1600003600~{MARK} Nodes=n[1-2,5]\n"
LIMITS = (
    "normal|DenyOnLimit,OverPartQOS|cpu=8,gres/gpu=4|4|mem=9G|gres/gpu=2|3|1-00:00:00\nhigh|||||||\n~c|lab||||normal|cpu=8|9|||\n"
    "c|lab|ada||lab|normal||2|gres/gpu=4|1|600\nother|lab|bob|main|lab||||||\n"
)
AD = {
    "ClusterId": 7, "ProcId": 1, "JobStatus": 5, "HoldReason": 'its "disk"', "Requirements": "/Expr(TARGET.Cpus > 1)/",
    "NumShadowStarts": 2, "RequestGPUs": 2, "ExitBySignal": False, "Out": "out", "QDate": 1600000000, "X": 1.5,
}  # fmt: skip
END = (
    "perdure-event 1 end\nJOBID=7\nARRAYJOBID=5\nARRAYTASKID=3\nUID=1000\nUSERNAME=ada\nJOBSTATE=NODE_FAIL\n"
    "EXITCODE=1:9\nSUBMIT=90\nSTART=100\nEND=110\nNODES=n[1-2]\nJOBNAME=x y\n"
)
QUESTION = "perdure-event 1 ended\nJOBID=7\nARRAYJOBID=0\nARRAYTASKID=4294967294\nNODES=n[1-2]\nANSWER=7.epilogctld.12.answer\n"
RECORD = wire.encode(Drawn("a record", {})(ExceptionRecord, "record")) | {"of_mine": {"x": [1, 2]}}
PLAYBOOK = """
version = 1

[failures."job.net"]
like = "job"
deadline_s = 60
window_s = 300.0
budget = { limit = 2, window_s = 3600, per = "node" }

[failures."storage.slow"]
scope = "global"
levels = { scheduler = "throttle", resource_manager = "drain" }
fall_back = "leave"
outlives_job = true
lasts_s = 30

[resources."pfs:/scratch"]
licence = "pfs"
partitions = ["main"]
directory = "/scratch"
"""
PY_SPY = json.dumps(
    [
        {
            "pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "active": True, "owns_gil": True,
            "frames": [
                {"name": "all_reduce", "filename": "/torch/distributed.py", "short_filename": "d.py", "line": 12},
                {"name": "main", "filename": "train.py", "line": 3},
            ],
        }
    ]
)  # fmt: skip
FAULTHANDLER = """Fatal Python error: Aborted

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3/threading.py", line 320 in wait
  File "/torch/utils/data/dataloader.py", line 99 in _next

Current thread 0x00007f0000000002 (most recent call first):
  File "/torch/distributed/c10d.py", line 2000 in all_reduce
  File "train.py", line 7 in <module>
"""
MAPS = """55f0a000-55f0b000 r-xp 00000000 fd:00 12 /usr/bin/python3.11
7f0000000000-7f0000100000 r-xp 00001000 fd:00 34 /usr/lib/libnccl.so.2 (deleted)
7f0000100000-7f0000200000 rw-p 00000000 00:00 0
7ffd0000-7ffe0000 r-xp 00000000 00:00 0 [vdso]
"""
LINKS = (
    "7|1000|PENDING|Priority|1600000000|1600000100|1600003600|perdure-keep=train-1/2.1\n"
    "8|1000|RUNNING|None|1600000000|1600000100|N/A|perdure: x\n9|0|COMPLETED|None|1|2|3|perdure-keep=train-1/3.1\n"
)
SHOWN = (
    "JobId=7 ArrayJobId=7 ArrayTaskId=1 JobName=x UserId=ada(1000) JobState=RUNNING Restarts=2 StartTime=1600000000"
    " NodeList=n[1-2] Features=(null) Restarts=9\nJobId=8 HetJobId=7 HetJobOffset=1 JobName=y UserId=ada(1000)"
    " JobState=RUNNING Restarts=2 StartTime=1600000000 NodeList=n3 Features=x\n"
)


def _jobs(text: str) -> Any:
    found = records.read_jobs(text.encode(), MARK)
    claims = {number: {records.OwnerClaim(1000, 90)} for number in (7, 10)}
    repaired = records.repair(found.torn, {record.raw_id for record in found.whole}, claims, MARK)
    return found.whole, found.unreadable, repaired.whole, repaired.unreadable, _states_of(found.whole)


def _limits(text: str) -> Any:
    qos, _, associations = text.partition("~")
    return limits_of(qos.encode(), associations.encode(), "c")


def _states_of(jobs: tuple[records.JobRecord, ...]) -> Any:
    """What the words of records mean an hour later, and before their end."""
    asked = (records.waits_again, records.ended_badly)
    return [[read(job, now) for read in asked for now in (90.0, 3700.0)] for job in jobs]


def _of_words(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: [read(word) for word in text.split(" ")]


TEXTS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("duration_s", _of_words(durations.duration_s), "01:00:00 1-02:03:04 1-02:03 30 5:10 UNLIMITED 1-2 0:0:1 Partition_Limit"),
    ("elapsed_s", _of_words(lambda word: _or_refused(durations.elapsed_s, word)), "1-02:03:04 00:01:02.5 02:03 7-x"),
    ("time_s", _of_words(lambda word: _or_refused(durations.time_s, word)), "1-12:00:00 30 5:10 UNLIMITED 1-2 INFINITE 01:02:03 x"),
    ("expand", _of_words(lambda word: hostlist.expand(word, 20)), "n[1-3,5] n1,n2 gpu[01-03]-[1-2] n[3-1] n[1-99] (null) n["),
    ("is_node_name", _of_words(hostlist.is_node_name), "n1 n[1-2] a.b-c -x n/1 n1,n2 \x00"),
    ("gpus", _of_words(tres.gpus), "cpu=1,gres/gpu=4 gres:gpu:h100:2 gpu:4(S:0-1) gres/gpu:a=1,gres/gpu:b=2 gpu cpu=3 gres/mps=9"),
    ("gpus_and_types", _of_words(tres.gpus_and_types), "gres/gpu=4,gres/gpu:h100=4 gres/gpu:a=1,gres/gpu:b=2 cpu=1"),
    ("cpus_and_mem", _of_words(tres.cpus_and_mem_mib), "cpu=4,mem=16G mem=100M,cpu=1 mem=2T mem=1.5G cpu=x mem=9000K"),
    ("node_total", _of_words(tres.node_total), "cpu=1,node=3 node=x node=2,billing=9"),
    ("node_state", lambda text: [states.node_state(word) for word in text.split("|")], "|".join(STATES)),
    ("whole_word", lambda text: [states.whole_word(word) for word in text.split("|")], "|".join(STATES)),
    ("is_reserved", lambda text: [states.is_reserved(word) for word in text.split("|")], "|".join(STATES)),
    ("job_state", _of_words(lambda word: [states.job_state(word, n, "JobHeldUser" if n == 2 else "") for n in range(3)]),
     " ".join(word.partition(" ")[0] for word in STATES)),
    ("attempt_state", lambda text: [states.attempt_state(word, *end) for word in text.split("|") for end in
     ((0, 0, ""), (1, 0, "NonZeroExitCode"), (0, 9, "launch_failed_requeued_held"), (0, 0, "NodeDown"))], "|".join(STATES)),
    ("exit_status", _of_words(states.exit_status), "0:0 1:0 0:9 137:0 0:125 x:1 1 :: 300:1"),
    ("reasons", lambda text: [[read(word) for read in (reasons.is_given_up, reasons.is_put_back_held, reasons.is_slurms_own,
     reasons.with_blanks)] for word in text.split("|")],
     "launch_failed_requeued_held|JobHoldMaxRequeue|job_requeued_in_held_state|BadConstraints|Not_responding|NHC: x|Xid 79"),
    ("read_script", lambda text: script.read_script(text.encode(), {"USER": "ada", "SLURM_JOB_ID": "7"}, {"t": script.RANK}),
     SCRIPT),
    ("script", lambda text: (script.survives_steps(text.encode()), script.ends_with_test(text.encode()),
     list(script.lines_of(text.encode()))), SCRIPT),
    ("request_of", lambda text: request.request_of(text.encode()), SCRIPT),
    ("directive_words", lambda text: request.directive_words(text.encode(), "x"), SCRIPT),
    ("asked_by", lambda text: sbatch.asked_by(text.encode()), SCRIPT),
    ("script_options", lambda text: submission.script_options(text.encode(), "x"), SCRIPT),
    ("interpreter_of", lambda text: submission.interpreter_of(text.encode(), "x"), SCRIPT),
    ("link_script", lambda text: submission.link_script(submission.script_options(text.encode(), "x"), ["a b", "c"]), SCRIPT),
    ("submission_of", lambda text: submission.submission_of(shlex.split(text)),
     "-N 2 --time=10 -pmain --gres gpu:4 --signal B:USR1@60 -J 'a name' run.sh --lr 1"),
    ("for_later_links", lambda text: submission.words_of(submission.for_later_links(submission.split_options(shlex.split(text))[0])),
     "-N 2 --time=10 --begin=now+1hour -d afterok:7 --array=1-3 --hold -o out-%j.txt --wait --parsable -t 9"),
    ("warning_of", _of_words(sbatch.warning_of), "--signal=B:USR1@120 --signal=TERM --signal=R:10@5 --signal=USR2@ B:9@60"),
    ("environment", lambda text: request.environment_options(dict(word.partition("=")[::2] for word in text.split("\n"))),
     "SBATCH_PARTITION=main\nSBATCH_TIMELIMIT=10\nSLURM_JOB_ID=7\nSBATCH_GRES=gpu:2\nSBATCH_EXCLUSIVE=\nHOME=/home"),
    ("read_config", lambda text: config.read_config(text.encode(), MARK), CONFIG),
    ("read_jobs", _jobs, JOBS),
    ("read_nodes", lambda text: node_records.read_nodes(text.encode(), MARK), NODES),
    ("read_partitions", lambda text: slurm_queue.read_partitions(text.encode()), PARTITIONS),
    ("read_reservations", lambda text: slurm_queue.read_reservations(text.encode(), MARK), RESERVATIONS),
    ("limits_of", _limits, LIMITS),
    ("read_links", lambda text: links.read_links(text, 1000), LINKS),
    ("submitted_id", lambda text: links.submitted_id(text), "Submitted batch job 7\n8;cluster\n"),
    ("end", spool._end, END),
    ("question", spool._question, QUESTION),
    ("read_ads", lambda text: [[read(ad, name) for name in (*AD, "gone") for read in
     (ads.text, ads.number, ads.whole, ads.is_true, ads.expression)] + [ads.job_id(ad), ads.run_number(ad)]
     for ad in ads.read_ads(text.encode())], json.dumps([AD])),
    ("owner_requests", owner_requests.owner_requests, "perdure: retry=never, nodes=2-3, gpus=1,2,4 timeout=retry; policy=yes of mine"),
    ("chain_link_of", lambda text: (job_comment.chain_link_of(text), job_comment.mark_of(text)), "mine perdure-keep=train-1/2.1 (10-20-30 s) because it pays"),
    ("wire", lambda text: wire.encode(wire.decode(json.loads(text))), json.dumps(RECORD)),
    ("playbook", lambda text: playbook.site_playbook(text, "x"), PLAYBOOK),
    ("read_words", lambda text: options.read_words(text.split()), "--hang-after 60 --keep-output --signal-before=120:USR1 -- python x.py"),
    ("warn_before", _of_words(lambda word: _or_refused(options.warn_before, word)), "120 120:USR1 60:SIGTERM x :USR1 5: 9:NONE"),
    ("py-spy", lambda text: inspection.frames_of(json.loads(text), 7), PY_SPY),
    ("faulthandler", lambda text: inspection.dump_of(text.encode()), FAULTHANDLER),
    ("areas_of", native.areas_of, MAPS),
    ("understood", lambda text: starts.understood(text, "7"), SHOWN),
)  # fmt: skip
CASES = len(TEXTS)


def story(case: int, _rng: Random) -> Iterator[str]:
    name, read, sample = TEXTS[case]
    for number, text in enumerate(altered(sample, MANY)):
        try:
            said = in_words(read(text))
        except (PerdureError, ValueError, TypeError, KeyError) as err:
            said = f"{type(err).__name__} {err}"
        yield f"{name} {number}: {said}"


def _or_refused(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (PerdureError, ValueError) as err:
        return str(err)
