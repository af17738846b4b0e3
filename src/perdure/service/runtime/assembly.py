"""The parts of the service of one cluster, made from its settings."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from perdure.backends.kind import CallBudget
from perdure.backends.local import JobSpec
from perdure.backends.protocol import Backend, Commented, Hooked, Playground, Queued, Reorderable
from perdure.blame.builders.topology import NO_SWITCHES, Topology, read_topology
from perdure.coordination.messages import Input
from perdure.coordination.playbook import MAX_CHARACTERS, Playbook, own_playbook, site_playbook
from perdure.demo.driver import Site, drive
from perdure.demo.workspace import prepare
from perdure.errors import ConfigError, InputError
from perdure.job.agent import check_share
from perdure.service.blame.suspect_store import SuspectStore
from perdure.service.blame.watch import Watch
from perdure.service.core.comments import instance_mark, journal_place
from perdure.service.core.messages import ChainInput
from perdure.service.core.standing import standing_of
from perdure.service.learning.good_runs import GoodRuns
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.live_policy.past_services import past_services
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.notices.notifier import READ_EVERY_S, Notifier, turns
from perdure.service.notices.outbox import Outbox
from perdure.service.settings import CoordinationSettings, Settings
from perdure.service.store.journal import Journal
from perdure.service.waits.promise_store import PromiseStore
from perdure.service.waits.watch import WaitsWatch
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.policy_promise import promise_of
from perdure.service.workers.chain_keeper import EVERY_S as KEEP_EVERY_S
from perdure.service.workers.chain_keeper import ChainKeeper
from perdure.service.workers.checkpoints import checkpoints_of
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import STOP_FILE, Executor, ExecutorSettings
from perdure.service.workers.full_stores import LOOK_EVERY_S, FullStores
from perdure.service.workers.heartbeat_monitor import HeartbeatMonitor
from perdure.service.workers.hooks import LISTEN_EVERY_S, Hooks
from perdure.service.workers.kept_logs import KeptLogs, Retention
from perdure.service.workers.kill_switch import KillSwitch
from perdure.service.workers.threads import ENDING_S, after_a_look, forever
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rules import own_rules, with_site_rules

COMPARISON_WAIT_S = 0.5  # for a what-if question, before the end of the service is noticed
PROBE_EVERY_S = 5.0  # whether the journal can be written


def keep_room(engine: Engine, switch: KillSwitch) -> None:
    """See that the journal can be written, and that there is room for the kill switch. Raises `StateError`."""
    standing = msgspec.json.encode(standing_of(engine.state)).decode()
    engine.journal.store.probe(PROBE_EVERY_S, engine.last_look_s, standing)
    switch.keep_reserve()


def rules_of(settings: Settings) -> RuleBook:
    """The rules of triage. Raises `ConfigError` where a site's own cannot be used."""
    return with_site_rules(settings.triage.rules) if settings.triage.rules else own_rules()


def learner_of(settings: Settings, journal: Journal, rules: RuleBook) -> Learner:
    """What judges failures by rules and by a model that learns."""
    good_runs = GoodRuns(journal.store, journal.cluster) if settings.triage.learn else None
    return Learner(TrainingStore(journal.store, journal.cluster), rules, time.time, good_runs)


def engine_of(
    settings: Settings, backend: Backend, journal: Journal, learner: Learner, metrics: ServiceMetrics, state: Path
) -> Engine:
    """The engine with its parts in place."""
    rulings = ExecutorSettings(settings.service.armed, state / STOP_FILE, settings.caps, settings.scope)
    executor = Executor(journal, backend, rulings)

    is_commented = isinstance(backend, Commented) and settings.service.armed
    mark = (
        instance_mark(journal_place(settings.service.database, socket.gethostname(), str(state)))
        if is_commented
        else ""
    )
    controller = replace(settings.controller, playbook=playbook_of(settings), mark=mark)
    student = learner.study if settings.triage.learn else None
    triage = settings.triage
    kept = KeptLogs(state, Retention(triage.keep_logs_mib << 20, triage.keep_logs_days * 86400.0))
    return Engine(backend, journal, executor, learner.judge, controller, time.time, metrics.decided, student, kept)


def watch_of(settings: Settings, journal: Journal, engine: Engine) -> Watch:
    """What looks for suspects, and lets the chain hear of them."""

    def tell(inputs: list[Input]) -> None:
        engine.absorb([ChainInput(time.time(), tuple(inputs))])

    store = SuspectStore(journal.store, journal.cluster, topology_of(settings), settings.blame.storage)
    return Watch(store, settings.blame, time.time, tell)


