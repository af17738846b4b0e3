"""A real Slurm of several nodes on this machine, for tests: Debian's own daemons, on free ports, in one directory.

Needs root (slurmd changes user ids) and the packages in `PACKAGES`; nothing outside the directory is touched.
GPUs are links to /dev/null (`emulated`: of that type, in shards too, and their managers know whose they are), CPUs and
memory are claimed. Timers are as short as Slurm takes them: a requeued job
waits 6 s, a dead node is noticed in 10 to 20 s.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import perdure.backends.slurm
from tests.slurm.machine import Machine, NotReady

HOOKS = Path(perdure.backends.slurm.__file__).parent / "hooks"
PACKAGES = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server slurm-wlm-basic-plugins slurm-wlm-mysql-plugin"
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "scontrol", "sacct")
SEARCH = "/usr/local/sbin:/usr/sbin:/sbin"
PATIENCE_S = 60.0  # for what takes a moment on a quiet machine
ACCOUNT_S, ACCOUNT_BYTES = 300, 8000  # how much is told of what came before a failure
NODE_MARK = "PERDURE_TEST_NODE"
SHARDS = 16

T = TypeVar("T")


def missing() -> str:
    """Why no cluster can be started here; "" where it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "a real Slurm needs Linux and root"
    path = f"{os.environ.get('PATH', '')}:{SEARCH}"
    gone = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"not installed: {', '.join(gone)} (packages: {PACKAGES})" if gone else ""


def await_(
    what: str, condition: Callable[[], T | None], patience_s: float = PATIENCE_S, words: Callable[[], str] = lambda: ""
) -> T:
    """Return the first true value of a condition. Raises `NotReady`, with `words` of what was seen instead."""
    end = time.monotonic() + patience_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise NotReady(f"{what}: not within {patience_s:g} s{words()}")
        time.sleep(0.05)


