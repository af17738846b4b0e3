"""A successor's wait by the live queue, found out in a process of its own: it may take a while.

``python -m perdure.cli.keep_outlook DIR`` prints it for the chain in a directory, as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from perdure.cli.chain_journal import KeptChain
from perdure.errors import PerdureError
from perdure.succession.chain_state import JobChain
from perdure.succession.protocol import Forecast, ForecastOutcome

if TYPE_CHECKING:
    from perdure.model.table import JobTable
    from perdure.scheduling.slurm.site_limits import SiteLimits
    from perdure.waits.queue import Queue, QueuedJob

EVERY_S = 60.0  # between two of them for one chain: the queue is not asked more often
MOST_S = 300.0  # that one may take
OLDEST_S = 900.0  # that is still used
MOST_AT_ONCE = 2  # for all chains: login nodes are shared, and each takes a core
ASKS_S = 30.0  # whose chain has not asked for this long does not wait for its turn
SEED = 0
MOST_RECENT = 50
LONGEST_S = 48 * 3600.0  # what a job without a limit counts for, as in training
LEARN_S, LEARN_SHARE = 10.0, 0.02  # for asking about jobs of the past each time: of a walltime, if that is shorter


class Outlook(Struct, frozen=True):
    """What can be known of a successor's wait."""

    forecast: Forecast | None = None
    recent: tuple[float, ...] = ()
    outcomes: tuple[ForecastOutcome, ...] = ()  # of forecasts for jobs like it, the newest last
    state: tuple[float, ...] = ()  # of its partitions' queue (`perdure.succession.queue_state`)


@dataclass(slots=True)
class _Finding:
    """The newest outlook of one chain, and the process that finds out the next."""

    process: subprocess.Popen[bytes] | None = None
    began_s: float = 0.0
    asked_s: float = 0.0
    found: Outlook | None = None
    found_s: float = 0.0


@dataclass(slots=True)
class Outlooks:
    """Those of all chains that are kept here; asking never waits."""

    folder: Path
    _findings: dict[str, _Finding] = field(default_factory=dict)

    def __call__(self, chain: JobChain, now: float) -> Outlook | None:
        """The newest; None while no outlook is new enough. One that cannot be found out is empty."""
        finding = self._findings.setdefault(chain.spec.id, _Finding())
        finding.asked_s = now
        for each in self._findings.values():
            self._collect(each, now)
        is_due = finding.process is None and now - finding.began_s >= EVERY_S
        if is_due and self._has_its_turn(finding, now):
            argv = (sys.executable, "-P", "-m", "perdure.cli.keep_outlook", str(self.folder / chain.spec.id))
            finding.process, finding.began_s, is_due = _started(argv), now, False
        began_s = chain.current.started_s if chain.current is not None else 0.0
        is_outrun = finding.found is not None and finding.found_s < began_s  # this link's own start is newer
        if finding.found is not None and not is_outrun and now - finding.found_s <= OLDEST_S:
            return finding.found
        return None if is_due or is_outrun or finding.process is not None else Outlook()

    def _has_its_turn(self, finding: _Finding, now: float) -> bool:
        """Few are found out at once; of those that are asked for, the one that was made longest ago is the next."""
        idle = [each for each in self._findings.values() if each.process is None and now - each.asked_s < ASKS_S]
        is_free = sum(each.process is not None for each in self._findings.values()) < MOST_AT_ONCE
        return is_free and finding.began_s <= min(each.began_s for each in idle)

    def are_made(self, now: float) -> bool:
        """Whether a first one is being found out, and has not used up its time."""
        return any(
            each.found is None and each.process is not None and now - each.began_s < MOST_S
            for each in self._findings.values()
        )

    def _collect(self, finding: _Finding, now: float) -> None:
        process = finding.process
        if process is None:
            return
        if process.poll() is None:
            if now - finding.began_s > MOST_S:
                process.kill()
            return
        assert process.stdout is not None
        try:
            finding.found, finding.found_s = msgspec.json.decode(process.stdout.read(), type=Outlook), finding.began_s
        except msgspec.MsgspecError:  # it was ended, or has failed
            finding.found = finding.found or Outlook()
        process.stdout.close()
        finding.process = None


