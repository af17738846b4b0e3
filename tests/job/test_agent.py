"""The agent of a node: real checks, real processes."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.job import heartbeat, probes
from perdure.job.agent import Agent, Post, agents, heartbeats
from perdure.job.heartbeat import HeartbeatSource
from perdure.job.identity import Task
from perdure.job.liveness import LivenessRules, Watchlog, observe, silent
from perdure.job.probes import Probe, Probing
from tests.job.launching import is_stopped, on_linux, python, start, wait_until

TASK = Task(node="n1", host=os.uname().nodename, pid=os.getpid())


@pytest.fixture
def share(tmp_path: Path) -> Path:
    path = tmp_path / "share"
    path.mkdir(mode=0o755)
    return path


def agent(share: Path, *checks: Probe, fences: list[Any] | tuple[()] = ()) -> Agent:
    return Agent(Post(share, TASK, 0.0, tuple(fences)), Probing(checks, 0.0))


def test_it_says_that_its_node_lives(share: Path) -> None:
    watcher = agent(share)
    counts = []
    for now in range(3):
        watcher.look(float(now))
        (beat,) = agents(share).values()
        counts.append(beat.count)
    assert (beat.source, beat.node, counts) == (HeartbeatSource.AGENT, "n1", [1, 2, 3])
    watcher.end()
    assert next(iter(agents(share).values())).is_over


def test_a_check_that_hangs_is_told_and_the_heartbeat_goes_on(share: Path) -> None:
    never = threading.Event()
    watcher = agent(share, Probe("/gone", lambda: str(never.wait(60)), patience_s=10.0))
    watcher.look(0.0)
    watcher.look(9.0)
    assert watcher.problems == ()
    watcher.look(12.0)
    (beat,) = agents(share).values()
    assert (beat.count, beat.problems) == (3, ("/gone: does not answer for 12 s",))
    never.set()


def test_jobs_whose_file_system_hangs_do_not_silence_their_node(
    share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    def hang(*_: object) -> None:
        never.wait(60)
        raise OSError

    monkeypatch.setattr(heartbeat, "read", hang)
    monkeypatch.setattr("perdure.job.agent.READ_S", 0.01)
    (tmp_path / "fence" / "attempts" / "1" / "host-1").mkdir(parents=True)
    watcher = agent(share, fences=[tmp_path / "fence"])
    watcher.look(0.0)
    watcher.look(7.0)
    monkeypatch.undo()
    (beat,) = agents(share).values()
    assert (beat.count, beat.problems) == (2, ("the jobs' fence directories: do not answer for 7 s",))
    never.set()


def looked(probe: Probe) -> str:
    return probe.look()


def test_disks(tmp_path: Path) -> None:
    assert looked(probes.disk(tmp_path)) == ""
    assert looked(probes.disk(tmp_path / "gone")) == f"{tmp_path / 'gone'}: No such file or directory"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n", ""),
        ("MemTotal: 1048576 kB\nMemAvailable: 8192 kB\n", "memory: 8 MiB of 1024 MiB are available"),
        ("nonsense", ""),
    ],
)
def test_memory(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert looked(probes.memory(tmp_path / "meminfo")) == problem
    assert looked(probes.memory(tmp_path / "no-such-table")) == ""


def test_commands_are_run_without_a_shell() -> None:
    assert looked(probes.command(["true", "; false"])) == ""
    assert looked(probes.command(["sh", "-c", "echo 'ECC: 3'; echo more; exit 4"])) == "sh: exit 4: ECC: 3"
    assert looked(probes.command(["sh", "-c", "printf %0999d 1; exit 4"])) == f"sh: exit 4: {'0' * probes.MAX_LINE}"
    assert looked(probes.command(["no-such-check"])) == "no-such-check: No such file or directory"
    assert looked(probes.command(["sleep", "60"], timeout_s=0.05)) == "sleep: killed after 0 s"


def test_a_directory_that_anybody_may_write_is_refused(share: Path) -> None:
    for mode in (0o777, 0o1777):
        share.chmod(mode)
        with pytest.raises(ConfigError, match="anybody may write"):
            agent(share)
    with pytest.raises(ConfigError, match="cannot be used"):
        agent(share / "gone")


def test_an_agent_speaks_for_its_own_node_only(share: Path) -> None:
    agent(share).look(0.0)
    (share / "n1.json").rename(share / "n2.json")
    (share / "junk.json").write_text("{")
    assert agents(share) == {}
    with pytest.raises(OSError):
        agents(share / "gone")


@on_linux
def test_it_sees_the_jobs_of_its_node_and_those_that_went_without_a_word(share: Path, tmp_path: Path) -> None:
    settings = "ExecOptions(heartbeat_s=0.02, look_s=0.02, poll_s=0.02)"
    process = start(tmp_path / "fence", python("import time; time.sleep(60)"), settings=settings)
    try:
        wait_until(lambda: dict(heartbeats([tmp_path / "fence"], TASK.host)))
        watcher = agent(share, fences=[tmp_path / "fence"])
        watcher.look(0.0)
        assert next(iter(agents(share).values())).jobs == ("7",)
    finally:
        process.kill()
        process.communicate()
    watcher.look(20.0)  # the last word may have been said since the first look
    watcher.look(40.0)
    (beat,) = agents(share).values()
    assert beat.jobs == ()
    assert beat.problems == ()  # a job, or whoever forges one, says nothing of the node
    (problem,) = beat.missing
    assert problem.startswith(f"job 7: no heartbeat of process {process.pid} for ")


@on_linux
def test_a_node_whose_agent_and_job_freeze_is_silent(share: Path, tmp_path: Path) -> None:
    """Both really stopped; judged with their own heartbeats and a clock that runs fast."""
    settings = "ExecOptions(heartbeat_s=0.02, look_s=0.02, poll_s=0.02)"
    job = start(tmp_path / "fence", python("import time; time.sleep(60)"), settings=settings)
    command = [sys.executable, "-m", "perdure", "agent", str(share), "--every", "0.1"]
    watcher = subprocess.Popen(command)
    rules, log = LivenessRules(), Watchlog()

    def look(now: float) -> Watchlog:
        found = {**agents(share), **dict(heartbeats([tmp_path / "fence"]))}
        return observe(log, found, now, rules)

    try:
        wait_until(lambda: len(look(0.0).seen) == 2)
        node = TASK.host.partition(".")[0]
        for process in (job, watcher):
            process.send_signal(signal.SIGSTOP)
        wait_until(lambda: all(is_stopped(process.pid) for process in (job, watcher)))
        log = look(0.0)
        log = look(14.0)
        assert silent(log, 14.0, rules, {"7": [node]}).nodes[0].sources == ("agent", "job 7")
        watcher.send_signal(signal.SIGCONT)
        wait_until(lambda: 15.0 in [seen.changed_s for seen in look(15.0).seen.values()])
        log = look(15.0)
        assert silent(log, 15.0, rules, {"7": [node]}).nodes == ()
    finally:
        for process in (job, watcher):
            process.kill()
            process.communicate()


def command(*words: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure", "agent", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_single_look_prints_what_is_wrong(share: Path, tmp_path: Path) -> None:
    ran = command(share, "--once", "--node", "n9", "--disk", tmp_path, "--check", "sh -c 'echo ECC; exit 3'")
    assert (ran.returncode, ran.stdout) == (1, "sh: exit 3: ECC\n")
    assert heartbeat.read(share / "n9.json").problems == ("sh: exit 3: ECC",)
    assert command(share, "--once", "--disk", tmp_path).returncode == 0


def test_a_single_look_that_finds_several_things_ends_as_with_one(share: Path) -> None:
    ran = command(share, "--once", "--check", "false", "--check", "sh -c 'exit 3'")
    assert (ran.returncode, ran.stdout) == (1, "false: exit 1\nsh: exit 3\n")


@pytest.mark.parametrize("words", [["--node", "../n1"], ["--check", "'"], ["--check", ""]])
def test_what_cannot_be_used_is_refused_in_one_line(share: Path, words: list[str]) -> None:
    ran = command(share, "--once", *words)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert ran.stderr.startswith(f"perdure: {words[0]}: ")


def test_it_ends_in_order(share: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "perdure", "agent", str(share), "--node", "n1"])
    wait_until(lambda: (share / "n1.json").exists())
    process.terminate()
    assert process.wait(60) == 0
    assert heartbeat.read(share / "n1.json").is_over


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_what_another_user_has_put_there_is_not_believed(share: Path) -> None:
    agent(share).look(0.0)
    os.chown(share / "n1.json", 65534, 65534)
    assert agents(share) == {}
    os.chown(share, 65534, 65534)
    assert len(agents(share)) == 1
