"""`perdure up`: open the journal, start the cluster and the threads, serve the pages, and take all of it down again."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import uvicorn

from perdure.backends.kind import CallBudget
from perdure.backends.local import JobSpec
from perdure.backends.protocol import Backend, Commented, Hooked, Playground, Queued, Reorderable
from perdure.blame.builders.topology import NO_SWITCHES, Topology, read_topology
from perdure.coordination.messages import Input
from perdure.coordination.playbook import MAX_CHARACTERS, Playbook, own_playbook, site_playbook
from perdure.demo.driver import Site, drive
from perdure.demo.workspace import prepare
from perdure.errors import ConfigError, InputError, InUse, NotFound, StateError
from perdure.installation import program
from perdure.job.agent import check_share
from perdure.log import log_to_stderr
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.access.service_file import ServiceFile
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
from perdure.service.settings import CoordinationSettings, ServiceSettings, Settings
from perdure.service.store.journal import Journal
from perdure.service.waits.promise_store import PromiseStore
from perdure.service.waits.watch import WaitsWatch
from perdure.service.web.app import create_app
from perdure.service.web.connections import (
    BACKLOG,
    BoundedProtocol,
    OnceInAWhile,
    accept_quietly,
    raise_descriptor_limit,
)
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.web.state import WebSettings
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.policy_promise import promise_of
from perdure.service.workers.chain_keeper import EVERY_S as KEEP_EVERY_S
from perdure.service.workers.chain_keeper import ChainKeeper
from perdure.service.workers.checkpoints import checkpoints_of
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import STOP_FILE, Executor, ExecutorSettings
from perdure.service.workers.full_stores import LOOK_EVERY_S, FullStores
from perdure.service.workers.gc_tuning import keep_pauses_short
from perdure.service.workers.heartbeat_monitor import HeartbeatMonitor
from perdure.service.workers.hooks import LISTEN_EVERY_S, Hooks
from perdure.service.workers.instance import lock_dir, only_one
from perdure.service.workers.kept_logs import KeptLogs, Retention
from perdure.service.workers.kill_switch import KillSwitch
from perdure.service.workers.threads import ENDING_S, after_a_look, end, forever, threads
from perdure.triage.evidence.matching import RuleBook
from perdure.triage.evidence.rules import own_rules, with_site_rules
from perdure.trust import state_dir

log = logging.getLogger("perdure")

END_S = 3  # that requests have to end in; streams of events take one
PROBE_EVERY_S = 5.0  # whether the journal can be written
COMPARISON_WAIT_S = 0.5  # for a what-if question, before the end of the service is noticed
STANDBY_S = 0.5  # from one try to take over to the next
SOCKET_FILE = "perdure.sock"  # in the state directory


def listen(host: str, port: int) -> socket.socket:
    """Take the port, or say who to ask for another. Raises `ConfigError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(128)  # from now on callers wait instead of being refused
    except OSError as err:
        sock.close()
        what = f"cannot be listened on: {err.strerror}"
        raise ConfigError(f"{host}:{port}", what, "Choose another with --port") from err
    return sock


@contextmanager
def unix_socket(path: Path, *, shared: bool) -> Iterator[socket.socket]:
    """The same service on a Unix socket; `shared`: every user of the machine may connect, and is known by the kernel.

    Raises `ConfigError`.
    """
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111 if shared else 0o177)
    try:
        path.unlink(missing_ok=True)
        local.bind(str(path))
        local.listen(128)
    except OSError as err:
        local.close()
        what = f"cannot be listened on: {err.strerror or err}"
        raise ConfigError(str(path), what, "Name a shorter path with service.socket") from err
    finally:
        os.umask(before)
    try:
        yield local
    finally:
        path.unlink(missing_ok=True)


def open_journal(service: ServiceSettings, state: Path) -> Journal:
    """The journal; one that is by waits here until whoever has it is gone. Raises as `Journal.open` does."""
    waits = False
    while True:
        try:
            return Journal.open(service.database or state, service.cluster_id)
        except InUse as err:
            if not service.standby:
                raise
            if not waits:
                print(f"Perdure stands by: {err.where} is {err.what}", flush=True)  # noqa: T201
            waits = True
            time.sleep(STANDBY_S)


def run(settings: Settings, of: str = "") -> int:
    """Run the service until it is asked to end; the exit code of `perdure up`. `of` begins each entry of its log."""
    log_to_stderr(of=of)
    raise_descriptor_limit()
    service = settings.service
    state = state_dir(service.state)
    rules = rules_of(settings)
    keep_pauses_short()  # like the rules before the wait for the journal: the sooner a standby has taken over
    with ExitStack() as stack:
        journal = stack.enter_context(closing(open_journal(service, state)))
        sock = stack.enter_context(listen(service.host, service.port))
        opened = settings.backend_kind.open(settings.backend, service.cluster_id, state)
        backend = stack.enter_context(opened)
        stack.enter_context(sole_actor(settings, backend, state, journal))
        metrics = ServiceMetrics(playbook_of(settings))
        learner = learner_of(settings, journal, rules)
        engine = stack.enter_context(closing(engine_of(settings, backend, journal, learner, metrics, state)))
        keep_pauses_short()
        engine.recover()
        stop = threading.Event()
        hands = threads(engine, stop, settings.look_every_s, settings.pace, service.keep_days)
        hands.append(
            forever("disk", stop, lambda: keep_room(engine, KillSwitch(state)), lambda: stop.wait(PROBE_EVERY_S))
        )
        stores = FullStores(lambda: engine.state.chain, playbook_of(settings), engine.tell, time.time)
        hands.append(forever("full file systems", stop, stores.look, lambda: stop.wait(LOOK_EVERY_S)))
        nodes = settings.backend_kind.demo_nodes(settings.backend)
        if isinstance(backend, Playground) and nodes is not None:
            hands.append(demonstration(Site(*nodes), backend, engine, state, stop))
        if isinstance(backend, Hooked):
            hands.append(hooks(backend, engine, stop, settings.pace))
        if settings.coordination.agents is not None:
            hands.append(heartbeats(settings.coordination, engine, stop))
        if settings.triage.learn:
            hands.append(forever("learn", stop, learner.turn, lambda: stop.wait(settings.triage.learn_every_s)))
        if settings.blame.enabled:
            watch = watch_of(settings, journal, engine)
            hands.append(forever("blame", stop, watch.turn, lambda: stop.wait(settings.blame.step_s)))
        queue = comparison_queue_of(settings, journal, state)
        policy = policy_of(settings, backend, journal, engine, state, queue)
        if policy is not None:
            hands.append(forever("policy", stop, policy.turn, after_a_look(engine, stop, settings.policy.every_s)))
        waits = waits_of(settings, backend, journal, state)
        if waits is not None:
            hands.append(forever("waits", stop, waits.turn, lambda: stop.wait(waits.pause_s(settings.waits.every_s))))
            refit = waits.refit  # takes minutes: nobody waits for it at the end
            forever("fit of waits", stop, refit.turn, lambda: stop.wait(refit.pause_s())).start()
        if settings.service.keep_chains and isinstance(backend, Queued):
            keeper = ChainKeeper(state, armed=settings.service.armed)  # a round takes minutes: nobody waits for it
            forever("chains", stop, keeper.turn, lambda: stop.wait(KEEP_EVERY_S)).start()
        url = f"http://{spoken(service.host)}:{sock.getsockname()[1]}"
        hands += notifiers(settings, journal, state, url, metrics, stop)
        stack.callback(end, hands, stop, engine)
        for thread in hands:
            thread.start()
        if queue is not None:
            stack.enter_context(at_work(queue))
        return serve(settings, engine, learner, metrics, sock, url, state, queue, waits, policy)


def keep_room(engine: Engine, switch: KillSwitch) -> None:
    """See that the journal can be written, and that there is room for the kill switch. Raises `StateError`."""
    standing = msgspec.json.encode(standing_of(engine.state)).decode()
    engine.journal.store.probe(PROBE_EVERY_S, engine.last_look_s, standing)
    switch.keep_reserve()


@contextmanager
def sole_actor(settings: Settings, backend: Backend, state: Path, journal: Journal) -> Iterator[None]:
    """Inside the block no other service on this machine acts on the same manager. Raises `InUse`, `ConfigError`.

    Nor is the journal another manager's, whose jobs have the same ids. Raises `StateError`.
    """
    manager = settings.backend_kind.manager(settings.backend, backend)
    if manager is not None:
        check_manager(journal, manager.name)
    if manager is None or not settings.service.armed:
        yield
        return
    with only_one(manager.identity, state, lock_dir(os.environ, os.geteuid())):
        yield


def check_manager(journal: Journal, name: str) -> None:
    """Raise `StateError` where the journal belongs to another Slurm than the one of that ClusterName."""
    known = journal.manager(name)
    if known != name:
        what = f"it records the jobs of ClusterName={known}, and the Slurm that answers here is {name}"
        fix = "Give each cluster a --state DIR of its own; if this one was renamed, rename it: service.cluster_name"
        raise StateError(journal.where, what, fix)


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


def serve(
    settings: Settings,
    engine: Engine,
    learner: Learner,
    metrics: ServiceMetrics,
    sock: socket.socket,
    url: str,
    state: Path,
    queue: ComparisonQueue | None,
    waits: WaitsWatch | None = None,
    policy: PolicyWorker | None = None,
) -> int:
    """Serve the pages until a signal ends it."""
    service = settings.service
    commands = ServiceCommands(engine, service.cluster, service.armed, KillSwitch(state), settings.look_every_s)
    tokens = TokenBook(state)
    web = WebSettings(hosts=service.hosts, notices=settings.notices.limits, proxy=settings.proxy)
    app = create_app(
        engine.journal.engine, commands, tokens, web,
        metrics=metrics, queue=queue, learner=learner, suspicion=settings.blame, starts=waits, policy=policy,
    )  # fmt: skip
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=END_S, http=BoundedProtocol,
        backlog=BACKLOG,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").addFilter(OnceInAWhile())
    with left_for_commands(tokens, url, state):
        code = tokens.login_code(Identity(getpass.getuser(), Role.OPERATOR))
        print(f"Perdure watches {engine.backend.cluster}: {url}/?code={code}", flush=True)  # noqa: T201
        print(_what_next(state), flush=True)  # noqa: T201
        with unix_socket(service.socket or state / SOCKET_FILE, shared=service.socket is not None) as local:
            PageServer(config, app.state.listeners.close).run(sockets=[sock, local])
    return 0


def _what_next(state: Path) -> str:
    """Commands for another terminal, as they work there, and how this one ends."""
    perdure, of_state = program(), "" if state == ServiceSettings().state else f" --state {shlex.quote(str(state))}"
    commands = ", ".join(f"{perdure} {words}{of_state}" for words in ("open", "jobs", "why JOBID", "actions --stop"))
    return f"In another terminal: {commands}. Ctrl-C ends it; what it knows is kept in {state}."


class PageServer(uvicorn.Server):
    """Sends those who listen to events home before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, send_home: Callable[[], None]) -> None:
        super().__init__(config)
        self._send_home = send_home

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        accept_quietly(asyncio.get_running_loop())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._send_home()
        await super().shutdown(sockets)


@contextmanager
def left_for_commands(tokens: TokenBook, url: str, state: Path) -> Iterator[None]:
    """While this runs, commands of the same user find the service and have a token for it."""
    _revoke_left_over(tokens, state)
    token = tokens.own(getpass.getuser(), Role.OPERATOR)
    mine = ServiceFile(url, os.getpid(), token)
    mine.write(state)
    try:
        yield
    finally:
        mine.remove(state)


def _revoke_left_over(tokens: TokenBook, state: Path) -> None:
    """Older versions kept their own token in the book; one that was killed has left it there."""
    with suppress(NotFound, StateError):
        if known := tokens.find(ServiceFile.read(state).token):
            tokens.revoke(known.token_id)


def spoken(host: str) -> str:
    """The host of an address at which this machine reaches the service; one that listens everywhere, on loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (named, not listened on)
    return f"[{host}]" if ":" in host else host
