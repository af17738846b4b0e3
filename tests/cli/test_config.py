"""`perdure config check` shows what is in force and where it came from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.service.settings import BUILT_IN, known_names
from tests.cli.conftest import Ran


def test_every_setting_is_listed_with_its_source(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "site.toml").write_text("[service]\nport = 9000\n[retry]\nmax_probes = 2\n")
    ran = perdure("config", "check", "site.toml", "--json")
    assert ran.code == 0
    assert ran.json["schema"] == "perdure.config/1"
    assert ran.json["files"] == ["site.toml"]
    settings = ran.json["settings"]
    assert set(settings) == set(known_names())
    assert settings["service.port"] == {"value": 9000, "from": "site.toml:2"}
    assert settings["retry.max_probes"] == {"value": 2, "from": "site.toml:4"}
    assert settings["service.act"] == {"value": None, "from": BUILT_IN}
    assert settings["service.state"]["value"] == str(home / ".local" / "state" / "perdure")


def test_tables_that_nobody_wrote_have_no_value(perdure: Callable[..., Ran], home: Path) -> None:
    for name in ("notices.targets", "notices.rules"):
        assert perdure("config", "check", "--json").json["settings"][name]["value"] is None
        (row,) = [row for row in perdure("config", "check").out.splitlines() if row.startswith(name)]
        assert row.split() == [name, "built", "in"]


def test_the_table_holds_one_setting_a_line(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "site.toml").write_text("[service]\nact = false\n")
    ran = perdure("config", "check", "site.toml")
    assert ran.code == 0
    first, header, *rows = ran.out.splitlines()
    assert first == "Files read: site.toml"
    assert header.split() == ["SETTING", "VALUE", "FROM"]
    assert [row.split()[0] for row in rows] == list(known_names())
    assert ["service.act", "false", "site.toml:2"] in [row.split() for row in rows]


def test_an_unknown_key_is_an_error(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "site.toml").write_text("[service]\nprot = 9000\n")
    ran = perdure("config", "check", "site.toml")
    assert ran.code == 2
    assert ran.complaint == "site.toml:2: unknown key in [service]: 'prot'. The closest known: port, host."


def test_a_password_is_not_shown(perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SERVICE_DATABASE", "postgresql://ada:s3cret@db/perdure")
    assert "s3cret" not in perdure("config", "check").out
    assert (
        perdure("config", "check", "--json").json["settings"]["service.database"]["value"]
        == "postgresql://***@db/perdure"
    )


def test_the_sites_rules_are_checked_too(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "site.toml").write_text("[triage]\nrules = 'rules.toml'\n")
    assert perdure("config", "check", "site.toml").complaint.startswith(f"{home}/rules.toml: cannot be read")
    (home / "rules.toml").write_text("[[rules]]\n")
    assert perdure("config", "check", "site.toml").complaint.startswith(f"{home}/rules.toml: rules: is not known")
