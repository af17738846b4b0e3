"""What is set reaches the part that it is about, in that part's unit: the service is put together from recorders."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any, get_args

import pytest
from msgspec import Meta

from perdure.backends import local
from perdure.backends.registry import BACKENDS
from perdure.backends.slurm import backend as slurm_backend
from perdure.backends.slurm import kind as slurm_kind
from perdure.backends.slurm import spool, tools
from perdure.backends.slurm.kind import LOOKS_PER_MINUTE
from perdure.errors import ConfigError, InUse, StateError
from perdure.service.notices.channels.ntfy import Ntfy
from perdure.service.notices.secrets import Secret
from perdure.service.notices.settings import NoticesSettings, Targets
from perdure.service.runtime import assembly, one_cluster, ownership, serving
from perdure.service.settings import Settings, _type_of, known_names, load, value_of
from perdure.service.waits.watch import FIRST_S
from perdure.service.workers.chain_keeper import EVERY_S as KEEP_EVERY_S
from perdure.service.workers.kept_logs import Retention

RUNTIME = (assembly, one_cluster, ownership, serving)
STORE = SimpleNamespace(engine="engine", probe=lambda every_s: None)
JOURNAL: Any = SimpleNamespace(
    store=STORE, where="journal", cluster="here", close=lambda: None, manager=lambda name: name
)
PARTS = (
    "Executor", "KeptLogs", "Learner", "TrainingStore", "GoodRuns",
    "SuspectStore", "Watch", "ComparisonQueue", "Notifier", "HeartbeatMonitor", "Outbox", "Hooks", "ServiceMetrics",
    "Engine", "PolicyStore",
)  # fmt: skip
BACKEND_PARTS = (
    (tools, tools.Tools),
    (spool, spool.Spool),
    (slurm_backend, slurm_backend.SlurmBackend),
    (local, local.LocalBackend),
)
CALLS = ("listen", "check_share", "read_topology", "serve", "only_one", "prepare")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], dict[str, Any]]:
    """Puts a service together; what each part was made of, by its name, and the pause of each thread, in seconds."""

    def make(settings: Settings) -> dict[str, Any]:
        found: dict[str, Any] = {}
        pauses = {}

        def part(name: str, real: type | None = None) -> type[Any]:
            class Part:
                cluster = "here"

                def __init__(self, *given: Any, **named: Any) -> None:
                    found[name] = (*given, *named.values())

                def __getattr__(self, other: str) -> Callable[..., None]:
                    if real is not None and not hasattr(real, other):
                        raise AttributeError(other)
                    return lambda *_: None

            return Part

        def call(name: str) -> Callable[..., nullcontext[None]]:
            def called(*given: Any, **named: Any) -> nullcontext[None]:
                found[name] = (*given, *named.values())
                return nullcontext()

            return called

        def put(name: str, thing: object, *modules: ModuleType) -> None:
            """Wherever the modules, or those of `runtime`, know that name."""
            known = [module for module in modules or RUNTIME if hasattr(module, name)]
            assert known, name
            for module in known:
                monkeypatch.setattr(module, name, thing)

        def noted(function: str, kept: Callable[..., Any], answer: Any = None, *modules: ModuleType) -> None:
            """`kept` tells what is found under that name, of the arguments."""

            def called(*given: Any, **named: Any) -> Any:
                found[function] = kept(*given, **named)
                return answer

            put(function, called, *modules)

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                pauses["last"] = timeout
                return False

        def forever(name: str, stop: Any, turn: int, pause: Any) -> SimpleNamespace:
            pauses.pop("last", None)
            pause()
            found[f"thread {name}"] = pauses.get("last")
            return SimpleNamespace(start=lambda: None, join=lambda _: None)

        for name in PARTS:
            put(name, part(name))
        for name in CALLS:
            put(name, call(name))
        for module, real in BACKEND_PARTS:
            monkeypatch.setattr(module, real.__name__, part(real.__name__, real))
        for name in ("start_daemon", "stop_daemon"):
            monkeypatch.setattr(local, name, call(name))
        put("log_to_stderr", lambda **_: None)
        put("raise_descriptor_limit", lambda: None)
        put("keep_pauses_short", lambda: None)
        put("open_journal", lambda *_: JOURNAL)
        noted("reach", lambda _, wait_s: wait_s, SITE, slurm_kind)
        put("forever", forever)
        noted("threads", lambda *given: given[2:], [])
        put("turns", lambda *_: (None, lambda: None))
        put("after_a_look", lambda _, stop, least_s: lambda: stop.wait(least_s))
        put("end", lambda *_: None)
        put("at_work", lambda _: nullcontext())
        noted("demonstration", lambda place, *_: place, HAND)
        monkeypatch.setattr(threading, "Event", Stop)
        put("closing", lambda thing: nullcontext(thing))
        put("listen", lambda *given: nullcontext(SOCKET(found, given)))
        noted("comparison_queue_of", lambda settings, *_: settings.whatif)
        one_cluster.run(replace(settings, service=replace(settings.service, state=tmp_path)))
        return found

    return make


SITE = SimpleNamespace(identity="slurm of here", cluster="here")
HAND = SimpleNamespace(start=lambda: None, join=lambda _: None)


def SOCKET(found: dict[str, Any], given: str) -> SimpleNamespace:
    found["listen"] = given
    return SimpleNamespace(getsockname=lambda: ("", 4711))


def of(**groups: Any) -> Settings:
    settings = Settings()
    for name, values in groups.items():
        if name in BACKENDS:
            own = {name: replace(settings.backends[name], **values)}
            settings = replace(settings, backends={**settings.backends, **own})
        else:
            settings = replace(settings, **{name: replace(getattr(settings, name), **values)})
    return settings


SLURM = {"cluster": "slurm"}


def test_the_embedded_cluster_has_as_many_nodes_and_gpus_as_are_set(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(local={"nodes": 7, "gpus": 3}))
    assert found["start_daemon"][1:] == ("local", 7, 3)
    assert len(found["demonstration"].nodes) == 7
    assert "demonstration" not in made(of(local={"demo": False}))


def test_the_service_listens_where_it_is_told(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(service={"host": "127.0.0.9", "port": 99}))
    assert found["listen"] == ("127.0.0.9", 99)
    assert "http://127.0.0.9:4711" in found["serve"]
    assert "http://[::1]:4711" in made(of(service={"host": "::1"}))["serve"]


def test_looks_are_as_frequent_as_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    assert made(of(service={"poll_s": 17.0}))["threads"][0] == 17.0
    found = made(of(service=SLURM, slurm={"looks_per_minute": 4}))
    assert found["threads"][:2] == (20.0, replace(Settings().pace, looks=4, rounds=24, early_looks=12))
    assert found["Hooks"][-1] == 12


def test_the_journal_keeps_as_many_days_as_are_set(made: Callable[[Any], dict[str, Any]]) -> None:
    assert made(of())["threads"][2] == Settings().service.keep_days
    assert made(of(service={"keep_days": 3.0}))["threads"][2] == 3.0


@pytest.mark.parametrize(
    ("settings", "every_s"),
    [
        (of(), 1.0),
        (of(service=SLURM), 60.0 / (LOOKS_PER_MINUTE - 1)),
        (of(service=SLURM, slurm={"looks_per_minute": 1}), 60.0),
        (of(service=SLURM, slurm={"spool": Path("/spool")}), 30.0),
        (of(service={**SLURM, "poll_s": 5.0}, slurm={"spool": Path("/spool")}), 5.0),
        (of(service={"poll_s": 5.0}), 5.0),
    ],
)
def test_how_often_it_is_looked_where_nothing_or_little_is_set(settings: Settings, every_s: float) -> None:
    assert settings.look_every_s == every_s


def test_a_manager_that_is_asked_often_is_given_so_many_looks() -> None:
    assert of(service={**SLURM, "poll_s": 2.0}).pace.looks == 30.0
    assert of(service={**SLURM, "poll_s": 60.0}).pace.looks == LOOKS_PER_MINUTE
    assert of(service={**SLURM, "poll_s": 2.0}, slurm={"looks_per_minute": 3}).pace.looks == 3


def test_slurm_is_asked_as_is_set(made: Callable[[Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    given = {"tool_timeout_s": 7.0, "spool": Path("/spool"), "start_wait_s": 11.0, "conf": Path("/north/slurm.conf")}
    found = made(of(service=SLURM, slurm={**given, "cluster": "south"}))
    assert os.environ["SLURM_CONF"] == "/north/slurm.conf"
    assert found["Tools"] == (7.0, "south")
    assert found["Spool"] == (Path("/spool"),)
    assert found["reach"] == 11.0
    assert "only_one" not in found  # it acts on nothing
    assert found["SlurmBackend"][2] is not None
    assert made(of(service=SLURM))["SlurmBackend"][2] is None
    assert made(of(service={**SLURM, "act": True}))["only_one"][0] == SITE.identity


@pytest.mark.parametrize("act", [False, True])
def test_a_journal_of_another_slurm_is_not_even_watched_with(
    act: bool, made: Callable[[Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JOURNAL, "manager", lambda _: "north")
    with pytest.raises(StateError, match="ClusterName=north"):
        made(of(service={**SLURM, "act": act}))


@pytest.mark.parametrize(("given", "armed"), [({}, True), ({"act": False}, False), (SLURM, False)])
def test_what_may_be_done_reaches_the_hands(
    made: Callable[[Any], dict[str, Any]], given: Mapping[str, bool | str], armed: bool
) -> None:
    caps, scope = {"drains_per_hour": 3}, {"users": ("ada",)}
    found = made(of(service=given, caps=caps, scope=scope))
    rulings = found["Executor"][2]
    assert (rulings.armed, rulings.stop_file.name) == (armed, "STOP")
    assert (rulings.caps.drains_per_hour, rulings.scope.users) == (3, ("ada",))


def test_decisions_depend_on_what_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(controller={"action_ttl_s": 71.0, "vanish_grace_s": 13.0, "max_cases": 17}))
    controller = found["Engine"][4]
    assert (controller.action_ttl_s, controller.vanish_grace_s, controller.max_cases) == (71.0, 13.0, 17)


@pytest.mark.parametrize(
    ("given", "marks"), [({}, False), (SLURM, False), ({**SLURM, "act": True}, True), ({"act": True}, False)]
)
def test_a_mark_is_left_by_an_armed_service_on_slurm(
    made: Callable[[Any], dict[str, Any]], given: Mapping[str, object], marks: bool
) -> None:
    assert bool(made(of(service=given))["Engine"][4].mark) is marks


def test_logs_are_kept_as_long_and_as_much_as_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(triage={"keep_logs_mib": 3, "keep_logs_days": 2.0}))
    assert found["KeptLogs"][1] == Retention(3 * 1024 * 1024, 2 * 24 * 3600.0)


def test_what_is_learnt_and_how_often(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(triage={"learn_every_s": 77.0}))
    assert found["thread learn"] == 77.0
    assert "GoodRuns" in found
    assert found["Engine"][7] is not None
    found = made(of(triage={"learn": False}))
    assert "thread learn" not in found
    assert "GoodRuns" not in found
    assert found["Engine"][7] is None


def test_suspects_are_looked_for_as_is_set(made: Callable[[Any], dict[str, Any]], tmp_path: Path) -> None:
    topology = tmp_path / "topology.conf"
    topology.write_text("")
    blame = {"step_s": 55.0, "storage": ("/scratch",), "switches": topology}
    found = made(of(blame=blame))
    assert found["thread blame"] == 55.0
    assert found["Watch"][1].step_s == 55.0
    assert found["read_topology"][1] == str(topology)
    assert found["SuspectStore"][3] == ("/scratch",)
    assert "Watch" not in made(of(blame={"enabled": False}))
    with pytest.raises(ConfigError, match=r"blame\.switches"):
        made(of(blame={"switches": tmp_path / "none"}))


def test_starts_are_forecast_on_slurm_as_often_as_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(service=SLURM, waits={"every_s": 66.0}))
    assert found["thread waits"] == FIRST_S  # until the queue is known
    assert "thread waits" not in made(of(service=SLURM, waits={"every_s": 0.0}))
    assert "thread waits" not in made(of())


def test_a_policy_decides_as_often_as_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    for service in ({}, SLURM):
        found = made(of(service=service, policy={"name": "las-2d", "every_s": 7.0}))
        assert found["thread policy"] == 7.0
    assert "thread policy" not in made(of())
    with pytest.raises(ConfigError, match="running times"):
        made(of(policy={"name": "srtf"}))


def test_chains_are_kept_where_that_is_set(made: Callable[[Any], dict[str, Any]]) -> None:
    found = made(of(service={**SLURM, "keep_chains": True, "act": True}))
    assert found["thread chains"] == KEEP_EVERY_S
    assert "thread chains" not in made(of(service={**SLURM, "act": True}))
    assert "thread chains" not in made(of(service={"keep_chains": True}))


def test_nodes_are_watched_where_their_agents_write(made: Callable[[Any], dict[str, Any]]) -> None:
    coordination = {"agents": Path("/agents"), "fences": ("/a", "/b"), "watch_every_s": 9.0}
    found = made(of(coordination=coordination))
    assert found["check_share"] == (Path("/agents"),)
    assert found["HeartbeatMonitor"][:2] == (Path("/agents"), [Path("/a"), Path("/b")])
    assert found["thread heartbeats"] == 9.0
    assert "HeartbeatMonitor" not in made(of(coordination={"fences": ("/a",)}))


def test_people_are_told_where_somebody_is_named(made: Callable[[Any], dict[str, Any]]) -> None:
    targets = Targets(
        {"a": Ntfy(Secret(value="https://ntfy.example/a")), "b": Ntfy(Secret(value="https://x.example/b"))}
    )
    found = made(replace(of(service=SLURM), notices=NoticesSettings(targets=targets, group_s=5.0)))
    assert found["Notifier"][2].group_s == 5.0
    assert found["Notifier"][-1] is False  # it is not armed: nobody is told of retries
    assert {"thread notices", "thread notices to a", "thread notices to b"} <= set(found)
    assert "Notifier" not in made(of())


def test_questions_are_answered_unless_they_are_turned_off(made: Callable[[Any], dict[str, Any]]) -> None:
    assert made(of(whatif={"queue": 9}))["comparison_queue_of"].queue == 9
    assert assembly.comparison_queue_of(of(whatif={"enabled": False}), JOURNAL, Path("/x")) is None


def test_a_standby_waits_for_the_journal_and_another_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries, waited = [], []
    journal: Any = object()

    class Journal:
        @staticmethod
        def open(where: Path | str, cluster: str) -> Any:
            tries.append((where, cluster))
            if len(tries) < 4:
                raise InUse("journal", "in use by process 1", "Stop it")
            return journal

    monkeypatch.setattr(ownership, "Journal", Journal)
    monkeypatch.setattr(time, "sleep", waited.append)
    service = of(service={"standby": True, "database": "postgresql://db"}).service
    assert ownership.open_journal(service, Path("/state")) is journal
    assert tries == [("postgresql://db", "local")] * 4
    assert waited == [ownership.STANDBY_S] * 3
    assert capsys.readouterr().out.count("stands by") == 1
    tries.clear()
    with pytest.raises(InUse):
        ownership.open_journal(of().service, Path("/state"))
    assert tries == [(Path("/state"), "local")]


# -- the bounds of what may be set


def bounds(name: str) -> tuple[int | float | None, int | float | None]:
    """What the lowest and the highest value of a number are; None where there is no such bound."""
    options = get_args(_type_of(name)) if isinstance(_type_of(name), UnionType) else [_type_of(name)]
    return next(((m.ge, m.le) for each in options for m in get_args(each)[1:] if isinstance(m, Meta)), (None, None))


@pytest.mark.parametrize("name", [name for name in known_names() if set(bounds(name)) != {None}])
def test_a_bound_may_be_set_and_what_lies_beyond_it_may_not(name: str) -> None:
    step = 1 if isinstance(value_of(Settings(), name) or 1, int) and name != "service.poll_s" else 0.01
    for bound, beyond in zip(bounds(name), (-step, step), strict=True):
        if bound is not None:
            kind = type(step)
            assert value_of(load({"HOME": "/x"}, flags={name: kind(bound)}).settings, name) == bound
            with pytest.raises(ConfigError, match="out of range"):
                load({"HOME": "/x"}, flags={name: kind(bound) + beyond})


@pytest.mark.parametrize(
    ("host", "told"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("box", "box")],
)
def test_a_service_that_listens_everywhere_is_asked_on_loopback(host: str, told: str) -> None:
    """As in a container: requests that name another machine are refused, and 0.0.0.0 names none."""
    assert serving.spoken(host) == told
