"""Which start of a Slurm job: asked once of the controller, agreed on by all processes of one start."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Fenced
from perdure.job import starts
from perdure.job.identity import Start, identify
from perdure.job.starts import StartAnswer, learnt, understood
from tests.copying import replace
from tests.job.launching import LAUNCH, finish, on_linux, python, wait_until

NOW_S = int(time.time())
STEP = {"SLURM_SRUN_COMM_HOST": "10.0.0.1", "SLURM_SRUN_COMM_PORT": "40000", "SLURM_STEP_ID": "0"}
OTHER_STEP = STEP | {"SLURM_SRUN_COMM_PORT": "40001", "SLURM_STEP_ID": "1"}
RUNS = StartAnswer("RUNNING", 0, NOW_S - 60, ("n1", "n2"))
LINE = (
    "JobId=70 JobName=x StartTime=9 UserId=mira(1000) GroupId=mira(1000) JobState=RUNNING Reason=None Requeue=1"
    " Restarts={restarts} BatchFlag=1 StartTime={start_s} EndTime=Unknown ReqNodeList=(null) NodeList=n[1-2]"
    " BatchHost=n1 Features=(null) Comment=JobState=PENDING Restarts=9"
)


def slurm(**more: Any) -> dict[Any, Any]:
    return {"SLURM_JOB_ID": "70", "SLURMD_NODENAME": "n1", "PATH": "/nowhere"} | more


def of(tmp_path: Path, environment: dict[Any, Any], answer: StartAnswer | None = None) -> Start:
    """The start that an environment belongs to, as the controller answers."""
    start = identify(environment, tmp_path)
    begun = replace(answer, start_s=answer.start_s) if answer else None
    return learnt(start, environment, lambda _: begun)


@pytest.fixture(autouse=True)
def began(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's processes here began a moment ago."""
    monkeypatch.setattr(starts, "began_s", lambda _: NOW_S - 59.5)


def test_steps_of_one_start_agree_and_the_service_knows_it(tmp_path: Path) -> None:
    one, other = of(tmp_path, slurm(**STEP), RUNS), of(tmp_path, slurm(**OTHER_STEP), RUNS)
    assert one.name != other.name
    assert one.start_s == other.start_s == one.service_incarnation == NOW_S - 60


def test_one_step_asks_once(tmp_path: Path) -> None:
    of(tmp_path, slurm(**STEP), RUNS)
    assert learnt(identify(slurm(**STEP), tmp_path), slurm(**STEP), pytest.fail).start_s == NOW_S - 60


def test_a_start_that_has_asked_before_it_froze_does_not_learn_the_newer_one(tmp_path: Path) -> None:
    later = replace(RUNS, start_s=NOW_S)
    assert of(tmp_path, slurm(**STEP), RUNS).start_s == NOW_S - 60
    assert of(tmp_path, slurm(**OTHER_STEP), later).name != of(tmp_path, slurm(**STEP), later).name
    assert of(tmp_path, slurm(**STEP), later).start_s == NOW_S - 60


def test_processes_older_than_the_latest_start_are_not_of_it(tmp_path: Path) -> None:
    """After a crash of the controller the restart count repeats; the instant does not."""
    assert of(tmp_path, slurm(**STEP), replace(RUNS, start_s=NOW_S)).start_s == 0


def test_a_later_start_or_another_place_fences(tmp_path: Path) -> None:
    with pytest.raises(Fenced, match="started this job again 2 times, this is start 1"):
        of(tmp_path, slurm(**STEP, SLURM_RESTART_COUNT="1"), replace(RUNS, restarts=2))
    with pytest.raises(Fenced, match="on n1, n2 now, and not on n3"):
        of(tmp_path, slurm(**STEP, SLURMD_NODENAME="n3"), RUNS)


def test_a_step_without_the_batch_scripts_variables_learns_the_count(tmp_path: Path) -> None:
    """srun --export=NONE."""
    assert of(tmp_path, slurm(**STEP), replace(RUNS, restarts=3)).incarnation == 3


@pytest.mark.parametrize("answer", [None, replace(RUNS, state="PENDING"), replace(RUNS, restarts=-1)])
def test_where_nobody_can_tell_a_step_is_known_by_itself(tmp_path: Path, answer: StartAnswer | None) -> None:
    start = identify(slurm(**STEP), tmp_path)
    assert of(tmp_path, slurm(**STEP), answer) == start
    assert not (start.directory / "starts").exists()


def test_what_the_environment_says_is_not_asked(tmp_path: Path) -> None:
    for environment in (
        slurm(SLURM_JOB_START_TIME="5"), slurm(PERDURE_INCARNATION="5"), {"PERDURE_JOB_ID": "8"} | slurm(),
        slurm(PERDURE_FENCE_DIR="/x", PERDURE_FENCE_TOKEN="3", PERDURE_FENCE_JOB="70"),
    ):  # fmt: skip
        start = identify(environment, tmp_path)
        assert learnt(start, environment, pytest.fail) is start


