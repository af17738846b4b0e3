"""What ranks leave behind: read without trust, and told as one story."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.main import main
from perdure.errors import InputError
from perdure.hangs.flight_recorder import joined, read_dump
from perdure.hangs.folder import Folder, read_folder
from perdure.hangs.nccl_ras import read_ras
from perdure.hangs.pickled import read_dumps
from perdure.hangs.rank_state import Life, RankState
from perdure.hangs.report import FLIGHT_RECORDER, HEARTBEATS, RAS, STACKS, report_of
from perdure.hangs.stacks import read_stack, state_of
from tests.conftest import require

INCIDENTS = {"gpu_error_1st": ((12, 14), "behind"), "lock_gil_1st": ((9, 14), "absent")}


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_injected_ranks_of_real_incidents_are_named_and_nobody_before_them(
    data_dir: Path | None, incident: str
) -> None:
    where = require("data", data_dir, "no dumps of real hangs beside the repository") / "flight-recorder" / incident
    report = report_of(read_folder(where))
    assert report.collective is not None
    assert (report.ranks, str(report.collective.kind)) == INCIDENTS[incident]
    assert report.collective.waiting == report.seen - len(report.ranks) == 14


def entry(seq: int, name: str = "all_reduce", done: bool = False, **more: object) -> dict[str, object]:
    return {
        "process_group": ("0", "default_pg"), "collective_seq_id": seq, "profiling_name": f"nccl:{name}",
        "state": "completed" if done else "started", "is_p2p": False, "time_created_ns": seq * 10**9,
        "input_sizes": [[4]], "input_dtypes": ["Float"], **more,
    }  # fmt: skip


def write_dumps(folder: Path, entries: dict[int, list[dict[str, object]]], name: str = "_dump_{}") -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(sorted(entries))}}
    for rank, listed in entries.items():
        dump = {"version": "2.9", "pg_config": config, "pg_status": {}, "entries": listed}
        (folder / name.format(rank)).write_bytes(pickle.dumps(dump, protocol=2))


FRAMES = [
    {"name": "all_reduce", "filename": "/v/lib/python3.11/site-packages/torch/distributed/c10d.py", "line": 1},
    {"name": "train", "filename": "/home/ada/train.py", "line": 42},
]
WAITING = {rank: [entry(4, done=True), entry(5)] for rank in range(4)} | {2: [entry(4, done=True, frames=FRAMES)]}


def test_one_hostile_file_of_a_rank_takes_no_other_rank_s_word_away(tmp_path: Path) -> None:
    """A list of ranks that is nested too deeply ended the whole command with a traceback."""
    write_dumps(tmp_path, WAITING)
    nested = {"version": "2.9", "pg_config": {"0": {"ranks": "[" * 10_000}}, "pg_status": {}, "entries": [entry(5)]}
    (tmp_path / "_dump_4").write_text(json.dumps(nested))
    found = read_folder(tmp_path)
    assert found.notes == ["_dump_4: is nested too deeply"]
    assert report_of(found).ranks == (2,)


@pytest.mark.parametrize("wrong", [{"rank": -5}, {"rank": True}, {"rank": 10**300}, {"step": -1}, {"step": 10**4000}])
def test_a_heartbeat_that_counts_what_nobody_can_names_no_rank(tmp_path: Path, wrong: dict[str, int]) -> None:
    heartbeats = [{"rank": rank, "step": 7} for rank in range(3)] + [{"rank": 3, "step": 0} | wrong]
    for number, heartbeat in enumerate(heartbeats):
        whole = {"schema": "perdure.heartbeat/1", "node": "n1", **heartbeat}
        (tmp_path / f"heartbeat-{number}.json").write_text(json.dumps(whole))
    assert read_folder(tmp_path).steps == {0: 7, 1: 7, 2: 7}


def test_the_line_that_the_culprit_called_last_is_shown(tmp_path: Path) -> None:
    write_dumps(tmp_path, WAITING)
    report = report_of(read_folder(tmp_path))
    assert report.ranks == (2,)
    assert report.says == (
        "rank 2 is in no collective; ranks 0, 1 and 3 wait in all_reduce 5 of default_pg (0); its last call was at "
        "train.py:42 in train (3 ranks wait)"
    )


def test_dumps_in_json_say_the_same(tmp_path: Path) -> None:
    write_dumps(tmp_path, WAITING)
    for path in list(tmp_path.iterdir()):
        (tmp_path / f"rank{path.name[6:]}.json").write_text(json.dumps(pickle.loads(path.read_bytes())))
        path.unlink()
    assert report_of(read_folder(tmp_path)).ranks == (2,)


class Harmful:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (os.environ["PERDURE_TEST_HARM"],)


def huge_memo() -> bytes:
    """A pickle of a few bytes whose reader makes room for four thousand million entries."""
    return b"\x80\x02}r\xff\xff\xff\xf0."


def test_a_pickle_that_names_a_class_or_asks_for_the_memory_is_refused_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TEST_HARM", str(tmp_path / "harm"))
    folder = tmp_path / "dumps"
    folder.mkdir()
    write_dumps(folder, WAITING)
    (folder / "_dump_0").write_bytes(pickle.dumps({"entries": [Harmful()]}))
    (folder / "_dump_1").write_bytes(huge_memo())
    (folder / "_dump_4").write_bytes(pickle.dumps([1, 2]))
    (folder / "_dump_5").write_bytes(pickle.dumps({"entries": []})[:-5])
    (folder / "_dump_6").write_bytes(b"\x80\x04\x95" + b"\xff" * 8)
    found = read_folder(folder)
    assert not (tmp_path / "harm").exists()
    assert sorted(dump.rank for dump in found.dumps) == [2, 3]
    assert sorted(note.split(":")[0] for note in found.notes) == [f"_dump_{n}" for n in (0, 1, 4, 5, 6)]
    assert "names a class, posix.mkdir" in next(note for note in found.notes if note.startswith("_dump_0"))


def test_of_each_dump_for_which_no_time_is_left_that_is_said(tmp_path: Path) -> None:
    write_dumps(tmp_path, WAITING)
    named = [(tmp_path / f"_dump_{rank}", rank) for rank in range(4)]
    assert read_dumps(named, within_s=0.0) == ["was not read in time"] * 4


@pytest.mark.parametrize("value", [
    {"entries": [{"process_group": 7, "collective_seq_id": "x", "frames": [{}], "profiling_name": None}]},
    {"entries": [{"is_p2p": True, "profiling_name": "nccl:send 9->8", "process_group": ("a", "b")}], "pg_config": []},
    {"entries": [{"collective_seq_id": 10**400, "input_sizes": [[[]]]}], "pg_config": {"0": {"ranks": "[1,"}}},
    {"entries": [None, 3, {}], "pg_config": {"0": 1}},
])  # fmt: skip
def test_what_is_odd_in_a_dump_breaks_nothing(tmp_path: Path, value: object) -> None:
    for rank in range(2):
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(value))
    found = read_folder(tmp_path)
    assert len(found.dumps) == 2
    report_of(found)


def test_links_to_devices_pipes_and_folders_are_passed_over(tmp_path: Path) -> None:
    write_dumps(tmp_path, WAITING)
    os.mkfifo(tmp_path / "_dump_7")
    (tmp_path / "_dump_8").symlink_to("/dev/zero")
    (tmp_path / "_dump_9").mkdir()
    found = read_folder(tmp_path)
    assert len(found.dumps) == 4
    assert len(found.notes) == 3


# ---------------------------------------------------------------- NCCL RAS


def member(rank: int, calls: int = 7, **status: bool) -> dict[str, object]:
    return {
        "rank": rank, "host": f"gpu{rank // 2}", "pid": 100 + rank, "cuda_dev": rank % 2, "status": status,
        "collective_counts": {"AllReduce": calls, "Broadcast": 0},
    }  # fmt: skip


def ras(
    ranks: list[dict[str, object]], missing: list[dict[str, object]], *more: dict[str, object]
) -> dict[str, object]:
    world = {"hash": "0x1", "size": len(ranks) + len(missing), "ranks": ranks, "missing_ranks": missing}
    return {"nccl_version": "2.29.1", "communicators_count": 1 + len(more), "communicators": [*more, world]}


def test_ranks_of_a_smaller_communicator_are_told_by_their_processes() -> None:
    everyone = [member(rank) for rank in range(4)]
    pair = {"size": 2, "ranks": [{**member(2, 5), "rank": 0}, {**member(3, 6), "rank": 1}], "missing_ranks": []}
    found = read_ras(ras(everyone, [], pair))
    assert found is not None
    assert (found.unreachable, found.behind) == ((), (2,))
    assert found.hosts == {0: "gpu0", 1: "gpu0", 2: "gpu1", 3: "gpu1"}


def test_a_rank_that_ras_cannot_reach_is_named_with_its_node(tmp_path: Path) -> None:
    lost = member(3, unresponsive=True, considered_dead=False)
    (tmp_path / "ras.json").write_text(json.dumps(ras([member(rank) for rank in range(3)], [lost])))
    report = report_of(read_folder(tmp_path))
    assert (report.ranks, report.nodes, report.says) == ((3,), ("gpu1",), "rank 3 cannot be reached")


def test_who_says_otherwise_is_said(tmp_path: Path) -> None:
    write_dumps(tmp_path, WAITING)
    (tmp_path / "ras.json").write_text(json.dumps(ras([member(rank) for rank in range(4)], [])))
    report = report_of(read_folder(tmp_path))
    assert (report.ranks, report.nodes) == ((2,), ("gpu1",))
    assert [(word.source, word.ranks) for word in report.conflicts] == [(RAS, ())]
    counts = [member(rank, 7 - (rank == 1)) for rank in range(4)]
    (tmp_path / "ras.json").write_text(json.dumps(ras(counts, [])))
    assert [word.ranks for word in report_of(read_folder(tmp_path)).conflicts] == [(1,)]


# ---------------------------------------------------------------- stacks

PY_SPY = """\
Process 4711: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    {}
    <module> (train.py:9)
