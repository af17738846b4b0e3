"""What every route may reach, made once with the application."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from perdure.service.access.auth import Identity, TokenBook
from perdure.service.access.proxy.settings import ProxySettings
from perdure.service.access.sessions import Sessions
from perdure.service.blame.settings import BlameSettings
from perdure.service.learning.learner import Learner
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.notices.rules import NoticeLimits
from perdure.service.store.queries.reader import Reader
from perdure.service.waits.watch import WaitsWatch
from perdure.service.web.idempotency import Replies
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.web.roles import operator, owner, public, viewer
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.workers.operations import Operations


@dataclass(frozen=True, slots=True)
class WebSettings:
    """How the API and the dashboard are served."""

    hosts: tuple[str, ...] = ()
    """Names besides the loopback ones under which this service may be called; "host" without a port."""
    max_streams: int = 2000
    """Listeners to the stream of events at one time."""
    stream_every_s: float = 0.1
    """How often a stream looks for new events."""
    log_bytes: int = 256 * 1024
    """The end of a log that is shown."""
    notices: NoticeLimits = field(default_factory=NoticeLimits)
    """When notices are sent, for the page that says what one waits for."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    """How a reverse proxy logs its users in."""
    clock: Callable[[], float] = field(default=time.time)


@dataclass(frozen=True, slots=True)
class WebState:
    """What the routes work with."""

    reader: Reader
    operations: Operations
    tokens: TokenBook
    sessions: Sessions
    metrics: ServiceMetrics
    replies: Replies
    settings: WebSettings
    whatif: ComparisonQueue | None = None  # None where this service takes no what-if questions
    learner: Learner | None = None  # None where nothing is learnt
    blame: BlameSettings = field(default_factory=BlameSettings)
    waits: WaitsWatch | None = None  # None where it is not said when waiting jobs start
    policy: PolicyWorker | None = None  # None where no policy is in force

    def now(self) -> float:
        return self.settings.clock()


def web_of(request: Request) -> WebState:
    web: WebState = request.app.state.web
    return web


Here = Annotated[WebState, Depends(web_of)]
Viewer = Annotated[Identity, Depends(viewer)]
Owner = Annotated[Identity, Depends(owner)]  # or a viewer
Operator = Annotated[Identity, Depends(operator)]
Anybody = Depends(public)
