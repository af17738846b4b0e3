"""`perdure up` itself tells what happens, also where it is killed before it can note that it did."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import main
from tests.cli.test_service_commands import is_ready
from tests.service.notices.receivers import receiving, until

SECRET = "hunter2-s3cr3t"


def command(home: Path, url: str) -> list[Any]:
    """`perdure up` with one target, whose secret is in a file."""
    (home / "secret").write_text(SECRET)
    (home / "secret").chmod(0o600)
    target = f'[notices.targets.hook]\nkind = "webhook"\nurl = "{url}/{SECRET}"\nsecret_file = "secret"\n'
    (home / "site.toml").write_text(f'[notices]\ngroup_s = 0\nurl = "https://perdure.site.org"\n{target}')
    words = ["up", "--port", "0", "--no-demo", "--nodes", "2", "--state", str(home / "state")]
    return [sys.executable, "-m", "perdure", *words, "--config", str(home / "site.toml")]


@contextmanager
def service(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own; it is ended, unless that has happened already."""
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    with (home / "up.log").open("a") as log:
        process = subprocess.Popen(command(home, url), cwd=home, env=env, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or is_ready(home / "state"), 120.0)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(120.0)


def test_a_service_that_is_killed_between_sending_and_noting_sends_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    processes = []

    def kill(_: object) -> None:
        """The message is here; the service does not live to hear so."""
        processes[0].kill()
        processes[0].wait(60.0)

    with receiving(kill, 200) as receiver:
        with service(tmp_path, receiver.url) as first:
            processes.append(first)
            assert main(["node", "drain", "n1", "--reason", "bad DIMM", "--state", str(state)]) == 0
            until(lambda: first.poll() is not None)
        with service(tmp_path, receiver.url):
            until(lambda: len(receiver.got) >= 2)
            capsys.readouterr()

            def standing() -> list[Any]:
                assert main(["notices", "--json", "--state", str(state)]) == 0
                return [(n["kind"], n["state"]) for n in json.loads(capsys.readouterr().out)["notices"]]

            until(lambda: standing() == [("node_drained", "sent")])
            assert main(["notices", "--state", str(state)]) == 0
            listed = capsys.readouterr().out
            assert "A node is drained: node n1" in listed
    first_document, second_document = receiver.documents
    assert first_document == second_document
    assert first_document["notices"][0]["about"] == "node n1"
    assert first_document["link"] == "https://perdure.site.org/nodes"
    assert receiver.got[0][1]["webhook-id"] == receiver.got[1][1]["webhook-id"]
    said = (tmp_path / "up.log").read_text() + listed
    assert SECRET not in said
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in state.glob("journal.db*"))
