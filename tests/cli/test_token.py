"""`perdure token` mints what the service accepts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.service.access.auth import Identity, Role, TokenBook
from tests.cli.conftest import Ran


@pytest.fixture
def state(home: Path) -> Path:
    path = home / "state"
    path.mkdir()
    return path


def test_a_token_is_known_to_the_service_and_shown_once(perdure: Callable[..., Ran], state: Path) -> None:
    ran = perdure("token", "ada", "--state", "state")
    minted = ran.out.strip()
    found = TokenBook(state).find(minted)
    assert ran.code == 0
    assert found == Identity("ada", Role.VIEWER, found.token_id)
    assert minted not in (state / "tokens.json").read_text()


def test_a_role_is_given_and_json_says_so(perdure: Callable[..., Ran], state: Path) -> None:
    ran = perdure("token", "ada", "--role", "operator", "--state", "state", "--json")
    assert ran.json["schema"] == "perdure.token/1"
    assert TokenBook(state).find(ran.json["token"]).role is Role.OPERATOR


def test_a_revoked_token_is_refused(perdure: Callable[..., Ran], state: Path) -> None:
    minted = perdure("token", "ada", "--state", "state").out.strip()
    assert perdure("token", "--revoke", TokenBook(state).find(minted).token_id, "--state", "state").code == 0
    assert TokenBook(state).find(minted) is None


def test_a_token_that_was_minted_can_be_found_and_revoked(perdure: Callable[..., Ran], state: Path) -> None:
    assert perdure("token", "--list", "--state", "state").out.strip() == "No tokens."
    first = perdure("token", "ada", "--state", "state")
    second = perdure("token", "bob", "--role", "operator", "--state", "state", "--json").json
    assert second["id"] == TokenBook(state).find(second["token"]).token_id
    told = TokenBook(state).find(first.out.strip()).token_id
    assert f"its id is {told}. Revoke it with: perdure token --revoke {told}" in first.err
    listed = perdure("token", "--list", "--state", "state").out
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [
        [told, "ada", "viewer"],
        [second["id"], "bob", "operator"],
    ]
    assert first.out.strip() not in listed
    assert perdure("token", "--revoke", told, "--state", "state").code == 0
    kept = perdure("token", "--list", "--state", "state", "--json").json["tokens"]
    assert [each["id"] for each in kept] == [second["id"]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "token: give a user, --revoke ID or --list. "),
        (("ada", "--revoke", "x"), "token: give a user, --revoke ID or --list. "),
        (("ada", "--list"), "token: give a user, --revoke ID or --list. "),
        (("ada", "--role", "root"), "--role: 'root' is not a role. Give viewer or operator."),
        (("a\nb", "--state", "state"), "user: 'a\\nb' is not a user name. "),
        (("a b", "--state", "state"), "user: 'a b' is not a user name. Give a name without blanks"),
        (("a/b", "--state", "state"), "user: 'a/b' is not a user name. Give a name without blanks and slashes, of at"),
        (("../bob", "--state", "state", "--json"), "user: '../bob' is not a user name. "),
        ((" ", "--state", "state"), "user: ' ' is not a user name. "),
        (("--revoke", "x", "--state", "state"), "x: no such token. See the ids: perdure token --list."),
    ],
)
def test_what_cannot_be_minted_is_refused(
    perdure: Callable[..., Ran], state: Path, words: tuple[str, ...], complaint: str
) -> None:
    ran = perdure("token", *words)
    assert ran.code == 2
    assert ran.complaint.startswith(complaint)


def test_there_must_be_a_state_directory(perdure: Callable[..., Ran], home: Path) -> None:
    assert perdure("token", "ada", "--state", "none").complaint.startswith(f"{home}/none: no service has used")
