"""Flight recorder dumps, asked for when a program stands still: by real ranks, by none, and by hostile ones."""

import os
import pickle
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.hangs.folder import read_folder
from perdure.hangs.report import report_of
from perdure.job import flight_recorder
from perdure.job.files import JobFiles
from perdure.job.flight_recorder import (
    DUMP_MOST_S,
    KEPT_HANGS,
    MAX_KEPT_BYTES,
    OLD_PREFIX,
    PREFIX,
    STEM,
    FlightRecorder,
)
from perdure.job.gang import Gang
from perdure.job.hang_diagnosis import LOOK_MOST_S
from perdure.job.identity import FENCE_JOB, Task
from perdure.model.exits import HANG_SAID
from perdure.triage.judge import judge
from tests.hangs.test_folder import WAITING, huge_memo
from tests.job.launching import on_linux
from tests.job.test_gang import WAITS, ended, step

pytestmark = on_linux
IN_STEP = {"SLURM_STEP_ID": "0"}
SOON_S = 0.5


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[FlightRecorder]:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    made = FlightRecorder(tmp_path / "attempts" / "1" / "gang-0", IN_STEP, "7")
    yield made
    made.end()


def dump_of(rank: int) -> bytes:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return pickle.dumps({"version": "2.9", "pg_config": config, "entries": WAITING[rank]}, protocol=2)


@contextmanager
def ranks(variables: dict[str, str], answers: Mapping[int, bytes | None]) -> Iterator[None]:
    """A thread for each rank that reads its FIFO and then writes what it is given; None: it never writes."""
    over, begun = threading.Event(), []

    def play(pipe: Any, rank: int, data: Any) -> None:
        while not over.wait(0.02):
            with suppress(BlockingIOError):
                if os.read(pipe, 128) and data is not None:
                    Path(f"{variables[PREFIX]}{rank}").write_bytes(data)
        os.close(pipe)

    for rank, data in answers.items():
        fifo = f"{variables[STEM]}{rank}.pipe"
        os.mkfifo(fifo)
        pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        begun.append(threading.Thread(target=play, args=(pipe, rank, data)))
        begun[-1].start()
    try:
        yield
    finally:
        over.set()
        for thread in begun:
            thread.join()


def test_ranks_that_are_asked_dump_and_what_they_say_is_read(recorder: FlightRecorder) -> None:
    variables = recorder.variables()
    with ranks(variables, {rank: dump_of(rank) for rank in (0, 2)}):
        for _ in range(2):  # and once more, where the first alarm was called off
            assert sorted(dump.rank for dump in recorder.collect(8.0)) == [0, 2]
    assert stat.S_IMODE(recorder.directory.stat().st_mode) == 0o700
    recorder.end()
    assert not list(Path("/tmp").glob(f"{Path(variables[STEM]).name}*"))


def test_where_nobody_listens_nothing_is_waited_for(recorder: FlightRecorder) -> None:
    variables = recorder.variables()
    os.mkfifo(f"{variables[STEM]}0.pipe")
    Path(f"{variables[STEM]}1.pipe").write_text("not a FIFO")
    Path(f"{variables[STEM]}2.pipe").symlink_to("/dev/null")
    begin_s = time.monotonic()
    assert recorder.collect(8.0) == []
    assert time.monotonic() - begin_s < SOON_S


def test_a_dump_that_never_comes_is_waited_for_a_while_and_the_others_are_read(recorder: FlightRecorder) -> None:
    begin_s = time.monotonic()
    with ranks(recorder.variables(), {0: dump_of(0), 1: None, 2: dump_of(2)[:-20]}):
        assert [dump.rank for dump in recorder.collect(8.0)] == [0]
    assert DUMP_MOST_S <= time.monotonic() - begin_s < LOOK_MOST_S


def test_what_is_left_of_an_earlier_hang_is_not_read(recorder: FlightRecorder) -> None:
    variables = recorder.variables()
    Path(f"{variables[PREFIX]}0").write_bytes(dump_of(0))
    with ranks(variables, {0: None}):
        assert recorder.collect(1.5) == []


class Harmful:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (os.environ["PERDURE_TEST_HARM"],)


