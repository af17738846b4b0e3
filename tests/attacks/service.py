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
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from perdure.service.access.service_file import ServiceFile

WITHIN_S = 60.0


class Attacked:
    """A running service, and ways to ask it."""

    def __init__(self, home, process):
        self.home, self.state, self.process = home, home / "state", process
        self.users = {}

    @property
    def log(self):
        return (self.home / "up.log").read_text()

    @property
    def file(self):
        return ServiceFile.read(self.state)

    @property
    def port(self):
        return urlsplit(self.file.url).port

    def connect(self, timeout_s=30.0):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def ask(self, method, path, body=None, token=None, timeout_s=30.0):
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

    def token(self, user, role="viewer"):
        if (user, role) not in self.users:
            status, found = self.ask("POST", "/tokens", {"user": user, "role": role})
            assert status == 201, found
            self.users[user, role] = found["token"]
        return self.users[user, role]

    def submit(self, script, **more):
        status, found = self.ask("POST", "/jobs", {"argv": ["/bin/sh", "-c", script], "name": "attacked", **more})
        assert status in (200, 201), found
        return found["job_id"]

    def await_decision(self, job_id, within_s=WITHIN_S):
        def decided():
            status, page = self.ask("GET", f"/exceptions?job_id={job_id}")
            return status == 200 and [record for record in page["items"] if record["verdicts"]]

        return await_(decided, within_s, lambda: self.log[-3000:])


def await_(condition, within_s=WITHIN_S, words=lambda: "", every_s=0.05):
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {words()}"
        time.sleep(every_s)
    return found


@contextmanager
def attacked(home, *words, descriptors=None, environment=(), command=(), within_s=WITHIN_S):
    """`perdure up` under a limit of file descriptors; yields it once it is ready."""
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", **dict(environment)}
    argv = [*command, sys.executable, "-m", "perdure", "up", "--port", "0", "--no-demo", "--state", str(home / "state")]

    def limit():
        if descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with (home / "up.log").open("w") as log:
        process = subprocess.Popen([*argv, *words], cwd=home, env=env, stdout=log, stderr=log, preexec_fn=limit)
    service = Attacked(Path(home), process)

    def is_ready():
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
