"""Whatever a log holds, `perdure why` ends in a verdict or in one line that says what is wrong."""

import gzip
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

ROOT, LOST = "KeyError: 'labels'\n", "RuntimeError: Connection closed by peer [10.0.0.2]:3000\n"
FRAMES = (
    b'  File "train.py", line 7, in <module>\n    run()\nframe #3: c10::Error::Error + 0x57 (0x7f3a in libc10.so)\n'
)
NOTHING = "nothing that looks like a failure"


def noise(size: int) -> bytes:
    return random.Random(7).randbytes(size)


@pytest.mark.parametrize(
    "log",
    [
        b"\x00" * 5_000_000,
        b"x" * 20_000_000,
        b"".join(b"\r%3d%%|####      | %d/100 [00:01<00:09,  9.9it/s]" % (i % 100, i % 100) for i in range(20_000)),
        b"".join(b"[rank%d]: step %d loss 0.31\n" % (i % 40, i // 40) for i in range(4000)),
        "Schritt 3, Verlust 0,31\n训练 步骤 4\nшаг 5\n".encode(),
        b"\xe8\xae\xad\xe7" * 100,
        b"step 1\r\nstep 2\r\n",
        b"\x1b[31m\x1b]0;\x1b\x9b\x1b\n" * 1000,
        gzip.compress(b"\x00" * 30_000_000),
    ],
    ids=[
        "zeros", "one line", "bars", "ranks", "languages", "half letters",
        "windows", "escapes", "bomb",
    ],
)  # fmt: skip
def test_where_nothing_tells_of_a_failure_the_verdict_is_unsure(
    perdure: Callable[..., Ran], home: Path, log: bytes
) -> None:
    (home / "a.log").write_bytes(log)
    ran = perdure("why", "a.log", "--json")
    assert (ran.code, ran.err) == (3, "")
    assert (ran.json["verdict"], ran.json["summary"], ran.json["evidence"]) == ("unsure", NOTHING, [])


@pytest.mark.parametrize("log", [FRAMES * 100, b"Traceback (most recent call last):\n" + FRAMES * 100])
def test_a_mere_stack_trace_names_no_cause(perdure: Callable[..., Ran], home: Path, log: bytes) -> None:
    (home / "a.log").write_bytes(log)
    found = perdure("why", "a.log", "--json").json
    assert found["category"] == "unknown"
    assert {evidence["role"] for evidence in found["evidence"]} <= {"confirmation"}


@pytest.mark.parametrize(
    ("log", "category"),
    [
        (b"x" * 20_000_000 + b" OSError: [Errno 28] No space left on device", "disk_quota"),
        (noise(100_000) + b"\nKeyError: 'labels'\n" + noise(3000), "index"),
        (b"KeyError: '\xe8\xae", "index"),
        (FRAMES * 100 + b"KeyError: 7", "index"),
        (ROOT.replace("\n", "\r\n").encode() * 3, "index"),
        (b"\r 3%|#  | 3/100 [00:01<00:09]" * 5000 + b"\rKeyError: 7\n", "index"),
        (b"\x00" * 3_000_000 + b"KeyError: 7\n", "index"),
        (f"step 1\n{ROOT}".encode("utf-16"), "index"),
        ("cp: Fehler: Auf dem Gerät ist kein Speicherplatz mehr verfügbar\n".encode(), "disk_quota"),
        ("OSError: [Errno 28] 设备上没有空间\n".encode(), "disk_quota"),
        ("python: 段错误 (核心已转储)\n".encode(), "native_crash"),
        (b"job.sh: ligne 3: pythn : commande introuvable\n", "missing_file"),
        (gzip.compress(b"step\n" * 500_000 + ROOT.encode()), "index"),
    ],
)
def test_a_failure_is_found_whatever_stands_around_it(
    perdure: Callable[..., Ran], home: Path, log: bytes, category: str
) -> None:
    (home / "a.log").write_bytes(log)
    ran = perdure("why", "a.log", "--json")
    assert (ran.json["category"], ran.err) == (category, "")


def test_forty_ranks_interleaved_name_the_one_that_broke(perdure: Callable[..., Ran], home: Path) -> None:
    rng = random.Random(7)
    steps = [f"[rank{rank}]: step {i} loss 0.31\n" for i in range(50) for rank in rng.sample(range(40), 40)]
    end = [f"[rank{rank}]: {LOST}" for rank in rng.sample([r for r in range(40) if r != 17], 39)]
    (home / "a.log").write_text("".join([*steps, f"[rank17]: {ROOT}", *end]))
    assert "rank 17 broke first, then 39 others" in perdure("why", "a.log", "--json").json["summary"]


def test_an_excerpt_of_anything_is_printed(perdure: Callable[..., Ran], home: Path) -> None:
    for i, log in enumerate((b"", noise(50_000), FRAMES, b"\x1b[31mred\r\n" * 10, "größe 日本\n".encode())):
        (home / f"{i}.log").write_bytes(log)
    ran = perdure("why", "--excerpt", *(f"{i}.log" for i in range(5)))
    assert (ran.code, ran.err) == (0, "")
    assert "größe 日本" in ran.out
    assert "\x1b" not in ran.out


def test_the_log_of_a_good_run_clears_what_it_says_as_well(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "good.log").write_text("ValueError: cache is cold\n" + "step 1\n" * 99)
    (home / "a.log").write_text("ValueError: cache is cold\nOSError: [Errno 98] Address already in use\n")
    assert [e["rule"] for e in perdure("why", "a.log", "--json", "--good", "good.log").json["evidence"]] == [
        "port-busy"
    ]
    assert perdure("why", "a.log", "--good", "none.log").complaint.startswith("none.log: cannot be read")


def test_of_several_logs_those_that_can_be_read_are_judged(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(ROOT)
    (home / "b.log").write_text("")
    (home / "c.log").write_text("OSError: [Errno 98] Address already in use\n")
    ran = perdure("why", "a.log", "b.log", "none.log", "c.log")
    assert ran.code == 2
    assert ran.out.index("a.log") < ran.out.index("c.log")
    assert ran.err.splitlines()[0] == "perdure: b.log: is empty. Name the file that holds the job's output."
    assert ran.err.splitlines()[1].startswith("perdure: none.log: cannot be read")
    assert ran.err.splitlines()[2] == "perdure: 2 of 4 were not judged."
    ran = perdure("why", "b.log", "c.log", "--json")
    assert (ran.code, ran.json["id"]) == (2, "c.log")


def test_a_tar_archive_is_not_one_log(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "a.log").write_text(ROOT)
    with tarfile.open(home / "a.tar", "w") as archive:
        archive.add(home / "a.log", "a.log")
    (home / "a.tgz").write_bytes(gzip.compress((home / "a.tar").read_bytes()))
    for name in ("a.tar", "a.tgz"):
        assert perdure("why", name).complaint.startswith(f"{name}: is an archive")
