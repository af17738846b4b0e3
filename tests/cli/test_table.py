"""Tables at any width: every key whole, no line too long, nothing missing without a word; and short times."""

import os
import pty
import struct
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

import perdure
from perdure.cli import (
    actions,
    comparison_shown,
    elastic,
    emulate,
    emulate_study,
    events,
    job,
    jobs,
    keep_shown,
    learn,
    node,
    notices,
    policy,
    rules,
    speed,
    speed_choice,
    speed_log,
    study_replays,
    study_successors,
    survey,
    table,
    token,
    when_answer,
    when_bench,
    who,
)
from perdure.cli.config import COLUMNS as SETTINGS
from perdure.cli.main import main
from perdure.cli.table import CellKind, Shortened, age, cell_width, clock, instant, lines, names, since, text, wrapped
from perdure.cli.table import word as whole
from perdure.cli.text import plain

WIDTHS = (40, 60, 80, 120)
TABLES = {
    "jobs": jobs.COLUMNS, "nodes": node.COLUMNS, "actions": actions.COLUMNS, "events": events.COLUMNS,
    "rules": rules.COLUMNS, "config check": SETTINGS, "learn": learn.ROUNDS, "corrections": learn.CORRECTIONS,
    "who": who.LIVE_COLUMNS, "who FILE": who.COLUMNS, "who --batch": who.CASE_COLUMNS, "attempts": job.ATTEMPTS,
    "actions of a job": job.ACTIONS, "whatif": (comparison_shown.NAMES[0], *comparison_shown.FIGURES),
    "report": survey.COLUMNS,
    "notices": notices.COLUMNS, "token": token.COLUMNS, "when": when_answer.BOARD, "when JOB": when_answer.SOONER,
    "when bench": when_bench.DAYS, "keep list": keep_shown.LIST, "keep show": keep_shown.SHOW,
    "speed": speed.COLUMNS, "speed --from-log": speed_log.COLUMNS, "speed --or": speed_choice.COLUMNS,
    "study successors": study_successors.COLUMNS, "whatif elastic": elastic.FIGURES,
    "emulate profile": emulate.PROFILE_COLUMNS,
    "emulate study": emulate_study.columns_of(("model", "stall, page cache")),
    "study retry": study_replays.RETRY_COLUMNS, "study delay": study_replays.DELAY_COLUMNS,
    "policy": policy.ORDER, "who makes room": policy.ROOM,
}  # fmt: skip
HOSTILE = st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ["", "requeue:local/4711_3#12", "\x1b[31mred\x1b[0m", "a" * 70, "日本語のジョブ" * 6, "\u202eevil", "a b  c\td\n"]
)


@st.composite
def rows(draw: st.DrawFn, columns: tuple[table.Column, ...]) -> list[tuple[Any, ...]]:
    cells = {
        CellKind.WORD: HOSTILE,
        CellKind.NAMES: st.lists(HOSTILE, max_size=4).map(" ".join),
        CellKind.TEXT: HOSTILE,
    }
    row = st.tuples(*(cells[column.kind] for column in columns))
    return draw(st.lists(row, max_size=5))


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@settings(max_examples=25)
@given(data=st.data())
def test_keys_are_whole_and_lines_fit_whatever_the_rows_hold(
    columns: tuple[table.Column, ...], data: DataObject
) -> None:
    given_rows = data.draw(rows(columns))
    keys = [i for i, column in enumerate(columns) if column.kind is CellKind.WORD and not column.leave]
    shown_keys = [plain(row[i]).strip() for row in given_rows for i in keys]
    for width in WIDTHS:
        drawn = list(lines(columns, given_rows, width))
        assert all(key in "\n".join(drawn) for key in shown_keys)
        too_long = [line for line in drawn if cell_width(line) > width]
        longest = [plain(cell).strip() for row in given_rows for cell in row]
        assert all(line.strip() in longest or line.strip() in " ".join(longest).split() for line in too_long)
        assert all(line.isprintable() for line in drawn)
        assert all(line == line.rstrip() for line in drawn)


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_table_without_a_width_holds_every_cell_in_one_line_a_row(
    columns: tuple[table.Column, ...], data: DataObject
) -> None:
    given_rows = data.draw(rows(columns))
    drawn = list(lines(columns, given_rows, None))
    assert len(drawn) == 1 + len(given_rows)
    for row, line in zip(given_rows, drawn[1:], strict=True):
        assert all(plain(cell).strip() in line for cell in row)


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_something_stays_of_each_table(columns: tuple[table.Column, ...]) -> None:
    assert any(column.kind is CellKind.WORD and not column.leave for column in columns)


COLUMNS = (whole("ID"), whole("STATE", leave=1), names("NODES", leave=2), text("WHY", leave=3))


def test_what_does_not_fit_leaves_in_its_order_and_is_named() -> None:
    row = ("job-4711", "running", "node17 node18", "all is well and has been for days")
    assert list(lines(COLUMNS, [row], 80))[1] == "job-4711  running  node17 node18  all is well and has been for days"
    told = list(lines(COLUMNS, [row], 30))
    assert told[0] == "ID        STATE    NODES"
    assert told[1:3] == ["job-4711  running  node17", "                   node18"]
    assert " ".join(told[3:]) == "(not shown: WHY; --wide shows all)"
    assert " ".join(list(lines(COLUMNS, [row], 12))[2:]).startswith("(not shown: STATE, NODES, WHY;")


