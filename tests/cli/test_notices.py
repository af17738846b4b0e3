"""`perdure notices test` tries the targets from this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.backends.kind import Checkup
from perdure.cli import doctor, notices
from perdure.cli.output import clock
from tests.cli.conftest import Ran
from tests.service.notices.receivers import receiving


def settings(home: Path, text: str) -> tuple[str, str]:
    (home / "site.toml").write_text(text)
    return "--config", "site.toml"


def test_a_test_arrives_and_says_so(perdure: Callable[..., Ran], home: Path) -> None:
    with receiving() as receiver:
        given = settings(home, f'[notices.targets.ops]\nkind = "slack"\nurl = "{receiver.url}"\n')
        ran = perdure("notices", "test", "ops", *given)
    assert (ran.code, ran.out) == (0, "ops (slack): sent\n")
    assert "This is a test" in receiver.texts[0]


def test_what_did_not_arrive_is_said_without_the_secret(perdure: Callable[..., Ran], home: Path) -> None:
    with receiving(404) as receiver:
        given = settings(home, f'[notices.targets.ops]\nkind = "slack"\nurl = "{receiver.url}/s3cr3t"\n')
        ran = perdure("notices", "test", *given)
    assert ran.code == 1
    assert ran.out.startswith("ops (slack): 127.0.0.1: refused it with 404")
    assert "s3cr3t" not in ran.out + ran.err


def test_a_test_is_not_said_to_be_tried_again(perdure: Callable[..., Ran], home: Path) -> None:
    with receiving(500) as receiver:
        given = settings(home, f'[notices.targets.ops]\nkind = "slack"\nurl = "{receiver.url}"\n')
        ran = perdure("notices", "test", *given)
    assert ran.out == "ops (slack): 127.0.0.1: answered 500. The service would try again.\n"


def test_one_target_that_fails_is_told_whichever_comes_last(perdure: Callable[..., Ran], home: Path) -> None:
    with receiving() as receiver:
        lost = '[notices.targets.a]\nkind = "slack"\nurl_env = "NO_SUCH"\n'
        given = settings(home, f'{lost}[notices.targets.z]\nkind = "slack"\nurl = "{receiver.url}"\n')
        assert perdure("notices", "test", *given).code == 1


def test_an_unknown_target_is_an_error(perdure: Callable[..., Ran], home: Path) -> None:
    assert perdure("notices", "test").complaint.startswith("notices: no target is set")
    given = settings(home, '[notices.targets.ops]\nkind = "slack"\nurl_env = "NONE"\n')
    ran = perdure("notices", "test", "pos", *given)
    assert ran.code == 2
    assert ran.complaint == "pos: no such target. Name one of: ops."


def test_the_list_says_what_a_message_waits_for_and_until_when() -> None:
    told = {"title": "A node is drained", "about": ["n1"], "count": 1, "error": "", "waits_for": "", "until_s": None}
    assert notices._what(told) == "A node is drained: n1"
    waits = {**told, "waits_for": "waits for more of its kind", "until_s": 0.0}
    assert notices._what(waits) == f"A node is drained: n1 (waits for more of its kind, until {clock(0.0).short})"
    failed = {**waits, "error": "answered 503.", "waits_for": "waits to be tried again"}
    assert "(answered 503; waits to be tried again, until " in notices._what(failed)


def test_the_doctor_tries_each_target_and_sends_none_a_message(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "of_cluster", lambda settings: Checkup((), answered=False))
    with receiving() as receiver:
        given = settings(
            home,
            f'[notices.targets.ops]\nkind = "slack"\nurl = "{receiver.url}/s3cr3t"\n'
            '[notices.targets.gone]\nkind = "slack"\nurl_env = "NO_SUCH_VARIABLE"\n',
        )
        found = perdure("doctor", "--json", *given).json["findings"][-2:]
    assert [(each["mark"], each["what"]) for each in found] == [
        ("ok", "notices to ops: 127.0.0.1 can be reached"),
        ("fail", "notices to gone: NO_SUCH_VARIABLE: is not set in the environment of the service"),
    ]
    assert not receiver.got
