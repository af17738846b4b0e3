"""Targets and rules in the settings: what can be written, and what is said of everything else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.service.notices.channels.mail import Mail, Tls
from perdure.service.notices.channels.protocol import Channel
from perdure.service.notices.channels.slack import Slack
from perdure.service.notices.channels.webhook import Webhook
from perdure.service.notices.notice import Severity
from perdure.service.notices.secrets import Secret
from perdure.service.notices.settings import NoticesSettings
from perdure.service.settings import load

TARGETS = """
[notices.targets.hook]
kind = "webhook"
url = "https://example.org/hook"
secret_file = "secret"

[notices.targets.chat]
kind = "slack"
url_env = "SLACK_URL"

[notices.targets.owners]
kind = "mail"
host = "smtp.example.org"
sender = "perdure@example.org"
to = ["{user}@example.org"]
tls = "tls"
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., NoticesSettings]:
    def read(text: str, env: dict[str, str] | None = None) -> NoticesSettings:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load({"HOME": str(tmp_path), **(env or {})}, path).settings.notices

    return read


def test_targets_are_tables_and_relative_paths_start_at_the_file(
    loaded: Callable[..., NoticesSettings], tmp_path: Path
) -> None:
    targets = loaded(TARGETS).targets
    expected: dict[str, Channel] = {
        "hook": Webhook(Secret(value="https://example.org/hook"), Secret(file=tmp_path / "secret")),
        "chat": Slack(Secret(env="SLACK_URL")),
        "owners": Mail("smtp.example.org", "perdure@example.org", ("{user}@example.org",), tls=Tls.TLS),
    }
    assert targets.by_name == expected
    assert targets.personal == {"owners"}
    assert str(targets) == "hook (webhook), chat (slack), owners (mail)"


def test_without_a_rule_every_target_is_told_of_warnings(loaded: Callable[..., NoticesSettings]) -> None:
    (rule,) = loaded(TARGETS).in_force
    assert (rule.to, rule.kinds, rule.severity) == (("hook", "chat", "owners"), (), Severity.WARNING)


def test_who_names_kinds_wants_them_whatever_their_severity(loaded: Callable[..., NoticesSettings]) -> None:
    rules = loaded(TARGETS + '[[notices.rules]]\nto = ["hook"]\nkinds = ["job_stopped"]\n').in_force
    assert [rule.severity for rule in rules] == [Severity.INFO]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[notices.targets.x]\nkind = "pigeon"\n', "x.kind: 'pigeon' is not a channel. Use one of webhook,"),
        ('[notices.targets.x]\nkind = "slack"\n', "target x.url: is missing"),
        ('[notices.targets.x]\nkind = "slack"\nurl = "https://h/"\nurl_env = "A"\n', "url and url_env are given"),
        ('[notices.targets.x]\nkind = "webhook"\nurl = "https://h/"\nsecret = "s3cr3t"\n', "a secret is not a setting"),
        ('[notices.targets.x]\nkind = "slack"\nurl = "https://h/"\nsalt = 1\n', "target x.salt: is not known"),
        ('[notices.targets."x y"]\nkind = "slack"\nurl = "https://h/"\n', "is not a name"),
        ('[notices.targets.x]\nkind = "mail"\nhost = "h"\nsender = "a@b"\nto = ["a@b\\nBcc: c@d"]\n', "not a mail"),
        ('[notices.targets.x]\nkind = "mail"\nhost = "h"\nsender = "{user}@b"\nto = ["a@b"]\n', "not a mail"),
        ('[notices.targets.x]\nkind = "mail"\nhost = "h"\nsender = "a@b"\nto = ["a@b"]\nlogin = "a"\n', "login needs"),
        ('[[notices.rules]]\nto = ["nobody"]\n', "no target is called 'nobody'"),
        ('[[notices.rules]]\nto = []\n', "rule 1.to: [] is not a list of targets"),
        ('[[notices.rules]]\nto = ["x"]\nkinds = ["test"]\n', "rule 1.kinds: 'test' is not a kind"),
        ('[[notices.rules]]\nto = ["x"]\nseverity = "loud"\n', "rule 1.severity: 'loud' is not 'info'"),
        ('[[notices.rules]]\nto = ["x"]\nusers = [""]\n', "rule 1.users[0]: '' is not a text"),
        ('[notices.targets.x]\nkind = "mail"\nhost = "h"\nsender = "a@b"\nto = []\nport = 70000\n', "port: 70000"),
        ('[notices.targets.x]\nkind = "slack"\nurl = "https://h/"\nca_file = 3\n', "3 is not a path"),
        ('[notices.targets.x]\nkind = "slack"\nurl = {file = "s3cr3t"}\n', "target x.url: is not a text in quotes"),
        ("[notices]\nrules = 3\n", "not a list"),
        ("[notices]\nper_hour = 0\n", "out of range"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(loaded: Callable[..., NoticesSettings], text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert said in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "2852039166", "[fe80::1]", "100.100.100.200"])
def test_an_address_at_which_a_cloud_keeps_credentials_is_no_target(
    loaded: Callable[..., NoticesSettings], host: str
) -> None:
    text = f'[notices.targets.x]\nkind = "slack"\nurl = "https://{host}/latest"\n'
    with pytest.raises(ConfigError, match="allow_link_local") as caught:
        loaded(text)
    assert "config.toml" in str(caught.value)
    assert f"target x: {host.strip('[]')} is a " in str(caught.value)
    assert loaded(f"[notices]\nallow_link_local = true\n{text}").targets.by_name


def test_nor_is_it_one_for_mail(loaded: Callable[..., NoticesSettings]) -> None:
    text = '[notices.targets.x]\nkind = "mail"\nhost = "169.254.0.1"\nsender = "a@b"\nto = ["a@b"]\n'
    with pytest.raises(ConfigError, match=r"target x: 169\.254\.0\.1 is a link-local address"):
        loaded(text)


def test_other_addresses_are_targets(loaded: Callable[..., NoticesSettings]) -> None:
    for host in ("10.1.2.3", "[::1]", "example.org", "[bad"):
        assert loaded(f'[notices.targets.x]\nkind = "slack"\nurl = "https://{host}/"\n').targets.by_name


def test_the_line_of_a_target_is_named(loaded: Callable[..., NoticesSettings]) -> None:
    with pytest.raises(ConfigError, match=r"config.toml:2"):
        loaded('[service]\n[notices.targets.x]\nkind = "pigeon"\n')


def test_tables_cannot_stand_in_the_environment(loaded: Callable[..., NoticesSettings]) -> None:
    with pytest.raises(ConfigError, match=r"PERDURE_NOTICES_TARGETS"):
        loaded("", {"PERDURE_NOTICES_TARGETS": "x"})


def test_a_secret_is_read_from_a_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("whsec_abc\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read it"):
        Secret(file=path).read()
    path.chmod(0o600)
    assert Secret(file=path).read() == "whsec_abc"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ConfigError):
        Secret(file=link).read()


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff\xfe", b"a\x00b"])
def test_a_secret_is_one_line_of_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        Secret(file=path).read()


def test_a_secret_shows_itself_nowhere() -> None:
    assert "s3cr3t" not in repr(Secret(value="s3cr3t"))
    assert "s3cr3t" not in repr(Slack(Secret(value="https://h/s3cr3t")))


def test_a_missing_secret_is_named_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match="PERDURE_TEST_SECRET"):
        Secret(env="PERDURE_TEST_SECRET").read()
    with pytest.raises(ConfigError, match="is not there"):
        Secret(file=tmp_path / "none").read()
