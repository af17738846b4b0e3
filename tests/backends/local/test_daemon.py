"""The embedded cluster with real processes, sockets and crashes."""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.local import JobSpec, LocalBackend, control, paths, start_daemon, stop_daemon
from perdure.backends.local.processes import birth
from perdure.backends.local.records import Timing
from perdure.errors import ClusterBusy, ClusterError, InputError, NotFound, StateError
from perdure.model.actions import Cancel, Drain, OutcomeStatus, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import AttemptState, Job, JobState
from perdure.model.nodes import NodeState
from tests.backends.local.harness import FAST, moments, python, start

SLEEP = ("sleep", "3600")


class Cluster:
    def __init__(self, state: Path, **options: Any) -> None:
        self.state = state
        self.pid = start(state, **options)
        self.backend = LocalBackend(state)

    def submit(self, *argv: str, **spec: Any) -> str:
        return self.backend.submit(JobSpec(argv, **{"workdir": str(self.state), **spec}))

    def attempts(self, job_id: str) -> list[Any]:
        found = [a for a in self.backend.observe(0.0).attempts if a.id.job_id == job_id]
        return sorted(found, key=lambda a: a.id)

    def job(self, job_id: str) -> Job:
        return next(job for job in self.backend.observe(0.0).jobs if job.job_id == job_id)

    def running(self, job_id: str, incarnation: int = 1) -> Any:
        return until(lambda: [a for a in self.attempts(job_id) if a.id.incarnation >= incarnation])[0]

    def ended(self, job_id: str, incarnation: int = 1) -> Any:
        return until(lambda: [a for a in self.attempts(job_id) if a.id.incarnation >= incarnation and a.state.is_over])[
            0
        ]

    def log(self, attempt: Any) -> Any:
        return self.backend.output(attempt).main.tail.decode()

    def says(self, attempt: Any, text: str) -> Any:
        return until(lambda: text in self.log(attempt) and self.log(attempt))


def until(condition: Callable[[], Any]) -> Any:
    if found := condition():
        return found
    for _ in moments():
        if found := condition():
            return found
    raise AssertionError("waited in vain")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests that leave it as it was."""
    made = Cluster(tmp_path_factory.mktemp("shared") / "state")
    yield made
    stop_daemon(made.state)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster to be mistreated."""
    made = Cluster(tmp_path / "state")
    yield made
    stop_daemon(made.state)


# What a task finds


def test_a_gang_finds_what_perdure_and_slurm_scripts_expect(cluster: Cluster) -> None:
    code = "import json, os, sys; sys.stdout.write(json.dumps(dict(os.environ)) + '\\n')"
    env = {"MY_LR": "0.1", "SLURM_RESTART_COUNT": "9", "PERDURE_JOB_ID": "stolen"}
    job_id = cluster.submit(
        *python(code), node_count=2, gpus_per_node=2, name="train", user="ada", walltime_s=60.0, env=env
    )
    attempt = cluster.ended(job_id)
    tasks = sorted((json.loads(line) for line in cluster.log(attempt).splitlines()), key=lambda e: e["RANK"])
    assert [t["PERDURE_NODE"] for t in tasks] == list(attempt.nodes) == [t["SLURMD_NODENAME"] for t in tasks]
    assert [t["SLURM_PROCID"] for t in tasks] == ["0", "1"] == [t["PERDURE_RANK"] for t in tasks]
    for task in tasks:
        assert len(task["CUDA_VISIBLE_DEVICES"].split(",")) == 2
        same = {
            "PERDURE_CLUSTER": "local",
            "PERDURE_JOB_ID": job_id,
            "PERDURE_INCARNATION": "1",
            "PERDURE_WORLD_SIZE": "2",
            "PERDURE_STATE": str(cluster.state),
            "PERDURE_FENCE_DIR": f"{cluster.state}/fence/{job_id}",
            "SLURM_JOB_ID": job_id,
            "SLURM_JOB_NAME": "train",
            "SLURM_JOB_NODELIST": ",".join(attempt.nodes),
            "SLURM_NNODES": "2",
            "SLURM_NTASKS": "2",
            "SLURM_LOCALID": "0",
            "SLURM_GPUS_ON_NODE": "2",
            "SLURM_JOB_PARTITION": "main",
            "SLURM_JOB_END_TIME": str(int(attempt.start_s + 60.0)),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MY_LR": "0.1",
        }
        assert same.items() <= task.items()
        assert task["MASTER_PORT"] == tasks[0]["MASTER_PORT"]
        assert "SLURM_RESTART_COUNT" not in task


