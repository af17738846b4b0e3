"""One address for all clusters: the list of them, and the way on to whoever serves each one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import Engine

import perdure
from perdure.client import Service
from perdure.errors import NotFound
from perdure.service.access.auth import Identity, TokenBook
from perdure.service.access.proxy.login import ProxyLogin
from perdure.service.access.proxy.settings import ProxySettings
from perdure.service.access.service_file import ServiceFile
from perdure.service.access.sessions import Sessions
from perdure.service.store.queries.clusters import ClusterRow, find_clusters
from perdure.service.web import problems
from perdure.service.web.host_guard import HostGuard
from perdure.service.web.pages import labels, login, site
from perdure.service.web.pages.errors import to_login
from perdure.service.web.pages.render import environment, plain_page
from perdure.service.web.problems import Problem
from perdure.service.web.roles import check_every_route_declares, session_of
from perdure.service.web.state import Anybody, Viewer

router = APIRouter()
Name = Annotated[str, InPath(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


@dataclass(frozen=True, slots=True)
class ClustersState:
    """What the routes work with."""

    engine: Engine
    names: Callable[[], tuple[str, ...]]
    held: Callable[[], frozenset[str]]
    """Clusters that anybody serves now."""
    state: Path
    """Where each cluster's service has its directory."""
    clock: Callable[[], float]

    def rows(self) -> tuple[ClusterRow, ...]:
        return find_clusters(self.engine, self.names(), self.held(), self.clock())

    def owner(self, name: str) -> ClusterRow:
        """Raises `NotFound` where nobody serves a cluster of that name now."""
        held = self.held()
        if name not in held:
            raise NotFound(name, "nobody serves a cluster of that name now", "See the list of clusters")
        return find_clusters(self.engine, (name,), held, self.clock())[0]


def clusters_of(request: Request) -> ClustersState:
    found: ClustersState = request.app.state.clusters
    return found


Clusters = Annotated[ClustersState, Depends(clusters_of)]


def create_front(clusters: ClustersState, tokens: TokenBook, hosts: tuple[str, ...], proxy: ProxySettings) -> FastAPI:
    """The web application of a controller."""
    app = FastAPI(title="Perdure", version=perdure.__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.tokens, app.state.sessions, app.state.proxy = tokens, Sessions(tokens), ProxyLogin(proxy)
    app.state.clusters = clusters
    routers = (router, login.router, site.fixed)
    check_every_route_declares(routers)
    for each in routers:
        app.include_router(each)
    problems.install(app, _page_of, problems.allowed_by([("", each) for each in routers]))
    app.add_middleware(HostGuard, hosts=hosts)
    return app


@router.get("/")
def all_clusters(request: Request, clusters: Clusters, identity: Viewer) -> Response:
    """The list of clusters."""
    session, now = session_of(request), clusters.clock()
    text = (
        environment()
        .get_template("clusters.html")
        .render(
            title="Clusters",
            rows=clusters.rows(),
            me=identity,
            csrf=session.csrf if session else "",
            now=now,
            ago=lambda then: labels.ago(then, now),
        )
    )
    return HTMLResponse(text)


@router.get("/api/v1/clusters")
def clusters_listed(clusters: Clusters, identity: Viewer) -> dict[str, Any]:  # noqa: ARG001
    """The list of clusters, for programs."""
    return {"items": msgspec.to_builtins(clusters.rows())}


@router.post("/api/v1/login-codes", status_code=201)
def login_code(request: Request, identity: Viewer) -> dict[str, str]:
    """A code that logs a browser in once as whoever asks."""
    tokens: TokenBook = request.app.state.tokens
    return {"code": tokens.login_code(identity)}


@router.get("/clusters/{name}")
@router.get("/clusters/{name}/{path:path}")
def one_cluster(request: Request, clusters: Clusters, identity: Viewer, name: Name, path: str = "") -> Response:
    """Lead on to the pages of a cluster, where they are served now, logged in as the same user."""
    host = clusters.owner(name).owner.rpartition(":")[0]
    here = host == socket.gethostname()
    service = ServiceFile.read(clusters.state / name)
    port = urlsplit(service.url).port
    asked_at = service.url if here else f"http://{host}:{port}"
    code = _code(asked_at, service.token, identity)
    page = f"/{path}" + (f"?{request.url.query}" if request.url.query else "")
    shown_at = f"{request.url.scheme}://{request.url.hostname if here else host}:{port}"
    return RedirectResponse(f"{shown_at}/login?{urlencode({'code': code, 'next': page})}", 303)


@router.get("/healthz", dependencies=[Anybody])
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


def _code(url: str, token: str, identity: Identity) -> str:
    asked = {"user": identity.user, "role": identity.role.value}
    return str(Service(url, token).ask("POST", "/login-codes", asked)["code"])


def _page_of(request: Request, problem: Problem) -> Response | None:
    """The answer to a browser; None where a program asks."""
    if request.url.path.startswith(("/api/", "/healthz")):
        return None
    if problem.status == 401:
        return to_login(request)
    return plain_page("error", problem.status, title=problem.title, problem=problem)
