"""Links of a chain, as real processes without a resource manager: each waits for the one before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.job import link
from perdure.job.chain_folder import ChainFolder, progress_of
from perdure.job.exit_report import ExitReason, ExitReport
from perdure.job.link import LinkOptions, LinkRun
from perdure.job.link_marks import HandoverAsked, LinkBegun, LinkEnded

LISTENS = """
import signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
print("listens", flush=True)
while not stop: time.sleep(0.02)
time.sleep(0.3)  # its checkpoint takes a while
open("saved", "w").write("1")
sys.exit(0)
"""
PATIENCE_S = 30.0
SLURM = """#!/bin/sh
# What Slurm says of jobs: those that a file of their name stands for run.
case "$0 $*" in
*scancel*--signal=CONT*) exit 0;;
*scancel*) for job; do :; done; kill "$(cat running/$job)"; rm -f running/$job;;
*squeue*) cat queue 2>/dev/null; exit 0;;
*scontrol*) for job; do :; done; [ -e running/$job ] && echo "JobId=$job JobState=RUNNING Reason=None"; exit 0;;
esac
"""


@pytest.fixture
def chain(tmp_path: Path) -> ChainFolder:
    """An empty chain; tools that say that jobs 1 to 9 run."""
    for name in ("links", "running", "bin"):
        (tmp_path / name).mkdir()
    for tool in ("scancel", "scontrol", "squeue"):
        (tmp_path / "bin" / tool).write_text(SLURM)
        (tmp_path / "bin" / tool).chmod(0o755)
    return ChainFolder(tmp_path)


def start(chain: ChainFolder, number: int, program: str, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SLURM_JOB_ID": str(number), "PATH": f"{chain.path}/bin:{os.environ['PATH']}",
                   "SLURM_JOB_START_TIME": "1", "PERDURE_KEEP_TEST": "1"}  # fmt: skip
    argv = (sys.executable, "-m", "perdure.job.link", "--folder", str(chain.path), "--link", str(number), *options)
    process = subprocess.Popen(
        (*argv, "--", sys.executable, "-c", program),
        env=environment, cwd=chain.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    (chain.path / "running" / str(number)).write_text(str(process.pid))
    return process


def await_(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(chain: ChainFolder, number: int) -> bool:
    begun = chain.marks(number).begun
    return begun is not None and begun.ran_s > 0


def over(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out


def test_the_successor_begins_once_the_running_link_has_saved_and_ended(chain: ChainFolder) -> None:
    first = start(chain, 1, LISTENS)
    assert first.stdout.readline() == "listens\n"
    second = start(chain, 2, "print(open('saved').read())")
    assert over(first)[0] == 0
    code, out = over(second)
    assert (code, out.splitlines()[-1]) == (0, "1")
    one, two = chain.marks(1), chain.marks(2)
    assert one.asked.by_job == "2"
    assert one.told.count == 1
    assert two.begun.came_s < one.ended.at_s <= two.begun.ran_s
    assert not one.is_done


def test_a_program_that_listens_to_nothing_keeps_its_time(chain: ChainFolder) -> None:
    first = start(chain, 1, "import time; print('runs', flush=True); time.sleep(3)", "--grace", "0.5")
    assert first.stdout.readline() == "runs\n"
    second = start(chain, 2, "print('mine')", "--grace", "0.5")
    assert over(first)[0] == 0
    assert "the work was done with link 1" in over(second)[1]  # nobody told it to end: it was through
    assert chain.marks(1).told.count == 0


def test_one_that_was_told_and_does_not_end_is_ended_when_its_time_is_over(chain: ChainFolder) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('runs', flush=True); time.sleep(60)"
    )
    first = start(chain, 1, deaf, "--signal", "USR1")
    assert first.stdout.readline() == "runs\n"
    began_s = time.monotonic()
    second = start(chain, 2, "print('mine')", "--signal", "USR1", "--grace", "2")
    assert over(second)[1].splitlines()[-1] == "mine"
    assert 2.0 <= time.monotonic() - began_s < 20.0
    over(first)


def test_a_successor_of_work_that_is_done_does_not_run(chain: ChainFolder) -> None:
    first = start(chain, 1, "import time; print('runs', flush=True); time.sleep(1)")
    assert first.stdout.readline() == "runs\n"
    (chain.path / "running" / "1").unlink()
    over(first)
    code, out = over(start(chain, 2, "open('ran', 'w')"))
    assert (code, "the work was done with link 1" in out, (chain.path / "ran").exists()) == (0, True, False)
    assert chain.marks(2).ended.skipped


def test_a_link_whose_successor_has_begun_does_not_run(chain: ChainFolder) -> None:
    chain.write(2, LinkBegun("2", 1.0, 1.0))
    code, out = over(start(chain, 1, "open('ran', 'w')"))
    assert (code, "link 2 has taken over" in out, (chain.path / "ran").exists()) == (0, True, False)


def test_a_second_job_of_one_link_does_not_run(chain: ChainFolder) -> None:
    (chain.path / "running" / "7").write_text("1")
    chain.write(1, LinkBegun("7", 1.0, 1.0))
    code, out = over(start(chain, 1, "open('ran', 'w')"))
    assert (code, "job 7 is this link" in out, (chain.path / "ran").exists()) == (0, True, False)
    assert chain.marks(1).begun.job_id == "7"


def test_a_link_of_a_chain_that_is_over_does_not_run(chain: ChainFolder) -> None:
    chain.over.write_text("stopped")
    code, out = over(start(chain, 1, "open('ran', 'w')"))
    assert (code, "its chain is over" in out, (chain.path / "ran").exists()) == (0, True, False)


def test_a_link_whose_predecessor_died_without_a_word_asks_slurm_and_runs(chain: ChainFolder) -> None:
    chain.write(1, LinkBegun("1", 1.0, 1.0))
    assert over(start(chain, 2, "print('mine')"))[1].splitlines()[-1] == "mine"
    assert chain.marks(1).asked is None


def fill(chain: ChainFolder) -> None:
    """No mark can be left any more."""
    for mark in chain.links.iterdir():
        mark.unlink()
    chain.links.rmdir()


def queue(chain: ChainFolder, *links: tuple[int, int]) -> None:
    """Which jobs run as links of this chain, and of whom: a job's id, and its user's."""
    lines = (f"{job}|{uid}|perdure-keep=c.ab/{job}.1\n" for job, uid in links)
    (chain.path / "queue").write_text("".join(lines))


def test_a_link_that_cannot_leave_its_marks_runs_and_its_exit_code_asks_for_the_next(chain: ChainFolder) -> None:
    fill(chain)
    first = start(chain, 1, LISTENS, "--chain", "c.ab")
    said = [first.stdout.readline() for _ in range(2)]
    assert sorted(said)[0] == "listens\n"
    assert "cannot be written (No such file or directory): Slurm tells instead" in sorted(said)[1]
    first.send_signal(signal.SIGTERM)
    code, out = over(first)
    assert (code, out.count("Slurm tells instead")) == (75, 0)
    assert (chain.path / "saved").exists()


def test_a_link_without_marks_is_waited_for_by_slurms_word(chain: ChainFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(chain)
    first = start(chain, 1, "import time; print('runs', flush=True); time.sleep(2); open('saved', 'w').write('1')")
    assert "runs\n" in [first.stdout.readline() for _ in range(2)]
    queue(chain, (1, os.getuid()), (2, os.getuid()))
    told = []

    def tool(*argv: str) -> str:
        if argv[0] == "squeue":
            return (chain.path / "queue").read_text()
        told.append(argv[0])
        return "JobState=RUNNING" if first.poll() is None else ""

    monkeypatch.setattr(link, "ASK_SLURM_S", 0.1)
    second = LinkRun(LinkOptions(chain, 2, chain="c.ab"), {"SLURM_JOB_ID": "2"}, tool)
    assert second._take_over(second._running_links()) == ""
    assert (chain.path / "saved").read_text() == "1"
    assert set(told) == {"scontrol"}  # it could not be asked to end
    over(first)


@pytest.mark.parametrize(("number", "job", "why"), [(1, "3", "link 2 has taken over"), (2, "3", "job 2 is this link")])
def test_a_newer_link_and_an_earlier_job_of_this_one_go_first_by_slurms_word(
    chain: ChainFolder, number: int, job: str, why: str
) -> None:
    fill(chain)
    queue(chain, (2, os.getuid()), (3, os.getuid()))
    (chain.path / "queue").write_text((chain.path / "queue").read_text().replace("c.ab/3.1", f"c.ab/{number}.1"))
    said = []
    run = LinkRun(LinkOptions(chain, number, chain="c.ab"), {"SLURM_JOB_ID": job},
                  lambda *argv: said.append(argv) or (chain.path / "queue").read_text())  # type: ignore[func-returns-value]  # fmt: skip
    assert run._in_the_way(run._running_links()) == why


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_a_link_lives_that_runs_or_is_suspended(chain: ChainFolder, state: str) -> None:
    """Slurm shows jobs in the states that it is asked for."""
    queue(chain, (1, os.getuid()))

    def tool(*argv: str) -> str:
        asked_for = argv[argv.index("-t") + 1].split(",")
        return (chain.path / "queue").read_text() if state in asked_for else ""

    assert LinkRun(LinkOptions(chain, 2, chain="c.ab"), {"SLURM_JOB_ID": "2"}, tool)._running_links() == {1: "1"}


def test_another_users_job_that_says_that_it_is_a_link_is_none(chain: ChainFolder) -> None:
    queue(chain, (1, os.getuid() + 1), (3, os.getuid() + 1))
    assert over(start(chain, 2, "print('mine')", "--chain", "c.ab"))[1].splitlines()[-1] == "mine"
    foreign = f"JobId=1 UserId=eve({os.getuid() + 1}) JobState=RUNNING"
    assert not LinkRun(LinkOptions(chain, 2), {}, lambda *argv: foreign)._runs("1")


def test_a_fence_that_cannot_be_written_is_made_beside_the_work(chain: ChainFolder, tmp_path: Path) -> None:
    chain.fence.write_text("no directory")
    code, out = over(start(chain, 1, "import os; print(os.environ['PERDURE_FENCE_DIR'])"))
    assert code == 0
    assert "the fence cannot be used" in out
    assert out.splitlines()[-1] == str(tmp_path / ".perdure" / "1")


def test_where_slurm_does_not_answer_another_job_of_the_link_is_held_to_run(chain: ChainFolder) -> None:
    chain.write(1, LinkBegun("1", 1.0, 1.0))
    run = LinkRun(LinkOptions(chain, 1), {"SLURM_JOB_ID": "9"}, tool=lambda *argv: None)
    assert run.to_the_end([sys.executable, "-c", "print(1)"]) == 0
    marks = chain.marks(1)
    assert (marks.begun.job_id, marks.ended) == ("1", None)


def test_a_job_that_was_put_back_takes_its_old_marks_away(chain: ChainFolder) -> None:
    chain.write(1, LinkBegun("1", 1.0, 1.0))
    chain.write(1, HandoverAsked("2", 2.0, 3.0))
    chain.write(1, LinkEnded("1", 4.0, 1))
    assert over(start(chain, 1, "pass"))[0] == 0
    marks = chain.marks(1)
    assert (marks.asked, marks.ended.exit_code, marks.is_done) == (None, 0, True)


def test_progress_is_a_files_last_words_or_a_directorys_newest_name(tmp_path: Path) -> None:
    (tmp_path / "log-7").write_text("step 1\nstep 2\n")
    assert progress_of(str(tmp_path / "log-7")) == "step 1 step 2"
    assert progress_of(str(tmp_path)) == "log-7"
    assert progress_of(str(tmp_path / "nothing")) == ""


def test_a_checkpoint_that_is_written_anew_under_one_name_is_progress(tmp_path: Path) -> None:
    """As Lightning's last.ckpt, DeepSpeed's latest and Megatron's latest_checkpointed_iteration.txt, written last."""
    said = []
    for at_s in (100, 200):
        (tmp_path / f"step-{at_s}").touch()
        (tmp_path / "last.ckpt").touch()
        os.utime(tmp_path / f"step-{at_s}", (at_s, at_s))
        os.utime(tmp_path / "last.ckpt", (at_s + 1, at_s + 1))
        said.append(progress_of(str(tmp_path)))
    assert said == ["last.ckpt of 1970-01-01T00:01:41+00:00", "last.ckpt of 1970-01-01T00:03:21+00:00"]


