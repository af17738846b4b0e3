"""A Slurm that is played: jobs and nodes as its tools print them, changed by what ``scontrol`` and others are told.

It knows no rules of its own: what happens to a job is the story's choice.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from perdure.backends.reader import ReadRequest, WantedText
from perdure.backends.slurm.spool import Question, Spool, Taken
from perdure.backends.slurm.tools import Tools
from perdure.backends.tool_process import ToolAnswer
from perdure.errors import ClusterBusy
from perdure.model.actions import Action
from perdure.model.output import Absent, Output, OutputFile, OutputKind, Why
from perdure.slurm_words.hostlist import expand
from tests.backends.slurm import text
from tests.recorded.drawn import in_words

START_S = 1_600_000_000
MARK = "0123456789abcdefz"
NODES = ("n1", "n2", "n3", "n4")
USERS = {"ada": 1000, "bob": 1001}
SCRIPTS = (
    "#!/bin/sh\n#SBATCH -o out\nsrun train\n",
    "#!/bin/bash\n#SBATCH --signal=B:USR1@120\n#SBATCH --open-mode=append\npython train.py > logs/$SLURM_JOB_ID.txt\n",
    "#!/bin/sh\n#SBATCH -p main,other\nsrun -o rank-%t.log --error=rank-%t.err train || exit 3\n",
)
SUBMIT_LINES = ("sbatch x.sh", "sbatch --open-mode=append x.sh", "sbatch --signal=B:TERM@60 -p other,main x.sh", "")
NEVER = "Unknown"


class PlayedSlurm:
    """What its tools know."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now = rng, float(START_S)
        self.jobs: dict[int, dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []  # one for each start
        self.nodes: dict[str, dict[str, Any]] = {name: {"state": "IDLE", "since": START_S} for name in NODES}
        self.told: list[str] = []
        self.past: list[Action] = []
        self.silent, self.denies, self.boot_s, self.codes = False, False, START_S - 900 + rng.randrange(2), "75"
        self.next = 101

    # What the story does

    def submit(self, **more: Any) -> int:
        rng, number = self.rng, self.next
        self.next += 1
        user = rng.choice(tuple(USERS))
        self.jobs[number] = {
            "name": rng.choice(("train", "train", "a b", "x JobName=y", f"x\nJobId={number - 1} JobName=y")),
            "user": user, "uid": USERS[user], "state": "PENDING",
            "reason": rng.choice(("Priority", "Resources", "None")), "start": NEVER, "submit": int(self.now),
            "nodes": "(null)", "priority": rng.choice((1, 7)), "requeue": int(rng.random() < 0.85),
            "batch": int(rng.random() < 0.9), "stdout": rng.choice(("/home/out", f"/home/slurm-{number}.out")),
            "tasks": rng.choice((1, 2)), "tasks_per_node": rng.choice((0, 1)), "count": rng.choice((1, 1, 2)),
            "limit": rng.choice(("01:00:00", "00:10:00", "UNLIMITED")), "script": rng.choice(SCRIPTS),
            "tres": "cpu=2,gres/gpu=2", **more,
        }  # fmt: skip
        return number

    def start(self, number: int) -> None:
        job = self.jobs[number]
        nodes = sorted(self.rng.sample(NODES, job["count"]))
        job |= {"state": "RUNNING", "reason": "None", "start": int(self.now), "end": int(self.now) + 3600}
        job |= {"nodes": ",".join(nodes), "exit_code": "0:0", "dependency": "(null)"}
        self.rows.append(
            {"number": number, "state": "RUNNING", "start": int(self.now), "end": NEVER, **_kept(number, job)}
        )

    def end(self, number: int, state: str, code: str, completing: bool) -> None:
        job, row = self.jobs[number], self._row(number)
        reason = {"FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit"}.get(state, "None")
        job |= {"state": "COMPLETING" if completing else state, "reason": reason, "end": int(self.now)}
        job |= {"exit_code": code, "over": state}
        if state == "NODE_FAIL":
            row["failed"] = job["nodes"].partition(",")[0]
        row |= {"state": state, "end": int(self.now), "exit_code": code}
        for other in self.jobs.values():
            if state != "COMPLETED" and other.get("dependency", "").endswith(f":{number}(unfulfilled)"):
                other["dependency"] = other["dependency"].replace("unfulfilled", "failed")

    def complete(self, number: int) -> None:
        self.jobs[number]["state"] = self.jobs[number].get("over", "COMPLETED")

    def put_back(self, number: int, hold: bool, row_state: str = "REQUEUED") -> None:
        job, row = self.jobs[number], self._row(number)
        if row and row["end"] == NEVER:
            row |= {"state": row_state, "end": int(self.now)}
        job |= {"state": "PENDING", "reason": "JobHeldUser" if hold else "BeginTime", "end": NEVER, "nodes": "(null)"}
        job |= {"restarts": job.get("restarts", 0) + 1, "submit": int(self.now), "start": int(self.now) + 120}
        job["priority"] = 0 if hold else 7

    def _row(self, number: int) -> dict[str, Any]:
        return next((row for row in reversed(self.rows) if row["number"] == number), {})

    # What its tools say

    def job_text(self, number: int, mark: str) -> str:
        job = self.jobs[number]
        keys = "name user uid state reason start end submit nodes required excluded comment stdout priority restarts "
        keys += "requeue batch exit_code tres tasks tasks_per_node before_name tail limit cron preempt"
        line = text.job(number, mark=mark, **{key: job[key] for key in keys.split() if key in job})
        line = line.replace("Dependency=(null)", f"Dependency={job.get('dependency', '(null)')}")
        return line.replace("NumNodes=1 ", f"NumNodes={job['count']} ", 1)

    def node_text(self, name: str, mark: str) -> str:
        node = self.nodes[name]
        return text.node(name, node["state"], node.get("reason", ""), node["since"], boot=self.boot_s, mark=mark)

    def config_text(self, mark: str) -> str:
        return (
            f"Configuration data as of {int(self.now)}~{mark}\nBOOT_TIME = {self.boot_s}~{mark}\nClusterName = c\n"
            f"RequeueExit = {self.codes}\nJobFileAppend = {self.boot_s % 2}\nSlurmctldPort = 6817\n"
            "AccountingStorageType = accounting_storage/slurmdbd\nAccountingStorageEnforce = limits\n"
        )

    def ask(self, command: str, mark: str) -> tuple[str, str]:
        """Output and complaint of one command to ``scontrol``."""
        if command.startswith("show config"):
            return self.config_text(mark), ""
        if command == "show job":
            return "".join(self.job_text(number, mark) for number in self.jobs), ""
        if command.startswith("show job "):
            found = self._named(command.split()[2])
            return "".join(self.job_text(number, mark) for number in found), "" if found else "Invalid job id specified"
        if command == "show node":
            return "".join(self.node_text(name, mark) for name in self.nodes), ""
        if command.startswith("show node "):
            name = command.split()[2]
            return (self.node_text(name, mark), "") if name in self.nodes else ("", f"Node {name} not found")
        if command == "show partition":
            return "PartitionName=main Default=YES State=UP MaxTime=1-00:00:00 DefaultTime=NONE MaxNodes=4\n", ""
        if command == "show reservation":
            return f"ReservationName=maint StartTime={START_S}~{mark} EndTime={START_S + 9}~{mark} Nodes=n[1-2]\n", ""
        if command.startswith("write batch_script "):
            number = int(command.split()[2])
            return (self.jobs[number]["script"], "") if number in self.jobs else ("", "job script retrieval failed")
        self.told.append(command)
        return "", self._told(command)

    def _told(self, command: str) -> str:
        """Carry out what changes something; what is complained of."""
        rng, (verb, *words) = self.rng, shlex.split(command)
        if self.denies and "AdminComment" in command:
            return "Access/permission denied"
        if rng.random() < 0.08:
            return rng.choice(("Requested operation is presently disabled", "Unable to contact slurm controller"))
        if verb == "update" and words[0].startswith("nodename="):
            given = dict(word.split("=", 1) for word in words)
            state = {"drain": "IDLE+DRAIN", "down": "DOWN", "resume": "IDLE", "undrain": "IDLE"}[given["state"]]
            since = int(self.now)
            self.nodes[given["nodename"]] = {"state": state, "reason": given.get("reason", ""), "since": since}
            return ""
        named = words[0].removeprefix("jobid=")
        found = [number for one in named.split(",") for number in self._named(one)]
        for number in found:
            self._change(number, verb, words[1:])
        return "" if found else "Invalid job id specified"

    def _change(self, number: int, verb: str, words: Sequence[str]) -> None:
        job = self.jobs[number]
        if verb in ("requeue", "requeuehold"):
            self.put_back(number, hold=verb == "requeuehold")
        elif verb == "hold":
            job |= {"priority": 0, "reason": "JobHeldUser"}
        elif verb == "release":
            job |= {"priority": 5, "reason": "None"}
        for word in words:
            key, _, value = word.partition("=")
            match key:
                case "ExcNodeList":
                    job["excluded"] = value or "(null)"
                case "ReqNodeList":
                    job["required"] = value or "(null)"
                case "NumTasks":
                    job["tasks"] = int(value)
                case "Comment":
                    job["comment"] = value
                case "AdminComment":
                    job["tail"] = f" AdminComment={value} "
                case "TimeLimit":
                    job["limit"] = value
                case "dependency":
                    job["dependency"] = value

    def _named(self, job_id: str) -> list[int]:
        array, _, task = job_id.partition("_")
        if not task:
            of_array = [n for n, job in self.jobs.items() if f"ArrayJobId={job_id} " in job.get("before_name", "")]
            return of_array or [int(job_id)] * (job_id.isdecimal() and int(job_id) in self.jobs)
        header = f"ArrayJobId={array} ArrayTaskId={task} "
        return [number for number, job in self.jobs.items() if job.get("before_name", "") == header]

    def run(self, argv: Sequence[str], stdin: bytes) -> ToolAnswer:
        """Of any other tool."""
        if self.silent:
            raise ClusterBusy(argv[0], "no answer in time", "Run `scontrol ping`")
        self.told.append(" ".join((*argv, stdin.decode())))
        if argv == ("scontrol", "--version"):
            return ToolAnswer(b"slurm 24.05.1", b"", 0)
        if argv[0] == "sacct" and "--helpformat" in argv:
            return ToolAnswer(b"JobID FailedNode SubmitLine\nStdOut", b"", 0)
        if argv[0] == "sacct" and "-P" in argv:
            return ToolAnswer(b"JobID|State\n1|COMPLETED\n", b"", self.rng.choice((0, 0, 1)))
        if self.rng.random() < 0.06:
            return ToolAnswer(b"", b"slurm_persist_conn_open: Unable to connect", 1)
        if argv[0] == "sacct":
            return ToolAnswer(self._rows(argv), b"", 0)
        if argv[0] == "scancel":
            for number in self._named(argv[1]):
                self._cancel(number)
            return ToolAnswer(b"", b"", 0)
        if "qos" in argv:
            return ToolAnswer(b"normal||cpu=8|4||gres/gpu=2|3|1-00:00:00\nbad|row\n", b"", 0)
        if "assoc" in argv:
            return ToolAnswer(b"c|lab||||normal|cpu=8||||\nc|lab|ada||lab|normal||2|gres/gpu=4|1|10\n", b"", 0)
        return ToolAnswer(b" Modified jobs...\n", b"", 0)

    def _cancel(self, number: int) -> None:
        row = self._row(number)
        self.jobs[number] |= {"state": "CANCELLED", "end": int(self.now), "reason": "None"}
        if row and row["end"] == NEVER:
            row |= {"state": "CANCELLED by 0", "end": int(self.now), "exit_code": "0:15"}

    def _rows(self, argv: Sequence[str]) -> bytes:
        delimiter = next(word for word in argv if word.startswith("--delimiter=")).partition("=")[2]
        fields = argv[argv.index("-o") + 1].split(",")
        which = argv[argv.index("-j") + 1].split(",") if "-j" in argv else None
        lines = []
        for row in self.rows:
            if which is None or row["JobID"] in which or row["JobID"].partition("_")[0] in which:
                cells = {
                    **row, "JobIDRaw": row["number"], "State": row["state"], "ExitCode": row.get("exit_code", "0:0"),
                    "Submit": row["submit"], "Start": row["start"], "End": row["end"], "UID": row["uid"],
                    "User": row["user"], "NodeList": row["nodes"], "AllocTRES": "gres/gpu=2", "Reason": "None",
                    "FailedNode": row.get("failed", ""), "StdOut": "", "SubmitLine": row["submit_line"],
                }  # fmt: skip
                lines.append("".join(f"{cells[field]}{delimiter}" for field in fields))
        return "\n".join([*lines, ""]).encode()


def _kept(number: int, job: dict[str, Any]) -> dict[str, Any]:
    header = dict(word.split("=") for word in job.get("before_name", "").split())
    task = header.get("ArrayTaskId", "")
    return {
        "JobID": f"{header['ArrayJobId']}_{task}" if task else str(number),
        "submit_line": SUBMIT_LINES[number % len(SUBMIT_LINES)],
        **{key: job[key] for key in ("submit", "uid", "user", "nodes")},
    }


class PlayedPipes:
    """Stands for a process."""

    has_ended = False

    def __init__(self, slurm: PlayedSlurm, argv: Sequence[str], mark: str) -> None:
        self._slurm, self._argv, self._mark = slurm, argv, mark
        self._written = b""

    def write(self, data: bytes) -> None:
        self._written += data

    def close_input(self) -> None:
        """Nothing is left open."""

    def read(self, until: bytes, prompts: tuple[bytes, ...], deadline: float) -> ToolAnswer:
        written, self._written = self._written, b""
        if not until:
            return self._slurm.run(self._argv, written)
        if self._slurm.silent:
            return ToolAnswer(b"", b"slurm_load_jobs error: Unable to contact slurm controller\n")
        out, err = [], []
        for command in written.decode().splitlines():
            if not command.startswith("show hostlist "):
                said, complaint = self._slurm.ask(command, self._mark)
                out.append(said)
                err.append(complaint)
        return ToolAnswer("".join(out).encode(), "\n".join(err).encode())


@dataclass(frozen=True)
class PlayedTools(Tools):
    """Slurm's tools, without processes."""

    slurm: PlayedSlurm = field(kw_only=True)

    def find(self, name: str) -> str:
        return name

    def check(self) -> None:
        """There is no file."""

    @contextmanager
    def start(self, argv: tuple[str, ...], time_mark: str) -> Iterator[Any]:
        yield PlayedPipes(self.slurm, argv, time_mark)


@dataclass(frozen=True)
class PlayedSpool(Spool):
    """What hooks drop, without files."""

    directory: Path = Path("/nowhere")
    dropped: list[Taken] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    def check(self) -> None:
        """There is no directory."""

    def take(self) -> Taken:
        taken = list(self.dropped)
        self.dropped.clear()
        return taken[0] if taken else Taken()

    def answer(self, question: Question) -> bool:
        self.answered.append(question.job_id)
        return True


class PlayedReader:
    """Stands for the process that reads as the owner: what it is asked for, and files that hold anything."""

    def __init__(self, rng: Random, told: list[str]) -> None:
        self._rng, self._told = rng, told

    def close(self) -> None:
        """There is no process."""

    def read(self, request: ReadRequest) -> Output:
        self._told.append(f"read {in_words(request)}")
        rng = self._rng
        files = []
        ranks = rng.choice(RANK_FILES)
        found = (WantedText((path,), OutputKind.RANK, rank) for path, rank in ranks)
        for wanted in (*request.files, *found):
            lines = [rng.choice(LINES) for _ in range(rng.randrange(6))]
            data = "".join(f"{line}\n" for line in lines).encode()
            path, written_s = rng.choice(wanted.paths), START_S + rng.choice((0.0, 100.0, 1e6))
            files.append(OutputFile(path, data, end=len(data), kind=wanted.kind, rank=wanted.rank, written_s=written_s))
        gone = Absent("/home/gone", rng.choice((Why.NO_DIRECTORY, Why.MISSING, Why.REFUSED)), "it is not there")
        return Output(tuple(files), (gone,) if rng.random() < 0.3 else ())


RANK_FILES = (
    (), (("/home/rank-0.log", "0"),), (("/home/r.07.txt", ""),), (("/home/r.07.txt", ""), ("/home/r.08.txt", "")),
    (("/home/a-3-of-8.log", ""), ("/home/b", "1")),
)  # fmt: skip
LINES = (
    "step 1 of 9", "RuntimeError: no", "slurmstepd: error: *** JOB 101 ON n1 CANCELLED AT 2020-09-13T12:27:00 ***",
    "srun: error: n1: task 0: Exited with exit code 1", "job 102 begins", "slurmstepd: error: *** STEP 102.0 ON n2 ***",
)  # fmt: skip


def nodes_of(job: dict[str, Any]) -> tuple[str, ...]:
    return expand("" if job["nodes"] == "(null)" else job["nodes"])