def test_a_word_that_is_longer_than_its_column_is_seen_to_be_cut() -> None:
    found = list(lines((whole("ID"), text("WHY")), [("7", "see /a/path/that/is/very/long/and/has/no/blanks now")], 40))
    assert "…" in found[2]
    assert "… stands for more" in " ".join(found[3:])


def test_what_must_stay_and_does_not_fit_becomes_blocks() -> None:
    found = list(lines((whole("KEY"), text("REASON")), [("k" * 25, "it was so"), ("b", "")], 33))
    assert found == [f"KEY     {'k' * 25}", "REASON  it was so", "", "KEY     b"]
    assert list(lines((whole("KEY"), text("REASON")), [("k" * 50, "so")], 40))[:2] == ["KEY", "k" * 50]


def test_a_column_in_which_nothing_stands_is_the_first_to_leave_and_is_not_missed() -> None:
    found = list(lines((whole("ID"), whole("EMPTY-AND-LONG", leave=1), whole("STATE", leave=2)), [("7", "", "up")], 14))
    assert found == ["ID  STATE", "7   up"]


@given(HOSTILE, st.integers(5, 50))
def test_lines_are_broken_between_words_alone(sentence: str, width: int) -> None:
    shown = plain(sentence)
    assert " ".join(wrapped(shown, width)).split() == shown.split()
    assert all(cell_width(line) <= width for line in wrapped(shown, width, cut=True))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-3, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (90_000, "1d")]
)
def test_an_age_is_one_number(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_an_equation_is_not_broken() -> None:
    sentence = "expected cost 0.98 GPU-h if retried (p = 0.88) of all"
    for width in range(20, 60):
        assert any("(p = 0.88)" in line for line in wrapped(sentence, width))
        assert " ".join(wrapped(sentence, width)) == sentence


def test_a_job_s_long_name_is_short_on_a_terminal_and_whole_elsewhere() -> None:
    name = "sweep lr=0.1 " * 400 + "end"
    job = {"job_id": "7", "state": "failed", "user": "mira", "gpus": 2, "submit_s": 0.0, "failure": None, "name": name}
    told = list(lines(jobs.COLUMNS, [jobs._row(job)], 80))
    assert len(told) <= 6
    assert "…" in told[-1]
    shown = jobs._row(job)[-1]
    assert isinstance(shown, Shortened)
    assert "end" in shown.full


def test_times_are_short_on_a_terminal_and_whole_elsewhere() -> None:
    noon = 1_780_000_000.0
    assert clock(noon, noon + 60).short == instant(noon)[11:16]
    assert clock(noon, noon + 3 * 86_400).short.endswith(instant(noon)[11:16])
    assert clock(noon, noon + 400 * 86_400).short == instant(noon)[:10]
    assert clock(noon, noon).full == since(noon, noon + 300).full == instant(noon)
    assert instant(1e300) == instant(9e15) == clock(9e15, noon).full  # one job's, in a listing of all
    assert since(noon, noon + 300).short == "5m"
    assert clock(None, noon) == since(None, noon) == Shortened("", "")


def on_terminal(width: int, *words: str, **env: Any) -> tuple[int, str]:
    """What a command prints on a terminal of this width."""
    pid, terminal = pty.fork()
    if pid == 0:
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        told = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        told |= {"TERM": "dumb", "PYTHONPATH": str(Path(perdure.__file__).parents[1]), **env}
        os.execve(sys.executable, [sys.executable, "-m", "perdure", *words], told)
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not piece:
            break
        printed += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["rules", "config check", "why a.log"])
def test_commands_fit_the_terminal(home: Path, width: int, command: str) -> None:
    (home / "a.log").write_text("step 1\nOSError: [Errno 98] Address already in use " + "and words " * 30)
    code, printed = on_terminal(width, *command.split())
    assert code in (0, 1)
    paths = [line for line in printed.splitlines() if " rules " in line]  # a command to paste is never broken
    assert [line for line in printed.splitlines() if len(line) > width and line not in paths] == []


def test_wide_is_as_piped(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, printed = on_terminal(40, "rules", "--wide")
    assert main(["rules"]) == 0
    assert printed == capsys.readouterr().out


def test_a_terminal_gets_colours_unless_it_wants_none(home: Path) -> None:
    assert "\x1b[1m" in on_terminal(80, "rules", TERM="xterm")[1]
    assert "\x1b" not in on_terminal(80, "rules", TERM="xterm", NO_COLOR="1")[1]


def test_the_modules_of_tables_are_all_tried() -> None:
    """Each place that prints a table hands over columns that stand in `TABLES`."""
    folder = Path(table.__file__).parent
    using = {path.stem for path in folder.glob("*.py") if "print_table(" in path.read_text()} - {"output"}
    tried = {"jobs", "node", "actions", "events", "rules", "config", "learn", "notices", "who", "job"}
    tried |= {"comparison_shown", "elastic", "keep_shown", "policy", "study_successors"}
    assert using == tried | {
        "emulate",
        "emulate_study",
        "speed",
        "speed_choice",
        "speed_log",
        "study_replays",
        "study_sensitivity",
        "survey",
        "token",
        "when_answer",
        "when_bench",
    }