def test_a_second_run_knows_that_it_is_one(cluster: Cluster) -> None:
    job_id = cluster.submit("sh", "-c", "echo run=$PERDURE_INCARNATION restart=${SLURM_RESTART_COUNT-none}; exit 1")
    first = cluster.ended(job_id)
    cluster.backend.perform(Requeue(first.id))
    second = cluster.ended(job_id, 2)
    assert (cluster.log(first), cluster.log(second)) == ("run=1 restart=none\n", "run=2 restart=1\n")
    assert first.stdout != second.stdout


def test_secrets_of_the_daemon_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "hunter2")
    cluster = Cluster(tmp_path / "state")
    try:
        assert "hunter2" not in cluster.log(cluster.ended(cluster.submit("env")))
    finally:
        stop_daemon(cluster.state)


@on_linux
def test_a_task_inherits_no_ignored_signals(cluster: Cluster) -> None:
    attempt = cluster.ended(cluster.submit("grep", "SigIgn", "/proc/self/status"))
    ours = sum(1 << (number - 1) for number in signal.valid_signals())  # the C library keeps some to itself
    assert int(cluster.log(attempt).split()[1], 16) & ours == 0


# How attempts end


@pytest.mark.parametrize(
    ("argv", "code", "signum", "says"),
    [
        (("no-such-program",), 127, 0, "perdure: cannot run 'no-such-program'"),
        (("/etc/passwd",), 126, 0, "Permission denied"),
        (("sh", "-c", "kill -SEGV $$"), 0, signal.SIGSEGV, ""),
    ],
    ids=["missing", "not-runnable", "signal"],
)
def test_a_program_that_fails_is_told_as_it_failed(
    cluster: Cluster, argv: tuple[str, ...], code: int, signum: int, says: str
) -> None:
    attempt = cluster.ended(cluster.submit(*argv))
    assert (attempt.state, attempt.exit_code, attempt.signal) == (AttemptState.FAILED, code, signum)
    assert says in cluster.log(attempt)


def test_a_missing_working_directory_is_a_failed_launch(cluster: Cluster) -> None:
    attempt = cluster.ended(cluster.submit("true", workdir="/nowhere/at/all"))
    assert attempt.state is AttemptState.LAUNCH_FAILED
    assert "'/nowhere/at/all' does not exist" in attempt.reason
    assert cluster.job(attempt.id.job_id).state is JobState.FAILED


def test_the_memory_limit_holds(cluster: Cluster) -> None:
    attempt = cluster.ended(cluster.submit(*python("x = bytearray(2**31)"), memory_mib=512))
    assert attempt.state is AttemptState.FAILED
    assert "MemoryError" in cluster.log(attempt)


def test_the_file_size_limit_holds(cluster: Cluster) -> None:
    code = "import os; f = open('big', 'wb'); f.write(b'x' * 2**21); f.flush()"
    attempt = cluster.ended(cluster.submit(*python(code), file_size_mib=1))
    assert attempt.state is AttemptState.FAILED
    assert "File too large" in cluster.log(attempt)


def test_the_early_signal_comes_before_the_walltime(cluster: Cluster) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=True))\n"
        "while True: time.sleep(1)"
    )
    job_id = cluster.submit(*python(code), walltime_s=3.0, signal="USR1", signal_before_s=1.0)
    attempt = cluster.ended(job_id)
    assert attempt.state is AttemptState.TIMEOUT
    assert cluster.log(attempt) == "warned\n"
    assert attempt.elapsed_s >= 3.0


def test_what_ignores_term_is_killed(cluster: Cluster) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"
    attempt = cluster.running(cluster.submit(*python(code)))
    cluster.says(attempt, "deaf")
    assert cluster.backend.perform(Cancel(attempt.id)).status is OutcomeStatus.DONE
    ended = cluster.ended(attempt.id.job_id)
    assert ended.state is AttemptState.CANCELLED
    assert ended.end_s - attempt.start_s >= FAST.kill_wait_s


@on_linux
def test_what_a_task_leaves_behind_in_any_of_its_groups_ends_with_it(cluster: Cluster) -> None:
    code = (
        "import subprocess\n"
        "a = subprocess.Popen(['sleep', '3600'])\n"
        "b = subprocess.Popen(['sleep', '3600'], process_group=0)\n"
        "print(a.pid, b.pid, flush=True)"
    )
    attempt = cluster.ended(cluster.submit(*python(code)))
    pids = cluster.log(attempt).split()
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_a_gang_ends_when_one_of_its_tasks_fails(cluster: Cluster) -> None:
    code = "import os, sys, time; os.environ['PERDURE_RANK'] == '1' and sys.exit(7); time.sleep(3600)"
    attempt = cluster.ended(cluster.submit(*python(code), node_count=3))
    assert (attempt.state, attempt.exit_code) == (AttemptState.FAILED, 7)
    assert attempt.reason == f"task 1 on {attempt.nodes[1]} failed first"