def test_an_answer_is_understood_whatever_its_job_is_called() -> None:
    line = LINE.format(restarts=2, start_s=1790000000)
    assert understood(line, "70") == StartAnswer("RUNNING", 2, 1790000000, ("n1", "n2"))
    assert understood("\n".join([line.replace("=70 ", "=71 ArrayJobId=70 "), line]), "70") is not None
    assert understood(line, "71") is None
    assert understood(line.replace("Restarts=2", ""), "70") is None
    assert understood("slurm_load_jobs error", "70") is None


def test_all_components_of_a_heterogeneous_job_count() -> None:
    first = LINE.format(restarts=0, start_s=5).replace("JobId=70 ", "JobId=70 HetJobId=70 HetJobOffset=0 ")
    other = first.replace("JobId=70", "JobId=71", 1).replace("n[1-2]", "gpu9")
    assert understood(f"{first}\n{other}", "70") == StartAnswer("RUNNING", 0, 5, ("n1", "n2", "gpu9"))


def test_jobs_of_two_clusters_keep_apart(tmp_path: Path) -> None:
    one, other = (identify(slurm(SLURM_CLUSTER_NAME=name), tmp_path) for name in ("alpha", "beta"))
    assert (one.directory, other.directory) == (tmp_path / ".perdure/alpha/70", tmp_path / ".perdure/beta/70")


SCRIPT = """
import os, subprocess, sys
launch, directory, *names = sys.argv[1:]
waits = "import sys; open(sys.argv[1], 'w'); sys.stdin.read()"
def launcher(name, **more):
    words = [sys.executable, "-c", launch, sys.executable, "-c", waits, os.path.join(directory, name)]
    return subprocess.Popen(words, env=os.environ | more, stdin=subprocess.PIPE)
kinds = {
    "batch": lambda n: {},
    "mpi": lambda n: {"OMPI_COMM_WORLD_RANK": n},
    "step": lambda n: {"SLURM_SRUN_COMM_HOST": "h", "SLURM_SRUN_COMM_PORT": f"{os.getpid()}{n}", "SLURM_STEP_ID": n},
}
launchers = [launcher(name, **kinds[name[:-1]](name[-1])) for name in names]
print("started", flush=True)
sys.stdin.readline()
for each in launchers:
    each.stdin.close()
print(*(each.wait() for each in launchers), flush=True)
"""
OF_THE_SCRIPT = ("batch0", "batch1", "mpi0")
ALL = (*OF_THE_SCRIPT, "mpi1", "step0", "step1")


def batch(tmp_path: Path, tool: str, names: tuple[str, ...]) -> subprocess.Popen[str]:
    """A batch script that runs these side by side, and a `tool` as its scontrol."""
    bin_, place = tmp_path / "bin", tmp_path / "place"
    bin_.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    (bin_ / "scontrol").write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\n{tool}\n")
    (bin_ / "scontrol").chmod(0o755)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PERDURE_"))}
    environment = ours | {"SLURM_JOB_ID": "70", "SLURM_PROCID": "0", "PATH": f"{bin_}:{os.environ['PATH']}"}
    return subprocess.Popen(
        python(SCRIPT, LAUNCH, place, *names), env=environment, cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@on_linux
def test_commands_ranks_and_steps_side_by_side_live_and_a_second_start_ends_them(tmp_path: Path) -> None:
    """As Slurm 22.05 starts them. The second start has the same restart count, as after a crash of the controller."""

    def claims() -> list[Any]:
        return sorted(os.listdir(tmp_path / ".perdure/70/claims"))

    answers = f'echo "{LINE.format(restarts=0, start_s="$(cat start)")}"'
    (tmp_path / "start").write_text(str(int(time.time())))
    first = batch(tmp_path, answers, ALL)
    wait_until(lambda: run(tmp_path) == set(ALL))
    assert claims() == ["1"]
    for name in ALL:
        (tmp_path / "place" / name).unlink()
    (tmp_path / "start").write_text(str(int(time.time()) + 1))
    second = batch(tmp_path, answers, ALL)
    wait_until(lambda: run(tmp_path) == set(ALL))
    assert claims() == ["1", "2"]
    assert finish_with(first) == ["93"] * 6
    assert finish_with(second) == ["0"] * 6


@on_linux
def test_without_the_controllers_word_one_scripts_commands_still_agree(tmp_path: Path) -> None:
    script = batch(tmp_path, "exit 1", OF_THE_SCRIPT)
    wait_until(lambda: run(tmp_path) == set(OF_THE_SCRIPT))
    assert finish_with(script) == ["0"] * 3


def run(tmp_path: Path) -> set[Any]:
    """Which of the programs have begun."""
    return set(os.listdir(tmp_path / "place"))


def finish_with(script: subprocess.Popen[str]) -> list[str]:
    script.stdin.write("\n")
    _, out, err = finish(script)
    assert "Traceback" not in err
    return out.split("\n")[1].split()
