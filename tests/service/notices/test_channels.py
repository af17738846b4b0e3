"""What each channel sends to a real receiver, and that nothing of a job gets out of its place in it."""

import email
import json
import smtplib
import ssl
import subprocess
from email.policy import default
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError, NotDelivered, NoticeRefused
from perdure.service.notices.channels.mail import Mail, Tls
from perdure.service.notices.channels.ntfy import Ntfy
from perdure.service.notices.channels.protocol import Channel, Delivery
from perdure.service.notices.channels.registry import CHANNELS
from perdure.service.notices.channels.slack import Slack
from perdure.service.notices.channels.webhook import Webhook, sign, verified
from perdure.service.notices.network import AllowedNetwork
from perdure.service.notices.notice import MAX_NAME, Kind, Message, Notice
from perdure.service.notices.secrets import Secret
from perdure.service.notices.smtp import told_as
from tests.conftest import require
from tests.copying import replace
from tests.service.notices.receivers import MailServer, receiving, receiving_mail

NOW = 1_700_000_000.0
NET = AllowedNetwork(timeout_s=5.0)
BASE = "https://perdure.site.org/"
HOSTILE = "<!channel> @all `*_~` [a](http://evil) \"';--"
PASSWORD = "hunter2-s3cr3t"


def delivery(
    name: str = "job 7 (train)",
    user: str = "mira",
    detail: str = "out of memory",
    count: int = 1,
    now: float = NOW,
    whose: str = "",
    kind: Kind | None = None,
) -> Delivery:
    notice = Notice(kind or Kind.PERSON_NEEDED, "x", NOW, name, user, "gpu", detail, "/exceptions/x")
    message = Message("k" * 32, "aurora", "t", notice.kind, (notice,), count, NOW, NOW, whose)
    return Delivery(message, BASE, now)


def test_a_webhook_that_was_changed_or_comes_late_is_not_verified() -> None:
    secret = "whsec_dGhlIGtleQ=="
    with receiving() as receiver:
        Webhook(Secret(value=receiver.url), Secret(value=secret)).send(delivery(), NET)
    ((_, headers, body),) = receiver.got
    assert verified(secret, headers, body, NOW + 60)
    assert not verified(secret, headers, body + b" ", NOW)
    assert not verified(secret, {**headers, "webhook-id": "other"}, body, NOW)
    assert not verified(secret, {**headers, "webhook-timestamp": "1700000001"}, body, NOW)
    for stamp in ("x", "9" * 5000):
        assert not verified(secret, {**headers, "webhook-timestamp": stamp}, body, NOW)
    assert not verified(secret, headers, body, NOW + 301)
    assert not verified("whsec_AAAA", headers, body, NOW)


