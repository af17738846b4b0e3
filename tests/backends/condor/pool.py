"""A real HTCondor of several nodes on this machine, for tests: Debian's own daemons, in one directory.

Needs root (jobs run as their owners) and the package `condor`; nothing outside the directory is touched. Each node is a
``condor_master`` with a ``condor_startd`` of its own, under a host name of its own; CPUs and GPUs are claimed. Timers
are short: a dead node is noticed in 10 to 20 s.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

CPUS = 4
PACKAGE = "condor"
PROGRAMS = ("condor_master", "condor_schedd", "condor_startd", "condor_submit", "condor_history")
SEARCH = "/usr/sbin:/sbin"
PATIENCE_S = 60.0
CENTRAL_HOST = "central"

COMMON = """
LOCAL_DIR = {home}
LOCAL_CONFIG_DIR =
RELEASE_DIR = /usr
use SECURITY : HOST_BASED
ALLOW_WRITE = *
ALLOW_READ = *
ALLOW_ADMINISTRATOR = *
ALLOW_NEGOTIATOR = *
SEC_DEFAULT_AUTHENTICATION = OPTIONAL
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_CLIENT_AUTHENTICATION = OPTIONAL
QUEUE_SUPER_USERS = root, condor
UID_DOMAIN = perdure.test
FILESYSTEM_DOMAIN = perdure.test
TRUST_UID_DOMAIN = True
NETWORK_HOSTNAME = {host}
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
USE_SHARED_PORT = False
LOCK = {home}/lock
LOG = {home}/log
SPOOL = {home}/spool
EXECUTE = {home}/execute
RUN = {home}/run
MAIL = /bin/true
MAX_DEFAULT_LOG = 50 Mb
ENABLE_IPV6 = False
SEC_USE_FAMILY_SESSION = False
MASTER_BACKOFF_CONSTANT = 1
MASTER_BACKOFF_CEILING = 2
CLASSAD_LIFETIME = 20
UPDATE_INTERVAL = 4
MASTER_UPDATE_INTERVAL = 5
"""
CENTRAL = """
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD
COLLECTOR_NAME = perdure
SCHEDD_NAME = sched@{host}
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_UPDATE_INTERVAL = 10
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
JOB_START_DELAY = 0
JOB_DEFAULT_LEASE_DURATION = 20
PERIODIC_EXPR_INTERVAL = 2
MAX_PERIODIC_EXPR_INTERVAL = 4
JOB_EPOCH_HISTORY = {home}/spool/epochs
ALIVE_INTERVAL = 5
DEDICATED_SCHEDULER_WAIT_FOR_SPOOLER = False
UNUSED_CLAIM_TIMEOUT = 2
SHADOW_WORKLIFE = 0
"""
NODE = """
DAEMON_LIST = MASTER, STARTD
NUM_CPUS = {cpus}
MEMORY = 4000
MACHINE_RESOURCE_GPUs = CUDA0 CUDA1 CUDA2 CUDA3
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = True
NUM_SLOTS_TYPE_1 = 1
START = True
SUSPEND = False
PREEMPT = False
KILL = False
MAXJOBRETIREMENTTIME = 7 * 24 * 3600
MachineMaxVacateTime = 5
DedicatedScheduler = "DedicatedScheduler@{scheduler}"
STARTD_ATTRS = $(STARTD_ATTRS) DedicatedScheduler
RANK = 0
RUNBENCHMARKS = False
CLAIM_WORKLIFE = 0
STARTD_HAS_BAD_UTMP = True
MOUNT_UNDER_SCRATCH =
MOUNT_PRIVATE_DEV_SHM = False
STARTER_UPDATE_INTERVAL = 5
STARTD_RECOMPUTE_DISK_FREE = False
"""


T = TypeVar("T")


class NotReady(Exception):
    """A pool did not come to what a test needs in time."""


def missing() -> str:
    """Why no pool can be started here; "" where it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "a real HTCondor needs Linux and root"
    path = f"{os.environ.get('PATH', '')}:{SEARCH}"
    gone = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"not installed: {', '.join(gone)} (package: {PACKAGE})" if gone else ""


