"""A key holds for one user and one request, and until that has failed."""

import threading

import pytest

from perdure.errors import ClusterBusy, InputError, NotFound
from perdure.service.web.idempotency import MAX_KEY, MAX_REPLIES, Replies


class Counted:
    """What is carried out, each time with another answer."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> str:
        self.times += 1
        return f"job {self.times}"


def test_what_is_sent_twice_is_carried_out_once_and_answered_alike() -> None:
    replies, act = Replies(), Counted()
    assert [replies.once("ada", "k", {"a": 1}, "submit", act) for _ in range(3)] == ["job 1"] * 3
    assert [replies.once("ada", None, {"a": 1}, "submit", act) for _ in range(2)] == ["job 2", "job 3"]


def test_ones_key_says_nothing_of_anothers_request() -> None:
    replies, act = Replies(), Counted()
    assert replies.once("ada", "k", {"a": 1}, "submit", act) == "job 1"
    assert replies.once("bob", "k", {"a": 1}, "submit", act) == "job 2"
    assert replies.once("bob", "k", {"a": 1}, "submit", act) == "job 2"


@pytest.mark.parametrize(("body", "what"), [({"a": 2}, "submit"), ({"a": 1}, "order")])
def test_a_key_of_another_request_is_refused(body: dict[str, int], what: str) -> None:
    replies, act = Replies(), Counted()
    replies.once("ada", "k", {"a": 1}, "submit", act)
    with pytest.raises(InputError, match="sent before with another request"):
        replies.once("ada", "k", body, what, act)
    assert act.times == 1


def test_what_failed_may_be_sent_again_under_its_key() -> None:
    replies, act = Replies(), Counted()

    def fails() -> None:
        raise NotFound("node n1", "no such node", "See the nodes")

    with pytest.raises(NotFound):
        replies.once("ada", "k", {}, "order", fails)
    assert replies.once("ada", "k", {}, "order", act) == "job 1"


def test_while_it_is_being_carried_out_the_second_is_told_to_wait() -> None:
    replies, begun, may_end = Replies(), threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        may_end.wait(10)
        return "done"

    first = threading.Thread(target=replies.once, args=("ada", "k", {}, "order", slow))
    first.start()
    assert begun.wait(10)
    with pytest.raises(ClusterBusy):
        replies.once("ada", "k", {}, "order", slow)
    may_end.set()
    first.join()
    assert replies.once("ada", "k", {}, "order", Counted()) == "done"


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="not 1 to 200 characters"):
        Replies().once("ada", key, {}, "order", Counted())


def test_the_oldest_keys_give_way() -> None:
    replies, act = Replies(), Counted()
    for number in range(MAX_REPLIES + 1):
        replies.once("ada", str(number), {}, "order", act)
    assert replies.once("ada", "1", {}, "order", act) == "job 2"
    assert replies.once("ada", "0", {}, "order", act) == f"job {MAX_REPLIES + 2}"


def test_a_key_is_as_long_as_is_said() -> None:
    assert Replies().once("ada", "k" * MAX_KEY, {}, "hold", lambda: 1) == 1
    with pytest.raises(InputError):
        Replies().once("ada", "k" * (MAX_KEY + 1), {}, "hold", lambda: 1)
