"""What a row plays on: the shared Slurm and the service, and an account of what both said and did."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Record, Site

TOOLS = ("scontrol", "sacct", "scancel", "squeue", "sinfo", "sacctmgr")
SETTLE_S = 4.0  # in which a service that wrongly acts would have done so: two looks and a turn of the executor


@dataclass(frozen=True, slots=True)
class Account:
    """A row of the page."""

    slurm: str
    does: str
    says: str
    seconds: float | None  # from the end of the first failed attempt to the decision
    calls: int  # processes that the service started to ask or tell Slurm, while the row ran


class Calls:
    """Counts how often the service runs one of Slurm's tools, by scripts that stand before them in its PATH."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder, self._log = folder, folder / "calls"
        folder.mkdir(exist_ok=True)
        self._log.touch()
        for name in TOOLS:
            real = shutil.which(name, path=path)
            script = folder / name
            script.write_text(f'#!/bin/sh\necho {name} >>{self._log}\nexec {real} "$@"\n')
            script.chmod(0o755)

    def count(self) -> int:
        return self._log.stat().st_size and self._log.read_text().count("\n")


class Stage:
    """One row's part of the site. The first job that it submits is the one that the page tells of."""

    def __init__(self, site: Site, calls: Calls, name: str) -> None:
        self.site, self._calls = site, calls
        self.name = name
        self.jobs: list[str] = []
        self.main = ""  # another job than the first may be what the row is about
        self._calls_before = calls.count()
        self.begun_s = time.time()
        self.folder = site.cluster.output / f"{name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.folder.chmod(0o1777)

    @property
    def cluster(self) -> SlurmCluster:
        return self.site.cluster

    @property
    def mark(self) -> Path:
        """A file that a job leaves at its first start."""
        return self.folder / "mark"

    # Jobs

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """Submit a job of the site; its output goes to the row's folder where no option says otherwise."""
        own = any(option.startswith(("-o", "--output")) for option in options)
        output = () if own else ("-o", f"{self.folder}/%A_%a.out" if _is_array(options) else f"{self.folder}/%j.out")
        job = self.cluster.submit(script, *output, *options, user=user)
        self.jobs.append(job)
        return job

    def once(self, then: str = "exit 0") -> str:
        """Shell text: after the job's first start, which goes on below, `then` is all that it does."""
        return f"[ -e {self.mark} ] && {{ {then}; }}\ntouch {self.mark}\n"

    def once_each(self, then: str = "exit 0") -> str:
        """The same for each task of an array."""
        mark = f"{self.mark}-$SLURM_ARRAY_TASK_ID"
        return f"[ -e {mark} ] && {{ {then}; }}\ntouch {mark}\n"

    @property
    def gate(self) -> Path:
        """A file that opens the way of a job that waits `at_the_gate`."""
        return self.folder / "gate"

    @property
    def at_the_gate(self) -> str:
        """Shell text: the job goes on once the row has opened the gate, however busy the machine."""
        return f"until [ -e {self.gate} ]; do sleep 0.2; done\n"

    # Waiting

    def await_begun(self, job: str) -> None:
        """Wait until the service has seen the job run, and its script has left the mark of a first start."""
        self.site.await_known(job)
        await_(f"the mark of job {job}", self.mark.exists)

    def recovered(self, job: str, within_s: float = 120) -> Record:
        return self.site.await_outcome(job, "recovered", within_s)

    def stopped(self, job: str, within_s: float = 120) -> Record:
        """Wait until the job's failure is stopped; nothing was done to it, now nor a little later."""
        record = self.site.await_outcome(job, "stopped", within_s)
        _settle(record["verdicts"][-1]["time"])
        assert self.acts(job) == [], self.site.told(job)
        return record

    def left_alone(self, job: str) -> None:
        """Nothing is done to the job, and nothing is said of it as a failure."""
        _settle(max((int(row["End"]) for row in self.cluster.ends(job) if row["End"].isdecimal()), default=time.time()))
        assert self.acts(job) == [], self.site.told(job)
        assert self.failures(job) == [], self.site.told(job)

    def done(self, job: str, patience_s: float = 120) -> None:
        """Wait until the job's latest start went well."""
        await_(
            f"job {job} completed",
            lambda: self.states(job)[-1:] == ["COMPLETED"],
            patience_s,
            lambda: f"\n{self.cluster.job(job)}\n{self.site.told(job)}",
        )

    def await_failures(self, job: str, count: int, within_s: float = 120) -> None:
        """Wait until so many attempts of the job have been judged and decided."""
        await_(
            f"{count} decisions on job {job}",
            lambda: len(self.decisions(job)) >= count,
            within_s,
            lambda: self.site.told(job),
        )

    # What is known

    def full(self, job: str) -> dict[str, Any]:
        """All that the service knows of a job."""
        return dict(self.site.service.ask("GET", f"/jobs/{job}"))

    def failures(self, job: str) -> list[Record]:
        return [record for record in self.site.records(job) if record["type"].split(".")[0] in ("job", "node")]

    def acts(self, job: str) -> list[Record]:
        """What was done to the job, comments on it left out."""
        return [action for action in self.site.actions(job) if action["kind"] != "comment"]

    def requeues(self, job: str) -> list[Record]:
        return [action for action in self.acts(job) if action["kind"] == "requeue"]

    def decisions(self, job: str) -> list[dict[str, Any]]:
        """The decided failures of a job, the latest first."""
        with contextlib.suppress(Exception):
            return [each for each in self.full(job)["exceptions"] if each["decision"]]
        return []

    def verdicts(self, job: str) -> list[dict[str, Any]]:
        """The verdicts on its attempts, the latest first."""
        return [attempt["verdict"] for attempt in self.full(job)["attempts"] if attempt["verdict"]]

    def says(self, job: str) -> str:
        """All words of the service about the job's latest failure."""
        found = self.full(job)
        verdict = next(iter(self.verdicts(job)), {})
        lines = [line["text"] for line in verdict.get("evidence") or ()]
        told = [each["reason"] for each in found["exceptions"][:1]]
        acted = [action["detail"] for action in found["actions"]]
        return " | ".join([verdict.get("summary", ""), verdict.get("advice", ""), *told, *lines, *acted])

    def states(self, job: str) -> list[str]:
        """How accounting words the end of each start, the oldest first."""
        return [row["State"].split(" ")[0] for row in self.cluster.ends(job)]

    def check(self, *jobs: str) -> None:
        self.site.check_history(*(jobs or self.jobs))

    def account(self) -> Account:
        """What Slurm said of the row's main job, and what the service did and said about it."""
        calls = self._calls.count() - self._calls_before
        if not self.jobs:
            return Account("", "", "", None, calls)
        job = self.main or self.jobs[0]
        starts = self.cluster.ends(job)
        slurm = ", ".join(f"{row['State']} {row['ExitCode']}" for row in starts) or "never started"
        acts = self.acts(job)
        does = ", ".join(_deed(action) for action in reversed(acts)) or "nothing"
        decided = self.decisions(job)
        return Account(slurm, does, decided[-1]["reason"] if decided else "", self._seconds(job), calls)

    def _seconds(self, job: str) -> float | None:
        """Seconds from the end of the first attempt that was judged to the decision on it."""
        found = self.full(job)
        ended = {attempt["incarnation"]: attempt["end_s"] for attempt in found["attempts"]}
        decided = [each for each in found["exceptions"] if each["decision"] and ended.get(each["incarnation"])]
        if not decided:
            return None
        first = decided[-1]
        owning = [verdict["time"] for verdict in first["record"]["verdicts"]]
        return max(0.0, owning[-1] - ended[first["incarnation"]]) if owning else None


def _settle(since_s: float) -> None:
    """Let a service that wrongly acts on what was over then show it."""
    time.sleep(max(0.0, since_s + SETTLE_S - time.time()))


def _is_array(options: Sequence[str]) -> bool:
    return any(option.startswith(("--array", "-a")) for option in options)


def _deed(action: Record) -> str:
    away = f" away from {','.join(action['exclude'])}" if action["exclude"] else ""
    return f"{action['kind']}{away}: {action['state']}"


def played(rows: Sequence[Iterator[None]]) -> None:
    """Take each row up to its first ``yield``."""
    for row in rows:
        next(row, None)