Thread 4712 (idle): "Thread-1"
    wait (threading.py:320)
"""
IN_COLLECTIVE = "all_reduce (torch/distributed/distributed_c10d.py:2501)"


def test_the_rank_that_reads_while_others_wait_is_named(tmp_path: Path) -> None:
    for rank in range(3):
        frame = "load (data.py:31)" if rank == 1 else IN_COLLECTIVE
        (tmp_path / f"pyspy-rank{rank}.txt").write_text(PY_SPY.format(frame))
    report = report_of(read_folder(tmp_path))
    assert [(word.source, word.ranks) for word in report.words] == [(STACKS, (1,))]
    assert "data.py:31 in load" in report.says


def test_the_main_thread_of_faulthandler_is_its_last() -> None:
    text = textwrap.dedent("""\
        Timeout (0:00:10)!
        Thread 0x00007f3c (most recent call first):
          File "/usr/lib/python3.11/threading.py", line 320 in wait

        Current thread 0x00007f3d (most recent call first):
          File "/w/train.py", line 17 in load
          File "/w/train.py", line 40 in <module>
        """)
    state = state_of(0, read_stack(text))
    assert state.stack[0] == "train.py:17 in load"
    assert state.life in (Life.ELSEWHERE, Life.UNCLEAR)


def test_py_spy_as_json_is_read(tmp_path: Path) -> None:
    for rank in range(3):
        frame = {"name": "load", "filename": "data.py", "line": 3}
        wait = {"name": "barrier", "filename": "torch/distributed/distributed_c10d.py", "line": 9}
        threads = [{"thread_name": "MainThread", "frames": [frame if rank == 0 else wait]}]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(threads))
    assert report_of(read_folder(tmp_path)).ranks == (0,)


# ---------------------------------------------------------------- the command


def test_the_command_names_the_rank_and_its_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dumps(tmp_path, WAITING)
    (tmp_path / "_dump_9").write_bytes(b"\x80\x02.")
    assert main(["why", "ranks", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 2 stopped first\n  flight recorder: rank 2 is in no collective")
    assert "not read: _dump_9" in shown
    assert main(["why", "--ranks", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["ranks"], told["words"][0]["source"]) == ("perdure.ranks/1", [2], FLIGHT_RECORDER)


def test_a_folder_without_dumps_is_an_error_that_says_how_to_make_them(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("step 1\n")
    with pytest.raises(InputError) as missing:
        read_folder(tmp_path / "none")
    assert "cannot be read (No such file or directory)" in str(missing.value)
    assert main(["why", "--ranks", str(tmp_path)]) == 2


# ---------------------------------------------------------------- a real hang

PROGRAM = """\
import os, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