class CondorPool:
    """One pool. `start` it, use it, `stop` it; it holds everything under `directory`."""

    name = "pool"
    user = "nobody"  # the schedd takes no job of root's

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self.directory = directory
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        self.output = directory / "out"
        self._port = _free_port()
        self._masters: dict[str, subprocess.Popen[bytes]] = {}
        self.env = self._environment(CENTRAL_HOST)
        self.since_s = time.time()

    # Life

    def start(self) -> None:
        """Start every daemon; return when all nodes take jobs."""
        for directory in (self.directory, *self.directory.parents):
            if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
                directory.chmod(directory.stat().st_mode | 0o055)
        self.output.mkdir()
        self.output.chmod(0o777)
        for host, words in ((CENTRAL_HOST, CENTRAL), *((node, NODE) for node in self.nodes)):
            self._configure(host, words)
            self._start_master(host)
        self.until("all nodes are in the pool", lambda: set(self.nodes) == self._machines())
        self.until("the schedd answers", lambda: self._try("condor_q") is not None)

    def stop(self) -> None:
        """End all processes that were started here."""
        for host in (*self.nodes, CENTRAL_HOST):
            self._kill(host)

    # Use

    def run(self, *argv: str, user: str | None = None) -> str:
        """Run one of HTCondor's commands; return what it printed. Raises `AssertionError` where it fails."""
        done = subprocess.run(
            argv,
            env=self.env,
            user=user,
            group="nogroup" if user else None,
            extra_groups=[] if user else None,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.output,
            check=False,
        )
        assert done.returncode == 0, f"{argv}: {done.returncode}: {done.stderr or done.stdout}"
        return done.stdout

    def submit(self, script: str, *lines: str) -> str:
        """Submit a shell script with lines of a submit description; return the job's id."""
        number = len(list(self.output.glob("*.sub")))
        program = self.output / f"job{number}.sh"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        plain = ("transfer_executable = False", "should_transfer_files = NO", f"request_cpus = {CPUS}")
        files = tuple(f"{name} = $(Cluster).$(Node).out" for name in ("output", "error"))
        if not any(line.startswith("universe") for line in lines):
            files = tuple(line.replace(".$(Node)", "") for line in files)
        own = {line.partition("=")[0].strip() for line in lines}
        place = (f"executable = {program}", f"initialdir = {self.output}")
        kept = [line for line in (*plain, *place, *files) if line.partition("=")[0].strip() not in own]
        words = "\n".join((*lines, *kept, "queue", ""))
        description = self.output / f"job{number}.sub"
        description.write_text(words)
        return self.run("condor_submit", "-terse", str(description), user=self.user).split(" ")[0]

    def fail_node(self, node: str) -> None:
        """Kill all that runs on a node at once, the jobs with it."""
        self._kill(node)

    def return_node(self, node: str) -> None:
        """Bring a dead node back."""
        if node not in self._masters:
            self._start_master(node)
            self.until(f"{node} is back", lambda: node in self._machines())

    def configure(self, node: str, line: str) -> None:
        """Add a line to the configuration of a node, which takes it over at once."""
        with (self.directory / node / "config").open("a") as config:
            config.write(f"{line}\n")
        self._masters[node].send_signal(signal.SIGHUP)

    @contextlib.contextmanager
    def without_schedd(self) -> Iterator[None]:
        """The schedd is down."""
        master = self._masters[CENTRAL_HOST].pid
        os.kill(master, signal.SIGSTOP)  # it would start another one
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        os.kill(next(int(c) for c in children if _command(c) == "condor_schedd"), signal.SIGQUIT)  # it ends at once
        self.until("the schedd is gone", lambda: self._try("condor_q") is None)
        try:
            yield
        finally:
            os.kill(master, signal.SIGCONT)
            self.until("the schedd answers", lambda: self._try("condor_q") is not None)

    def remove_all(self) -> None:
        """End all jobs."""
        self._try("condor_rm", "-all")
        self.until("the queue is empty", lambda: self._try("condor_q", "-allusers", "-af", "ClusterId") == "")

    def until(self, what: str, condition: Callable[[], T]) -> T:
        """The first true value of a condition. Raises `NotReady`."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.1)
        raise NotReady(f"{what}: not within {PATIENCE_S:g} s; logs are in {self.directory}")

    def _machines(self) -> set[str]:
        return set((self._try("condor_status", "-af", "Machine") or "").split())

    def _try(self, *argv: str) -> str | None:
        try:
            return self.run(*argv)
        except AssertionError:
            return None

    def _environment(self, host: str) -> dict[str, str]:
        path = f"{os.environ.get('PATH', '')}:{SEARCH}"
        return {**os.environ, "PATH": path, "CONDOR_CONFIG": str(self.directory / host / "config")}

    def _configure(self, host: str, words: str) -> None:
        home = self.directory / host
        for name in ("", "log", "spool", "lock", "execute", "run"):
            (home / name).mkdir(exist_ok=True)
            (home / name).chmod(0o755)
            shutil.chown(home / name, "condor", "condor")
        known = {"home": home, "host": host, "port": self._port, "cpus": CPUS, "scheduler": f"sched@{CENTRAL_HOST}"}
        (home / "config").write_text((COMMON + words).format(**known))

    def _start_master(self, host: str) -> None:
        with (self.directory / host / "master.out").open("ab") as log:
            self._masters[host] = subprocess.Popen(
                ("condor_master", "-f"),
                env=self._environment(host),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill(self, host: str) -> None:
        """Kill a host's daemons and jobs: they carry its configuration, or a scratch directory of it, with them."""
        marks = (f"CONDOR_CONFIG={self.directory / host}/", f"_CONDOR_SCRATCH_DIR={self.directory / host}/")
        for _ in range(2):  # a daemon may have started another meanwhile
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    mine = (process / "environ").read_bytes().decode("utf-8", "replace").split("\0")
                    if any(word.startswith(marks) for word in mine):
                        os.kill(int(process.name), signal.SIGKILL)
        if (master := self._masters.pop(host, None)) is not None:
            master.wait(10)


def _command(pid: str) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
