"""The foundry: programs that fail as their entries say, and records of them."""

import dataclasses
import gzip
import json
import re
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from foundry.cast import Lacking, Unproven, cast, cast_all, main, unchanged
from foundry.needs import Machine
from foundry.program import Program, parse, programs
from foundry.records import FIELDS, MEASURED, dump, load, published, read
from foundry.run import run
from foundry.troubles import TROUBLES
from perdure.errors import InputError
from perdure.triage.verdict import Label

HERE = Machine(Path(sys.executable))
BY_NAME = {program.name: program for program in programs()}
RECORDS = published()
FEW = ["missing-input", "shell-syntax", "port-taken", "service-503", "peer-reset", "database-locked", "worker-killed"]


def _program(source: str, truth: Label = Label.DETERMINISTIC, shows: str = "", **more: Any) -> Program:
    return Program("made-up", "none", "python", truth, "api", shows, "It is made up.", source, **more)


def test_there_are_many_programs_of_both_kinds() -> None:
    kinds = Counter(program.truth for program in programs())
    assert len(BY_NAME) == len(programs()) >= 130
    assert kinds[Label.TRANSIENT] >= 60
    assert {program.trouble for program in programs()} <= set(TROUBLES)


@pytest.mark.parametrize("name", FEW)
def test_a_program_fails_as_its_entry_says(name: str) -> None:
    record = cast(BY_NAME[name], HERE)
    assert record.exit_code != 0
    assert BY_NAME[name].shows in record.excerpt


def test_a_failure_for_another_reason_proves_nothing() -> None:
    with pytest.raises(Unproven, match="did not show 'No such file'"):
        cast(_program("import no_such_module", shows="No such file"), HERE)


@pytest.mark.parametrize(
    ("truth", "source", "codes"),
    [(Label.TRANSIENT, "raise TypeError", r"\[1, 1\]"), (Label.DETERMINISTIC, "", r"\[0, 0, 0\]")],
)
def test_a_false_entry_is_unproven(truth: Label, source: str, codes: str) -> None:
    with pytest.raises(Unproven, match=f"is {truth} by its entry, but ended {codes}"):
        cast(_program(source, truth), HERE)


def test_what_the_machine_lacks_is_said_and_the_old_record_kept() -> None:
    program = _program("", needs=("command no-such-command",))
    with pytest.raises(Lacking, match="no command no-such-command"):
        cast(program, HERE)
    old = dataclasses.replace(RECORDS[0], program=program.name, proof={"exit_codes": [1], "program": program.digest})
    kept = unchanged([old], [program])
    assert list(cast_all([program], HERE, kept)) == [
        (old, "skipped made-up: no command no-such-command, kept as it was")
    ]
    changed = dataclasses.replace(program, source="pass")
    assert unchanged([old], [changed]) == {}
    assert list(cast_all([changed], HERE, {})) == [(None, "skipped made-up: no command no-such-command")]


def test_the_command_casts_what_is_named_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.jsonl.gz", tmp_path / "new.jsonl.gz"
    old.write_bytes(dump(RECORDS))
    assert main(["--only", "missing-input", "--keep", str(old), "--out", str(new)]) == 0
    made = {record.id: record for record in read(new)}
    assert list(made) == [record.id for record in RECORDS]
    assert made["missing-input"].shows in made["missing-input"].excerpt
    assert all(made[record.id] == record for record in RECORDS if record.id != "missing-input")
    assert "proven missing-input: [1, 1, 1]" in capsys.readouterr().out


def test_a_record_names_nothing_of_this_machine() -> None:
    output = run(BY_NAME["missing-module"], HERE, 0, present=True)
    assert "/home/user/job/train.py" in output.text
    for record in RECORDS:
        assert not re.search(r"/tmp/foundry|/root\b|\bfoundry|\.pyenv", record.text), record.id


def test_a_python_of_any_name_runs_the_programs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.11").symlink_to(sys.executable)
    output = run(BY_NAME["missing-input"], Machine(tmp_path / "bin" / "python3.11"), 0, present=True)
    assert "No such file or directory: 'data/train.csv'" in output.text


def test_nothing_that_a_program_starts_outlives_it() -> None:
    source = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
sys.exit(f"left {child.pid} behind")
"""
    text = run(_program(source), HERE, 0, present=True).text
    (pid,) = re.findall(r"left (\d+) behind", text)
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout
    assert state[:1] in ("", "Z")


def test_a_trouble_that_is_gone_is_gone(tmp_path: Path) -> None:
    with TROUBLES["port-taken"](tmp_path, False) as (extra, _), socket.socket() as free:
        free.bind(("127.0.0.1", int(extra["PORT"])))


def test_every_program_is_recorded_once_with_its_truth_and_the_proof_of_it() -> None:
    measured = [record for record in RECORDS if record.origin == MEASURED]
    assert [record.program for record in measured] == list(BY_NAME)
    for record in measured:
        program = BY_NAME[record.program]
        assert record.label == program.truth
        assert record.proof["program"] == program.digest
        first, *later = record.proof["exit_codes"]
        assert first == record.exit_code != 0
        assert later == [0] if record.transient else len(later) == 2
        assert all(later) != record.transient


def test_every_record_shows_its_cause_in_its_excerpt() -> None:
    for record in RECORDS:
        assert record.shows
        assert record.shows in record.excerpt, record.id


def test_pairs_print_alike_for_opposite_reasons_and_share_a_family() -> None:
    pairs = defaultdict(list)
    for record in RECORDS:
        if record.pair:
            pairs[record.pair].append(record)
    assert len(pairs) >= 30
    for name, members in pairs.items():
        assert {record.label for record in members} == {"deterministic", "transient"}, name
        assert len({record.family for record in members}) == 1, name


def test_a_file_of_records_survives_the_way_there_and_back() -> None:
    assert load(dump(RECORDS), "x") == RECORDS
    first = json.loads(gzip.decompress(dump(RECORDS)).splitlines()[0])
    assert set(first) == set(FIELDS)


def test_any_text_survives_the_way_there_and_back() -> None:
    odd = dataclasses.replace(RECORDS[0], text="a\x85b\u2028c\x1cd\r\n\udc80\x00")
    assert load(dump([odd]), "x") == (odd,)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x", "x.gz: not gzipped"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-12] + b"zzzz", "x.gz: not gzipped"),
        (gzip.compress(b"{}\n", mtime=0), "x.gz:1: not a record"),
        (gzip.compress(b"{", mtime=0), "x.gz:1: "),
    ],
)
def test_a_bad_file_is_named_with_its_line(data: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(data, "x.gz")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[", "x.toml: "), ('[[program]]\nname="a"\ntruth="maybe"', "x.toml: a: not a program"), ("[[program]]", r"\?")],
)
def test_a_bad_entry_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text, "x.toml")
