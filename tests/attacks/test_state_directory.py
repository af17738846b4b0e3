"""A state directory that somebody else made, or can change, hands nobody the service."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import StateError
from perdure.service.access.auth import Role, TokenBook
from perdure.service.access.service_file import ServiceFile
from perdure.trust import state_dir

NOBODY = 65534
TOKEN = "pdr_planted"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def plant(state: Path, owner: int | None = None) -> Path:
    """What mallory puts there beforehand: an operator's token."""
    entry = {
        "id": "0" * 12,
        "sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "user": "root",
        "role": "operator",
        "created_s": 0.0,
    }
    path = state / "tokens.json"
    path.write_text(json.dumps({"tokens": [entry]}))
    path.chmod(0o600)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def of_everybody(state: Path) -> None:
    state.chmod(0o777)


def of_everybody_who_removes_nothing_of_others(state: Path) -> None:
    state.chmod(0o1777)


def of_a_group(state: Path) -> None:
    state.chmod(0o775)


def of_another(state: Path) -> None:
    os.chown(state, NOBODY, NOBODY)


def with_a_file_of_another(state: Path) -> None:
    plant(state, NOBODY)


def below_what_others_may_write(state: Path) -> None:
    state.parent.chmod(0o777)


def reached_by_another_s_link(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))
    state.symlink_to("elsewhere")
    os.chown(state, NOBODY, NOBODY, follow_symlinks=False)


PLANTED = [
    of_everybody,
    of_everybody_who_removes_nothing_of_others,
    of_a_group,
    below_what_others_may_write,
    pytest.param(of_another, marks=as_root),
    pytest.param(with_a_file_of_another, marks=as_root),
    pytest.param(reached_by_another_s_link, marks=as_root),
]


@pytest.mark.parametrize("plan", PLANTED)
def test_a_directory_that_others_can_change_is_refused(tmp_path: Path, plan: Callable[[Path], object]) -> None:
    state = tmp_path / "shared" / "state"
    state.mkdir(mode=0o700, parents=True)
    state_dir(state)  # as it is, it will do
    plan(state)
    with pytest.raises(StateError) as refused:
        state_dir(state)
    assert "another user" in refused.value.what or "others may write" in refused.value.what


def test_the_service_does_not_start_on_a_planted_token(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    plant(state)
    state.chmod(0o777)
    argv = [sys.executable, "-m", "perdure", "up", "--port", "0", "--no-demo", "--state", str(state)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2, ran
    assert f"{state}: others may write to it. Look at what is in it, then chmod go-w {state}" in ran.stderr
    assert sorted(path.name for path in state.iterdir()) == ["tokens.json"]


def test_a_directory_below_a_sticky_one_will_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert state_dir(tmp_path / "state").stat().st_mode & 0o777 == 0o700


@as_root
def test_a_token_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    state = state_dir(tmp_path / "state")
    book = TokenBook(state)
    plant(state)
    assert book.find(TOKEN)  # it is a good one
    plant(state, NOBODY)
    with pytest.raises(StateError):
        TokenBook(state).find(TOKEN)


def test_a_link_to_a_token_file_is_not_believed(tmp_path: Path) -> None:
    state = state_dir(tmp_path / "state")
    plant(state).rename(state / "elsewhere")
    (state / "tokens.json").symlink_to("elsewhere")
    with pytest.raises(StateError):
        TokenBook(state).find(TOKEN)


@as_root
def test_commands_do_not_believe_a_service_file_of_another_user(tmp_path: Path) -> None:
    path = ServiceFile("http://127.0.0.1:1", 1, "pdr_x").write(tmp_path)
    assert ServiceFile.read(tmp_path)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(StateError):
        ServiceFile.read(tmp_path)


@as_root
def test_root_may_ask_and_mint_where_another_user_s_service_runs(tmp_path: Path) -> None:
    path = ServiceFile("http://127.0.0.1:1", 1, "pdr_x").write(tmp_path)
    token = plant(tmp_path)
    for each in (tmp_path, path, token):
        os.chown(each, NOBODY, NOBODY)
    assert ServiceFile.read(tmp_path).token == "pdr_x"
    assert TokenBook(tmp_path).find(TOKEN).role is Role.OPERATOR
