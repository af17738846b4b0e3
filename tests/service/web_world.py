"""A journal filled by the real controller from a made-up cluster, and a service around it that tests can ask."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from perdure.backends.local import JobSpec
from perdure.backends.local.wire import decode
from perdure.coordination.messages import Input, Refused
from perdure.coordination.playbook import own_playbook
from perdure.errors import ClusterError, InputError, NotFound
from perdure.model.actions import Action, Drain
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.model.output import Output
from perdure.retry.history import Spent
from perdure.retry.rules import RetryRules
from perdure.service.access.auth import Role, TokenBook
from perdure.service.blame.settings import BlameSettings
from perdure.service.core.controller import step
from perdure.service.core.messages import ChainInput, Ended, Event, Judge, Judged, Looked, Ordered
from perdure.service.core.settings import ControllerSettings
from perdure.service.core.view import SiteView
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.store.journal import ActionState, Journal
from perdure.service.web.app import create_app
from perdure.service.web.state import WebSettings
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.settings import WhatifSettings
from perdure.service.workers.commands import retry_budgets
from perdure.service.workers.operations import Status
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rules import own_rules
from tests.copying import replace
from tests.finding import found_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Starlettes would rather have httpx2
    warnings.simplefilter("ignore", UserWarning)
    from fastapi.testclient import TestClient as TestClient  # for others, too: it warns where it is imported first

CLUSTER = "aurora"
BASE = "http://127.0.0.1:8470"
HOUR = 3600.0
NOTHING: Mapping[str, Any] = {}

SHAPE = b"""epoch 1 loss 2.31
Traceback (most recent call last):
  File "train.py", line 88, in forward
    return self.head(x)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)
"""
RESET = b"""step 4100 loss 1.92
step 4200 loss 1.90
Traceback (most recent call last):
  File "data.py", line 41, in fetch
ConnectionResetError: [Errno 104] Connection reset by peer
"""


class World:
    """A small cluster with a clock of its own. Whatever happens goes through the controller into the journal."""

    def __init__(self, path: Path | str, now: float, nodes: int = 6, gpus: int = 8, *, cluster: str = CLUSTER) -> None:
        self._path, self.cluster = path, cluster
        self.journal = Journal.open(path, self.cluster)
        self.now = now
        self.state = self.journal.restore()
        self.learner = Learner(TrainingStore(self.journal.store, self.cluster), own_rules(), lambda: self.now)
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        self.nodes = {f"gpu{i:02}": Node(f"gpu{i:02}", NodeState.UP, "", gpus, 0, now) for i in range(1, nodes + 1)}
        self.logs: dict[tuple[str, int], bytes] = {}
        self.unseen: dict[str, str] = {}
        self.judging = True  # False: tests judge by themselves
        self.look()

    def restart(self) -> None:
        """As if the service had ended and begun again: all that is known is what its database knows."""
        self.journal.close()
        self.journal = Journal.open(self._path, self.cluster)
        self.state = self.journal.restore()
        self.learner = Learner(TrainingStore(self.journal.store, self.cluster), own_rules(), lambda: self.now)

    def take(self, event: Event) -> None:
        before = self.state
        self.state, effects = step(before, event, ControllerSettings())
        self.journal.record(effects, before, self.state)
        for effect in effects:
            if isinstance(effect, Judge) and self.judging:
                log = self.logs.get((effect.attempt.id.job_id, effect.attempt.id.incarnation), b"")
                self.take(
                    Judged(self.now, effect.attempt.id, self.learner.judge(Output.of(log), effect.attempt, Context()))
                )

    def tell(self, inputs: tuple[Input, ...]) -> list[Refused]:
        before = self.state
        self.state, effects = step(before, ChainInput(self.now, inputs), ControllerSettings())
        self.journal.record(effects, before, self.state)
        return [effect for effect in effects if isinstance(effect, Refused)]

    def view(self) -> SiteView:
        return SiteView(self.state, own_playbook(), RetryRules(), self.now)

    def spend(self, retries: int, user: str) -> None:
        """As if so many retries of a user's jobs had just been granted."""
        spent = (Spent(self.now, "1", user, ("gpu01",)),) * retries
        self.state = replace(self.state, fleet=replace(self.state.fleet, spent=spent))

    def look(self) -> None:
        seen = (tuple(self.jobs.values()), tuple(self.attempts.values()), tuple(self.nodes.values()))
        self.take(Looked(Observation(self.cluster, self.now, *seen, unseen=self.unseen)))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def submit(
        self, job_id: str, name: str = "train", user: str = "mira", gpus: int = 2, *, look: bool = True, **more: Any
    ) -> None:
        self.jobs[job_id] = Job(
            self.cluster, job_id, name, user, JobState.PENDING, self.now, "gpu", gpus, walltime_s=12 * HOUR, **more
        )
        if look:
            self.look()

    def start(self, job_id: str, *nodes: str) -> None:
        job, old = self.jobs[job_id], self.attempts.get(job_id)
        incarnation = old.id.incarnation + 1 if old else 1
        self.attempts[job_id] = Attempt(
            AttemptId(self.cluster, job_id, incarnation),
            AttemptState.RUNNING,
            nodes or ("gpu01",),
            self.now,
            gpus=job.gpus,
            user=job.user,
        )
        self.jobs[job_id] = replace(job, state=JobState.RUNNING, reason="")
        self.look()

    def end(
        self,
        job_id: str,
        log: bytes = b"",
        state: AttemptState = AttemptState.FAILED,
        *,
        to: JobState | None = None,
        **more: Any,
    ) -> None:
        attempt = self.attempts[job_id]
        self.logs[job_id, attempt.id.incarnation] = log
        good = state is AttemptState.COMPLETED
        after = to or (JobState.COMPLETED if good else JobState.FAILED)
        ended = replace(attempt, state=state, end_s=self.now, exit_code=0 if good else 1, **more)
        self.attempts[job_id] = ended
        self.jobs[job_id] = replace(self.jobs[job_id], state=after)
        self.look()

    def order_drain(self, node: str, reason: str, by: str = "root") -> None:
        self.take(Ordered(self.now, Drain(node, reason, "1"), by, reason))

    def carry_out(self, state: ActionState = ActionState.DONE, detail: str = "") -> None:
        """Let all that is planned end so."""
        for row in self.journal.planned():
            self.journal.begin(row.key, self.now)
            begun = self.journal.action(row.key)
            assert begun is not None
            ended = self.journal.finish(begun, state, detail, self.now)
            if isinstance(ended, ActionEnded):
                self.take(Ended((ended,)))
            if state is ActionState.DONE and row.action.kind == "requeue" and row.attempt:
                job_id = row.attempt.job_id
                self.jobs[job_id] = replace(self.jobs[job_id], state=JobState.PENDING, reason="BeginTime")
            elif state is ActionState.DONE and isinstance(row.action, Drain) and row.action.node in self.nodes:
                drained = replace(self.nodes[row.action.node], state=NodeState.DRAINED, reason=row.action.reason)
                self.nodes[row.action.node] = drained
        self.look()