def test_the_signature_is_the_one_of_the_specification() -> None:
    """The example of the Standard Webhooks specification's own libraries."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_slack_shows_a_jobs_text_as_it_is_and_reads_nothing_in_it() -> None:
    with receiving() as receiver:
        Slack(Secret(value=receiver.url)).send(delivery(HOSTILE, HOSTILE, HOSTILE, count=3), NET)
    (text,) = receiver.texts
    assert "<!channel>" not in text
    assert text.count("`") == 6  # of its own, in pairs around what a job says
    outside = "".join(text.split("`")[::2])
    for mark in ("@all", "channel", "[a]", "evil", "~"):
        assert mark not in outside
    assert "<https://perdure.site.org/exceptions|Open the page>" in text
    assert "and 2 more" in text


def test_ntfy_is_told_as_json_with_the_token_in_the_header() -> None:
    with receiving() as receiver:
        Ntfy(Secret(value=f"{receiver.url}/base/my-topic"), Secret(value="tk_1")).send(delivery(HOSTILE), NET)
    ((path, headers, _),) = receiver.got
    (told,) = receiver.documents
    assert (path, headers["authorization"]) == ("/base/", "Bearer tk_1")
    assert (told["topic"], told["priority"], told["click"]) == (
        "my-topic", 5, "https://perdure.site.org/exceptions/x",
    )  # fmt: skip
    assert told["title"] == "[aurora] A person must decide"
    assert HOSTILE in told["message"]


@pytest.mark.parametrize("url", ["https://ntfy.sh/", "https://ntfy.sh", "https://ntfy.sh/a?b=c"])
def test_ntfy_needs_a_topic(url: str) -> None:
    with pytest.raises(ConfigError):
        Ntfy(Secret(value=url)).send(delivery(), NET)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for "localhost", and its key: made anew for each run."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        require("openssl", False, "the program openssl is not installed")
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def mail_to(server: MailServer, certificate: tuple[Path, Path] | None = None, **more: Any) -> Mail:
    given = {"host": "localhost", "sender": "perdure@site.org", "to": ("ops@site.org",), "port": server.port}
    given |= {"ca_file": certificate[0]} if certificate else {"tls": Tls.NONE}
    return Mail(**{**given, **more})


def test_mail_goes_over_starttls_after_a_login(certificate: tuple[Path, Path], tls: ssl.SSLContext) -> None:
    with receiving_mail(tls) as server:
        channel = mail_to(server, certificate, login="perdure", password=Secret(value=PASSWORD))
        channel.send(delivery(count=2), NET)
    verbs = [line.split()[0].upper() for line in server.said]
    assert verbs.index("STARTTLS") < verbs.index("AUTH") < verbs.index("MAIL")
    ((sender, to, text),) = server.mails
    assert ("<perdure@site.org>" in sender, "<ops@site.org>" in to[0]) == (True, True)
    mail = email.message_from_bytes(text, policy=default)
    assert mail["Subject"] == "[aurora] A person must decide on 2 failures"
    assert mail["Message-ID"] == f"<{'k' * 32}@site.org>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "job 7 (train) of mira: out of memory" in mail.get_content()
    assert "https://perdure.site.org/exceptions" in mail.get_content()


def test_mail_is_not_sent_where_starttls_is_not_offered(certificate: tuple[Path, Path]) -> None:
    with receiving_mail() as server:
        channel = mail_to(server, certificate, login="perdure", password=Secret(value=PASSWORD))
        with pytest.raises(NotDelivered):
            channel.send(delivery(), NET)
    assert not any(line.upper().startswith(("AUTH", "MAIL")) for line in server.said)


def test_mail_is_not_sent_to_a_server_of_another_name(certificate: tuple[Path, Path], tls: ssl.SSLContext) -> None:
    with receiving_mail(tls) as server:
        with pytest.raises(NotDelivered):
            mail_to(server, certificate, host="127.0.0.1").send(delivery(), NET)
        assert not server.mails


def test_a_refused_login_is_told_without_the_password(certificate: tuple[Path, Path], tls: ssl.SSLContext) -> None:
    with receiving_mail(tls, refuse=f"535 {PASSWORD} is wrong") as server:
        channel = mail_to(server, certificate, login="perdure", password=Secret(value=PASSWORD))
        with pytest.raises(NotDelivered, match="535") as caught:
            channel.send(delivery(), NET)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize(
    ("answer", "error"), [("550 5.7.1 no such user here", NoticeRefused), ("451 later", NotDelivered)]
)
def test_a_mail_server_s_refusal_is_final_and_told_in_its_words(
    verb: str, answer: str, error: type[NotDelivered]
) -> None:
    with receiving_mail(answers={verb: answer}) as server, pytest.raises(NotDelivered, match=answer) as caught:
        mail_to(server).send(delivery(), NET)
    assert caught.type is error


def test_of_several_addresses_one_that_may_be_taken_later_is_worth_a_try() -> None:
    def words(code: tuple[int, int]) -> dict[Any, Any]:
        return {f"{each}@site.org": (each, b"words") for each in code}

    for codes, error in (((550, 450), NotDelivered), ((550, 551), NoticeRefused)):
        with pytest.raises(NotDelivered) as caught, told_as("mx"):
            raise smtplib.SMTPRecipientsRefused(words(codes))
        assert caught.type is error


def test_each_user_is_written_to_at_an_own_address() -> None:
    with receiving_mail() as server:
        mail_to(server, to=("{user}@site.org",)).send(delivery(whose="mira"), NET)
    ((_, to, _),) = server.mails
    assert to == ["rcpt TO:<mira@site.org>"]


@pytest.mark.parametrize(
    "addresses", list(permutations(("{user}@site.org", "ops@site.org", "{user}+jobs@b.org"), 2)), ids=str
)
def test_one_address_of_a_user_makes_a_target_that_users_own(addresses: tuple[str, ...]) -> None:
    with receiving_mail() as server:
        personal = mail_to(server, to=addresses)
        assert personal.is_personal
        personal.send(delivery(whose="mira"), NET)
        with pytest.raises(ConfigError):
            personal.send(delivery(whose=""), NET)
        assert not mail_to(server, to=("ops@site.org", "user@site.org")).is_personal
    ((_, to, _),) = server.mails
    assert to == [f"rcpt TO:<{address.replace('{user}', 'mira')}>" for address in addresses]


@pytest.mark.parametrize("whose", ["", "a b", "a@b", "a\r\nBcc: x@y", "-x", "a>b", "ünal", "x" * 65])
def test_a_users_name_cannot_change_the_address(whose: str) -> None:
    with receiving_mail() as server:
        with pytest.raises(ConfigError):
            mail_to(server, to=("{user}@site.org",)).send(delivery(whose=whose), NET)
        assert not server.mails


def test_a_job_can_add_no_header_and_end_no_mail() -> None:
    evil = "x\r\nBcc: all@site.org\r\n.\r\nMAIL FROM:<a@b>"
    with receiving_mail() as server:
        given = delivery(evil, evil, evil)
        told = replace(given, message=replace(given.message, cluster="c\r\nBcc: all@site.org"))
        for each in (given, told):
            mail_to(server).send(each, NET)
    for _, to, text in server.mails:
        assert to == ["rcpt TO:<ops@site.org>"]
        assert email.message_from_bytes(text, policy=default)["Bcc"] is None
    assert len(server.mails) == 2


@pytest.mark.parametrize("kind", CHANNELS)
def test_every_channel_says_where_it_goes_and_names_no_secret(kind: str) -> None:
    with receiving() as receiver, receiving_mail() as mails:
        channels: dict[str, Channel] = {
            "webhook": Webhook(Secret(value=f"{receiver.url}/{PASSWORD}"), Secret(value=PASSWORD)),
            "slack": Slack(Secret(value=f"{receiver.url}/{PASSWORD}")),
            "ntfy": Ntfy(Secret(value=f"{receiver.url}/{PASSWORD}"), Secret(value=PASSWORD)),
            "mail": mail_to(mails),
        }
        made = channels[kind]
        assert PASSWORD not in made.check(NET)
    assert not receiver.got
    assert not mails.mails
    with pytest.raises(NotDelivered) as caught:
        made.check(NET)  # nobody is there any more
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_words_for_one_and_for_many(kind: Kind) -> None:
    one, many = delivery(kind=kind).title, delivery(kind=kind, count=3).title
    assert one != many
    assert "3" in many
    assert len(json.dumps(one)) < MAX_NAME