def test_preemption_by_a_job_that_does_not_fit_otherwise(own: Cluster) -> None:
    victim = own.submit(*SLEEP, node_count=4, gpus_per_node=8, preemptible=True)
    own.running(victim)
    urgent = own.submit("true", gpus_per_node=8, priority=9)
    assert own.ended(urgent).state is AttemptState.COMPLETED
    assert own.ended(victim).state is AttemptState.PREEMPTED
    assert own.running(victim, 2).state is AttemptState.RUNNING


# Nodes


@on_linux
def test_a_frozen_node_keeps_its_stopped_processes_until_it_thaws(own: Cluster) -> None:
    code = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'], process_group=0)\n"
        "print(os.getpid(), child.pid, flush=True); time.sleep(3600)"
    )
    first = own.running(own.submit(*python(code)))
    pids = own.says(first, "\n").split()
    own.backend.fault(first.nodes[0], "freeze")
    second = own.running(first.id.job_id, 2)
    assert second.nodes != first.nodes
    assert [state_of(pid) for pid in pids] == ["T", "T"]
    own.backend.fault(first.nodes[0], "thaw")
    until(lambda: not any(map(is_alive, pids)))
    until(lambda: all(node.state is NodeState.UP for node in own.backend.observe(0.0).nodes))
    assert own.running(second.id.job_id, 2).state is AttemptState.RUNNING


def test_a_users_name_that_no_store_keeps_as_it_is_is_refused(tmp_path: Path) -> None:
    """What is planned for such a user's job would be for another's: "\udc80a" is read back as "?a"."""
    with pytest.raises(InputError, match="is not UTF-8"):
        LocalBackend(tmp_path).submit({"argv": ["true"], "user": "\udc80a"})


class DaemonOfBefore(LocalBackend):
    """Reached where a daemon of an earlier version runs, which refuses what it does not know."""

    def _exchange(self, request: bytes) -> bytes:
        if "user" in json.loads(request)["action"]:
            wrong = {"kind": "InputError", "where": "Cancel.user", "what": "is not known", "fix": "Leave it out"}
            return json.dumps({"error": wrong}).encode()
        return super()._exchange(request)


def test_a_daemon_of_before_an_upgrade_carries_actions_out(cluster: Cluster) -> None:
    """It lives on where the service alone was killed: all retries were refused for good, for a field it cannot know."""
    backend, cancel = DaemonOfBefore(cluster.state), Cancel(AttemptId("local", "no-such", 0), user="ada")
    assert backend.perform(cancel).status is OutcomeStatus.SUPERSEDED
    with pytest.raises(InputError):
        cluster.backend.perform(Cancel(AttemptId("local", "1", "x"), user="ada"))  # type: ignore[arg-type]


def test_faults_are_checked(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="n9: no node has this name"):
        cluster.backend.fault("n9", "fail")
    with pytest.raises(ClusterError):
        cluster.backend.fault("n1", "thaw")


# Crashes and restarts


def kill_daemon(cluster: Cluster) -> None:
    os.kill(cluster.pid, signal.SIGKILL)
    until(lambda: not cluster_answers(cluster))


def cluster_answers(cluster: Cluster) -> int | None:
    try:
        return cluster.backend.ping()
    except ClusterBusy:
        return None


@on_linux
def test_a_killed_daemon_loses_nothing_and_doubles_nothing(own: Cluster) -> None:
    failed = own.ended(own.submit("false"))
    action = Requeue(failed.id, delay_s=3600.0)
    own.backend.perform(action)
    own.backend.perform(Drain("n4", "bad fan", "e1"))
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    first = own.running(own.submit(*python(code), gpus_per_node=1))
    (pid,) = own.says(first, "\n").split()
    kill_daemon(own)
    assert "controller" in own.backend.observe(0.0).unseen
    assert is_alive(pid)
    start(own.state)
    assert not is_alive(pid)
    ended = own.ended(first.id.job_id)
    assert (ended.state, ended.reason) == (AttemptState.NODE_FAIL, "cluster daemon restarted")
    assert own.running(first.id.job_id, 2).id.incarnation == 2
    assert own.backend.lookup(action).status is OutcomeStatus.DONE
    assert own.backend.perform(action).status is OutcomeStatus.DONE
    assert (own.job(failed.id.job_id).state, len(own.attempts(failed.id.job_id))) == (JobState.PENDING, 1)
    drained = next(node for node in own.backend.observe(0.0).nodes if node.name == "n4")
    assert (drained.state, drained.reason) == (NodeState.DRAINED, "bad fan")
    assert int(own.submit("true")) == int(first.id.job_id) + 1