@dataclass
class Desk:
    """The operations of a service, done on a `World`."""

    world: World
    backend: str = "local"
    armed: bool = True
    stopped: bool = False
    ready: bool = True
    unready: tuple[str, ...] = ()
    answered_s: float | None = None
    submitted: list[dict[str, Any]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(self.world.tell, self.world.view, self.world.journal.recall, lambda: None)

    def status(self) -> Status:
        world = self.world
        retries, spent, left = retry_budgets(world.view())
        unseen = dict(world.unseen)
        return Status(
            world.cluster, self.backend, self.armed, self.stopped, world.now, unseen, self.ready, self.unready,
            answered_s=self.answered_s, retries=retries, spent=spent, left=left,
        )  # fmt: skip

    def order(self, action: Action, by: str, reason: str) -> str:
        self.world.take(Ordered(self.world.now, action, by, reason))
        return self.world.journal.latest_key(action)

    def withhold(self, key: str, by: str) -> None:
        if not self.world.journal.withhold(key, by, self.world.now):
            raise ClusterError(key, "it is not waiting any more", "Undo it instead")

    def undo(self, key: str, by: str) -> str:
        row = self.world.journal.action(key)
        inverse = row.action.undo() if row and row.state is ActionState.DONE else None
        if inverse is None:
            raise ClusterError(key, "cannot be undone", "See the job's page")
        return self.order(inverse, by, f"undo of {key}")

    def stop_all(self, on: bool, by: str) -> str:
        self.stopped = on
        return ""

    def submit(self, spec: dict[str, Any]) -> str:
        try:
            decode(JobSpec, spec, "job")
        except ValueError as err:
            raise InputError("job", str(err), "See `perdure submit --help`") from err
        self.submitted.append(spec)
        return str(len(self.submitted))

    def fault(self, node: str, kind: str) -> None:
        if self.backend != "local":
            raise ClusterError(
                self.world.cluster, "only the embedded cluster can do that", "Use the cluster's own commands"
            )
        self.faults.append((node, kind))

    def log_text(self, job_id: str, incarnation: int, max_bytes: int) -> bytes:
        if (job_id, incarnation) not in self.world.logs:
            raise NotFound(f"job {job_id}", "it has no log", "Wait until it writes one")
        return self.world.logs[job_id, incarnation][-max_bytes:]

    def kept_log(self, job_id: str, incarnation: int) -> str:
        return ""


def routes_of(router: APIRouter) -> Iterator[tuple[str, APIRoute]]:
    """Each method of each route, and the route."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        assert route.methods
        for method in sorted(route.methods):
            yield method, route


def csrf_of(page: str) -> str:
    """The word against requests of other sites that a page carries."""
    return found_in(page, r'name="csrf" content="([^"]+)"')


@dataclass
class Site:
    """A web application on a filled journal, with a token of each kind."""

    world: World
    commands: Desk
    tokens: TokenBook
    app: FastAPI
    operator: str
    mira: str  # a viewer, and owner of jobs
    jonas: str  # another
    queue: ComparisonQueue  # works nothing off, unless a test has a thread do it

    def client(self, token: str = "", **headers: str) -> TestClient:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(
            self.app, base_url=BASE, headers={**given, **headers}, follow_redirects=False, raise_server_exceptions=False
        )


def site(
    path: Path,
    now: float = 1_790_000_000.0,
    *,
    where: Path | str | None = None,
    cluster: str = CLUSTER,
    whatif: WhatifSettings | None = None,
    blame: BlameSettings | None = None,
    **settings: Any,
) -> Site:
    """A site whose cluster is still empty; its clock is the world's, its journal in `path` or else in `where`."""
    world = World(where or path, now, cluster=cluster)
    tokens = TokenBook(path, lambda: world.now)
    minted = (tokens.mint("root", Role.OPERATOR), tokens.mint("mira", Role.VIEWER), tokens.mint("jonas", Role.VIEWER))
    return _around(world, path, minted, whatif, blame, settings)


def restarted(place: Site, path: Path) -> Site:
    """The same site once its service has ended and begun again, with the settings built in."""
    place.world.restart()
    return _around(place.world, path, (place.operator, place.mira, place.jonas))


def _around(
    world: World,
    path: Path,
    minted: tuple[str, str, str],
    whatif: WhatifSettings | None = None,
    blame: BlameSettings | None = None,
    settings: Mapping[str, Any] = NOTHING,
) -> Site:
    commands, tokens = Desk(world), TokenBook(path, lambda: world.now)
    web = WebSettings(clock=lambda: world.now, **settings)
    journal = world.journal.engine
    database = journal.url.render_as_string(hide_password=False)
    queue = ComparisonQueue(path / "whatif", database, world.cluster, whatif or WhatifSettings(), lambda: world.now)
    app = create_app(journal, commands, tokens, web, queue=queue, learner=world.learner, suspicion=blame)
    return Site(world, commands, tokens, app, *minted, queue)


def fill(world: World) -> None:
    """A stopped job, a recovered one, one that waits for its retry, one that runs, one on a dead node, one held."""
    world.submit("101", "unet-w48", "jonas", 4)
    world.start("101", "gpu01")
    world.pass_time(1800)
    world.end("101", SHAPE)
    world.submit("102", "diffusion-lr40", "mira", 8)
    world.start("102", "gpu02")
    world.pass_time(2 * HOUR)
    world.end("102", RESET)
    world.carry_out()
    world.pass_time(60)
    world.start("102", "gpu03")
    world.pass_time(HOUR)
    world.end("102", b"step 9000\nfinished\n", AttemptState.COMPLETED)
    world.submit("103", "recsys", "jonas", 2)
    world.start("103", "gpu04")
    world.pass_time(600)
    world.end("103", RESET)
    world.submit("104", "llm-7b", "mira", 16, node_count=2)
    world.start("104", "gpu05", "gpu06")
    world.submit("105", "asr-100h", "aiko", 4)
    world.start("105", "gpu03")
    world.pass_time(900)
    world.nodes["gpu03"] = replace(world.nodes["gpu03"], state=NodeState.DOWN, reason="Not responding")
    world.end("105", b"epoch 1\n", AttemptState.NODE_FAIL, failed_nodes=("gpu03",))
    world.submit("106", "sweep-1", "tunde", 1)
    world.jobs["106"] = replace(world.jobs["106"], state=JobState.HELD, reason="JobHeldUser")
    world.submit("107", "sweep-2", "tunde", 1)
    world.jobs["107"] = replace(world.jobs["107"], reason="Resources")
    world.pass_time(30)
    world.look()
