"""Settings: which source wins, and what is said of a value that cannot be used."""

import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.backends.kind import CallBudget
from perdure.errors import ConfigError
from perdure.retry.rules import RetryRules
from perdure.service import settings as module
from perdure.service.settings import BUILT_IN, Settings, known_names, load, value_of


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")


@pytest.fixture
def env(tmp_path: Path) -> dict[Any, Any]:
    return {"HOME": str(tmp_path / "home")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_set_is_what_is_built_in(env: dict[Any, Any]) -> None:
    loaded = load(env)
    assert loaded.settings.retry == RetryRules()
    assert loaded.files == ()
    assert set(loaded.origin.values()) == {BUILT_IN}
    assert tuple(loaded.origin) == known_names()


def test_the_embedded_cluster_acts_and_slurm_is_only_watched(env: dict[Any, Any]) -> None:
    assert load(env).settings.service.armed
    settings = load(env, flags={"service.cluster": "slurm"}).settings
    slurm = settings.service
    assert slurm.cluster == "slurm"
    assert not slurm.armed
    assert settings.look_every_s > load(env).settings.look_every_s
    assert load(env, flags={"service.cluster": "slurm", "service.act": True}).settings.service.armed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, CallBudget(10, 60, 30)),
        ({"slurm.looks_per_minute": 2}, CallBudget(2, 12, 6)),
        ({"service.poll_s": 1.0}, CallBudget(60, 360, 180)),
    ],
)
def test_how_often_slurm_is_asked_follows_from_its_budget_of_looks(
    env: dict[Any, Any], given: Mapping[str, float], expected: CallBudget
) -> None:
    assert load(env, flags={"service.cluster": "slurm", **given}).settings.pace == expected
    assert load(env).settings.pace == CallBudget()


@pytest.mark.parametrize(
    ("given", "every_s"),
    [
        ({}, 60 / 9),
        ({"slurm.looks_per_minute": 2}, 60),
        ({"slurm.looks_per_minute": 1}, 60),
        ({"slurm.spool": "/spool"}, 30),
        ({"slurm.spool": "/spool", "service.poll_s": 5.0}, 5),
    ],
)
def test_slurm_is_looked_at_with_one_look_a_minute_to_spare(
    env: dict[Any, Any], given: Mapping[str, object], every_s: float
) -> None:
    """For the one that a person or a hook asks for; where hooks report ends, seldom."""
    settings = load(env, flags={"service.cluster": "slurm", **given}).settings
    assert settings.look_every_s == pytest.approx(every_s)


def test_each_source_wins_over_the_ones_before_it(env: dict[Any, Any], tmp_path: Path) -> None:
    write(tmp_path / "etc" / "config.toml", "[service]\nport = 1\nhost = '127.0.0.2'\n")
    assert load(env).settings.service.port == 1
    write(tmp_path / "home" / ".config" / "perdure" / "config.toml", "[service]\nport = 2\npoll_s = 5\n")
    assert load(env).settings.service.port == 2
    named = write(tmp_path / "named.toml", "[service]\nport = 3\n")
    assert load(env, named).settings.service.port == 3
    env["PERDURE_SERVICE_PORT"] = "4"
    assert load(env, named).settings.service.port == 4
    loaded = load(env, named, {"service.port": 5})
    assert loaded.settings.service.port == 5
    assert loaded.settings.service.host == "127.0.0.2"
    assert loaded.settings.service.poll_s == 5.0
    assert loaded.origin["service.port"] == "--port"
    assert loaded.origin["service.poll_s"].endswith("config.toml:3")
    assert [path.name for path in loaded.files] == ["config.toml", "config.toml", "named.toml"]


def test_directories_follow_xdg_and_relative_ones_are_ignored(env: dict[Any, Any], tmp_path: Path) -> None:
    assert load(env).settings.service.state == tmp_path / "home" / ".local" / "state" / "perdure"
    assert load({**env, "XDG_STATE_HOME": "/x"}).settings.service.state == Path("/x/perdure")
    assert load({**env, "XDG_STATE_HOME": "x"}).settings.service.state == load(env).settings.service.state
    write(tmp_path / "xdg" / "perdure" / "config.toml", "[local]\nnodes = 7\n")
    assert load({**env, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}).settings.backends["local"].nodes == 7


def test_a_directory_that_may_not_be_searched_is_named_with_what_to_do(env: dict[Any, Any], tmp_path: Path) -> None:
    home = tmp_path / "of-somebody-else"
    write(home / "perdure" / "config.toml", "[local]\nnodes = 7\n")
    load_it = (
        "import os, sys; from perdure.service.settings import config_files; from perdure.errors import ConfigError\n"
        "os.getuid() or os.setuid(65534)\n"
        "try: config_files({'XDG_CONFIG_HOME': sys.argv[1]}, None)\n"
        "except ConfigError as err: print(err)\n"
    )
    home.chmod(0o000)
    try:
        ran = subprocess.run([sys.executable, "-c", load_it, str(home)], capture_output=True, text=True, check=False)
    finally:
        home.chmod(0o700)
    assert "may not be looked for (Permission denied)" in ran.stdout
    assert "XDG_CONFIG_HOME" in ran.stdout


