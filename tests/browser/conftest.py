"""A real browser before a real server: Chromium, and the pages of a filled journal."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from tests.conftest import require
from tests.service.web_world import Site, site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]

# Anything that a script of somebody else's might do leaves a trace here; the test reads it afterwards.
WATCH = """
window.__hits = [];
for (const name of ["alert", "confirm", "prompt", "print", "open"]) {
  window[name] = (...given) => { window.__hits.push(`${name}(${given})`); return null; };
}
document.addEventListener("securitypolicyviolation", (event) =>
  window.__hits.push(`refused ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@dataclass
class Visit:
    """A tab, and everything suspicious that happened in it."""

    page: Page
    url: str
    troubles: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def wait_for(self, condition: str, within_s: float = 60.0) -> None:
        """Ask from outside until it holds: the pages' policy lets no condition be evaluated inside."""
        deadline = time.monotonic() + within_s
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
            self.page.wait_for_timeout(50)

    def hits(self) -> list[str]:
        return [*self.troubles, *self.page.evaluate("window.__hits")]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = require("browser", next(filter(None, map(shutil.which, NAMES)), None), "no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield browser
        browser.close()


@contextmanager
def served(place: Site) -> Iterator[str]:
    """Serve `place` on a free port of this machine; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(
            uvicorn.Config(place.app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


@pytest.fixture
def open_site(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., tuple[Site, Visit]]]:
    """Make a site, let a test fill it, and open a tab before it, logged in unless told otherwise."""
    contexts = []
    with ExitStack() as stack:

        def open_(
            fill: Callable[[Any], None] = lambda world: None, token: str = "operator", **options: Any
        ) -> tuple[Site, Visit]:
            place = site(tmp_path)
            fill(place.world)
            url = stack.enter_context(served(place))
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            context.set_default_timeout(60_000)
            context.add_init_script(WATCH)
            contexts.append(context)
            visit = Visit(context.new_page(), url)
            visit.page.on("dialog", lambda dialog: visit.troubles.append(f"dialog {dialog.message}"))
            visit.page.on("pageerror", lambda error: visit.troubles.append(f"error {error}"))
            visit.page.on(
                "request",
                lambda r: None if r.url.startswith(url) else visit.troubles.append(f"foreign request {r.url}"),
            )
            if token:
                identity = place.tokens.find(getattr(place, token))
                secret = place.app.state.sessions.open(identity)
                context.add_cookies([{"name": f"perdure_{url.rpartition(':')[2]}", "value": secret, "url": url}])
                visit.go("/")
            return place, visit

        yield open_
        for context in contexts:
            context.close()