class SlurmCluster:
    """One cluster. `start` it, use it, `stop` it; it holds everything under `directory`."""

    name = "perdure"

    def __init__(
        self, directory: Path, nodes: int = 4, gpus: int = 4, extra_conf: str = "", emulated: bool = False
    ) -> None:
        self.directory, self._emulated = directory, emulated
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        self.gpus = gpus
        self.env = self._environment()
        self._held = tuple(_hold_port() for _ in range(3 + nodes))
        self._ports = tuple(held.getsockname()[1] for held in self._held)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._extra_conf = extra_conf
        self.since_s = time.time()  # accounting asked since then knows all that ever ran here

    # Life

    def start(self) -> None:
        """Start every daemon; return when all nodes take jobs."""
        self._configure()
        self._start_munge()
        self._start_database()
        self.start_dbd()
        self.run("sacctmgr", "-i", "add", "cluster", self.name)
        self.start_ctld(first=True)
        for node in self.nodes:
            self.start_node(node)
        self._await_idle()

    def stop(self) -> None:
        """End all processes that were started here, by their ids."""
        for node in self.nodes:
            with contextlib.suppress(NotReady):
                self._machine(node).kill()
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._end(name, signal.SIGKILL)
        for process in self._daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        for held in self._held:
            held.close()

    # Use

    def run(self, *argv: str, user: str | None = None, check: bool = True, stdin: str | None = None) -> str:
        """Run one of Slurm's commands; return what it printed. Raises `AssertionError` where it fails."""
        done = subprocess.run(
            argv,
            env=self.env,
            user=user,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.output,  # jobs work there, too, and no other cluster's jobs of the same ids
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}: {done.stderr or done.stdout}"
        return done.stdout

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """Submit a shell script with options of ``sbatch``; return the job's id.

        Output goes to ``out/<job id>.out`` under the directory where no option says otherwise.
        """
        output = () if any(o.startswith(("-o", "--output")) for o in options) else ("-o", f"{self.output}/%A_%a.out")
        if output and not any(o.startswith("--array") for o in options):
            output = ("-o", f"{self.output}/%j.out")
        body = f"#!/bin/sh\n{script}\n"
        answer = self.run("sbatch", "--parsable", *output, *options, user=user, stdin=body)
        return answer.strip().partition(";")[0]

    @property
    def output(self) -> Path:
        """Where jobs write their logs; everybody may."""
        return self.directory / "out"

    @property
    def events(self) -> Path:
        """Where Perdure's hooks, which this cluster runs, drop their files."""
        return self.directory / "events"

    def job(self, job_id: str) -> dict[str, str]:
        """The job's fields by ``scontrol show job`` (of tame jobs: no blanks in values); {} where it is gone."""
        answer = self.run("scontrol", "-o", "show", "job", job_id, check=False)
        return dict(word.partition("=")[::2] for word in answer.split() if "=" in word)

    def wait(
        self, job_id: str, condition: Callable[[dict[str, str]], bool], patience_s: float = PATIENCE_S
    ) -> dict[str, str]:
        """Wait until a condition holds for the job's fields; return them."""
        last: dict[str, str] = {}

        def holds() -> bool:
            nonlocal last
            last = self.job(job_id)
            return condition(last)

        await_(f"job {job_id}", holds, patience_s, lambda: f"; last seen: {last}")
        return last

    def cancel_all(self) -> None:
        """End all jobs and wait until every node is free and in service again, and accounting knows all."""
        await_("an empty queue", self._is_emptied, words=lambda: "\n" + self.run("squeue"))
        for node, state in self.node_states().items():
            if state.startswith("drain"):
                self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self._await_idle()
        self.await_accounting()

    def _is_emptied(self) -> bool:
        """Cancel whatever is in the queue, also what was submitted or put back since the last time."""
        left = self.run("squeue", "-h", "-o", "%i").split()
        if left:
            self.run("scancel", *left, check=False)
        return not left

    def await_accounting(self) -> None:
        """Wait until accounting knows all that slurmctld has to tell: that takes a while once slurmdbd was away."""

        def is_told() -> bool:
            return "DBD Agent queue size: 0\n" in self.run("sdiag")

        await_("accounting up to date", is_told, words=lambda: "\n" + self.run("sdiag"))

    def ends(self, job_id: str) -> list[dict[str, str]]:
        """The rows of all starts of a job, once accounting knows all, the oldest first; instants in seconds."""
        self.await_accounting()
        fields = "JobIDRaw,State,ExitCode,Start,End,NodeList"
        environment = {**self.env, "SLURM_TIME_FORMAT": "%s"}
        argv = ("sacct", "-nPXD", "-j", job_id, "-o", fields)
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
        rows = [dict(zip(fields.split(","), line.split("|"), strict=True)) for line in done.stdout.splitlines()]
        return sorted((row for row in rows if row["Start"].isdecimal()), key=lambda row: int(row["Start"]))

    def node_states(self) -> dict[str, str]:
        """State of each node, as ``sinfo`` words it, with its flags (``down*``)."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).split("\n")
        return dict(line.split() for line in lines if line.strip())

    def _await_idle(self) -> None:
        every = set(self.nodes)

        def idle() -> bool:
            return {node for node, state in self.node_states().items() if state == "idle"} == every

        await_("idle nodes", idle, words=lambda: f": {self.node_states()}")

    def account(self) -> str:
        """What Slurm says of its nodes and jobs, and the end of its controller's log: for a test that failed."""
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - ACCOUNT_S))
        fields = "JobID,State,ExitCode,Submit,Start,End,NodeList,Reason"
        told = (
            self.run("sinfo", "-N", "-o", "%N %T %E", check=False),
            self.run("sacct", "-a", "-X", "-D", "-S", since, "-o", fields, check=False),
            self.run("squeue", check=False),
            (self.directory / "log" / "slurmctld.log").read_text(errors="replace")[-ACCOUNT_BYTES:],
        )
        return "\n".join(told)

    # Faults

    def fail_node(self, node: str) -> None:
        """Cut the power of the node's daemon and all that runs on it."""
        self._machine(node).cut_power()

    def freeze_node(self, node: str) -> None:
        """Stop all that runs on the node, as a hang or a lost network would."""
        self._machine(node).freeze()

    def thaw_node(self, node: str) -> None:
        """Let a frozen node run on."""
        self._machine(node).thaw()

    def start_node(self, node: str, *options: str) -> None:
        """Start the node's daemon, where it does not run."""
        if self._runs(node):
            return
        argv = ("slurmd", "-D", "-f", str(self._conf), "-N", node, *options)
        self._start(node, argv, {NODE_MARK: f"{self.directory}/{node}"})

    def reboot_node(self, node: str) -> None:
        """End all that runs on the node; its daemon then says that the machine has just booted."""
        self.fail_node(node)
        await_(f"the daemon of {node} gone", lambda: not self._runs(node))
        self.start_node(node, "-b")
        self.return_node(node)

    def start_on(self, node: str, name: str, *argv: str) -> None:
        """Start a program of the site on a node, unless it runs there; it shares the node's fate."""
        self._start(f"{name}-{node}", argv, {NODE_MARK: f"{self.directory}/{node}"})

    def end_on(self, node: str, name: str) -> None:
        """End what `start_on` started."""
        self._end(f"{name}-{node}", signal.SIGTERM)

    def return_node(self, node: str) -> None:
        """Bring a node back into service, however it was lost."""
        self.thaw_node(node)
        self.start_node(node)

        def idle() -> bool:
            state = self.node_states().get(node, "")
            if state.startswith(("down", "drain")):
                self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            return state in ("idle", "mixed", "allocated")

        await_(f"{node} in service", idle, words=lambda: f": {self.node_states()}")

    @contextlib.contextmanager
    def failing_prolog(self, node: str) -> Iterator[None]:
        """Let the node's prolog fail: Slurm drains the node, and holds the job that was to start there."""
        mark = self.directory / "run" / f"prolog-fails-{node}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()

    @contextlib.contextmanager
    def configured(self, more: str) -> Iterator[None]:
        """Other settings for a while: of one that is given twice, the last counts."""
        before = self._conf.read_text()
        self.stop_ctld()
        self._conf.write_text(f"{before}\n{more}\n")
        try:
            self.start_ctld()
            yield
        finally:
            self.stop_ctld()
            self._conf.write_text(before)
            self.start_ctld()

    @contextlib.contextmanager
    def without(self, node: str) -> Iterator[None]:
        """A while in which slurm.conf does not name the last node."""
        last = len(self.nodes)
        assert node == self.nodes[-1]
        before, fewer = self._conf.read_text(), self._all.replace(f"-{last}]", f"-{last - 1}]")
        self.stop_ctld()
        kept = [line for line in before.splitlines() if not line.startswith(f"NodeName={node} ")]
        self._conf.write_text("\n".join(kept).replace(self._all, fewer) + "\n")
        try:
            self.start_ctld()
            yield
        finally:
            self.stop_ctld()
            self._conf.write_text(before)
            self.start_ctld()
            self.return_node(node)

    def crash_ctld(self, saved: bytes | None = None) -> None:
        """Kill slurmctld and start it again; with `saved`, as if it had last saved its jobs so."""
        self._end("slurmctld", signal.SIGKILL)
        if saved is not None:
            self._saved_jobs.write_bytes(saved)
        self.start_ctld()

    @contextlib.contextmanager
    def forgetful(self, next_id: int) -> Iterator[None]:
        """Inside the block slurmctld knows no job, and gives out ids from `next_id`; then all is as it was."""
        state, conf = self.directory / "spool" / "ctld", self._conf.read_text()
        kept = state.with_name("ctld-kept")
        self.stop_ctld()
        shutil.copytree(state, kept)
        for saved in state.glob("job_state*"):
            saved.unlink()
        self._conf.write_text(f"{conf}\nFirstJobId={next_id}\n")
        self.start_ctld(first=True)
        try:
            yield
        finally:
            self.stop_ctld()
            shutil.rmtree(state)
            kept.rename(state)
            self._conf.write_text(conf)
            self.start_ctld()

    def stop_ctld(self) -> None:
        """Let slurmctld save its state and end."""
        self._end("slurmctld", signal.SIGTERM)

    def saved(self) -> bytes:
        """What slurmctld saves of its jobs as they stand now: it is ended for that, and started again."""
        self.stop_ctld()
        try:
            return self._saved_jobs.read_bytes()
        finally:
            self.start_ctld()

    def await_saved(self, job_name: str) -> bytes:
        """Wait until slurmctld has saved a job, which it does at most every 5 s; return all that it saved."""

        def saved() -> bytes | None:
            with contextlib.suppress(FileNotFoundError):
                found = self._saved_jobs.read_bytes()
                return found if job_name.encode() in found else None
            return None

        return await_("slurmctld to save its state", saved)

    def start_ctld(self, first: bool = False) -> None:
        """`first`: it has no saved state, without which newer ones do not start unless they are told to."""
        clean = ("-i",) if first else ()
        self._start("slurmctld", ("slurmctld", "-D", "-f", str(self._conf), *clean))
        await_("slurmctld", lambda: "UP" in self.run("scontrol", "ping", check=False))

    def kill_dbd(self) -> None:
        self._end("slurmdbd", signal.SIGKILL)

    def start_dbd(self) -> None:
        self._start("slurmdbd", ("slurmdbd", "-D"))
        await_("slurmdbd", lambda: _listens(self._ports[1]))

    # Inside

    @property
    def _saved_jobs(self) -> Path:
        return self.directory / "spool" / "ctld" / "job_state"

    @property
    def _conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SRUN", "SACCT"))}
        return {**kept, "SLURM_CONF": str(self._conf), "PATH": f"{kept.get('PATH', '')}:{SEARCH}"}

    def _start(self, name: str, argv: tuple[str, ...], more_env: Mapping[str, str] | None = None) -> None:
        if self._runs(name):
            return
        program = shutil.which(argv[0], path=self.env["PATH"]) or argv[0]
        with (self.directory / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                (program, *argv[1:]),
                env={**self.env, **(more_env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory / "run",
                start_new_session=True,
            )

    def _runs(self, name: str) -> bool:
        return name in self._daemons and self._daemons[name].poll() is None

    def _end(self, name: str, sig: signal.Signals) -> None:
        process = self._daemons.get(name)
        if process is None or process.poll() is not None:
            return
        process.send_signal(sig)
        process.wait(PATIENCE_S)

    def _machine(self, node: str) -> Machine:
        """The node's daemon bears our mark, jobs bear Slurm's own; from 24.11 on step daemons bear none."""
        ours = f"{NODE_MARK}={self.directory}/{node}".encode()
        slurms = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self._conf}".encode()}
        return Machine(node, lambda environment: ours in environment or slurms <= environment, "slurmstepd")

    def _start_munge(self) -> None:
        run = self.directory / "run"
        self._start(
            "munged",
            (
                "munged",
                "--foreground",
                "--force",
                f"--socket={run}/munge.socket",
                f"--key-file={self.directory}/etc/munge.key",
                f"--pid-file={run}/munged.pid",
                f"--log-file={self.directory}/log/munged.log",
                f"--seed-file={run}/munge.seed",
            ),
        )
        await_("munged", (run / "munge.socket").exists)

    def _start_database(self) -> None:
        data, run, port = self.directory / "db", self.directory / "run", self._ports[2]
        # A server that starts clears its kind's temporary files away: in a shared directory, another server's too.
        own = f"--tmpdir={run}"
        fast = ("--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=16M")
        base = ("--no-defaults", f"--datadir={data}", own, "--user=root")
        subprocess.run(
            ("mariadb-install-db", *base, "--skip-test-db", "--auth-root-authentication-method=normal", *fast[::2]),
            env=self.env,
            capture_output=True,
            check=True,
            timeout=180,
        )
        (self.directory / "etc" / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
            "CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'test';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\n"
        )
        options = (f"--port={port}", "--bind-address=127.0.0.1", f"--socket={run}/mariadb.socket")
        small = ("--skip-name-resolve", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
        init = (f"--init-file={self.directory}/etc/init.sql", f"--pid-file={run}/mariadbd.pid")
        self._start("mariadbd", ("mariadbd", *base, *options, *small, *fast, *init))
        await_("mariadbd", lambda: _listens(port))

    def _configure(self) -> None:
        for part in ("etc", "run", "log", "spool/ctld", "dev", "out", "db", "events"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        for path in (self.directory, *(p for p in self.directory.rglob("*") if p.is_dir())):
            path.chmod(0o755)
        self.output.chmod(0o1777)
        etc = self.directory / "etc"
        for name in self.nodes:
            (self.directory / "spool" / name).mkdir(exist_ok=True)
        for i in range(self.gpus):
            (self.directory / "dev" / f"nvidia{i}").symlink_to("/dev/null")
        (etc / "munge.key").write_bytes(os.urandom(1024))
        (etc / "munge.key").chmod(0o600)
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        devices = f"[0-{self.gpus - 1}]" if self.gpus > 1 else "0"
        gres = f"NodeName={self._all} Name=gpu Type={self._gpu_type} File={self.directory}/dev/nvidia{devices}\n"
        shards = f"NodeName={self._all} Name=shard Count={SHARDS}\n" if self._emulated else ""
        (etc / "gres.conf").write_text(gres + shards if self.gpus else "")
        for hook in ("jobcomp", "strigger"):
            (etc / hook).write_text(f'#!/bin/sh\nPERDURE_SPOOL={self.events} exec {HOOKS}/{hook} "$@"\n')
            (etc / hook).chmod(0o755)
        self.let_epilogs_wait(5)
        (etc / "prolog").write_text(f"#!/bin/sh\n[ ! -e {self.directory}/run/prolog-fails-$SLURMD_NODENAME ]\n")
        (etc / "prolog").chmod(0o755)
        if self._emulated:
            own = f"PERDURE_EMULATED_JOBS={self.directory}/run/$SLURMD_NODENAME/jobs"
            (etc / "prolog").write_text(f"#!/bin/sh\n{own} exec {HOOKS}/emulated-gpus\n")
            for node in self.nodes:
                self.devices(node).joinpath("jobs").mkdir(parents=True)
        self._conf.write_text(self._slurm_conf())
        (etc / "slurmdbd.conf").write_text(self._slurmdbd_conf())
        (etc / "slurmdbd.conf").chmod(0o600)

    def let_epilogs_wait(self, seconds: int) -> None:
        """How long each waits for a decision at most: 5 s on a site, more where a busy machine must not matter."""
        hook = self.directory / "etc" / "epilogctld"
        told = f"PERDURE_SPOOL={self.events} PERDURE_EPILOG_WAIT_S={seconds}"
        new = hook.with_name("epilogctld.new")
        new.write_text(f'#!/bin/sh\n{told} exec {HOOKS}/epilogctld "$@"\n')
        new.chmod(0o755)
        new.replace(hook)

    def devices(self, node: str) -> Path:
        """Where the managers of a node's emulated GPUs have their sockets."""
        return self.directory / "run" / node

    @property
    def _gpu_type(self) -> str:
        return "emulated" if self._emulated else "h100"

    @property
    def _all(self) -> str:
        return f"node[1-{len(self.nodes)}]"

    def _slurm_conf(self) -> str:
        d, host = self.directory, socket.gethostname().partition(".")[0]
        gres = f"Gres=gpu:{self._gpu_type}:{self.gpus}" if self.gpus else ""
        gres += f",shard:{SHARDS}" if self._emulated else ""
        kinds, epilog = ("gpu,shard", f"Epilog={d}/etc/prolog") if self._emulated else ("gpu", "")
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=16000 {gres}\n"
            for node, port in zip(self.nodes, self._ports[3:], strict=True)
        )
        return f"""\
ClusterName={self.name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self._ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={d}/run/munge.socket,cred_expire=5
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/%n.log
StateSaveLocation={d}/spool/ctld
SlurmdSpoolDir={d}/spool/%n
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
RequeueExit=75
RequeueExitHold=78
ReturnToService=1
SlurmctldTimeout=10
SlurmdTimeout=5
MessageTimeout=5
BatchStartTimeout=10
KillWait=2
UnkillableStepTimeout=20
InactiveLimit=0
MinJobAge=300
TrackWCKey=yes
GresTypes={kinds}
RebootProgram=/bin/true
MailProg=/bin/true
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={self._ports[1]}
AccountingStoragePass={d}/run/munge.socket
AccountingStoreFlags=job_comment
JobCompType=jobcomp/script
JobCompLoc={d}/etc/jobcomp
Prolog={d}/etc/prolog
EpilogSlurmctld={d}/etc/epilogctld
{epilog}
Licenses=pfs:4
AccountingStorageTRES=gres/gpu
{self._extra_conf}
{nodes}
PartitionName=main Nodes={self._all} Default=YES MaxTime=UNLIMITED DefaultTime=01:00:00 DefMemPerCPU=64 PriorityTier=1
PartitionName=urgent Nodes={self._all} MaxTime=1-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=64 PriorityTier=9
"""

    def _slurmdbd_conf(self) -> str:
        d, host = self.directory, socket.gethostname().partition(".")[0]
        return f"""\
AuthType=auth/munge
AuthInfo=socket={d}/run/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={self._ports[1]}
SlurmUser=root
PidFile={d}/run/slurmdbd.pid
LogFile={d}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self._ports[2]}
StorageUser=slurm
StoragePass=test
StorageLoc=slurm_acct_db
"""


_shared: list[SlurmCluster] = []


def account_of_shared() -> str:
    """`SlurmCluster.account` of the cluster of this process; "" where none was started, the error where it is mute."""
    try:
        return _shared[0].account() if _shared else ""
    except (OSError, subprocess.TimeoutExpired) as err:
        return str(err)


def shared_cluster() -> SlurmCluster:
    """The one cluster of this process: started when first asked for, stopped when the process ends."""
    if not _shared:
        directory = Path(tempfile.mkdtemp(prefix="perdure-slurm-", dir="/tmp"))  # socket paths must be short
        cluster = SlurmCluster(directory)
        atexit.register(_discard, cluster)
        cluster.start()
        _shared.append(cluster)
    return _shared[0]


def _discard(cluster: SlurmCluster) -> None:
    cluster.stop()
    shutil.rmtree(cluster.directory, ignore_errors=True)


def _hold_port() -> socket.socket:
    """Take a free port that stays ours: no outgoing connection gets it, while a daemon that dies can have it again.

    A socket that is bound, and never listens, lets another one listen there where both say SO_REUSEADDR, as servers do.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
