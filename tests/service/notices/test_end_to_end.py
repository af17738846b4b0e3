"""From what happens on a cluster to what arrives at a receiver: the real controller, journal, outbox and channels."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.model.nodes import NodeState
from perdure.service.notices import outbox
from perdure.service.notices.channels.mail import Mail, Tls
from perdure.service.notices.channels.slack import Slack
from perdure.service.notices.channels.webhook import Webhook, verified
from perdure.service.notices.notice import Kind, Severity
from perdure.service.notices.notifier import Notifier
from perdure.service.notices.queries import find_messages
from perdure.service.notices.rules import Rule
from perdure.service.notices.secrets import Secret
from perdure.service.notices.settings import NoticeRules, NoticesSettings, Targets
from perdure.service.store.journal import ActionState
from perdure.service.store.queries.reader import Reader
from tests.copying import replace
from tests.service.notices.receivers import receiving
from tests.service.web_world import CLUSTER, RESET, SHAPE, World

NOW = 1_700_000_000.0
ALL = Rule(("ops",), severity=Severity.INFO)
SECRET = "whsec_dGhlIGtleSBvZiB0aGlzIHRlc3Q="


@pytest.fixture
def world(where: Path | str) -> Iterator[World]:
    found = World(where, NOW)
    yield found
    found.journal.close()


def settings_of(*rules: Rule, group_s: float = 0.0, **targets: Any) -> NoticesSettings:
    return NoticesSettings(
        targets=Targets(targets),
        rules=NoticeRules(rules),
        group_s=group_s,
        url="https://perdure.site.org",
        disk_low_mib=0,
    )


def notifier_of(world: World, settings: NoticesSettings, tmp_path: Path) -> Notifier:
    """As a service has it that has just been started."""
    made = Notifier(world.journal.store, CLUSTER, settings, tmp_path, "http://127.0.0.1:8470", lambda: world.now)
    made.begin()
    return made


def drain(world: World, node: str = "gpu01", reason: str = "bad DIMM") -> None:
    world.nodes[node] = replace(world.nodes[node], state=NodeState.DRAINED, reason=reason)
    world.look()


def standing(world: World) -> list[Any]:
    rows = find_messages(Reader(world.journal.engine, CLUSTER)).items
    return [(row.message.kind, row.message.count, row.state) for row in rows]


def test_a_drained_node_is_told_of_by_a_signed_webhook(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        hook = Webhook(Secret(value=f"{receiver.url}/hook?x=1"), Secret(value=SECRET))
        notifier = notifier_of(world, settings_of(hook=hook), tmp_path)
        drain(world)
        notifier.gather()
        assert notifier.send("hook")
        assert not notifier.send("hook")
    ((path, headers, body),) = receiver.got
    assert path == "/hook?x=1"
    assert verified(SECRET, headers, body, world.now)
    (told,) = receiver.documents
    assert told["key"] == headers["webhook-id"] == headers["idempotency-key"]
    assert (told["kind"], told["severity"], told["cluster"]) == ("node_drained", "warning", CLUSTER)
    (notice,) = told["notices"]
    assert (notice["about"], notice["detail"]) == ("node gpu01", "bad DIMM")
    assert notice["link"] == "https://perdure.site.org/nodes"
    assert standing(world) == [(Kind.NODE_DRAINED, 1, "sent")]


def test_a_burst_is_one_message_with_a_count_and_a_few_names(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings = settings_of(ALL, group_s=30.0, ops=Slack(Secret(value=receiver.url)))
        notifier = notifier_of(world, settings, tmp_path)
        for number in range(12):
            world.submit(str(number), look=False)
            world.start(str(number))
            world.end(str(number), SHAPE)
            notifier.gather()
        assert not notifier.send("ops")  # it gathers
        world.pass_time(30.0)
        assert notifier.send("ops")
        assert not notifier.send("ops")
    (text,) = receiver.texts
    assert "12 failed jobs are not retried" in text
    assert text.count("•") == 6
    assert "and 7 more" in text


def test_a_retry_and_a_stop_are_told_apart_and_lead_to_the_jobs_page(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings = settings_of(ALL, ops=Webhook(Secret(value=receiver.url)))
        notifier = notifier_of(world, settings, tmp_path)
        for job_id, log in (("7", SHAPE), ("8", RESET)):
            world.submit(job_id)
            world.start(job_id)
            world.end(job_id, log)
        notifier.gather()
        while notifier.send("ops"):
            pass
    told = {each["kind"]: each for each in receiver.documents}
    assert set(told) == {"job_stopped", "job_retried"}
    assert told["job_stopped"]["link"] == "https://perdure.site.org/jobs/7"
    assert told["job_stopped"]["notices"][0]["about"] == "job 7 (train)"
    assert told["job_stopped"]["notices"][0]["user"] == "mira"
    assert told["job_stopped"]["notices"][0]["partition"] == "gpu"
    assert "shape" in told["job_stopped"]["notices"][0]["detail"]


def test_who_must_decide_is_led_to_the_exception(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        world.submit("8", name="a <b> & c")
        world.start("8")
        world.end("8", RESET)
        world.carry_out(ActionState.REFUSED, "Invalid job id specified")
        notifier.gather()
        while notifier.send("hook"):
            pass
    told = [each for each in receiver.documents if each["kind"] == "person_needed"]
    assert [each["notices"][0]["about"] for each in told] == ["job 8 (a <b> & c)"]
    assert "Invalid job id specified" in told[0]["notices"][0]["detail"]
    assert told[0]["link"] == "https://perdure.site.org/exceptions/aurora%2F8%231%3Ajob.failed"


def test_an_unreachable_manager_is_told_of_once_and_so_is_its_return(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        for unseen in ({"controller": "connection refused"}, {"controller": "timed out"}, {}, {}):
            world.unseen = unseen
            world.pass_time(30.0)
            world.look()
            notifier.gather()
            while notifier.send("hook"):
                pass
    assert [each["kind"] for each in receiver.documents] == ["manager_unreachable", "manager_back"]


def test_a_message_that_fails_is_sent_again_later_with_the_same_key_and_text(world: World, tmp_path: Path) -> None:
    with receiving(503, None, 200) as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        drain(world)
        notifier.gather()
        for wait_s in (0.0, 5.0):
            world.pass_time(wait_s)
            assert notifier.send("hook")
            assert not notifier.send("hook")  # not at once
        drain(world, "gpu02")  # what comes meanwhile goes into the next one
        notifier.gather()
        world.pass_time(10.0)
        assert notifier.send("hook")
        assert notifier.send("hook")
    first, second, third, other = receiver.documents
    assert first == second == third
    assert other["key"] != first["key"]
    assert standing(world) == [(Kind.NODE_DRAINED, 1, "sent"), (Kind.NODE_DRAINED, 1, "sent")]


def test_what_cannot_be_delivered_is_given_up_after_a_day(world: World, tmp_path: Path) -> None:
    with receiving(500) as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        drain(world)
        notifier.gather()
        for _ in range(3):
            assert notifier.send("hook")
            world.pass_time(50_000.0)
        assert not notifier.send("hook")
        assert len(receiver.got) == 3
    assert standing(world) == [(Kind.NODE_DRAINED, 1, "given_up")]


class Killed(BaseException):
    """The process is gone at this point."""


@pytest.mark.parametrize("step", ["begin", "sent"])
def test_killed_at_any_step_it_sends_once_more_with_the_same_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with receiving() as receiver:
        settings = settings_of(hook=Webhook(Secret(value=receiver.url)))
        first = notifier_of(world, settings, tmp_path)
        drain(world)
        first.gather()
        if step == "begin":  # written down, and not sent
            monkeypatch.setattr("perdure.service.notices.notifier.deliver", kill)
        else:
            monkeypatch.setattr(first.outbox, "sent", kill)
        with pytest.raises(Killed):
            first.send("hook")
        monkeypatch.undo()
        again = notifier_of(world, settings, tmp_path)
        drain(world, "gpu02")
        again.gather()
        assert again.send("hook")
        assert again.send("hook")
        assert not again.send("hook")
    *sent, last = receiver.documents
    assert len(sent) == (1 if step == "begin" else 2)
    assert all(each == sent[0] for each in sent)
    assert [each["notices"][0]["about"] for each in (sent[0], last)] == ["node gpu01", "node gpu02"]


def test_a_kill_while_it_gathers_loses_and_doubles_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        settings = settings_of(hook=Webhook(Secret(value=receiver.url)))
        notifier_of(world, settings, tmp_path)
        drain(world)
        for kill_at in ("_move_to", "_gather"):
            with monkeypatch.context() as patched:
                dying = notifier_of(world, settings, tmp_path)

                def kill(*_: object) -> None:
                    raise Killed

                patched.setattr(dying.outbox, kill_at, kill)
                with pytest.raises(Killed):
                    dying.gather()
        last = notifier_of(world, settings, tmp_path)
        last.gather()
        last.gather()
        assert last.send("hook")
        assert not last.send("hook")
    assert [each["count"] for each in receiver.documents] == [1]


def test_a_dead_target_delays_no_decision_and_no_other_target(world: World, tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hang(_: object) -> int:
        asked.set()
        go_on.wait(60.0)
        return 200

    with receiving(hang) as dead, receiving() as alive:
        settings = settings_of(dead=Webhook(Secret(value=dead.url)), alive=Webhook(Secret(value=alive.url)))
        notifier = notifier_of(world, settings, tmp_path)
        drain(world)
        notifier.gather()
        sender = threading.Thread(target=notifier.send, args=("dead",))
        sender.start()
        assert asked.wait(60.0)
        world.submit("7")
        world.start("7")
        world.end("7", SHAPE)
        drain(world, "gpu02")
        notifier.gather()
        assert world.journal.attempt(world.attempts["7"].id) is not None
        assert notifier.send("alive")
        go_on.set()
        sender.join()
    assert len(alive.got) == 1


def test_what_waits_for_a_dead_target_is_bounded(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 3)
    rule = Rule(("owners",), severity=Severity.INFO)
    mail = Mail("localhost", "a@site.org", ("{user}@site.org",), tls=Tls.NONE)
    notifier = notifier_of(world, settings_of(rule, owners=mail), tmp_path)
    for number, user in enumerate(("ada", "bob", "cy", "dan", "eve")):
        world.submit(str(number), user=user)
        world.start(str(number))
        world.end(str(number), SHAPE)
    notifier.gather()
    assert len(standing(world)) == 3


def test_neither_what_was_sent_nor_what_waits_for_another_target_takes_room(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 1)
    with receiving() as receiver:
        dead = Webhook(Secret(value="http://127.0.0.1:1/"))
        both = Rule(("dead", "ops"), severity=Severity.INFO)
        notifier = notifier_of(world, settings_of(both, dead=dead, ops=Webhook(Secret(value=receiver.url))), tmp_path)
        for job_id in ("7", "8", "9"):
            world.submit(job_id)
            world.start(job_id)
            world.end(job_id, SHAPE)
            notifier.gather()
            assert notifier.send("ops")
    assert len(receiver.documents) == 3


def test_what_is_critical_finds_room_where_other_messages_took_it_all(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 1)
    notifier = notifier_of(world, settings_of(ALL, ops=Webhook(Secret(value="http://127.0.0.1:1/"))), tmp_path)
    drain(world)
    world.unseen = {"controller": "timed out"}
    world.submit("7")
    world.start("7")
    world.end("7", SHAPE)
    notifier.gather()
    assert [kind for kind, _, _ in standing(world)] == [Kind.MANAGER_UNREACHABLE, Kind.NODE_DRAINED]


def test_what_is_critical_waits_for_no_limit_that_other_messages_reached(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings = replace(settings_of(ALL, ops=Webhook(Secret(value=receiver.url))), per_hour=1)
        notifier = notifier_of(world, settings, tmp_path)
        for job_id in ("7", "8"):
            world.submit(job_id)
            world.start(job_id)
            world.end(job_id, SHAPE)
            notifier.gather()
            notifier.send("ops")
        world.unseen = {"controller": "timed out"}
        world.look()
        notifier.gather()
        assert notifier.send("ops")
        assert not notifier.send("ops")
    assert [each["kind"] for each in receiver.documents] == ["job_stopped", "manager_unreachable"]
    assert standing(world)[1] == (Kind.JOB_STOPPED, 1, "gathering")


def test_what_is_over_is_forgotten_in_time_and_in_number(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "KEEP_MESSAGES", 2)
    with receiving() as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        for node in ("gpu01", "gpu02", "gpu03", "gpu04"):
            drain(world, node)
            notifier.gather()
            assert notifier.send("hook")
        world.pass_time(700.0)
        notifier.gather()
        assert len(standing(world)) == 2
        drain(world, "gpu05")
        notifier.gather()
        world.pass_time(31 * 86_400.0)
        notifier.gather()
    assert standing(world) == [(Kind.NODE_DRAINED, 1, "gathering")]


def test_what_is_not_sent_yet_is_kept_however_much_was_sent_since(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "KEEP_MESSAGES", 2)
    with receiving() as receiver:
        hook, dead = Webhook(Secret(value=receiver.url)), Webhook(Secret(value="http://127.0.0.1:1/"))
        settings = settings_of(Rule(("hook", "dead"), severity=Severity.INFO), hook=hook, dead=dead)
        notifier = notifier_of(world, settings, tmp_path)
        for node in ("gpu01", "gpu02", "gpu03", "gpu04"):
            drain(world, node)
            notifier.gather()
            assert notifier.send("hook")
        before = standing(world)
        world.pass_time(700.0)
        notifier.gather()
    unsent = [(Kind.NODE_DRAINED, 4, "gathering")]
    assert [each for each in before if each[2] != "sent"] == unsent
    assert [each for each in standing(world) if each[2] != "sent"] == unsent


def test_messages_for_a_target_that_is_no_more_are_given_up(world: World, tmp_path: Path) -> None:
    first = notifier_of(world, settings_of(hook=Webhook(Secret(value="http://127.0.0.1:1/"))), tmp_path)
    drain(world)
    first.gather()
    notifier_of(world, settings_of(other=Webhook(Secret(value="http://127.0.0.1:1/"))), tmp_path)
    assert standing(world) == [(Kind.NODE_DRAINED, 1, "given_up")]


@pytest.mark.parametrize(("status", "state"), [(404, "given_up"), (410, "given_up"), (503, "on_its_way")])
def test_what_a_target_refuses_is_not_sent_again(world: World, tmp_path: Path, status: int, state: str) -> None:
    with receiving(status) as receiver:
        notifier = notifier_of(world, settings_of(hook=Webhook(Secret(value=receiver.url))), tmp_path)
        drain(world)
        notifier.gather()
        assert notifier.send("hook")
        world.pass_time(3600.0)
        assert notifier.send("hook") is (state == "on_its_way")
    assert standing(world) == [(Kind.NODE_DRAINED, 1, state)]


def test_in_shadow_mode_nobody_is_told_of_retries_that_do_not_happen(world: World, tmp_path: Path) -> None:
    settings = settings_of(ALL, ops=Webhook(Secret(value="http://127.0.0.1:1/")))
    shadow = Notifier(world.journal.store, CLUSTER, settings, tmp_path, "", lambda: world.now, armed=False)
    shadow.begin()
    for job_id, log in (("7", SHAPE), ("8", RESET)):
        world.submit(job_id)
        world.start(job_id)
        world.end(job_id, log)
    shadow.gather()
    assert {kind for kind, _, _ in standing(world)} == {Kind.JOB_STOPPED}


def test_neither_log_nor_journal_learns_a_secret(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "hunter2-s3cr3t")
    with receiving(404) as receiver:
        hook = Webhook(Secret(value=f"{receiver.url}/hunter2-s3cr3t"), Secret(env="HOOK_SECRET"))
        notifier = notifier_of(world, settings_of(hook=hook), tmp_path)
        drain(world)
        notifier.gather()
        with caplog.at_level("DEBUG"):
            assert notifier.send("hook")
    (row,) = find_messages(Reader(world.journal.engine, CLUSTER)).items
    assert "refused it with 404" in row.error
    assert "hunter2" not in row.error + caplog.text + repr(notifier.__dict__)


def test_a_service_that_starts_anew_tells_nothing_twice_and_loses_nothing(world: World, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings = settings_of(hook=Webhook(Secret(value=receiver.url)))
        drain(world)  # before notices were set: nobody is told
        notifier_of(world, settings, tmp_path).gather()
        drain(world, "gpu02")
        notifier_of(world, settings, tmp_path).gather()
        again = notifier_of(world, settings, tmp_path)
        again.gather()
        assert again.send("hook")
        drain(world, "gpu02", "another reason")
        again.gather()
        assert not again.send("hook")
    assert [each["notices"][0]["about"] for each in receiver.documents] == ["node gpu02"]