def policy_of(
    settings: Settings, backend: Backend, journal: Journal, engine: Engine, state: Path, whatif: ComparisonQueue | None
) -> PolicyWorker | None:
    """What keeps jobs in a policy's order; None where none is, nor has left anything behind. Raises `ConfigError`."""
    store, named = PolicyStore(journal.store, journal.cluster), settings.policy
    if not named.name and not (store.nice() or store.sizes()):
        return None
    if not isinstance(backend, Reorderable):
        raise ConfigError("policy.name", "jobs of this cluster cannot be put in another order", "Leave it out")
    fences = (*map(Path, settings.coordination.fences), *settings.backend_kind.fences(state))
    return PolicyWorker(
        backend, store, named, PolicySwitch(state), lambda: engine.executor.acts, lambda: engine.state.known.running,
        engine.order, engine.clock, lambda jobs: checkpoints_of(fences, jobs, engine.clock()),
        lambda name: None if whatif is None else promise_of(whatif, name), past_services(named.history),
    )  # fmt: skip


def waits_of(settings: Settings, backend: Backend, journal: Journal, state: Path) -> WaitsWatch | None:
    """What says when waiting jobs start; None where it is turned off, or this cluster shows no queue."""
    if not settings.waits.every_s or not isinstance(backend, Queued):
        return None
    return WaitsWatch(backend, PromiseStore(journal.store, journal.cluster), state / "waits", time.time)


def topology_of(settings: Settings) -> Topology:
    """The switches that the settings name a file of. Raises `ConfigError`, `InputError`."""
    path = settings.blame.switches
    if path is None:
        return NO_SWITCHES
    try:
        return read_topology(path.read_text("utf-8").splitlines(), str(path))
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(str(path), f"cannot be read: {err}", "Fix blame.switches") from err


def playbook_of(settings: Settings) -> Playbook:
    """Perdure's playbook, or a site's laid over it. Raises `InputError`, `ConfigError`."""
    path = settings.coordination.playbook
    return read_playbook(path) if path else own_playbook()


def read_playbook(path: Path) -> Playbook:
    """A site's playbook laid over Perdure's own. Raises `InputError` that names entry and fix."""
    try:
        with path.open(encoding="utf-8") as file:
            return site_playbook(file.read(MAX_CHARACTERS + 1), str(path))
    except OSError as err:
        raise InputError(str(path), f"cannot be read: {err.strerror}", "Name a file that can be") from err
    except UnicodeDecodeError as err:
        raise InputError(str(path), "is not UTF-8", "Save it as UTF-8") from err


def comparison_queue_of(settings: Settings, journal: Journal, state: Path) -> ComparisonQueue | None:
    """Where what-if questions are worked off; None where they are turned off."""
    if not settings.whatif.enabled:
        return None
    database = journal.engine.url.render_as_string(hide_password=False)
    limits = settings.policy.limits(settings.look_every_s) if settings.policy.name else None
    return ComparisonQueue(
        state / "whatif", database, settings.service.cluster_id, settings.whatif, time.time, limits,
        settings.policy.queue_limits,
    )  # fmt: skip


@contextmanager
def at_work(queue: ComparisonQueue) -> Iterator[ComparisonQueue]:
    """While this runs, a thread works off what is asked; leaving it ends the process that simulates."""
    thread = forever("what-if", queue.stop, lambda: queue.work_next(COMPARISON_WAIT_S), lambda: None)
    thread.start()
    try:
        yield queue
    finally:
        queue.stop.set()
        thread.join(ENDING_S)


def notifiers(
    settings: Settings, journal: Journal, state: Path, url: str, metrics: ServiceMetrics, stop: threading.Event
) -> list[threading.Thread]:
    """The threads that notify people: one that gathers, and one for each target."""
    if not settings.notices.targets.by_name:
        Outbox(journal.store, journal.cluster).forget_place()
        return []
    notifier = Notifier(
        journal.store, journal.cluster, settings.notices, state, url, time.time, metrics.tried_notice,
        armed=settings.service.armed,
    )  # fmt: skip
    notifier.begin()
    hands = [forever("notices", stop, notifier.gather, lambda: stop.wait(READ_EVERY_S))]
    targets = settings.notices.targets.by_name
    return hands + [forever(f"notices to {target}", stop, *turns(notifier, target, stop)) for target in targets]


