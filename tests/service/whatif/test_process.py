"""What the service hears of the process that simulates."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.service.whatif import process
from perdure.service.whatif.comparison import Progress, Trouble
from perdure.service.whatif.process import Halted, ProcessMessage, _lines, _understood

MESSAGES = [
    ProcessMessage(progress=Progress(phase="reading")),
    ProcessMessage(progress=Progress(phase="simulating", done=3, of=7)),
    ProcessMessage(trouble=Trouble(where="trace", what="it is empty", fix="Name another")),
]
SAID = b"".join(each.model_dump_json().encode() + b"\n" for each in MESSAGES)


def heard(tmp_path: Path, pieces: list[bytes], halt: Callable[[int], bool] = lambda _: False) -> list[bytes]:
    """The lines that are heard of what comes in these pieces, each written once the one before has been read."""
    fifo = tmp_path / "said"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as cat, fifo.open("wb", buffering=0) as said:
        reads = 0

        def write_next() -> bool:
            nonlocal reads
            if reads < len(pieces):
                said.write(pieces[reads])
            else:
                said.close()
            reads += 1
            return halt(reads)

        return [line for line in _lines(cat, write_next) if line]


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_messages_are_understood_however_they_are_cut(tmp_path: Path, size: int) -> None:
    lines = heard(tmp_path, [SAID[at : at + size] for at in range(0, len(SAID), size)])
    assert [_understood(line) for line in lines] == MESSAGES


def test_what_a_library_prints_between_them_is_nothing(tmp_path: Path) -> None:
    lines = heard(tmp_path, [b"a warning\n", SAID, b"\xff\n", b"no end"])
    assert [_understood(line) for line in lines] == [ProcessMessage(), *MESSAGES, ProcessMessage()]


def test_who_is_halted_says_no_more(tmp_path: Path) -> None:
    with pytest.raises(Halted):
        heard(tmp_path, [SAID], halt=lambda reads: reads == 2)


def test_a_line_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_LINE", 50)
    assert heard(tmp_path, [b"x" * 40, b"y" * 40, SAID]) == []