def test_hostile_dumps_are_refused_in_time_and_cost_nobody_his_own(
    recorder: FlightRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TEST_HARM", str(tmp_path / "harm"))
    large = b"\x80\x02" + bytes(MAX_KEPT_BYTES) + b"."
    harmful = {0: pickle.dumps({"entries": [Harmful()]}), 1: huge_memo(), 2: dump_of(2), 3: large}
    begin_s = time.monotonic()
    with ranks(recorder.variables(), harmful):
        assert [dump.rank for dump in recorder.collect(8.0)] == [2]
    assert time.monotonic() - begin_s < LOOK_MOST_S + 1
    assert not (tmp_path / "harm").exists()
    assert sorted(path.name for path in recorder.directory.iterdir()) == ["rank_0", "rank_1", "rank_2"]


@pytest.mark.parametrize(
    ("environment", "sets"),
    [
        ({}, {PREFIX, STEM}),
        ({"SLURM_JOB_NUM_NODES": "2"}, {PREFIX}),  # the FIFOs would be made on other nodes, and stay there
        ({"SLURM_JOB_NUM_NODES": "2", **IN_STEP}, {PREFIX, STEM}),
        ({PREFIX: "/data/dump_", STEM: "/data/pipe_"}, set()),
        ({OLD_PREFIX: "/data/dump_"}, {STEM}),
        ({FENCE_JOB: "6", PREFIX: "/f/attempts/1/gang-0/flight-recorder/rank_", STEM: "/tmp/perdure-fr-0-"},
         {PREFIX, STEM}),
        ({FENCE_JOB: "6", PREFIX: "/data/dump_", STEM: "/data/pipe_"}, set()),
    ],
)  # fmt: skip
def test_what_the_user_has_set_stays_and_what_another_job_has_left_does_not(
    tmp_path: Path, environment: dict[str, str], sets: set[str]
) -> None:
    assert set(FlightRecorder(tmp_path / "gang-0", environment, "7").variables()) == sets


def test_dumps_go_where_the_user_has_said(tmp_path: Path) -> None:
    mine = {PREFIX: f"{tmp_path}/mine_", STEM: f"{tmp_path}/pipe_"}
    recorder = FlightRecorder(tmp_path / "gang-0", {**IN_STEP, **mine}, "7")
    with ranks(mine, {1: dump_of(1)}):
        assert [dump.rank for dump in recorder.collect(8.0)] == [1]
    recorder.end()
    assert (tmp_path / "pipe_1.pipe").exists()


def test_the_dumps_of_the_last_hangs_alone_are_kept(tmp_path: Path) -> None:
    for attempt in range(1, 12):
        where = tmp_path / "attempts" / str(attempt) / "gang-0" / "flight-recorder"
        where.mkdir(parents=True)
        if attempt % 2:
            (where / "rank_0").write_bytes(dump_of(0))
    FlightRecorder(where.parent, IN_STEP, "7").keep_few()
    kept = sorted(int(path.parts[-4]) for path in tmp_path.glob("attempts/*/gang-0/flight-recorder/rank_0"))
    assert kept == [7, 9, 11]
    assert len(kept) == KEPT_HANGS


def test_launchers_tell_each_other_what_the_recorders_say(recorder: FlightRecorder, tmp_path: Path) -> None:
    def gang(rank: int) -> Gang:
        task = Task(f"n{rank}", f"n{rank}", 100 + rank, rank=rank)
        return Gang(JobFiles.of(tmp_path, 1, task), task, {**IN_STEP, "SLURM_STEP_NUM_TASKS": "2"})

    with ranks(recorder.variables(), {2: dump_of(2)}):
        dumps = recorder.collect(8.0)
    first, second = gang(0), gang(1)
    second.tell([], dumps)
    assert first.dumps(0.0) == dumps != []
    assert second.dumps(0.0) == []
    assert first.dumps(time.time() + 1) == []
    (tmp_path / "attempts/1/gang-0/dumps-n1-101.json").write_text(
        '{"schema": "perdure.gang/1", "time_s": 9e9, "dumps": [3]}'
    )
    assert first.dumps(0.0) == []


# ---------------------------------------------------------------- whole programs

PYTORCH = """
import contextlib, threading
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

def monitor():
    \"\"\"What ProcessGroupNCCL does in a thread of its own.\"\"\"
    fifo = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + f"{rank}.pipe"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    while True:
        time.sleep(0.2)
        with contextlib.suppress(BlockingIOError):
            if os.read(pipe, 128):
                with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "wb") as file:
                    file.write(_dump_fr_trace())

def train():
    for number in range(3):
        dist.all_reduce(torch.ones(4))
        print(f"step {number}", flush=True)
    if rank != 1:  # rank 1 has stopped
        dist.all_reduce(torch.ones(4), async_op=True)
    threading.Event().wait()

dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=3)
threading.Thread(target=monitor, daemon=True).start()
threading.Thread(target=train, daemon=True).start()
"""
MISLEADS = "time.sleep(600) if rank == 0 else signal.pause()"


def test_the_recorder_of_a_real_program_names_the_rank_where_its_processes_mislead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    codes, log = step(tmp_path, [PYTORCH + MISLEADS] * 3)
    assert codes == [75, 75, 75], log
    said = ended(log)
    assert "rank 1 on n1 stopped first: flight recorder: rank 1 is in no collective; rank" in said
    (where,) = tmp_path.glob("fence/attempts/1/gang-0/flight-recorder")
    assert f" ranks: perdure why ranks {where}" in log
    assert report_of(read_folder(where)).ranks == (1,)
    verdict = judge(log.encode())
    assert (verdict.category, verdict.rank, verdict.node) == ("hang", "1", "n1")


def test_a_program_that_makes_no_fifo_is_judged_as_before_and_without_delay(tmp_path: Path) -> None:
    lock = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    codes, log = step(tmp_path, [WAITS, f"if rank == 1: {lock}\n{WAITS}"])
    assert (codes, log.count(HANG_SAID)) == ([75, 75], 1), log
    assert "rank 1 on n1 stopped first: waits for a lock, in Python; rank 0 waits for it" in ended(log)
    assert "flight recorder" not in log


def test_a_dump_that_still_grows_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end as a whole one does, in the middle of a longer one."""
    dump, writes = tmp_path / "rank_3", [b"one.", b"one.two.", b"", b""]

    def written(seconds: float) -> None:
        with dump.open("ab") as file:
            file.write(writes.pop(0))

    monkeypatch.setattr("time.sleep", written)
    assert flight_recorder._await({3: (dump, None)}, time.monotonic() + 60.0) == [(dump, 3)]
    assert writes == [b""]