def room_threads(settings: Settings, engine: Engine, state: Path, stop: threading.Event) -> Iterator[threading.Thread]:
    """The threads that see whether the disk of the service, and the jobs' file systems, have room."""
    yield forever("disk", stop, lambda: keep_room(engine, KillSwitch(state)), lambda: stop.wait(PROBE_EVERY_S))
    stores = FullStores(lambda: engine.state.chain, playbook_of(settings), engine.tell, time.time)
    yield forever("full file systems", stop, stores.look, lambda: stop.wait(LOOK_EVERY_S))


def listening_threads(
    settings: Settings, backend: Backend, engine: Engine, state: Path, stop: threading.Event
) -> Iterator[threading.Thread]:
    """The threads that hear of the cluster between two looks, and the one that keeps a demonstration going."""
    nodes = settings.backend_kind.demo_nodes(settings.backend)
    if isinstance(backend, Playground) and nodes is not None:
        yield demonstration(Site(*nodes), backend, engine, state, stop)
    if isinstance(backend, Hooked):
        yield hooks(backend, engine, stop, settings.pace)
    if settings.coordination.agents is not None:
        yield heartbeats(settings.coordination, engine, stop)


def deciding_threads(
    settings: Settings,
    journal: Journal,
    engine: Engine,
    learner: Learner,
    policy: PolicyWorker | None,
    waits: WaitsWatch | None,
    stop: threading.Event,
) -> Iterator[threading.Thread]:
    """The threads that learn, look for suspects, keep jobs in a policy's order, and say when jobs start."""
    if settings.triage.learn:
        yield forever("learn", stop, learner.turn, lambda: stop.wait(settings.triage.learn_every_s))
    if settings.blame.enabled:
        watch = watch_of(settings, journal, engine)
        yield forever("blame", stop, watch.turn, lambda: stop.wait(settings.blame.step_s))
    if policy is not None:
        yield forever("policy", stop, policy.turn, after_a_look(engine, stop, settings.policy.every_s))
    if waits is not None:
        yield forever("waits", stop, waits.turn, lambda: stop.wait(waits.pause_s(settings.waits.every_s)))


def threads_left_behind(
    settings: Settings, backend: Backend, waits: WaitsWatch | None, state: Path, stop: threading.Event
) -> Iterator[threading.Thread]:
    """The threads whose rounds take minutes, so that the end of the service does not wait for one."""
    if waits is not None:
        refit = waits.refit
        yield forever("fit of waits", stop, refit.turn, lambda: stop.wait(refit.pause_s()))
    if settings.service.keep_chains and isinstance(backend, Queued):
        keeper = ChainKeeper(state, armed=settings.service.armed)
        yield forever("chains", stop, keeper.turn, lambda: stop.wait(KEEP_EVERY_S))


def hooks(backend: Hooked, engine: Engine, stop: threading.Event, pace: CallBudget) -> threading.Thread:
    """The thread that listens to the cluster's hooks."""
    listener = Hooks(backend, engine, looks_per_minute=pace.early_looks)

    def listen() -> None:
        listener.turn()
        if stop.wait(LISTEN_EVERY_S):
            listener.close()

    return forever("hooks", stop, listen, lambda: None)


def heartbeats(settings: CoordinationSettings, engine: Engine, stop: threading.Event) -> threading.Thread:
    """The thread that looks at the heartbeats of nodes and jobs. Raises `ConfigError`."""
    share = settings.agents
    if share is None:
        raise ConfigError("coordination.agents", "is not set", "Name the directory that the agents write to")
    check_share(share)
    watcher = HeartbeatMonitor(share, [Path(fence) for fence in settings.fences], engine.tell, engine.view)
    return forever("heartbeats", stop, watcher.look, lambda: stop.wait(settings.watch_every_s))


def demonstration(
    site: Site, backend: Playground, engine: Engine, state: Path, stop: threading.Event
) -> threading.Thread:
    """The thread that lets the demonstration workload arrive."""
    workspace = prepare(state / "demo")

    def play() -> None:
        def submit(spec: JobSpec) -> str:
            job_id = backend.submit(spec)
            engine.look_now.set()
            return job_id

        drive(submit, backend.fault, site, workspace, np.random.default_rng(), stop)

    return threading.Thread(target=play, name="demonstration", daemon=True)
