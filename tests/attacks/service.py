"""The real service as a process of its own on the embedded cluster, to be attacked over its sockets."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.service.access.service_file import ServiceFile

WITHIN_S = 60.0


class Attacked:
    """A running service, and ways to ask it."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.home, self.state, self.process = home, home / "state", process
        self.users = {}

    @property
    def log(self) -> str:
        return (self.home / "up.log").read_text()

    @property
    def file(self) -> ServiceFile:
        return ServiceFile.read(self.state)

    @property
    def port(self) -> int | None:
        return urlsplit(self.file.url).port

    def connect(self, timeout_s: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def ask(
        self,
        method: str,
        path: str,
        body: dict[str, object] | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
    ) -> tuple[int, Any]:
        """Status and JSON of one request; by the service's own operator, unless another token is given."""
        found = self.file
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(found.url).port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {token or found.token}", "Content-Type": "application/json"}
        try:
            path = path if path.startswith("/readyz") else f"/api/v1{path}"
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()

    def token(self, user: str, role: str = "viewer") -> str:
        if (user, role) not in self.users:
            status, found = self.ask("POST", "/tokens", {"user": user, "role": role})
            assert status == 201, found
            self.users[user, role] = str(found["token"])
        return self.users[user, role]

    def submit(self, script: str, **more: Any) -> str:
        status, found = self.ask("POST", "/jobs", {"argv": ["/bin/sh", "-c", script], "name": "attacked", **more})
        assert status in (200, 201), found
        return str(found["job_id"])

    def await_decision(self, job_id: str, within_s: float = WITHIN_S) -> Any:
        def decided() -> bool | list[Any]:
            status, page = self.ask("GET", f"/exceptions?job_id={job_id}")
            return status == 200 and [record for record in page["items"] if record["verdicts"]]

        return await_(decided, within_s, lambda: self.log[-3000:])


def await_(
    condition: Callable[[], Any],
    within_s: float = WITHIN_S,
    words: Callable[[], object] = lambda: "",
    every_s: float = 0.05,
) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {words()}"
        time.sleep(every_s)
    return found


@contextmanager
def attacked(
    home: Path,
    *words: str,
    descriptors: int | None = None,
    environment: tuple[()] = (),
    command: tuple[()] = (),
    within_s: float = WITHIN_S,
) -> Iterator[Attacked]:
    """`perdure up` under a limit of file descriptors; yields it once it is ready."""
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", **dict(environment)}
    argv = [*command, sys.executable, "-m", "perdure", "up", "--port", "0", "--no-demo", "--state", str(home / "state")]

    def limit() -> None:
        if descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with (home / "up.log").open("w") as log:
        process = subprocess.Popen([*argv, *words], cwd=home, env=env, stdout=log, stderr=log, preexec_fn=limit)
    service = Attacked(Path(home), process)

    def is_ready() -> bool:
        if process.poll() is not None:
            return True
        with suppress(Exception):
            return service.ask("GET", "/readyz")[0] == 200
        return False

    try:
        await_(is_ready, within_s, lambda: service.log)
        assert process.poll() is None, service.log
        yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=WITHIN_S)
        finally:
            process.kill()
