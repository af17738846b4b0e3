"""What ``perdure keep`` does for chains on a small made-up Slurm.

Each number is one chain on one drawn course of events: jobs wait, run and end in all ways, submissions are refused or
not answered, the disk is full for a while, its user asks it to stop, another process takes it over. A line of the
answers is a round in which something was done or said, with a hash of the chain as it is then.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perdure.backends.slurm.links import LimitReached
from perdure.backends.slurm.tools import Tools
from perdure.cli import chain_journal, keeper
from perdure.cli.chain_journal import ChainJournal, KeptChain, LinkPlan
from perdure.cli.keep_judge import judge_link
from perdure.cli.keep_outlook import Outlook
from perdure.cli.keep_plan import Deciding
from perdure.cli.keeper import Keeper
from perdure.cli.lookout import Look
from perdure.durable import write_whole
from perdure.errors import ClusterBusy, ClusterError
from perdure.job.link_marks import HandoverAsked, LinkBegun, LinkEnded
from perdure.model.job_comment import chain_link_of
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain_state import ChainSpec, JobChain, Strategy
from perdure.succession.protocol import Forecast
from tests.copying import replace
from tests.recorded.drawn import NOW, in_words
from tests.recorded.line import Line, hash_of

CHAINS, ROUNDS = 60, 40
ROUND_S = 61.0
LOGS = (
    "",
    "ConnectionResetError: [Errno 104] Connection reset by peer\n",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied\nKeyError: 'x'\n",
    "all is well\n",
    "OSError: [Errno 28] No space left on device: '/scratch/a'\nKeyError: 'x'\n",
)


@dataclass
class _Slurm:
    """Takes jobs, lets them run, and ends them, as its dice say."""

    rng: Random
    home: Path
    now: float = NOW
    ids: int = 0
    jobs: dict[str, LinkJob] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def submit(self, order: Any, _: Tools) -> str:
        options = " ".join(each for each in order.options if not each.startswith("--comment="))
        self.done.append(f"sbatch {options}")
        match self.rng.random():
            case dice if dice < 0.08:
                raise LimitReached("sbatch", "too many jobs", "Wait")
            case dice if dice < 0.16:
                raise ClusterError("sbatch", "invalid account", "Name another")
            case dice if dice < 0.2:
                raise ClusterBusy("sbatch", "no answer", "Try again")
        found = chain_link_of(next(each for each in order.options if each.startswith("--comment=")))
        self.ids += 1
        job_id = str(self.ids)
        state = "RESV_DEL_HOLD" if "--hold" in order.options else "PENDING"
        self.jobs[job_id] = LinkJob(job_id, state, submit_s=self.now, chain=found.chain, key=found.key)
        if self.rng.random() < 0.05:  # it was taken, and nobody hears of it
            raise ClusterBusy("sbatch", "no answer", "Try again")
        return job_id

    def cancel(self, _: Tools, job_id: str) -> None:
        self.done.append(f"scancel {job_id}")
        self._change(job_id, state="CANCELLED", end_s=self.now)

    def release(self, _: Tools, job_id: str) -> None:
        self.done.append(f"release {job_id}")
        self._change(job_id, state="PENDING")

    def ended_job(self, _: Tools, job_id: str, *__: object) -> LinkJob | None:
        return self.jobs.get(job_id) if self.rng.random() < 0.9 else None

    def look(self, now: float) -> Look:
        return Look(None, 0.0) if self.rng.random() < 0.1 else Look(tuple(self.jobs.values()), now)

    def _change(self, job_id: str, **more: Any) -> None:
        if job_id in self.jobs:
            self.jobs[job_id] = replace(self.jobs[job_id], **more)

    def go_on(self, kept: KeptChain) -> None:
        """Jobs begin and end, and their links leave marks."""
        for job in list(self.jobs.values()):
            number = int(job.key.partition(".")[0] or 1)
            if job.state == "PENDING" and self.rng.random() < 0.5:
                self._change(job.job_id, state="RUNNING", start_s=self.now, end_s=self.now + 600.0)
                if self.rng.random() < 0.8:
                    out = self.home / f"slurm-{job.job_id}.out"
                    out.write_text(self.rng.choice(LOGS))
                    kept.folder.write(number, LinkBegun(job.job_id, self.now, self.now, stdout=str(out)))
            elif job.state == "RUNNING" and (self.now >= job.end_s or self.rng.random() < 0.15):
                state = "TIMEOUT" if self.now >= job.end_s else self.rng.choice(ENDS)
                code = 0 if state == "COMPLETED" else self.rng.choice((1, 1, 75, 78))
                self._change(job.job_id, state=state, end_s=self.now, exit_code=code)
                if self.rng.random() < 0.7:
                    progress = self.rng.choice(("", "step 1", f"step {number}"))
                    kept.folder.write(number, LinkEnded(job.job_id, self.now, code, progress=progress))
            elif job.is_over and self.rng.random() < 0.1:
                del self.jobs[job.job_id]
            elif job.state == "RUNNING" and self.rng.random() < 0.05:
                kept.folder.write(number, HandoverAsked("9", self.now, self.now + 60.0))


ENDS = ("COMPLETED", "FAILED", "FAILED", "NODE_FAIL", "PREEMPTED", "CANCELLED")


def names() -> Iterable[str]:
    return ("rounds",)


def lines_of(name: str) -> Iterator[Line]:  # there is one
    """What is done for each chain, round by round."""
    for number in range(CHAINS):
        with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
            yield from _of_chain(number, Path(home), patch)


def _of_chain(number: int, home: Path, patch: pytest.MonkeyPatch) -> Iterator[Line]:
    rng = Random(f"chain {number}")
    slurm, disk, told = _Slurm(rng, home), SimpleNamespace(is_full=False), list[str]()

    def write(path: Path, data: bytes, mode: int) -> None:
        if disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, data, mode)

    for name in ("HOME", "PERDURE_KEEP_DIR"):
        patch.setenv(name, str(home))
    patch.chdir(home)
    patch.setattr("time.time", lambda: slurm.now)
    patch.setattr("os.fsync", lambda _: None)  # no power is cut here
    patch.setattr(chain_journal, "write_whole", write)
    for name in ("submit", "cancel", "release", "ended_job"):
        patch.setattr(keeper, name, getattr(slurm, name))
    journal = ChainJournal.of({"PERDURE_KEEP_DIR": str(home)}, "c")
    kept = _begun(rng, home, journal)

    def life() -> Keeper:
        waits_s = tuple(sorted(rng.choice((0.0, 60.0, 300.0, 900.0)) for _ in range(3)))
        outlook = Outlook(Forecast(waits_s) if rng.random() < 0.7 else None, waits_s)
        lookout: Any = slurm
        return Keeper(
            journal, lookout, Tools(), Deciding(lambda *_: outlook), judge_link, lambda _, text: told.append(text),
            lambda now: False,
        )  # fmt: skip

    made, goes_on = life(), True
    for at in range(ROUNDS):
        if rng.random() < 0.05:
            disk.is_full = not disk.is_full
        if rng.random() < 0.02 and not disk.is_full:
            kept.ask_stop(rng.random() < 0.5)
        if rng.random() < 0.05:
            made = life()
            made._taken(kept)
        slurm.go_on(kept)
        goes_on = made._round(kept)
        if slurm.done or told or not goes_on:
            words = "; ".join([*slurm.done, *told]).replace(str(home), "~").replace("\n", " ")
            state = in_words(kept.read()).replace(str(home), "~")
            whole = f"{words} {state} {goes_on}"
            yield Line(f"{number} {at}: {words[:70]} {hash_of(whole, 10)}", f"{number} {at}: {whole}")
        slurm.done.clear()
        told.clear()
        if not goes_on:
            return
        slurm.now += ROUND_S


def _begun(rng: Random, home: Path, journal: ChainJournal) -> KeptChain:
    kept = journal.make("train")
    spec = ChainSpec(
        kept.id, f"{kept.id}.ab", "train", str(home / "train.sh"), str(home), "mira", NOW, 600.0,
        strategy=rng.choice(list(Strategy)), planner=rng.choice(("reactive", "quantile", "conformal")),
        most_links=rng.choice((None, 2, 4)), until_s=rng.choice((None, None, NOW + 1200.0)),
        progress_file=rng.choice(("", str(home / "progress"))), done_file=rng.choice(("", "", str(home / "done"))),
        overlap_cost=rng.choice((0.0, 0.25, 4.0)), max_interruption=rng.choice((None, None, 0.1)),
    )  # fmt: skip
    kept.write(JobChain(spec))
    option = ("time", "10", ("--time", "10"))
    (kept.path / "plan.json").write_bytes(msgspec.json.encode(LinkPlan((option,), 0, ("/bin/sh", "train.sh"))))
    (kept.path / "environment.json").write_text("{}")
    return kept