def _started(argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def find_out(kept: KeptChain) -> Outlook:
    """Ask the live queue, as ``perdure when`` does; nothing where it cannot be asked."""
    import numpy as np

    from perdure.cli.like_outcomes import outcomes_alike
    from perdure.cli.live_queue import kept_of_slurm, live_queue
    from perdure.waits.answer import answer
    from perdure.waits.forecast import LEVELS

    chain = kept.read()
    try:
        queue, site = live_queue()
        job = successor_of(chain, kept.environment(), queue, kept.folder.script.read_bytes(), site.limits)
        told = answer(job, queue, site, np.random.default_rng(SEED), with_alternatives=False).forecast
    except PerdureError:
        return Outlook()
    recent, state = waits_of_alike(site.past.jobs, job), state_of(queue, job)
    if told is None:
        return Outlook(None, recent, state=state)
    own = {link.job_id for link in chain.links}
    within_s = min(LEARN_S, LEARN_SHARE * chain.spec.walltime_s)
    try:
        outcomes = outcomes_alike(job, queue, site, kept_of_slurm(), own, within_s)
    except PerdureError:  # of times in accounting that cannot be; the forecast stands
        outcomes = ()
    return Outlook(Forecast.of_quantiles(LEVELS, told.wait_s), recent, outcomes, state)


def waits_of_alike(past: JobTable, job: QueuedJob) -> tuple[float, ...]:
    """How long jobs of this size in these partitions waited that started last, in seconds, the newest last."""
    import numpy as np

    alike = np.isin(past.partition, job.partitions) & (past.gpus == job.gpus) & np.isfinite(past.start_s)
    rows = np.flatnonzero(alike)
    rows = rows[np.argsort(past.start_s[rows], kind="stable")][-MOST_RECENT:]
    since_s = np.where(np.isfinite(past.eligible_s[rows]), past.eligible_s[rows], past.submit_s[rows])
    return tuple(np.maximum(0.0, past.start_s[rows] - since_s).tolist())


def state_of(queue: Queue, job: QueuedJob) -> tuple[float, ...]:
    """How much waits and runs in the partitions of a job, as planners have learned it; () where they have no GPUs."""
    import numpy as np

    from perdure.model.table import JobTable
    from perdure.succession.queue_state import queue_state

    total = sum(node.gpus for node in queue.nodes_of(job.partitions))
    if not total:
        return ()
    there = [
        each
        for each in queue.jobs
        if each.gpus and (each.is_waiting or each.is_running) and not set(each.partitions).isdisjoint(job.partitions)
        for _ in range(max(1, each.tasks))
    ]
    limit_s = np.array([each.walltime_s or LONGEST_S for each in there])
    start_s = np.array([each.start_s if each.is_running and each.start_s else np.nan for each in there])
    gpus = np.array([each.gpus for each in there], np.int64)
    submit_s = np.array([each.submit_s for each in there])
    ids = np.array([each.job_id for each in there], np.str_)
    table = JobTable(ids, submit_s, gpus, limit_s, walltime_s=limit_s, start_s=start_s)
    return tuple(queue_state(table, queue.now_s, total).tolist())


def successor_of(
    chain: JobChain, environment: Mapping[str, str], queue: Queue, script: bytes, limits: SiteLimits
) -> QueuedJob:
    """The job that the successor would be if it were submitted now, in the chain's environment. Raises `InputError`."""
    from perdure.backends.slurm.request import environment_options, request_of
    from perdure.waits.limits import with_defaults

    request = request_of(script, [*environment_options(environment), *chain.spec.options], chain.spec.script)
    own = [job.priority for job in queue.waiting() if job.user == chain.spec.user]
    priority = min(own or [job.priority for job in queue.waiting()], default=1)
    return with_defaults(request.as_job(queue, chain.spec.user, priority), limits)


if __name__ == "__main__":
    os.nice(10)
    sys.stdout.buffer.write(msgspec.json.encode(find_out(KeptChain(Path(sys.argv[1])))))
