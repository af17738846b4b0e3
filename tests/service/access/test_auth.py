"""Tokens, login codes and sessions."""

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InputError, NotFound, StateError
from perdure.service.access import sessions as sessions_module
from perdure.service.access.auth import CODE_LIFE_S, MAX_OWN_CODES, Identity, Role, TokenBook, digest
from perdure.service.access.sessions import SESSION_LIFE_S, Sessions


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(tmp_path: Path, clock: Clock) -> TokenBook:
    return TokenBook(tmp_path, clock)


def test_a_token_is_known_by_its_hash_alone(book: TokenBook) -> None:
    token = book.mint("mira", Role.VIEWER)
    found = book.find(token)
    assert found is not None
    assert (found.user, found.role) == ("mira", Role.VIEWER)
    assert token not in book.path.read_text()
    assert len(token) > 40


def test_only_the_owner_may_read_the_file(book: TokenBook) -> None:
    book.mint("mira", Role.VIEWER)
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(book.path.with_suffix(".lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("token", ["", "pdr_", "nonsense", "\ud800", "a" * 10_000])
def test_no_other_token_is_known(book: TokenBook, token: str) -> None:
    book.mint("mira", Role.VIEWER)
    assert book.find(token) is None


def test_what_another_process_mints_or_revokes_counts_at_once(tmp_path: Path, book: TokenBook) -> None:
    other = TokenBook(tmp_path)
    token = other.mint("root", Role.OPERATOR)
    found = book.find(token)
    assert found is not None
    other.revoke(found.token_id)
    assert book.find(token) is None
    with pytest.raises(NotFound):
        book.revoke(found.token_id)


def test_without_the_file_no_token_is_known(book: TokenBook) -> None:
    """Who removes it in haste means all of them."""
    token = book.mint("mira", Role.OPERATOR)
    found = book.find(token)
    assert found is not None
    book.path.unlink()
    assert book.find(token) is None
    assert not book.holds(found.token_id)
    assert book.find(book.mint("mira", Role.OPERATOR)) is not None


def test_tokens_minted_at_one_time_are_all_kept(tmp_path: Path) -> None:
    minted = []
    books = [TokenBook(tmp_path) for _ in range(8)]
    threads = [threading.Thread(target=lambda b=b: minted.append(b.mint("u", Role.VIEWER))) for b in books]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(TokenBook(tmp_path).find(token) for token in minted)


def test_a_file_of_tokens_is_on_the_disk_before_it_takes_the_place_of_the_one_before(
    book: TokenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut there is one of the two, whole."""
    book.mint("mira", Role.VIEWER)
    synced, sync, replace = [], os.fsync, os.replace

    def noted(descriptor: Any) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def checked(name: str, path: str) -> None:
        assert os.stat(name).st_ino in synced
        replace(name, path)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", checked)
    book.mint("ada", Role.VIEWER)
    assert synced


def test_a_file_that_others_may_read_is_refused(book: TokenBook) -> None:
    token = book.mint("mira", Role.VIEWER)
    book.path.chmod(0o644)
    with pytest.raises(StateError, match="chmod 600"):
        TokenBook(book.path.parent).find(token)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tokens": [{"id": 1}]}', '{"tokens": [3]}'])
def test_a_file_that_is_none_of_tokens_is_refused(book: TokenBook, text: str) -> None:
    book.path.write_text(text)
    book.path.chmod(0o600)
    with pytest.raises(StateError, match="not a file of tokens"):
        book.find("pdr_x")


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 300, "\x1b[31m"])
def test_a_user_must_have_a_name(book: TokenBook, user: str) -> None:
    with pytest.raises(InputError):
        book.mint(user, Role.VIEWER)


def test_a_login_code_works_once_and_not_for_long(book: TokenBook, clock: Clock) -> None:
    code = book.login_code(Identity("root", Role.OPERATOR))
    assert book.redeem(code) == Identity("root", Role.OPERATOR)
    assert book.redeem(code) is None
    late = book.login_code(Identity("root", Role.OPERATOR))
    clock.now += CODE_LIFE_S
    assert book.redeem(late) is None


@pytest.mark.parametrize("other", ["eve", "root"])  # a viewer's token may bear an operator's name
def test_nobody_drives_out_anothers_code(book: TokenBook, other: str) -> None:
    mine = book.login_code(Identity("root", Role.OPERATOR))
    theirs = [book.login_code(Identity(other, Role.VIEWER)) for _ in range(2000)]
    assert book.redeem(mine) == Identity("root", Role.OPERATOR)
    assert [code for code in theirs if book.redeem(code) is not None] == theirs[-MAX_OWN_CODES:]


def test_a_session_ends_with_its_time(book: TokenBook, clock: Clock) -> None:
    sessions = Sessions(book, clock)
    secret = sessions.open(Identity("root", Role.OPERATOR))
    session = sessions.find(secret)
    assert session is not None
    assert session.vouches_for(session.csrf)
    assert not session.vouches_for("")
    assert not session.vouches_for("\ud800")
    clock.now += SESSION_LIFE_S
    assert sessions.find(secret) is None


def test_a_session_ends_with_its_token(book: TokenBook, clock: Clock) -> None:
    identity = book.find(book.mint("mira", Role.VIEWER))
    assert identity is not None
    sessions = Sessions(book, clock)
    secret = sessions.open(identity)
    assert sessions.find(secret)
    book.revoke(identity.token_id)
    assert sessions.find(secret) is None


def test_a_restart_logs_nobody_out(book: TokenBook, clock: Clock) -> None:
    wall = Clock(1.7e9)
    bob = book.find(book.mint("bob", Role.VIEWER))
    assert bob is not None
    before = Sessions(book, clock, wall)
    root, ada = Identity("root", Role.OPERATOR), Identity("ada", Role.VIEWER)
    secret, gone, revoked = map(before.open, (root, ada, bob))
    mira = Identity("mira", Role.VIEWER, own_only=True, by_proxy=True)
    narrow = before.open(mira)
    before.close(gone)
    book.revoke(bob.token_id)
    wall.now += SESSION_LIFE_S - 60
    clock.now = 5.0  # the machine was started anew
    after = Sessions(book, clock, wall)
    session = after.find(secret)
    assert (session.identity, session.csrf) == (root, before._sessions[digest(secret)].csrf)
    assert after.find(narrow).identity == mira
    assert (after.find(gone), after.find(revoked), after.find("x")) == (None, None, None)
    clock.now += 60
    assert after.find(secret) is None


def test_time_set_back_over_a_restart_gives_no_more_than_a_new_session(book: TokenBook, clock: Clock) -> None:
    wall = Clock(1.7e9)
    secret = Sessions(book, clock, wall).open(Identity("root", Role.OPERATOR))
    wall.now = 0.0
    after = Sessions(book, clock, wall)
    clock.now += SESSION_LIFE_S
    assert after.find(secret) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"sessions": [7, {}, {"until_s": "x"}]}', '{"sessions": 7}'])
def test_a_damaged_file_of_sessions_logs_everybody_out(book: TokenBook, clock: Clock, text: str) -> None:
    path = book.path.with_name("sessions.json")
    path.write_text(text)
    path.chmod(0o600)
    assert Sessions(book, clock).find("x") is None


def test_a_file_of_sessions_that_others_may_read_is_refused(book: TokenBook, clock: Clock) -> None:
    Sessions(book, clock).open(Identity("root", Role.OPERATOR))
    path = book.path.with_name("sessions.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(StateError, match="others may read it"):
        Sessions(book, clock)


def test_sessions_are_bounded(book: TokenBook, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 20)  # each is written as it opens: a thousand take long
    sessions = Sessions(book, clock)
    cookies = [sessions.open(Identity("a", Role.VIEWER)) for _ in range(21)]
    assert [sessions.find(cookie) is not None for cookie in cookies] == [False] + 20 * [True]


def test_an_operator_covers_a_viewer_and_not_the_other_way() -> None:
    assert Role.OPERATOR.covers(Role.VIEWER)
    assert not Role.VIEWER.covers(Role.OPERATOR)


def test_viewers_read_logs_of_their_own_jobs_alone() -> None:
    mira, root = Identity("mira", Role.VIEWER), Identity("root", Role.OPERATOR)
    assert mira.may_read_logs_of("mira")
    assert not mira.may_read_logs_of("jonas")
    assert not Identity("", Role.VIEWER).may_read_logs_of("")
    assert root.may_read_logs_of("jonas")


def test_the_file_says_nothing_but_what_it_must(book: TokenBook) -> None:
    book.mint("mira", Role.VIEWER)
    (entry,) = json.loads(book.path.read_text())["tokens"]
    assert set(entry) == {"id", "sha256", "user", "role", "created_s"}
