"""A hung job asked while it runs: what its launchers share, and a stand-in for the RAS thread of NCCL."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.cli.main import main
from perdure.errors import InputError
from perdure.hangs.folder import Folder
from perdure.hangs.job_folder import attempt_of, read_attempt
from perdure.hangs.ras_client import ask_ras
from perdure.hangs.report import RAS, report_of
from tests.hangs.test_folder import WAITING, write_dumps

LINES = ("CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS")


def answer(lost: int = 1) -> bytes:
    """As ``ncclras -f json`` prints it, of four ranks on two nodes."""
    ranks = [
        {"rank": rank, "host": f"n{rank // 2}", "pid": 100 + rank, "cuda_dev": rank % 2, "status": {}}
        for rank in range(4)
    ]
    missing = [{**ranks.pop(lost), "status": {"unresponsive": True, "considered_dead": False}}]
    return json.dumps({"communicators": [{"size": 4, "ranks": ranks, "missing_ranks": missing}]}).encode()


@contextmanager
def ras(said: Sequence[bytes] = (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"), status: bytes = b"") -> Iterator[str]:
    """A server of that protocol; what clients said to it is in `heard`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for expected, reply in zip(LINES, said, strict=False):
                assert self.rfile.readline().decode() == f"{expected}\n"
                self.wfile.write(reply)
            if self.rfile.readline().decode() == f"{LINES[-1]}\n":
                self.wfile.write(status or answer())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_ras_is_asked_over_its_socket(capsys: pytest.CaptureFixture[str]) -> None:
    with ras() as address:
        assert main(["why", "ranks", "--ras", address]) == 1
    assert capsys.readouterr().out.startswith("Rank 1 on n0 stopped first\n  NCCL RAS: ")


@pytest.mark.parametrize(
    ("said", "status", "what"),
    [
        ([b"HTTP/1.1 400 Bad Request\n"], b"", "'CLIENT PROTOCOL 2' was answered by 'HTTP/1.1 400 Bad Request'"),
        ([b"SERVER PROTOCOL 2\n", b"OK\n", b"ERROR: Unknown command\n"], b"", "2.28.7 and newer answer in JSON"),
        ([b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"], b"Job summary\n", "its answer of 12 bytes is not JSON"),
    ],
)
def test_what_is_no_ras_or_an_old_one_is_said_in_one_line(said: list[bytes], status: bytes, what: str) -> None:
    with ras(said, status) as address, pytest.raises(InputError, match=what.replace("(", r"\(")):
        ask_ras(address)


def test_an_answer_that_never_ends_is_not_waited_for() -> None:
    with (
        ras([b"SERVER PROTOCOL 2\n", b"OK\n", b""]) as address,
        pytest.raises(InputError, match="no RAS answers"),
    ):
        ask_ras(address, within_s=0.3)


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:http", ":28028", "localhost:0", "localhost:65536", "localhost:" + "9" * 5000]
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(InputError, match="not HOST:PORT"):
        ask_ras(address)


def test_other_json_is_no_answer_of_ras() -> None:
    with ras(status=b"[]") as address, pytest.raises(InputError, match="not that of NCCL RAS"):
        main_raising(["why", "ranks", "--ras", address])


def main_raising(arguments: list[str]) -> None:
    from perdure.cli.hang import explain_hang

    explain_hang("", arguments[-1], lambda: pytest.fail("no settings are needed"), as_json=False)


# ---------------------------------------------------------------- a job's own folder


def job_folder(root: Path, job_id: str = "4711", attempt: int = 2) -> Path:
    """As the launchers of a job on two nodes leave it."""
    where = root / ".perdure" / "hpc" / job_id / "attempts" / str(attempt)
    dumps = where / "gang-0" / "flight-recorder"
    dumps.mkdir(parents=True)
    write_dumps(dumps, WAITING, "rank_{}")
    for rank in range(4):
        task = where / f"n{rank // 2}-{100 + rank}"
        (task / "beats").mkdir(parents=True)
        beat = {"schema": "perdure.heartbeat/1", "rank": rank, "node": f"n{rank // 2}", "step": 5 - (rank == 2)}
        (task / "heartbeat.json").write_text(json.dumps(beat))
        (task / "hang.json").write_text('{"schema": "perdure.hang/1"}')
    return where


def test_a_job_is_looked_for_where_it_was_submitted_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_folder(tmp_path, attempt=2)
    newest = job_folder(tmp_path, attempt=10)
    monkeypatch.chdir(tmp_path)
    assert main(["why", "ranks", "4711", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ranks"], told["nodes"], told["directory"]) == ([2], ["n1"], str(newest))
    assert [word["source"] for word in told["words"]] == ["flight recorder", "heartbeats"]
    assert told["notes"] == []  # the folders of its launchers are nothing that could not be read
    (newest / "n0-100" / "rank_7").write_bytes(b"\x80\x04\x95")
    assert main(["why", "ranks", "4711", "--json"]) == 1
    assert "rank_7: cannot be read" in json.loads(capsys.readouterr().out)["notes"][0]


def test_ras_that_names_others_is_shown_and_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    with ras() as address:
        assert main(["why", "ranks", "4711", "--ras", address]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 2 on n1 stopped first")
    assert "(not believed: flight recorder names others)" in shown


def test_ras_that_names_nobody_is_told_whom_another_source_names(tmp_path: Path) -> None:
    found = read_attempt(job_folder(tmp_path))
    well = {"communicators": [{"size": 1, "ranks": [{"rank": 0, "host": "n0", "pid": 1, "cuda_dev": 0}]}]}
    assert found.take_ras(well)
    assert [word.source for word in report_of(found).conflicts] == [RAS]


def test_a_job_without_a_folder_is_told_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.perdure/CLUSTER/4711/attempts below"):
        attempt_of("4711", [tmp_path])
    assert not Folder().take_ras({"no": "communicators"})


def test_nothing_named_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "ranks"]) == 2
    assert "give a folder, a job id or --ras HOST:PORT" in capsys.readouterr().err