def test_killed_again_and_again_no_incarnation_runs_twice_and_every_job_ends(own: Cluster) -> None:
    """The daemon is killed at random instants while jobs flow; each start leaves one line in one file."""
    rng, starts = random.Random(2), own.state / "starts"
    script = f"echo $PERDURE_JOB_ID.$PERDURE_INCARNATION >> {starts}; sleep 0.02; exit 0"
    jobs = []
    for _ in range(12):
        jobs += [own.submit("sh", "-c", script, node_count=rng.randint(1, 2)) for _ in range(4)]
        time.sleep(rng.random() * 0.03)
        kill_daemon(own)
        own.pid = start(own.state)
    assert jobs == [str(number) for number in range(1, 49)]
    for job_id in jobs:
        until(lambda: own.job(job_id).state.is_over)  # noqa: B023
        assert own.job(job_id).state is JobState.COMPLETED
    attempts = {f"{a.id.job_id}.{a.id.incarnation}": len(a.nodes) for a in own.backend.observe(0.0).attempts}
    lines = starts.read_text().split()
    assert all(lines.count(line) <= attempts[line] for line in set(lines))
    assert any(line.endswith(".2") for line in lines)  # some were killed in the act


@on_linux
def test_a_process_that_merely_has_a_tasks_number_is_left_alone(own: Cluster) -> None:
    stop_daemon(own.state)
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        with sqlite3.connect(paths.database(own.state)) as db:
            db.execute("INSERT INTO process VALUES (?, ?, ?)", (stranger.pid, "another boot:1", "1#1.0"))
        start(own.state)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@on_linux
def test_what_outlives_its_task_is_found_after_a_crash(own: Cluster) -> None:
    """The daemon dies, then the task, and a child in its session lives on."""
    code = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'], process_group=0)\n"
        "print(os.getpid(), child.pid, flush=True); time.sleep(3600)"
    )
    attempt = own.running(own.submit(*python(code)))
    task, child = map(int, own.says(attempt, "\n").split())
    kill_daemon(own)
    os.kill(task, signal.SIGKILL)
    until(lambda: birth(task) is None or not is_alive(task))
    assert is_alive(child)
    start(own.state)
    assert not is_alive(child)


def test_the_end_of_the_daemon_is_the_end_of_its_jobs_processes(own: Cluster) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    attempt = own.running(own.submit(*python(code)))
    pid = int(own.says(attempt, "\n"))
    os.kill(own.pid, signal.SIGTERM)
    until(lambda: not cluster_answers(own))
    until(lambda: _is_gone(pid))
    start(own.state)
    ended = own.ended(attempt.id.job_id)
    assert (ended.state, ended.reason) == (AttemptState.REQUEUED, "cluster daemon stopped")
    assert own.running(attempt.id.job_id, 2).id.incarnation == 2


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return sys.platform == "linux" and not is_alive(pid)


def test_one_daemon_for_one_state_directory(own: Cluster) -> None:
    assert start(own.state) == own.pid
    command = [sys.executable, "-m", "perdure.backends.local", "--state", str(own.state)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr == f"{own.state}: a cluster daemon has it already. Stop that or name another --state.\n"


def test_a_state_directory_of_another_format_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "cluster.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StateError, match="has format 99"):
        start_daemon(tmp_path)


def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(StateError, match="cannot be written"):
        start_daemon(tmp_path / "state")


def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / ("long" * 40))
    try:
        assert cluster.ended(cluster.submit("true")).state is AttemptState.COMPLETED
        address = paths.socket_path(cluster.state)
        assert len(str(address)) < 100
        assert address.stat().st_mode & 0o777 == 0o600
    finally:
        stop_daemon(cluster.state)
    assert not address.parent.exists()


# The wire