def work(rank):
    for step in range(3):
        dist.all_reduce(torch.ones(4))
    if rank == 1:
        time.sleep(60)  # a reader that hangs
    dist.all_reduce(torch.ones(4), async_op=True)

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=3)
if rank == 1:
    import threading
    threading.Thread(target=work, args=(rank,), daemon=True).start()
else:
    work(rank)
time.sleep(2)
with open(f"{sys.argv[1]}/dumps/_dump_{rank}", "wb") as file:
    file.write(_dump_fr_trace())
os._exit(0)
"""


def test_a_real_program_of_pytorch_that_hangs_is_traced_to_its_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "dumps").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
            env={**os.environ, "RANK": str(rank), "TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(3)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0, 0]
    report = report_of(read_folder(tmp_path / "dumps"))
    assert report.ranks == (1,)
    assert report.says.startswith("rank 1 is in no collective; ranks 0 and 2 wait in all_reduce 4 of default_pg (0)")
    assert "program.py:" in report.says


def test_any_bytes_behind_a_pickles_first_are_an_answer(tmp_path: Path) -> None:
    for rank, tail in enumerate([b"", b"\x00" * 9, bytes(range(256)), pickle.dumps(io.StringIO)]):
        (tmp_path / f"_dump_{rank}").write_bytes(b"\x80" + tail)
    assert len(read_folder(tmp_path).notes) == 4


def test_ends_of_a_send_are_ranks_of_its_group() -> None:
    value = {
        "pg_config": {"7": {"desc": "pipeline", "ranks": "[4, 6, 9]"}},
        "entries": [entry(0, "send 0->2", is_p2p=True, process_group=("7", "pipeline"))],
    }
    dump = read_dump(value, 4, "dump")
    assert dump is not None
    records, groups = joined([dump])
    assert (records[0].pending[0].ends, groups["7"]) == ((4, 9), [4, 6, 9])


def test_stacks_are_believed_before_steps() -> None:
    waits = RankState(0, "n1", Life.WAITS, "train.py:9 in step", collective="all_reduce")
    reads = RankState(1, "n1", Life.ELSEWHERE, "train.py:3 in load")
    report = report_of(Folder(stacks=[waits, reads], steps={0: 5, 1: 6}))
    assert report.ranks == (1,)
    assert [word.source for word in report.conflicts] == [HEARTBEATS]


def test_the_command_says_so_where_nobody_stands_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        beat = {"schema": "perdure.heartbeat/1", "rank": rank, "step": 7}
        (tmp_path / f"beat{rank}.json").write_text(json.dumps(beat))
    (tmp_path / "ras.json").write_text('{"communicators": []}')
    assert main(["why", "ranks", str(tmp_path)]) == 3
    assert capsys.readouterr().out == (
        "No rank stands out\n  heartbeats: all ranks are at step 7\n"
        "  NCCL RAS: all ranks answer, and have called the same collectives\n"
    )


def test_who_is_believed_is_who_names_a_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stacks that name nobody come before heartbeats that do."""
    for rank, step in ((0, 7), (1, 8)):
        (tmp_path / f"rank{rank}.txt").write_text('Thread 1 (idle): "MainThread"\n    wait (train.py:17)\n')
        beat = {"schema": "perdure.heartbeat/1", "rank": rank, "step": step}
        (tmp_path / f"beat{rank}.json").write_text(json.dumps(beat))
    (tmp_path / "ras.json").write_text('{"communicators": []}')
    assert main(["why", "ranks", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 0 stopped first\n  stacks: ")
    assert shown.rstrip().endswith("(not believed: heartbeats name rank 0)")
