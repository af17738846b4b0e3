"""`perdure up` on a real Slurm as its operator runs it, and questions to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from perdure.client import Service, raise_exception
from perdure.service.access.service_file import ServiceFile
from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.history import Story, violations

PLAYBOOK = """
[resources."pfs:/scratch"]
licence = "pfs"
"""
QUICK = {
    "PERDURE_SERVICE_POLL_S": "1",
    "PERDURE_RETRY_BACK_OFF_S": "1",
    "PERDURE_CAPS_NODES_SHARE_PER_HOUR": "1",  # the cluster is small, and its faults many
    "PERDURE_CAPS_DRAINS_PER_HOUR": "100",
    "PERDURE_CAPS_FLOOR_PER_HOUR": "300",
    "PERDURE_BLAME_ENABLED": "false",
    "PERDURE_WHATIF_ENABLED": "false",
    "PERDURE_COORDINATION_WATCH_EVERY_S": "0.5",
}
Record = dict[str, Any]


class Site:
    """A service at work; `stop` ends it as Ctrl-C does."""

    def __init__(self, cluster: SlurmCluster, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.cluster, self.home = cluster, home
        self.agents, self.fences = home / "agents", cluster.output / "fences"
        self._environment = {
            **cluster.env,
            **QUICK,
            "HOME": str(home),
            "PERDURE_SLURM_SPOOL": str(cluster.events),
            "PERDURE_COORDINATION_PLAYBOOK": str(home / "playbook.toml"),
            "PERDURE_COORDINATION_AGENTS": str(self.agents),
            "PERDURE_COORDINATION_FENCES": str(self.fences),
            **(settings or {}),
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self, acts: str = "--act") -> Site:
        self.agents.mkdir(exist_ok=True, parents=True)
        self.agents.chmod(0o755)
        self.fences.mkdir(exist_ok=True)
        (self.home / "playbook.toml").write_text(PLAYBOOK)
        state = self.home / "state"
        words = ("up", "--cluster", "slurm", acts, "--port", "0", "--state", str(state))
        self._process = subprocess.Popen(
            (sys.executable, "-m", "perdure", *words), env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert "http://127.0.0.1:" in self._process.stdout.readline()
        found = ServiceFile.read(state)
        self.service = Service(found.url, found.token)
        minted = self.service.ask("POST", "/tokens", {"user": "root", "role": "viewer"})
        self._of_jobs = f"export PERDURE_URL={found.url} PERDURE_TOKEN={minted['token']}\n"
        return self

    def stop(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.end_on(node, "agent")
        if self._process is None or self._process.stdout is None:
            return
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._process.stdout.close()

    def kill(self) -> None:
        """End the service as a crash does; `start` begins anew on its state."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block the service does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def start_agent(self, node: str) -> None:
        """Start the site's agent on a node."""
        argv = (sys.executable, "-m", "perdure", "agent", str(self.agents), "--node", node)
        self.cluster.start_on(node, "agent", *argv)

    # Jobs

    def submit(self, script: str, *options: str) -> str:
        """Submit a job that can reach the service; its fence is where the service looks."""
        fence = f'export PERDURE_FENCE_DIR={self.fences}/"$SLURM_JOB_ID"\n'
        return self.cluster.submit(self._of_jobs + fence + script, *options)

    def python(self, text: str, *options: str, launcher: str = "") -> str:
        """Submit a Python program under ``perdure exec``."""
        program = self.cluster.output / f"program-{os.urandom(4).hex()}.py"
        program.write_text(text)
        return self.submit(f"{launcher}{sys.executable} -m perdure exec -- {sys.executable} {program}", *options)

    # Questions

    def ask(self, path: str, **query: str) -> list[Record]:
        """All items of a listing, the latest first."""
        items: list[Record] = []
        cursor: str | None = ""
        while cursor is not None:
            more = {"cursor": cursor} if cursor else {}
            page = self.service.ask("GET", f"{path}?{urlencode({**query, **more, 'limit': 100})}")
            items, cursor = [*items, *page["items"]], page["next_cursor"]
        return items

    def records(self, job_id: str) -> list[Record]:
        """The exceptions about a job, the latest first, as they are written down."""
        return self.ask("/exceptions", job_id=job_id)

    def record(self, exception_id: str) -> Record:
        return next(each for each in self.ask("/exceptions") if each["id"] == exception_id)

    def actions(self, job_id: str) -> list[Record]:
        """What was done to a job, but for the lines in its record."""
        return [action for action in self.ask("/actions", job_id=job_id) if action["kind"] != "comment"]

    def told(self, job_id: str) -> str:
        """What the service knows of a job: for a failed assertion."""
        return "\n".join(["", *map(str, (*self.records(job_id), *self.actions(job_id), self.cluster.ends(job_id)))])

    def await_known(self, job_id: str) -> None:
        """Wait until the service has seen the job run."""

        def running() -> bool:
            return any(job["job_id"] == job_id and job["state"] == "running" for job in self.ask("/jobs"))

        await_(f"job {job_id} seen running", running, 60)

    def await_record(self, job_id: str, holds: Callable[[Record], bool], within_s: float = 90) -> Record:
        """Wait for an exception about the job of which a condition holds."""
        return await_(
            f"exception of job {job_id}",
            lambda: next(filter(holds, self.records(job_id)), None),
            within_s,
            lambda: self.told(job_id),
        )

    def await_outcome(self, job_id: str, outcome: str, within_s: float = 90) -> Record:
        """Wait until the job's latest failure has come to this end."""

        def of_failure(record: Record) -> bool:
            return record["type"].split(".")[0] in ("job", "node")

        def ended() -> Record | None:
            latest = next(filter(of_failure, self.records(job_id)), None)
            return latest if latest is not None and latest["outcome"] == outcome else None

        return await_(f"job {job_id} {outcome}", ended, within_s, lambda: self.told(job_id))

    def await_done(self, job_id: str, *kinds: str, within_s: float = 90) -> None:
        """Wait until these, each once, and no others are the actions on the job, and all are done."""

        def all_done() -> bool:
            return sorted((action["kind"], action["state"]) for action in self.actions(job_id)) == [
                (kind, "done") for kind in sorted(kinds)
            ]

        await_(f"{kinds} done to job {job_id}", all_done, within_s, lambda: self.told(job_id))

    def raise_(self, kind: str, **more: Any) -> str:
        """Raise an exception as the operator; returns its id."""
        return raise_exception(kind, service=self.service, **more)

    def check_history(self, *job_ids: str) -> None:
        """What the service did about these jobs, and what Slurm recorded of them, fit together."""
        for job_id in job_ids:
            story = Story(tuple(self.records(job_id)), tuple(self.actions(job_id)), tuple(self.cluster.ends(job_id)))
            assert violations(story) == [], self.told(job_id)