def test_a_link_to_a_checkpoint_that_was_removed_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "step-10").touch()
    (tmp_path / "latest").symlink_to("step-5")
    assert progress_of(str(tmp_path)) == "step-10"


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_the_progress_file_holds_no_link_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress")
    assert progress_of(str(tmp_path / "progress")) == ""


@pytest.mark.parametrize(
    ("skipped", "exit_code", "why"),
    [("its chain went on", 0, ""), ("", 0, "link 2 has taken over"), (None, 0, "link 2 has taken over")],
)
def test_a_later_link_that_did_not_run_is_in_nobodys_way(
    chain: ChainFolder, skipped: str | None, exit_code: int, why: str
) -> None:
    chain.write(2, LinkBegun("2", 1.0))
    if skipped is not None:
        chain.write(2, LinkEnded("2", 2.0, exit_code, skipped=skipped))
    assert LinkRun(LinkOptions(chain, 1), {"SLURM_JOB_ID": "1"})._in_the_way({}) == why


@pytest.mark.parametrize(
    ("told", "code", "left"), [(("TERM",), 0, 75), (("TERM",), 1, 1), ((), 0, 0), (("TERM",), 93, 93)]
)
def test_slurm_is_told_by_the_exit_code_what_no_mark_can_say(
    chain: ChainFolder, monkeypatch: pytest.MonkeyPatch, told: tuple[str, ...], code: int, left: int
) -> None:
    """On a full disk: an end in good order that was asked for is no end of the work."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ChainFolder, "write", full)
    monkeypatch.setattr("time.sleep", lambda _: None)
    run = LinkRun(LinkOptions(chain, 1), {"SLURM_JOB_ID": "1"})
    run._hear(ExitReport("1", 1, 1, "n1", "h", 7, ExitReason.EXIT, code, 0.0, 1.0, told=told))
    assert run._leave(code) == left
