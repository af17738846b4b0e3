"""A new backend is a folder and a line: a toy registered by that line is configured, opened, watched and acted on."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.kind import ActingService, BackendKind, CheckResult, Checkup, Mark
from perdure.backends.registry import BACKENDS
from perdure.backends.simulated import SimulatedBackend, SimulatedCluster
from perdure.cli import doctor
from perdure.errors import ConfigError
from perdure.model.actions import AnyAction, Drain
from perdure.service.runtime import one_cluster
from perdure.service.settings import Settings, known_names, load, value_of
from perdure.service.web.pages import labels
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.kill_switch import KillSwitch


@dataclass(frozen=True, slots=True)
class ToySettings:
    """The toy."""

    nodes: int = 2
    """How many."""


class ToyKind(BackendKind[ToySettings]):
    """A cluster in memory."""

    name, label, says = "toy", "toy backend", "a toy"
    settings = ToySettings
    acts_by_default = True

    @contextmanager
    def open(self, settings: Any, cluster: str, state: Path) -> Iterator[SimulatedBackend]:
        yield SimulatedBackend(SimulatedCluster(0, settings.nodes, name=cluster))

    def look_every_s(self, settings: Any) -> float:
        return 0.05

    def checkup(self, settings: Any, cluster: str, state: Path, holder: Callable[[str], ActingService]) -> Checkup:
        return Checkup([CheckResult(Mark.OK, f"{settings.nodes} toys")], answered=True)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "toy", ToyKind())


@pytest.mark.parametrize("name", BACKENDS)
def test_each_kind_says_what_pages_and_help_need(name: str) -> None:
    kind = BACKENDS[name]
    assert kind.name == name
    assert kind.label
    assert kind.says
    assert Settings().backends[name] == kind.settings()


@pytest.mark.usefixtures("toy")
def test_the_settings_of_a_toy_are_a_table_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[service]\ncluster = 'toy'\n[toy]\nnodes = 3\n")
    settings = load({"HOME": str(tmp_path)}, file).settings
    assert "toy.nodes" in known_names()
    assert value_of(settings, "toy.nodes") == 3
    assert settings.service.armed
    assert settings.look_every_s == 0.05
    assert labels.backend("toy") == "toy backend"
    assert [found.what for found in doctor.of_cluster(settings).found] == ["3 toys"]


def test_a_kind_that_is_not_registered_cannot_be_named() -> None:
    with pytest.raises(ConfigError, match=f"'toy' is not .*{list(BACKENDS)[-1]!r}"):
        load({"HOME": "/x"}, flags={"service.cluster": "toy"})


@pytest.mark.usefixtures("toy")
def test_a_toy_is_watched_and_acted_on_by_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`perdure up --cluster toy`, real but for the page: its nodes are in the journal, and one is drained."""
    drained = threading.Event()

    def serve(settings: Any, engine: Any, *_: object) -> int:
        until = time.monotonic() + 30
        while not engine.state.known.nodes and time.monotonic() < until:
            time.sleep(0.01)
        assert set(engine.state.known.nodes) == {"n1", "n2"}
        perform = engine.backend.perform

        def performed(action: AnyAction) -> Any:
            outcome = perform(action)
            drained.set()
            return outcome

        monkeypatch.setattr(engine.backend, "perform", performed)
        service = ServiceCommands(engine, "toy", True, KillSwitch(tmp_path))
        service.order(Drain("n1", "asked", "1"), "ada", "because")
        assert drained.wait(30)
        return 0

    monkeypatch.setattr(one_cluster, "serve", serve)
    settings = load({"HOME": str(tmp_path)}, flags={"service.cluster": "toy", "service.port": 0}).settings
    settings = replace(settings, service=replace(settings.service, state=tmp_path / "state"))
    assert one_cluster.run(settings) == 0
