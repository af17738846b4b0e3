"""`perdure up` turns its options into settings, and hands them to the service."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import Ran


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings that the service was started with."""
    seen = []

    def run(settings: Any) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setitem(sys.modules, "perdure.service.runtime.one_cluster", SimpleNamespace(run=run))
    return seen


def test_without_options_it_is_the_embedded_cluster_and_it_acts(
    perdure: Callable[..., Ran], started: list[Any], home: Path
) -> None:
    assert perdure("up").code == 0
    (settings,) = started
    assert settings.service.cluster == "local"
    assert settings.service.armed
    assert settings.backend.demo
    assert settings.service.state == home / ".local" / "state" / "perdure"


def test_at_its_end_it_says_where_its_state_is_and_how_to_begin_anew(
    perdure: Callable[..., Ran], started: list[Any], home: Path
) -> None:
    kept = home / ".local" / "state" / "perdure"
    told = perdure("up").err
    assert told.startswith(f"perdure: ended; what it knows is kept in {kept}. Go on: ")
    assert told.endswith(f"perdure up. Begin again: mv {kept} {kept}.old\n")
    told = perdure("up", "--state", "a b").err
    assert f"up --state '{home / 'a b'}'. Begin again: mv '{home / 'a b'}' '{home / 'a b.old'}'" in told


def test_at_its_end_it_says_how_to_go_on_as_it_was_started(
    perdure: Callable[..., Ran], started: list[Any], home: Path
) -> None:
    (home / "my site.toml").write_text("")
    words = ["--cluster", "slurm", "--act", "--port", "0", "--standby", "--config", "my site.toml"]
    told = perdure("up", *words).err
    assert "perdure up --cluster slurm --act --port 0 --standby --config 'my site.toml'. Begin again" in told
    assert (
        "perdure up --shadow --nodes 2 --no-demo. Begin" in perdure("up", "--shadow", "--nodes", "2", "--no-demo").err
    )


def test_slurm_is_watched_until_told_to_act(perdure: Callable[..., Ran], started: list[Any]) -> None:
    perdure("up", "--cluster", "slurm")
    perdure("up", "--cluster", "slurm", "--act")
    perdure("up", "--shadow")
    assert [settings.service.armed for settings in started] == [False, True, False]


def test_every_option_reaches_the_settings(perdure: Callable[..., Ran], started: list[Any], home: Path) -> None:
    (home / "site.toml").write_text("[service]\nport = 1\npoll_s = 9\n")
    words = "--port 0 --host ::1 --state s --nodes 2 --gpus 3 --no-demo --config site.toml"
    assert perdure("up", *words.split()).code == 0
    (settings,) = started
    assert (settings.service.port, settings.service.host, settings.service.poll_s) == (0, "::1", 9.0)
    assert settings.service.state == Path(home / "s")
    assert (settings.backend.nodes, settings.backend.gpus, settings.backend.demo) == (2, 3, False)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "--cluster k8s",
            "--cluster: 'k8s' is not 'condor', 'kubernetes', 'local' or 'slurm'. "
            "Give 'condor', 'kubernetes', 'local' or 'slurm'.",
        ),
        ("--port 65536", "--port: 65536 is out of range. Give a whole number from 0 to 65535."),
        ("--nodes 0", "--nodes: 0 is out of range. Give a whole number from 1 to 64."),
        ("--gpus -1", "--gpus: -1 is out of range. Give a whole number from 0 to 64."),
        ("--host 0.0.0.0", "--host: host: '0.0.0.0' is not a loopback address. Use 127.0.0.1 or ::1, "),
        ("--config none.toml", "none.toml: cannot be read: No such file or directory. "),
        ("--port x", "up: Invalid value for '--port': "),
    ],
)
def test_an_option_that_cannot_be_used_starts_nothing(
    perdure: Callable[..., Ran], started: list[Any], words: str, complaint: str
) -> None:
    ran = perdure("up", *words.split())
    assert ran.code == 2
    assert ran.complaint.startswith(complaint)
    assert started == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_it_down_in_order_and_is_no_error(
    perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    ended = []

    def run(settings: Any) -> None:
        try:
            signal.raise_signal(signum)
        finally:
            ended.append(settings)

    monkeypatch.setitem(sys.modules, "perdure.service.runtime.one_cluster", SimpleNamespace(run=run))
    found = signal.signal(signum, before := signal.default_int_handler)  # libraries set handlers of their own
    try:
        ran = perdure("up")
        assert signal.getsignal(signum) is before
    finally:
        signal.signal(signum, found)
    assert (ran.code, len(ended)) == (0, 1)
    assert ran.complaint.startswith("ended; what it knows is kept in ")
