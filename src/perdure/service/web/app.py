"""The application: the HTTP API, the dashboard, metrics and health, behind one door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import Engine

import perdure
from perdure.service.access.auth import TokenBook
from perdure.service.access.proxy.login import ProxyLogin
from perdure.service.access.sessions import Sessions
from perdure.service.blame.settings import BlameSettings
from perdure.service.learning.learner import Learner
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.store.queries import events as queries
from perdure.service.store.queries.events import EventRow
from perdure.service.store.queries.jobs import owners_of
from perdure.service.store.queries.reader import Reader
from perdure.service.waits.watch import WaitsWatch
from perdure.service.web import metrics as metrics_
from perdure.service.web import problems
from perdure.service.web.api import (
    actions,
    blame,
    chains,
    events,
    exceptions,
    jobs,
    learning,
    nodes,
    notices,
    status,
    waits,
    whatif,
)
from perdure.service.web.api import (
    policy as policy_api,
)
from perdure.service.web.api.event_feed import EventFeed
from perdure.service.web.api.events import Listeners
from perdure.service.web.api.params import check_query
from perdure.service.web.connections import most_connections
from perdure.service.web.description import described
from perdure.service.web.etags import ETags
from perdure.service.web.host_guard import HostGuard
from perdure.service.web.idempotency import Replies
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.web.pages import errors, site
from perdure.service.web.problems import RESPONSES
from perdure.service.web.roles import check_every_route_declares
from perdure.service.web.state import Anybody, Here, WebSettings, WebState
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.settings import MIB
from perdure.service.workers.operations import Operations
from perdure.triage.learning.promise import PromiseCheck
from perdure.waits.calibration import Calibration

API = "/api/v1"

API_ROUTERS = (
    jobs.router,
    nodes.router,
    blame.router,
    waits.router,
    policy_api.router,
    chains.router,
    actions.router,
    events.router,
    exceptions.router,
    status.router,
    whatif.router,
    learning.router,
    notices.router,
)
health = APIRouter(tags=["health"])


def create_app(
    journal: Engine,
    operations: Operations,
    tokens: TokenBook,
    settings: WebSettings | None = None,
    *,
    metrics: ServiceMetrics | None = None,
    queue: ComparisonQueue | None = None,
    learner: Learner | None = None,
    suspicion: BlameSettings | None = None,
    starts: WaitsWatch | None = None,
    policy: PolicyWorker | None = None,
) -> FastAPI:
    """The web application of a service.

    `journal` is only read. All that is asked to be changed goes through `operations`. `queue` answers what-if
    questions and `learner` takes corrections; None where there is none. `suspicion` says how suspects are found,
    `starts` when waiting jobs start,
    `policy` what the scheduling policy in force decides.
    Raises `RuntimeError` where a route does not say who may ask it.
    """
    settings = settings or WebSettings()
    metrics = metrics or ServiceMetrics()
    reader = Reader(journal, operations.status().cluster)
    metrics.watch(
        reader,
        operations,
        settings.clock,
        lambda: starts.calibration if starts else Calibration(),
        lambda: learner.promise if learner else PromiseCheck(),
    )
    app = FastAPI(
        title="Perdure",
        summary="Why jobs failed, what was decided, what was done about it",
        version=perdure.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.tokens = tokens
    app.state.sessions = Sessions(tokens)
    app.state.proxy = ProxyLogin(settings.proxy)
    most_streams = min(settings.max_streams, most_connections() // 2)
    app.state.listeners = Listeners(most_streams, _tail(reader, settings.stream_every_s))
    app.state.metrics = metrics
    app.state.web = WebState(
        reader, operations, tokens, app.state.sessions, metrics, Replies(), settings, queue, learner,
        suspicion or BlameSettings(), starts, policy,
    )  # fmt: skip
    check_every_route_declares((*API_ROUTERS, health, *site.ROUTERS))
    for router in API_ROUTERS:
        app.include_router(router, prefix=API, responses=RESPONSES, dependencies=[Depends(check_query)])
    app.include_router(health)
    for router in site.ROUTERS:
        app.include_router(router, include_in_schema=False)
    routers = [*((API, router) for router in API_ROUTERS), *(("", router) for router in (health, *site.ROUTERS))]
    problems.install(app, errors.page_of, problems.allowed_by(routers))
    app.add_middleware(ETags, prefix=API)
    larger = {f"{API}{whatif.UPLOADS}": queue.settings.upload_mib * MIB} if queue else {}
    app.add_middleware(HostGuard, hosts=settings.hosts, larger=larger)
    return app


def _tail(reader: Reader, every_s: float) -> EventFeed:
    """What listeners hear, read from the journal."""

    def after(seq: int, limit: int) -> list[EventRow]:
        return list(queries.events_after(reader, seq, limit).items)

    return EventFeed(after, lambda: queries.newest(reader), lambda ids: owners_of(reader, ids), every_s)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.listeners.close()


@health.get(f"{API}/openapi.json", dependencies=[Anybody], include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """This API, described."""
    return JSONResponse(described(request.app))


@health.get("/healthz", dependencies=[Anybody])
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@health.get("/readyz", dependencies=[Anybody], responses={503: {"description": "Not yet"}})
def readyz(web: Here) -> Response:
    """The journal can be written and the cluster was looked at recently; else why not."""
    status = web.operations.status()
    said = {"status": "ready"} if status.ready else {"status": "not ready", "why": list(status.unready)}
    return JSONResponse(said, 200 if status.ready else 503)


@health.get("/metrics", dependencies=[Anybody], response_class=Response)
def metrics(web: Here) -> Response:
    """For Prometheus. Counts alone: no job, no user, no text."""
    return Response(web.metrics.render(), media_type=metrics_.CONTENT_TYPE)
