"""Users of the Unix socket without a token: known by the kernel, and shown what is theirs."""

import getpass
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from perdure.cli.service_client import Client
from perdure.errors import NotPermitted
from perdure.service.access.peers import PeerProtocol, identity_of, peer_of
from perdure.service.runtime.serving import unix_socket
from tests.service.web_world import Site, fill, site

ME = getpass.getuser()


@dataclass
class Served(Site):
    path: str = ""
    port: int = 0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Served]:
    """A service on TCP and on a Unix socket; job 300 is of the user who runs the tests, the others are not."""
    path = tmp_path / "s.sock"
    place = Served(**vars(site(tmp_path, now=time.time() - 40_000)), path=str(path))
    fill(place.world)
    place.world.submit("300", "mine", ME, 8)
    place.world.start("300", "gpu01")
    config = uvicorn.Config(place.app, http=PeerProtocol, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with unix_socket(path, shared=True) as local, socket.create_server(("127.0.0.1", 0)) as tcp:
        place.port = tcp.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [tcp, local]}, daemon=True)
        thread.start()
        yield place
        server.should_exit = True
        thread.join(60)


def ask(connection: HTTPConnection, path: str, method: str = "GET", **headers: Any) -> tuple[int, Any]:
    connection.request(method, f"/api/v1{path}", headers={"Host": "localhost", **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def local(place: Served) -> HTTPConnection:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(place.path)
    return connection


def test_a_user_sees_own_jobs_and_no_others(place: Served) -> None:
    mine = Client("http://localhost", "", socket_path=place.path)
    assert [job["job_id"] for job in mine.pages("/jobs", 100)] == ["300"]
    assert mine.get("/jobs/300")["job"]["user"] == ME
    others = [
        job["job_id"] for job in Client("http://localhost", place.mira, socket_path=place.path).pages("/jobs", 100)
    ]
    assert "300" in others
    assert len(others) > 1
    theirs = next(job_id for job_id in others if job_id != "300")
    for path in (
        f"/jobs/{theirs}",
        f"/jobs/{theirs}/log",
        "/jobs?user=mira",
        "/exceptions",
        "/events",
        "/nodes",
        "/actions",
    ):
        with pytest.raises(NotPermitted):
            mine.get(path)
    with pytest.raises(NotPermitted):
        mine.post("/kill-switch", {"on": True})


def test_a_launcher_tells_of_its_own_job_with_the_socket_alone(place: Served, tmp_path: Path) -> None:
    """As the docs say of PERDURE_SOCKET: no token is needed, and none of others' jobs is told of."""

    def run(job: str) -> subprocess.CompletedProcess[str]:
        ours = {"PERDURE_JOB_ID": job, "PERDURE_INCARNATION": "1", "PERDURE_FENCE_DIR": str(tmp_path / job)}
        told = {"PERDURE_SOCKET": place.path, "SLURMD_NODENAME": "gpu01"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        argv = (sys.executable, "-m", "perdure", "exec", "--", "sh", "-c", "exit 3")
        return subprocess.run(argv, env=environment | ours | told, capture_output=True, text=True, check=False)

    ran, mine = run("300"), Client("http://localhost", "", socket_path=place.path)
    assert (ran.returncode, ran.stderr) == (3, "")
    (record,) = mine.pages("/exceptions", 10, job_id="300")
    assert (record["type"], record["note"]) == ("process.exit", "exit code 3")
    assert mine.get(f"/exceptions/{record['id']}")["detected_by"] == f"viewer:{ME}"
    everybodys = Client("http://localhost", place.mira, socket_path=place.path).pages("/jobs", 100)
    theirs = next(job["job_id"] for job in everybodys if job["user"] != ME)
    ran = run(theirs)
    assert ran.returncode == 3
    assert "it belongs to another user" in ran.stderr


def test_an_end_of_which_the_kernel_tells_no_user_is_nobodys() -> None:
    """So it is of one that is connected to nothing, and of users that another namespace does not know."""
    with socket.socket(socket.AF_UNIX) as alone, socket.socket(socket.AF_INET) as tcp:
        assert (peer_of(alone), peer_of(tcp), peer_of(None)) == (None, None, None)


@pytest.mark.skipif(subprocess.run(("unshare", "-r", "true"), check=False).returncode != 0, reason="needs unshare")
@pytest.mark.parametrize("namespace", ["-U", "-r"])
def test_in_a_namespace_that_does_not_know_all_users_nobody_is_told_by_id(namespace: str) -> None:
    program = "from perdure.service.access.peers import identity_of; print(identity_of(0), identity_of(65534))"
    argv = ("unshare", namespace, sys.executable, "-c", program)
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "None None\n"


def test_no_header_makes_anybody_else_of_a_user(place: Served) -> None:
    forged = {
        "X-Forwarded-For": "unix:0",
        "Forwarded": "for=mira",
        "X-Real-IP": "mira",
        "perdure_peer": "0",
        "Perdure-Peer": "0",
        "X-Remote-User": "mira",
    }
    status, found = ask(local(place), "/jobs", **forged)
    assert (status, [job["job_id"] for job in found["items"]]) == (200, ["300"])
    assert ask(local(place), "/jobs", Authorization="Bearer pdr_wrong")[0] == 401
    assert ask(http.client.HTTPConnection("127.0.0.1", place.port), "/jobs", **forged)[0] == 401


def test_tcp_tells_nobody(place: Served) -> None:
    with socket.create_connection(("127.0.0.1", place.port)) as connection:
        assert peer_of(connection) is None
    assert peer_of(None) is None
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == os.geteuid()


def test_a_user_without_a_name_goes_by_the_number() -> None:
    assert identity_of(4_123_456_789).user == "4123456789"
