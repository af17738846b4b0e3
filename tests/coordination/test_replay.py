"""Exceptions of the past under another playbook: the same one changes nothing, another says where it parts."""

from typing import Any

from perdure.coordination.chain import advance
from perdure.coordination.chain_state import Chain
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.messages import Answered, ExceptionRaised, HandlerEnlisted, Ticked
from perdure.coordination.playbook import own_playbook, site_playbook
from perdure.coordination.record import Component, ExceptionRecord, Scope, Subject
from perdure.coordination.replay import differences, replay, said
from perdure.coordination.ruling import Registration, handled
from tests.coordination.test_handlers import Site, up
from tests.copying import replace

NOW = 1000.0


def raised(name: str, kind: str, now: float, **subject: Any) -> ExceptionRecord:
    return ExceptionRecord(name, kind, 0, Scope.LOCAL, Subject("c", **subject), now, detected_by="operator:root")


def history() -> list[Any]:
    """A node fault, a NaN that a trainer took, and a shape bug."""
    site = Site(nodes=up("n1"))
    site.run("1", "n1")
    site.run("2", "n1")
    trainer = Registration("trainer", Component.JOB, ("app",), "ada", NOW + 1e6)
    site.take(ExceptionRaised(raised("fault", "gpu.xid79", NOW, nodes=("n1",))))
    site.take(HandlerEnlisted(trainer), ExceptionRaised(raised("nan", "app.nan", NOW + 10, job_id="1")), now=NOW + 10)
    site.take(Answered("nan", "trainer", handled("rolled back")), now=NOW + 14)
    site.take(ExceptionRaised(raised("shape", "launcher.permanent", NOW + 20, job_id="2")), now=NOW + 20)
    return list(site.chain.ended.values())


def test_the_same_playbook_changes_nothing() -> None:
    records = history()
    assert differences(records, own_playbook(), own_playbook()) == []
    again = replay(records, own_playbook())
    assert {name: r.owner for name, r in again.items()} == {r.id: r.owner for r in records}


def test_another_playbook_says_where_it_parts() -> None:
    book = site_playbook('[failures.gpu]\nseats = { resource_manager = "leave" }\n', "site.toml")
    (found,) = differences(history(), own_playbook(), book)
    assert (found.id, found.type) == ("fault", "gpu.xid79")
    assert "drain" in found.old
    assert "drain" not in found.new


def test_a_shorter_patience_takes_it_from_a_slow_handler() -> None:
    book = site_playbook('[failures.app]\nfall_back = "leave"\ndeadline_s = 2\n', "site.toml")
    (found,) = differences(history(), own_playbook(), book)
    assert found.old.startswith("job (trainer) after 4 s")
    assert found.new.startswith("scheduler after 2 s")


def test_it_does_not_matter_what_became_of_it() -> None:
    records = [replace(r, verdicts=()) for r in history() if r.id == "fault"]
    assert replay(records, own_playbook())["fault"].owner is Component.RESOURCE_MANAGER


def test_what_a_program_decided_on_a_failed_attempt_is_not_taken_for_the_services_decision() -> None:
    site = Site(nodes=up("n1"))
    site.run("1", "n1")
    trainer = Registration("trainer", Component.JOB, ("job",), "ada", NOW + 1e6)
    site.take(HandlerEnlisted(trainer), ExceptionRaised(raised("end", "job.failed", NOW, job_id="1")))
    site.take(Answered("end", "trainer", handled("rolled back")), now=NOW + 4)
    book = site_playbook('[failures.job]\nfall_back = "escalate"\ndeadline_s = 2\n', "site.toml")
    (found,) = differences(list(site.chain.ended.values()), own_playbook(), book)
    assert (found.old, found.new) == ("job (trainer) after 4 s: rolled back", "escalated: nobody")


def test_what_waits_for_the_end_of_its_attempt_waits_for_it_in_a_replay() -> None:
    fault = raised("nan", "app.nan", NOW, job_id="1")
    end = raised("end", "job.failed", NOW + 60, job_id="1")
    assert said(replay([fault, end], own_playbook())["nan"]) == (
        "scheduler after 60 s: its attempt has ended, and is recovered as end"
    )


def test_an_empty_past_is_one() -> None:
    assert replay([], own_playbook()) == {}
    chain, effects = advance(Chain(), [Ticked()], PlaybookHandlers(own_playbook(), Site(), NOW), NOW)
    assert (chain, effects) == (Chain(), [])
