"""Tokens, login codes and sessions."""

import json
import stat
import threading

import pytest

from perdure.errors import InputError, NotFound, StateError
from perdure.service.auth import CODE_LIFE_S, MAX_SESSIONS, SESSION_LIFE_S, Identity, Role, Sessions, TokenBook


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(tmp_path, clock):
    return TokenBook(tmp_path, clock)


def test_a_token_is_known_by_its_hash_alone(book):
    token = book.mint("mira", Role.VIEWER)
    found = book.find(token)
    assert found is not None
    assert (found.user, found.role) == ("mira", Role.VIEWER)
    assert token not in book.path.read_text()
    assert len(token) > 40


def test_only_the_owner_may_read_the_file(book):
    book.mint("mira", Role.VIEWER)
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(book.path.with_suffix(".lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("token", ["", "pdr_", "nonsense", "\ud800", "a" * 10_000])
def test_no_other_token_is_known(book, token):
    book.mint("mira", Role.VIEWER)
    assert book.find(token) is None


def test_what_another_process_mints_or_revokes_counts_at_once(tmp_path, book):
    other = TokenBook(tmp_path)
    token = other.mint("root", Role.OPERATOR)
    found = book.find(token)
    assert found is not None
    other.revoke(found.token_id)
    assert book.find(token) is None
    with pytest.raises(NotFound):
        book.revoke(found.token_id)


def test_tokens_minted_at_one_time_are_all_kept(tmp_path):
    minted = []
    books = [TokenBook(tmp_path) for _ in range(8)]
    threads = [threading.Thread(target=lambda b=b: minted.append(b.mint("u", Role.VIEWER))) for b in books]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(TokenBook(tmp_path).find(token) for token in minted)


def test_a_file_that_others_may_read_is_refused(book):
    token = book.mint("mira", Role.VIEWER)
    book.path.chmod(0o644)
    with pytest.raises(StateError, match="chmod 600"):
        TokenBook(book.path.parent).find(token)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tokens": [{"id": 1}]}', '{"tokens": [3]}'])
def test_a_file_that_is_none_of_tokens_is_refused(book, text):
    book.path.write_text(text)
    book.path.chmod(0o600)
    with pytest.raises(StateError, match="not a file of tokens"):
        book.find("pdr_x")


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 300, "\x1b[31m"])
def test_a_user_must_have_a_name(book, user):
    with pytest.raises(InputError):
        book.mint(user, Role.VIEWER)


def test_a_login_code_works_once_and_not_for_long(book, clock):
    code = book.login_code("root", Role.OPERATOR)
    assert book.redeem(code) == Identity("root", Role.OPERATOR)
    assert book.redeem(code) is None
    late = book.login_code("root", Role.OPERATOR)
    clock.now += CODE_LIFE_S
    assert book.redeem(late) is None


def test_a_session_ends_with_its_time(book, clock):
    sessions = Sessions(book, clock)
    secret = sessions.open(Identity("root", Role.OPERATOR))
    session = sessions.find(secret)
    assert session is not None
    assert session.vouches_for(session.csrf)
    assert not session.vouches_for("")
    assert not session.vouches_for("\ud800")
    clock.now += SESSION_LIFE_S
    assert sessions.find(secret) is None


def test_a_session_ends_with_its_token(book, clock):
    identity = book.find(book.mint("mira", Role.VIEWER))
    sessions = Sessions(book, clock)
    secret = sessions.open(identity)
    assert sessions.find(secret)
    book.revoke(identity.token_id)
    assert sessions.find(secret) is None


def test_sessions_are_bounded(book, clock):
    sessions = Sessions(book, clock)
    first = sessions.open(Identity("a", Role.VIEWER))
    for _ in range(MAX_SESSIONS):
        last = sessions.open(Identity("a", Role.VIEWER))
    assert sessions.find(first) is None
    assert sessions.find(last)


def test_an_operator_covers_a_viewer_and_not_the_other_way():
    assert Role.OPERATOR.covers(Role.VIEWER)
    assert not Role.VIEWER.covers(Role.OPERATOR)


def test_viewers_read_logs_of_their_own_jobs_alone():
    mira, root = Identity("mira", Role.VIEWER), Identity("root", Role.OPERATOR)
    assert mira.may_read_logs_of("mira")
    assert not mira.may_read_logs_of("jonas")
    assert not Identity("", Role.VIEWER).may_read_logs_of("")
    assert root.may_read_logs_of("jonas")


def test_the_file_says_nothing_but_what_it_must(book):
    book.mint("mira", Role.VIEWER)
    (entry,) = json.loads(book.path.read_text())["tokens"]
    assert set(entry) == {"id", "sha256", "user", "role", "created_s"}