def test_without_a_daemon_the_silence_is_named(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    assert backend.observe(0.0).unseen == {"controller": "no cluster daemon runs there"}
    for ask in (backend.ping, lambda: backend.lookup(Cancel(AttemptId("local", "1", 1)))):
        with pytest.raises(ClusterBusy):
            ask()
    assert stop_daemon(tmp_path) is False


def test_a_daemon_that_does_not_answer_in_time_is_busy(own: Cluster) -> None:
    slow = LocalBackend(own.state, timeout_s=0.2)
    os.kill(own.pid, signal.SIGSTOP)
    try:
        assert "does not answer" in slow.observe(0.0).unseen["controller"]
        action = Drain("n1", "why", "e")
        with pytest.raises(ClusterBusy):
            slow.perform(action)
    finally:
        os.kill(own.pid, signal.SIGCONT)
    until(lambda: own.backend.lookup(action) is not None)
    assert own.backend.lookup(action).status is OutcomeStatus.DONE  # it had been sent, and is never lost or doubled


def ask_raw(cluster: Cluster, data: bytes) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(paths.socket_path(cluster.state)))
        connection.sendall(data)
        return json.loads(connection.makefile().readline())


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"op": "dance"}',
        b'{"op": "observe"}',
        b'{"op": "perform", "action": {"kind": "explode"}}',
        b'{"op": "perform", "action": {"kind": "cancel", "attempt": {"cluster": 1}}}',
        b'{"op": "submit", "spec": {"argv": "rm -rf"}}',
        b'{"op": "submit", "spec": {"argv": ["x"], "colour": "red"}}',
        b'{"op": "fault", "node": "n1"}',
    ],
    ids=lambda line: line[:60],
)
def test_nonsense_is_answered_and_survived(cluster: Cluster, line: bytes) -> None:
    assert ask_raw(cluster, line + b"\n")["error"]["kind"] == "InputError"
    assert cluster.backend.ping()


def test_a_request_that_breaks_off_is_never_carried_out(cluster: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(paths.socket_path(cluster.state)))
        connection.sendall(b'{"op": "stop"}')
    assert cluster.backend.ping()


def test_many_silent_clients_keep_nobody_out(cluster: Cluster) -> None:
    silent = []
    try:
        for _ in range(80):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(30)
            until(lambda: connection.connect_ex(str(paths.socket_path(cluster.state))) == 0)  # noqa: B023
            silent.append(connection)
        assert cluster.backend.ping()
    finally:
        for connection in silent:
            connection.close()


def test_a_bad_job_is_refused_before_it_is_sent(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="no program to run"):
        cluster.submit()
    with pytest.raises(ClusterError, match="can never offer"):
        cluster.submit("true", gpus_per_node=9)


def test_a_cluster_of_another_name_is_not_mistaken(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="is called 'local'"):
        LocalBackend(cluster.state, "prod").observe(0.0)


# The fence, end to end

WRITER = """
import os, sys
from pathlib import Path
from perdure.job import checkpointed
for step in range(1_000_000):
    with checkpointed(Path("ckpt", f"{os.environ['PERDURE_INCARNATION']}-{step}")) as draft:
        draft.write_text("weights")
"""
LAUNCH = "import sys; from perdure.job.exec import run; sys.exit(run(sys.argv[1:]))"


def test_freeze_and_thaw_never_lets_two_incarnations_write_one_checkpoint(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state", timing=Timing(detect_s=0.1, kill_wait_s=0.5, thaw_s=3600.0))
    ckpt = tmp_path / "state" / "ckpt"

    def published(incarnation: int) -> set[Any]:
        return {path.name for path in ckpt.glob(f"{incarnation}-*")}

    try:
        job_id = cluster.submit(sys.executable, "-c", LAUNCH, sys.executable, "-c", WRITER)
        first = cluster.running(job_id)
        until(lambda: len(published(1)) > 3)
        cluster.backend.fault(first.nodes[0], "freeze")
        until(lambda: published(2))
        before = published(1)
        cluster.backend.fault(first.nodes[0], "thaw")
        cluster.says(first, "token 1 is fenced by token 2")  # by the fence alone: the cluster's TERM is an hour away
        reached = len(published(2))
        until(lambda: len(published(2)) > reached + 3)
        assert published(1) == before
        assert cluster.running(job_id, 2).id.incarnation == 2
    finally:
        stop_daemon(cluster.state)


def test_times_are_those_of_the_machine(cluster: Cluster) -> None:
    assert abs(cluster.backend.observe(0.0).time_s - time.time()) < 60.0


def test_a_start_that_is_broken_off_leaves_no_daemon_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def interrupted(backend: LocalBackend, process: Any, *_: object) -> None:
        begun.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "_await_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        control.start_daemon(tmp_path)
    assert begun[0].wait(timeout=60) != 0
