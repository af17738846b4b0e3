"""One schedd of HTCondor and its pool as a `Backend`: two processes a look, two more where a run has ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence

from perdure.backends.condor import picture
from perdure.backends.condor.actor import CondorActor
from perdure.backends.condor.ads import ClassAd, instant, job_id, run_number
from perdure.backends.condor.ends import may_be_nodes_fault
from perdure.backends.condor.picture import JOB_FIELDS, NODE_FIELDS
from perdure.backends.condor.tools import CondorTools
from perdure.backends.owner_reader import OwnerReader
from perdure.backends.ownership import with_owner
from perdure.backends.protocol import TAIL_BYTES
from perdure.backends.reader import ReadRequest, WantedText
from perdure.backends.uids import uid_of
from perdure.backends.writers import Writers
from perdure.errors import PerdureError
from perdure.model.actions import Action, Comment, Outcome
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import MANAGER, Observation
from perdure.model.output import Absent, LogMark, Output, OutputFile, OutputKind, Why

ACCOUNTING = "history"
OVERLAP_S = 15.0  # between two readings of records: they are written a little before, or after, what they tell of
KEPT_S = 600.0  # how long a job that has left the queue is mentioned
UNEXPLAINED_S = 1200.0  # the collector forgets a machine 15 minutes after its last word, where a site says nothing else
GONE_S = 24 * 3600.0  # how long a machine of which nothing is heard any more is
MAX_RECORDS = 20_000  # that are read at once, the latest
MAX_RANKS = 1024


class CondorBackend:
    """The jobs of one schedd, asked and told by HTCondor's command-line tools.

    Acting on other users' jobs needs a queue superuser (``QUEUE_SUPER_USERS``); on machines ``ALLOW_ADMINISTRATOR``.
    """

    def __init__(self, cluster: str, tools: CondorTools) -> None:
        """Raise `ConfigError` where HTCondor's tools cannot be found."""
        self.cluster = cluster
        self._tools = tools
        for tool in ("condor_q", "condor_history", "condor_status"):
            tools.find(tool)
        self._actor = CondorActor(tools)
        self._reader = OwnerReader()
        self._writers = Writers()
        self._queue: dict[str, ClassAd] = {}  # by job id, of the last look
        self._over: dict[str, tuple[ClassAd, float]] = {}  # jobs that have left the queue, and since when
        self._runs: dict[tuple[str, int], ClassAd] = {}  # records of runs that are over, by job and number
        self._asked_s: float | None = None  # when the records were read
        self._is_behind = True  # they are to be read at the next look
        self._ended: dict[AttemptId, Attempt] = {}
        self._nodes: dict[str, Node] = {}
        self._heard: dict[str, float] = {}  # when the collector last heard of each machine

    @property
    def schedd(self) -> str:
        """The name of the schedd. Raises `ConfigError`."""
        return self._tools.schedd

    def observe(self, since_s: float) -> Observation:
        """See `Backend.observe`."""
        now = time.time()
        try:
            queue = {job_id(ad): ad for ad in self._ask_queue("condor_q", "-allusers")}
            nodes = self._look_at_nodes(now)
        except PerdureError as err:
            return Observation(self.cluster, now, unseen={MANAGER: err.what})
        unseen: dict[str, str] = {}
        if self._is_behind or picture.changed_runs(self._queue, queue):
            self._read_records(since_s, now, unseen)
        self._queue = queue
        self._over = {key: kept for key, kept in self._over.items() if key not in queue and now - kept[1] < KEPT_S}
        self._note_ends(queue, frozenset(node.name for node in nodes.values() if node.state is NodeState.DOWN), now)
        self._ended = {i: one for i, one in self._ended.items() if one.end_s is None or one.end_s >= since_s}
        running = [one for ad in queue.values() if (one := picture.running_attempt(self.cluster, ad)) is not None]
        attempts = sorted((*self._ended.values(), *running), key=lambda one: (one.start_s, one.id))
        self._writers.note(attempts, now)
        jobs = [picture.job_of(self.cluster, ad, True) for ad in queue.values()]
        jobs += [picture.job_of(self.cluster, ad, False) for ad, _ in self._over.values()]
        return Observation(self.cluster, now, tuple(jobs), tuple(attempts), tuple(nodes.values()), unseen)

    def _ask_queue(self, tool: str, *options: str) -> list[ClassAd]:
        only = self._tools.settings.constraint
        limits = ("-constraint", only) if only else ()
        asked = (*options, "-json", "-attributes", JOB_FIELDS, *limits)
        return self._tools.read(self._tools.ask_queue(tool, *asked), tool)

    def _look_at_nodes(self, now: float) -> dict[str, Node]:
        """The machines of the pool, and those of which the collector has heard nothing for a while."""
        answer = self._tools.ask_pool("condor_status", "-json", "-attributes", NODE_FIELDS)
        slots = self._tools.read(answer, "condor_status")
        found, self._heard = picture.nodes_in(slots), picture.heard(slots)
        lost = (picture.gone(node, now) for name, node in self._nodes.items() if name not in found)
        kept = {node.name: node for node in lost if node.since_s is None or now - node.since_s < GONE_S}
        self._nodes = {**kept, **found}
        return self._nodes

    def _read_records(self, since_s: float, now: float, unseen: dict[str, str]) -> None:
        """Read what was written of runs that ended, and of jobs that left the queue, since the last time."""
        begin_s = since_s if self._asked_s is None else self._asked_s - OVERLAP_S
        limit = ("-limit", str(MAX_RECORDS))
        try:
            runs = self._ask_queue("condor_history", "-epochs", *limit, "-since", f"EpochWriteDate < {begin_s:.0f}")
            over = self._ask_queue("condor_history", *limit, "-since", f"EnteredCurrentStatus < {begin_s:.0f}")
        except PerdureError as err:
            unseen[ACCOUNTING] = err.what
            self._is_behind = True
            return
        for ad in reversed(runs):  # of two records of a run the later one knows more
            self._runs[job_id(ad), run_number(ad)] = ad
        for ad in reversed(over):
            self._over.setdefault(job_id(ad), (ad, instant(ad, "EnteredCurrentStatus") or now))
        self._asked_s, self._is_behind = now, False

    def _note_ends(self, queue: Mapping[str, ClassAd], down: frozenset[str], now: float) -> None:
        """Report the end of each run that is over, once: what was known of it then stays."""
        jobs = {**{key: ad for key, (ad, _) in self._over.items()}, **queue}
        for key, ad in jobs.items():
            latest = run_number(ad)
            if latest and not picture.is_active(ad) and AttemptId(self.cluster, key, latest) not in self._ended:
                self._runs.setdefault((key, latest), ad)
        for (key, runs), run in list(self._runs.items()):
            job = jobs.get(key)
            is_latest = job is None or run_number(job) == runs
            if (is_latest and job is not None and picture.is_active(job)) or self._may_be_explained(run, down, now):
                continue
            attempt_id = AttemptId(self.cluster, key, runs)
            if attempt_id not in self._ended:
                mine = job if is_latest else None
                self._ended[attempt_id] = picture.ended_attempt(self.cluster, run, mine, down)
            del self._runs[key, runs]

    def _may_be_explained(self, run: ClassAd, down: frozenset[str], now: float) -> bool:
        """Whether one of its nodes may yet be found to be down: such an end waits for their word."""
        ended_s = instant(run, "EpochWriteDate") or instant(run, "EnteredCurrentStatus") or 0.0
        nodes = picture.nodes_of(run)
        if not may_be_nodes_fault(run) or not down.isdisjoint(nodes) or now - ended_s > UNEXPLAINED_S:
            return False
        return any(self._heard.get(name, 0.0) <= ended_s for name in nodes)

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        """See `Backend.output`. HTCondor cuts a job's files when it starts again."""
        if not attempt.stdout:
            return Output((), (Absent("", Why.UNKNOWN, "it has no file for its output"),))
        ad = self._queue.get(attempt.id.job_id) or self._over.get(attempt.id.job_id, ({}, 0.0))[0]
        wanted = [WantedText((attempt.stdout,), OutputKind.STDOUT)]
        if attempt.stderr not in ("", attempt.stdout):
            wanted.append(WantedText((attempt.stderr,), OutputKind.STDERR))
        wanted += _of_ranks(ad, len(attempt.nodes), attempt.stdout)
        request = ReadRequest(uid_of(attempt.user, {}), tuple(wanted), marks=tuple(known), max_bytes=max_bytes)
        read = self._reader.read(request)
        return dataclasses.replace(read, files=tuple(self._owned(file, attempt) for file in read.files))

    def _owned(self, file: OutputFile, attempt: Attempt) -> OutputFile:
        others = self._writers.others(file.path, attempt)
        return with_owner(file, attempt, others, (attempt.id.job_id,), appends=False)

    def perform(self, action: Action) -> Outcome:
        """See `Backend.perform`."""
        return self._actor.perform(action)

    def lookup(self, action: Action) -> Outcome | None:
        """See `Backend.lookup`."""
        return self._actor.lookup(action)

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """Write comments into the jobs' ads, one after the other."""
        return [self._actor.perform(action) for action in actions]

    def close(self) -> None:
        """End the process that reads logs, if there is one."""
        self._reader.close()


def _of_ranks(ad: ClassAd, count: int, stdout: str) -> Iterable[WantedText]:
    """What the tasks of a gang but the first write, where each has a file of its own."""
    for rank in range(1, min(count, MAX_RANKS)):
        for path in dict.fromkeys(picture.own_paths(ad, rank)):
            if path and path != stdout:
                yield WantedText((path,), OutputKind.RANK, str(rank))
