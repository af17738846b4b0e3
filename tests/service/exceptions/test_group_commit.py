"""What many say at once is written together, and answered one by one."""

import threading
from typing import Any

import pytest

from perdure.coordination.messages import (
    Input,
    Left,
    Refused,
)
from perdure.service.exceptions.group_commit import GroupCommit
from tests.job.launching import wait_until


class Slow:
    """Writes the first batch when it is let, and refuses those whose name is bad."""

    def __init__(self) -> None:
        self.batches, self.begun, self.may_end = [], threading.Event(), threading.Event()

    def __call__(
        self,
        inputs: tuple[
            Input,
            ...,
        ],
    ) -> list[Any]:
        self.batches.append(len(inputs))
        self.begun.set()
        assert self.may_end.wait(30)
        if any(given.handler == "full" for given in inputs):
            raise OSError("no space left")
        return [Refused(given, "bad", "") for given in inputs if given.handler == "bad"]


def told_together(*names: str) -> dict[str, list[str] | OSError]:
    """What each of several hears, of whom all but the first wait for it and are written in one batch."""
    slow = Slow()
    heard: dict[str, list[str] | OSError] = {}
    intake = GroupCommit(slow)

    def tell(name: str) -> None:
        try:
            heard[name] = [effect.given.handler for effect in intake.tell((Left(name),))]
        except OSError as err:
            heard[name] = err

    threads = [threading.Thread(target=tell, args=(name,)) for name in ("first", *names)]
    threads[0].start()
    assert slow.begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(intake._waiting) == len(names))
    slow.may_end.set()
    for thread in threads:
        thread.join()
    assert slow.batches == [1, len(names)]
    return heard


def test_each_is_told_of_its_own_refusal_alone() -> None:
    assert told_together("good", "bad") == {"first": [], "good": [], "bad": ["bad"]}


def test_all_that_could_not_be_written_are_told_so() -> None:
    heard = told_together("good", "full")
    assert heard["first"] == []
    assert all(isinstance(heard[name], OSError) for name in ("good", "full"))


def test_what_is_told_alone_is_refused_as_itself() -> None:
    slow = Slow()
    slow.may_end.set()
    given = Left("bad")
    (refused,) = GroupCommit(slow).tell((Left("good"), given))
    assert refused.given is given
    with pytest.raises(OSError, match="no space"):
        GroupCommit(slow).tell((Left("full"),))
