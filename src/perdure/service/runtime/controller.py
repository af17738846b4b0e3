"""``perdure up --clusters DIR``: serve this controller's share of the clusters, and the page of all."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import uvicorn

from perdure.errors import ConfigError
from perdure.installation import user_name
from perdure.log import log_to_stderr
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.runtime.cluster_process import load_cluster
from perdure.service.runtime.cluster_processes import ClusterProcesses, cluster_files
from perdure.service.runtime.presence import LockSight, Presence
from perdure.service.runtime.serving import END_S, PageServer, left_for_commands, listen, spoken
from perdure.service.settings import Settings
from perdure.service.store.database import reading_engine, server_url
from perdure.service.web.clusters_app import ClustersState, create_front
from perdure.service.web.connections import BACKLOG, BoundedProtocol, raise_descriptor_limit
from perdure.service.workers.threads import ENDING_S, forever
from perdure.trust import state_dir

LOOK_EVERY_S = 1.0  # at who lives


def run_controller(settings: Settings, directory: Path) -> int:
    """Run until it is asked to end; the exit code of `perdure up`. Raises `ConfigError`, `StateError`."""
    log_to_stderr()
    raise_descriptor_limit()
    service = settings.service
    if not service.database:
        fix = "Set service.database = postgresql://USER@HOST/NAME"
        raise ConfigError("service.database", "many clusters need one PostgreSQL database", fix)
    state, url = state_dir(service.state), server_url(service.database)
    common = {
        "service.database": service.database,
        "service.host": service.host,
        "service.allow_remote": service.allow_remote,
        "service.hosts": service.hosts,
    }
    for file in cluster_files(directory).values():
        load_cluster(file, state, common)
    address = url.render_as_string(hide_password=False)
    stop, seen = threading.Event(), LockSight(1, 0, frozenset())

    def turn() -> None:
        nonlocal seen
        seen = processes.turn()

    with ExitStack() as stack:
        sock = stack.enter_context(listen(service.host, service.port))
        processes = ClusterProcesses(directory, state, common, Presence(address))
        stack.callback(processes.close)
        sharing = forever("clusters", stop, turn, lambda: stop.wait(LOOK_EVERY_S))
        sharing.start()
        stack.callback(sharing.join, ENDING_S)
        stack.callback(stop.set)
        tokens = TokenBook(state)
        clusters = ClustersState(
            reading_engine(address), lambda: tuple(cluster_files(directory)), lambda: seen.held, state, time.time
        )
        app = create_front(clusters, tokens, service.hosts, settings.proxy)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=END_S, http=BoundedProtocol,
            backlog=BACKLOG,
        )  # fmt: skip
        found_at = f"http://{spoken(service.host)}:{sock.getsockname()[1]}"
        with left_for_commands(tokens, found_at, state):
            code = tokens.login_code(Identity(user_name(), Role.OPERATOR))
            print(f"Perdure serves the clusters of {directory}: {found_at}/?code={code}", flush=True)  # noqa: T201
            PageServer(config, lambda: None).run(sockets=[sock])
    return 0