def test_a_relative_path_in_a_file_starts_at_the_file(env: dict[Any, Any], tmp_path: Path) -> None:
    named = write(tmp_path / "site" / "perdure.toml", "[triage]\nrules = 'rules.toml'\n")
    assert load(env, named).settings.triage.rules == tmp_path / "site" / "rules.toml"


def test_retry_rules_are_those_of_the_controller(env: dict[Any, Any], tmp_path: Path) -> None:
    named = write(tmp_path / "a.toml", "[retry]\nmax_probes = 3\n[controller]\naction_ttl_s = 60\n")
    settings = load(env, named).settings
    assert settings.controller.retry is settings.retry
    assert settings.retry.max_probes == 3
    assert settings.controller.action_ttl_s == 60.0


@pytest.mark.parametrize(
    ("text", "where", "what", "fix"),
    [
        ("[service]\nprot = 1\n", ":2", "unknown key in [service]: 'prot'", "port"),
        ("\n[servise]\n", ":2", "unknown table: 'servise'", "service"),
        ("x = 1", ":1", "unknown table: 'x'", "Use one of"),
        ("service = 3\n", ":1", "'service' is a table, not a value", "[service]"),
        ("[service]\n\nport = '80'\n", ":3: port", "'80' is not a whole number", "from 0 to 65535"),
        ("[service]\nport = true\n", ":2: port", "True is not a whole number", ""),
        ("[service]\nport = 70000\n", ":2: port", "70000 is out of range", ""),
        ("[service]\nport = -1\n", ":2: port", "-1 is out of range", ""),
        ("[service]\nact = 1\n", ":2: act", "1 is not true or false", "or leave it out"),
        (
            "[service]\nport = 1\n\n[notices.targets.hook]\nkind = 'pigeon'\n",
            ":4: targets: target hook.kind",
            "'pigeon' is not a channel",
            "webhook",
        ),
        ("[service]\ncluster = 'k9s'\n", ":2: cluster", "'k9s' is not 'condor', 'kubernetes', 'local' or 'slurm'", ""),
        ("[service]\nhosts = 'a'\n", ":2: hosts", "'a' is not a list of names", ""),
        ("[service]\nhosts = ['a', '']\n", ":2: hosts", "is not a list of names", ""),
        ("[service]\nstate = ''\n", ":2: state", "'' is not a path", ""),
        ('[service]\nstate = "a\\u0000b"\n', ":2: state", "a path cannot hold a NUL", ""),
        ("service.port = 'x'\n", ":1: port", "'x' is not a whole number", ""),
        ("[retry]\nback_off_s = nan\n", ":2: back_off_s", "nan is out of range", "at least 0"),
        ("[retry]\nback_off_s = inf\n", ":2: back_off_s", "inf is out of range", ""),
        ("[retry]\nback_off_s = -1\n", ":2: back_off_s", "out of range", ""),
        ("[retry]\nrepeat_odds = 1.5\n", ":2: repeat_odds", "out of range", "from 0 to 1"),
        ("[retry]\nmax_probes = 1.0\n", ":2: max_probes", "1.0 is not a whole number", ""),
        ("[retry]\nback_off_s = 1979-05-27\n", ":2: back_off_s", "is not a number", ""),
        ("[retry]\nback_off_s = [1]\n", ":2: back_off_s", "[1] is not a number", ""),
        ("[controller]\nretry = 1\n", ":2", "unknown key in [controller]: 'retry'", ""),
        ("[controller]\nmark = 'x'\n", ":2", "unknown key in [controller]: 'mark'", ""),
        ("[service]\nport = 1\nport = 2\n", "", "not TOML", "line 3"),
        ("[service\n", "", "not TOML", ""),
        ("a = " + "1" * 5000, "", "not TOML", ""),
        ("[retry]\nback_off_s = " + "9" * 4000, ":2: back_off_s", "out of range", ""),
        ("a = " + "[" * 5000, "", "nested too deeply", ""),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_place(
    env: dict[Any, Any], tmp_path: Path, text: str, where: str, what: str, fix: str
) -> None:
    path = write(tmp_path / "bad.toml", text)
    with pytest.raises(ConfigError) as caught:
        load(env, path)
    assert caught.value.where == f"{path}{where}"
    assert what in caught.value.what
    assert fix in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_named_must_be_there_readable_small_text(env: dict[Any, Any], tmp_path: Path) -> None:
    for path, what in (
        (tmp_path / "none.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (write(tmp_path / "big.toml", "#" * (module.MAX_FILE_BYTES + 1)), "larger than"),
    ):
        with pytest.raises(ConfigError, match=what):
            load(env, path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[service]\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: not UTF-8"):
        load(env, latin)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("PERDURE_SERVICE_PORT", " 81 ", 81),
        ("PERDURE_SERVICE_ACT", "off", False),
        ("PERDURE_SERVICE_ALLOW_REMOTE", "YES", True),
        ("PERDURE_RETRY_BACK_OFF_S", "2.5", 2.5),
        ("PERDURE_SERVICE_DATABASE", "postgresql://db/perdure", "postgresql://db/perdure"),
        ("PERDURE_SERVICE_HOSTS", "a.example, b.example", ("a.example", "b.example")),
        ("PERDURE_SERVICE_HOSTS", "", ()),
        ("PERDURE_SERVICE_CLUSTER", "slurm", "slurm"),
    ],
)
def test_the_environment_is_read_in_the_type_of_the_setting(
    env: dict[Any, Any], variable: str, text: str, value: float | str | tuple[str, ...]
) -> None:
    loaded = load({**env, variable: text})
    name = variable.removeprefix("PERDURE_").lower().replace("_", ".", 1)
    assert value_of(loaded.settings, name) == value
    assert loaded.origin[name] == variable


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("PERDURE_SERVICE_PROT", "1", "environment: unknown variable: 'PERDURE_SERVICE_PROT'. The closest known: "),
        ("PERDURE_SERVICE_PORT", "x", "PERDURE_SERVICE_PORT: 'x' is not a whole number"),
        ("PERDURE_SERVICE_PORT", "", "PERDURE_SERVICE_PORT: '' is not a whole number"),
        ("PERDURE_SERVICE_ACT", "maybe", "PERDURE_SERVICE_ACT: 'maybe' is not true or false"),
        ("PERDURE_SCOPE_NOT_USERS", '["ada"]', "PERDURE_SCOPE_NOT_USERS: '[\"ada\"]' begins with ["),
        ("PERDURE_SERVICE_HOSTS", "a, 'b'", "begins with ': in the environment names stand bare, as in a,b"),
        ("PERDURE_RETRY_BACK_OFF_S", "nan", "PERDURE_RETRY_BACK_OFF_S: 'nan' is out of range"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(env: dict[Any, Any], variable: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({**env, variable: text})
    assert words in str(caught.value)


def test_variables_of_other_uses_are_not_settings(env: dict[Any, Any]) -> None:
    other = {"PERDURE_DATA": "/x", "PERDURE_JOB_ID": "1", "PERDURE_STATE": "/y"}
    assert load(env | other).settings == load(env).settings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_addresses_need_no_leave(env: dict[Any, Any], host: str) -> None:
    assert load(env, flags={"service.host": host}).settings.service.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_any_other_address_needs_leave(env: dict[Any, Any], host: str) -> None:
    with pytest.raises(ConfigError, match=r"--host: host: .* is not a loopback address"):
        load(env, flags={"service.host": host})
    assert load(env, flags={"service.host": host, "service.allow_remote": True}).settings.service.host == host


@given(st.text(max_size=80) | st.text(alphabet='[]="#.\n\\ serviceport01', max_size=60))
@example("[service]\r\nport = 1\r\n")
@example("[service]\n\n\n'port' = 'x'")
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("config") / "a.toml"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        loaded = load({"HOME": "/nowhere"}, path)
    except ConfigError as err:
        words = str(err)
    else:
        words = str(path) if isinstance(loaded.settings, Settings) else ""
    assert words.startswith(str(path))


@given(st.sampled_from(known_names()), st.floats() | st.integers(-5, 5))
def test_no_number_in_force_is_negative_or_not_a_number(name: str, number: float | Any) -> None:
    try:
        value = value_of(load({"HOME": "/nowhere"}, flags={name: number}).settings, name)
    except ConfigError:
        return
    assert math.isfinite(value)
    assert value >= 0


def test_a_cluster_is_called_as_its_kind_unless_it_has_a_name(env: dict[Any, Any]) -> None:
    assert load(env).settings.service.cluster_id == "local"
    named = load(env, flags={"service.cluster": "slurm", "service.cluster_name": "north-1"}).settings.service
    assert (named.cluster, named.cluster_id) == ("slurm", "north-1")


@pytest.mark.parametrize("name", ["a/b", "a b", "-a", "a#1", "é", "x" * 64, "a\nb"])
def test_what_cannot_stand_in_an_id_is_no_name_of_a_cluster(env: dict[Any, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster_name: .* is not a cluster's name"):
        load({**env, "PERDURE_SERVICE_CLUSTER_NAME": name})
