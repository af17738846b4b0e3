"""Commands that are printed to be pasted work in this installation."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import installation
from perdure.errors import MissingExtra
from perdure.installation import EXTRAS, install_command, need, program, to_type

HERE = Path(sys.executable).parent


def came_from(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any]) -> None:
    found = type("Found", (), {"read_text": lambda self, name: json.dumps(origin) if origin else None})
    monkeypatch.setattr(installation, "distribution", lambda name: found())


def test_the_program_is_named_as_it_can_be_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert subprocess.run([*shlex.split(program()), "--version"], capture_output=True, check=False).returncode == 0
    monkeypatch.setenv("PATH", str(HERE))
    assert program() == "perdure"


def test_commands_in_a_sentence_are_those_that_the_shell_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    says = "Start it: perdure up. Perdure keeps /srv/perdure open; see `perdure jobs`"
    monkeypatch.setenv("PATH", str(HERE))
    assert to_type(says) == says
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(HERE.parent)
    assert to_type(says) == says.replace(" perdure up", " bin/perdure up").replace("`perdure", "`bin/perdure")


@pytest.mark.parametrize(
    ("origin", "asks_for"),
    [
        ({"url": "file:///src/a%20b", "dir_info": {"editable": True}}, ["-e", "/src/a b[sim]"]),
        ({"url": "file:///src/x", "dir_info": {}}, ["/src/x[sim]"]),
        ({"url": "file:///w/perdure-1-py3-none-any.whl"}, ["perdure[sim] @ file:///w/perdure-1-py3-none-any.whl"]),
        ({}, ["perdure[sim]"]),
    ],
)
def test_a_part_is_added_from_where_the_rest_came(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any], asks_for: list[str]
) -> None:
    came_from(monkeypatch, origin)
    python, *words = shlex.split(install_command("sim"))
    assert Path(python).absolute() == Path(sys.executable).absolute()
    assert words == ["-m", "pip", "install", *asks_for]


def test_paths_below_the_working_directory_are_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    came_from(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.chdir(tmp_path)
    assert shlex.split(install_command("sim"))[-2:] == ["-e", ".[sim]"]
    monkeypatch.chdir(tmp_path.parent)
    assert shlex.split(install_command("sim"))[-2:] == ["-e", f"./{tmp_path.name}[sim]"]


def test_the_root_is_no_directory_to_paste_commands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A service that systemd starts runs there; whoever reads its log stands elsewhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir("/")
    assert shlex.split(program())[0].startswith("/")


def test_what_is_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "sim", ("json",))
    need("sim", "whatif")


def test_what_is_missing_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "sim", ("json", "no_such_module"))
    with pytest.raises(MissingExtra) as caught:
        need("sim", "whatif")
    assert str(caught.value) == (
        f"whatif: needs the optional part 'sim' (no_such_module not installed). Install it: {install_command('sim')}."
    )
