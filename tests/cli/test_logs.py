"""What `perdure why` reads: files, compressed ones, directories of one file a rank, standard input."""

import gzip
import io
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.logs import GivenLog, read_log
from perdure.triage.evidence.rules import own_rules
from perdure.triage.text.filenames import ranks_of
from perdure.triage.text.logtext import LogText
from tests.cli.conftest import Ran

ROOT, LOST = "KeyError: 'labels'\n", "RuntimeError: Connection closed by peer [10.0.0.2]:3000\n"


def read(target: str) -> GivenLog:
    return read_log(str(target), own_rules().matcher())


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank_0.log", "rank_1.log", "rank_10.log"], ["0", "1", "10"]),
        (["job-17_rank0.err", "job-17_rank1.err"], ["0", "1"]),
        (["slurm-17_0.out", "slurm-17_1.out"], ["0", "1"]),
        (["out.0", "out.1"], ["0", "1"]),
        (["1/rank.0/stdout", "1/rank.1/stdout"], ["0", "1"]),
        (["none/attempt_0/0/stderr.log", "none/attempt_0/1/stderr.log"], ["0", "1"]),
        (["0-2025-01-01.log", "1-2025-01-01.log"], ["0", "1"]),
        (["worker-a.log", "worker-b.log"], ["worker-a", "worker-b"]),
        (["stdout.log", "stderr.log"], ["", ""]),
        ([], []),
    ],
)
def test_the_names_of_files_tell_their_ranks(names: list[str], ranks: list[str]) -> None:
    assert ranks_of(names) == ranks


def test_a_pipe_and_a_file_are_read_alike(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = (ROOT * 1000).encode()
    (home / "a.log").write_bytes(log)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))
    assert read("a.log") == read("-")
    assert read("a.log").text == LogText.of(log)


def test_a_compressed_log_is_judged_as_what_it_holds(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(ROOT)
    (home / "a.log.gz").write_bytes(gzip.compress(ROOT.encode()))
    plain, packed = perdure("why", "a.log", "--json").json, perdure("why", "a.log.gz", "--json").json
    assert {**plain, "id": ""} == {**packed, "id": ""}


def test_of_a_truncated_one_what_can_be_read_is_judged_and_that_is_said(
    perdure: Callable[..., Ran], home: Path
) -> None:
    log = "".join(f"step {i * 7919}\n" for i in range(2000)) + ROOT + "".join(f"x {i * 7}\n" for i in range(2000))
    data = gzip.compress(log.encode())
    (home / "a.gz").write_bytes(data[: len(data) - 100])
    ran = perdure("why", "a.gz", "--json")
    assert (ran.code, ran.json["category"]) == (1, "index")
    assert ran.complaint == "a.gz: its compressed data end early or are damaged: judged by what could be read."


def test_a_directory_names_the_rank_that_broke_first(perdure: Callable[..., Ran], home: Path) -> None:
    for rank, (time, line) in enumerate([("10:00", LOST), ("00:07", ROOT), ("10:01", LOST)]):
        path = home / "logs" / "attempt_1" / str(rank) / "stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text(f"2025-01-01 00:{time} step 7\n{line}")
    ran = perdure("why", "logs", "--json")
    assert ran.json["category"] == "index"
    assert "rank 1 broke first, then rank 0 and rank 2 (by the times in the log)" in ran.json["summary"]
    assert [e["source"] for e in ran.json["evidence"]] == ["attempt_1/1/stderr.log", "attempt_1/0/stderr.log"]
    assert "attempt_1/1/stderr.log:2  root" in perdure("why", "logs").out


def test_of_several_attempts_the_last_is_judged(perdure: Callable[..., Ran], home: Path) -> None:
    for attempt, line in enumerate([ROOT, LOST]):
        (home / "logs" / f"attempt_{attempt}").mkdir(parents=True)
        (home / "logs" / f"attempt_{attempt}" / "0.log").write_text(line)
    assert perdure("why", "logs", "--json").json["category"] == "net"


def test_what_is_no_log_in_a_directory_is_passed_over_and_said(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "rank0.log").write_text(ROOT)
    (home / "logs" / "model.pt").write_bytes(b"PK\x03\x04\0\0" * 100)
    os.mkfifo(home / "logs" / "fifo")
    (home / "logs" / "loop").symlink_to(home / "logs")
    (home / "logs" / "circle.log").symlink_to("circle.log")
    ran = perdure("why", "logs", "--json")
    assert ran.json["category"] == "index"
    assert ran.complaint == "logs: 1 file that is not a log, or cannot be read, was passed over."


@pytest.mark.parametrize(("files", "code"), [(2, 1), (64, 1), (65, 2)])
def test_a_directory_that_tells_no_ranks_is_met_with_what_is_expected(
    perdure: Callable[..., Ran], home: Path, files: int, code: int
) -> None:
    (home / "notes").mkdir()
    for number in range(files):
        name = "".join(chr(ord("a") + int(digit)) for digit in f"{number:03}")
        (home / "notes" / f"{name}.txt").write_text(ROOT)
    ran = perdure("why", "notes")
    assert ran.code == code
    assert ran.complaint.endswith("Name a log, or the directory of one job with a file for each rank.")


def test_many_files_share_what_one_log_may_have(home: Path) -> None:
    (home / "logs").mkdir()
    for rank in range(20):
        (home / "logs" / f"{rank}.log").write_bytes(b"x\n" * 1_000_000)
    text = read("logs").text
    assert len({window.source for window in text.windows}) == 20
    assert sum(len(window.data) for window in text.windows) < 40e6 / 1.5
    assert sum(len(window.data) for window in text.windows) + text.skipped_bytes == 40e6


@pytest.mark.parametrize("name", ["empty", "binary", "none.log"])
def test_a_directory_without_a_log_and_a_missing_file_are_one_line(
    perdure: Callable[..., Ran], home: Path, name: str
) -> None:
    (home / "empty").mkdir()
    (home / "binary").mkdir()
    (home / "binary" / "a.bin").write_bytes(b"\0" * 100)
    ran = perdure("why", name)
    assert ran.code == 2
    assert ran.complaint.startswith(f"{name}: ")


def test_reading_tells_how_much_is_read(tmp_path: Path) -> None:
    """Of a packed file by its own size, of a directory by that of all its files."""
    lines = random.Random(1).randbytes(3 << 19).hex().encode()  # 3 MiB, and half of it packed
    for number in range(2):
        (tmp_path / f"rank{number}.log").write_bytes(lines)
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(lines, 1))
    rules, told = own_rules().matcher(), []
    read_log(str(tmp_path / "rank0.log"), rules, tell=lambda *said: told.append(said))
    assert told[-1] == (3, 3)
    read_log(str(packed), rules, tell=lambda *said: told.append(said))
    assert told[-1] == (1, 1)
    packed.unlink()
    read_log(str(tmp_path), rules, tell=lambda *said: told.append(said))
    assert told[-1] == (6, 6)
