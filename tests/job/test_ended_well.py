"""A job that had done all when it was put back: its programs are not run again."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.job.ended_well import ProgramNote, ended_well_before
from perdure.job.files import JobFiles
from perdure.job.identity import Start
from tests.job.launching import finish, python, start

RESTARTED = {"SLURM_RESTART_COUNT": "1"}
COUNT = "open('{0}/count', 'a').write('x'); import sys; sys.exit({1})"


def runs(directory: Path, code: int, incarnation: int, variables: dict[str, str]) -> tuple[int, int, str]:
    """The exit code, how often the program has run by now, and what was said."""
    ended, _, err = finish(start(directory, python(COUNT.format(directory, code)), incarnation, variables=variables))
    return ended, len((directory / "count").read_text()), err


@pytest.mark.parametrize(
    ("first_code", "variables", "times"),
    [(0, RESTARTED, 1), (3, RESTARTED, 2), (0, {}, 2)],
    ids=["ended well", "failed", "another job of that number"],
)
def test_only_a_restart_after_a_good_end_is_not_run(
    tmp_path: Path, first_code: int, variables: dict[str, str], times: int
) -> None:
    assert runs(tmp_path, first_code, 1, {})[:2] == (first_code, 1)
    ended, ran, err = runs(tmp_path, 0 if first_code == 3 else first_code, 2, variables)
    assert (ended, ran) == (0, times)
    assert ("ended well" in err) == (times == 1)


def test_a_program_that_leaves_with_0_after_a_signal_has_more_to_do(tmp_path: Path) -> None:
    code = (
        "import signal, sys\nopen(sys.argv[1], 'a').write('x')\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('ready', flush=True)\nsignal.pause()"
    )
    for incarnation, variables in ((1, {}), (2, RESTARTED)):
        process = start(tmp_path, python(code, tmp_path / "count"), incarnation, variables=variables)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 0
    assert (tmp_path / "count").read_text() == "xx"


def test_a_program_that_does_not_hear_a_signal_had_ended_before_it_came(tmp_path: Path) -> None:
    """A requeue's signal comes between its end and that of its launcher; here it is ignored, which is the same."""
    ignores = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = f"{ignores}; print('ready', flush=True); sys.stdin.read()"
    process = start(tmp_path, python(code))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0
    assert finish(start(tmp_path, python(code), 2, variables=RESTARTED))[1] == ""


def test_a_launcher_that_was_killed_leaves_no_good_end(tmp_path: Path) -> None:
    process = start(tmp_path, python("print('ready', flush=True); import time; time.sleep(600)"))
    assert process.stdout.readline() == "ready\n"
    process.kill()
    finish(process)
    assert runs(tmp_path, 0, 2, RESTARTED)[:2] == (0, 1)


def noted(fence: Path, command: str, began_s: float, ended_s: float, *, is_good: bool) -> None:
    """Leave what a program of the first start left."""
    directory = fence / "attempts" / "1" / f"node1-{began_s:g}{command}"
    directory.mkdir(parents=True)
    begun = ProgramNote.of(Start("7", 1, "", fence), [command], began_s)
    replace(begun, ended_s=ended_s, is_good_end=is_good).write(JobFiles(directory).program)


@pytest.mark.parametrize(
    ("programs", "not_run"),
    [
        ([("prepare", 1, 2, True), ("train", 3, 9, True)], {"train"}),  # only the last one has all behind it
        ([("prepare", 1, 2, False), ("train", 3, 9, True)], {"train"}),  # its script went on all the same
        ([("prepare", 1, 2, True), ("train", 3, 0, False)], set()),  # cut short
        ([("train", 1, 9, True), ("watch", 1, 8, True)], {"train", "watch"}),  # side by side
        ([("train", 1, 9, True), ("watch", 1, 8, False)], set()),
        ([], set()),
    ],
)
def test_a_start_is_over_once_its_last_programs_ended_well(
    tmp_path: Path, programs: list[tuple[str, float, float, bool]], not_run: set[str]
) -> None:
    for command, began_s, ended_s, is_good in programs:
        noted(tmp_path, command, began_s, ended_s, is_good=is_good)
    again = Start("7", 2, "", tmp_path)
    for command in ("prepare", "train", "watch"):
        found = ended_well_before(again, 2, [command], RESTARTED)
        assert (found is not None) == (command in not_run), command


def test_programs_of_another_job_in_the_same_fence_say_nothing(tmp_path: Path) -> None:
    noted(tmp_path, "train", 1, 9, is_good=True)
    assert ended_well_before(Start("7", 2, "", tmp_path), 2, ["train"], RESTARTED) is not None
    assert ended_well_before(Start("8", 2, "", tmp_path), 2, ["train"], RESTARTED) is None


def test_what_another_task_of_this_start_left_says_nothing(tmp_path: Path) -> None:
    noted(tmp_path, "train", 1, 9, is_good=True)
    assert ended_well_before(Start("7", 1, "", tmp_path), 1, ["train"], RESTARTED) is None
