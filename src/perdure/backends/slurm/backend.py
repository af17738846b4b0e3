"""One Slurm cluster behind the backend protocol: at most two processes a look, one for all actions of a round."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import re2
from msgspec.structs import replace

from perdure.backends.owner_reader import OwnerReader
from perdure.backends.ownership import with_owner
from perdure.backends.protocol import TAIL_BYTES, PastJobs
from perdure.backends.rank_files import with_ranks
from perdure.backends.slurm import accounting, picture, plans
from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.accounts import Accounts
from perdure.backends.slurm.actor import Actor, LastLook
from perdure.backends.slurm.asking import JOB_ID, KnownConfig, answered, failed_record, job_record
from perdure.backends.slurm.config import Config, read_config
from perdure.backends.slurm.dependants import dependants
from perdure.backends.slurm.het import component_numbers, merge_records
from perdure.backends.slurm.limits import limits_or_remark
from perdure.backends.slurm.nice import set_nice, set_sizes
from perdure.backends.slurm.node_records import NodeRecord, read_nodes
from perdure.backends.slurm.output_memory import OutputMemory, told_lines
from perdure.backends.slurm.outputs import JobOutputs, request_of
from perdure.backends.slurm.partitions import Partitions
from perdure.backends.slurm.past_jobs import PAST_FORM, keeps_past_jobs, read_past_jobs, remarks_on
from perdure.backends.slurm.paths import expand_patterns
from perdure.backends.slurm.queue_watch import QueueWatch
from perdure.backends.slurm.records import (
    JobRecord,
    JobRecords,
    OwnerClaim,
    claims_in_doubt,
    ended_badly,
    read_jobs,
    repair,
    waits_again,
)
from perdure.backends.slurm.spool import Question, Spool, Taken
from perdure.backends.slurm.tools import Dialogs, Tools
from perdure.backends.slurm.unexplained import Gap, gaps_between, open_gaps
from perdure.backends.uids import uid_of
from perdure.backends.writers import Writers
from perdure.errors import PerdureError
from perdure.model.actions import Action, Comment, Outcome
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, JobSize
from perdure.model.observation import Observation
from perdure.model.output import Absent, LogMark, Output, OutputFile, OutputKind, Why
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.slurm_words.states import is_waiting
from perdure.triage.evidence.scheduler import has_failed_to_launch
from perdure.waits.queue import QueueLook

log = logging.getLogger("perdure")

MAKES_DIRECTORIES = "24.11"  # the first version known to make those that an output needs
MAX_TOLD = 10_000  # ends and notices of hooks that are remembered
MAX_ASKED = 500  # jobs that accounting is asked about by id; where there are more, it is asked for all
ACCOUNTING_EVERY_S = 60.0  # accounting is asked for all that ran recently; in between only about jobs that need it

LINES_AFTER_S = 6.0  # slurmctld tells accounting every five seconds how the jobs were submitted that have started
LINES_WAIT_S = 0.8  # for that, while epilogs wait
MAX_NEWCOMERS = 10  # jobs that are asked about before a log is believed

_FORGOTTEN = "Slurm no longer knows where its log is"
_NO_BATCH_JOB = "it has no log of its own, as it is not a batch job"
_VERSION = re2.compile(r"(\d+\.\d+(?:\.\d+)?)")


class SlurmBackend:
    """A Slurm cluster, asked and told through ``scontrol``, ``sacct`` and ``scancel``.

    An attempt's incarnation is its start instant in whole seconds since the epoch: two starts of a job are at
    least Slurm's own requeue delay apart, and accounting keeps the instant of each.

    Acting on other users' jobs needs Slurm's operator role; without it the user's own jobs can be acted on.
    """

    bridge = "slurm"

    def __init__(
        self, cluster: str, tools: Tools | None = None, spool: Spool | None = None, keep_s: float = 0.0
    ) -> None:
        """`keep_s`: a ``scontrol`` stays open so long, for whoever asks next.

        Raise `ConfigError` where Slurm's tools or slurm.conf cannot be found, or the spool is open to everybody.
        """
        self.cluster = cluster
        self._tools = tools or Tools()
        self._dialogs = Dialogs(self._tools, keep_s)
        self._tools.check()
        for tool in ("scontrol", "sacct", "scancel"):
            self._tools.find(tool)
        self._spool = spool
        if spool is not None:
            spool.check()
        self._listening = threading.Lock()
        self._told: dict[tuple[str, int], AccountingRow] = {}  # ends that hooks reported, by job and start
        self._notices: deque[str] = deque(maxlen=MAX_TOLD)
        self._claims: dict[int, frozenset[OwnerClaim]] = {}  # by the numbers that are in doubt
        self._proved: frozenset[int] = frozenset()  # of those, the ones that accounting's word has settled
        self._by_text: Mapping[bytes, JobRecord] = {}  # records of the last look, by what stands for their text
        self._look = LastLook()
        self._queue = QueueWatch(self._dialogs)
        self._components: frozenset[int] = frozenset()  # numbers of jobs that are a part of a heterogeneous one
        self._gaps: dict[str, Gap] = {}  # that accounting is to fill, by job id
        self._whole_rows_s = -math.inf  # when accounting was last asked for all
        self._ended: dict[AttemptId, Attempt] = {}  # reported: accounting is not asked for them again
        self._converter = picture.JobConverter(cluster)
        self._version = ""
        self._waiting: dict[str, Question] = {}  # epilogs that wait for a decision, by job
        self._partitions = Partitions()
        self._writers = Writers()
        self._reader = OwnerReader()
        self._daemons: dict[str, int] = {}  # when each node's daemon started, by the node's clock
        self._accounts = Accounts(self._tools)
        self._site = KnownConfig()
        self._outputs = OutputMemory(self._dialogs, self._accounts, self._site, self._told)
        self._actor = Actor(self._tools, self._dialogs, self._accounts, self._look, self.answer)
        self._uids: dict[str, int] = {}  # by user name, as Slurm told them
        self._boot = ""  # when slurmctld started; "" where nothing depends on it

    @property
    def version(self) -> str:
        """The version of Slurm's tools, "" where it is not known."""
        if not self._version:
            found = _VERSION.search(self._tools.run("scontrol", "--version").out.decode("utf-8", "replace"))
            self._version = found[1] if found else ""
        return self._version

    def close(self) -> None:
        """End the processes that read logs and talk to the controller, if there are any."""
        self._reader.close()
        self._dialogs.close()

    @property
    def records(self) -> tuple[JobRecord, ...]:
        """The controller's jobs as the last look saw them."""
        return tuple(self._look.records.values())

    def queue(self) -> QueueLook | None:
        """The queue as the last look saw it, from any thread; None before the look that follows the first question."""
        return self._queue.last()

    def past_jobs(self, look: QueueLook, since_s: float) -> PastJobs:
        """What accounting knows of the jobs that ran since an instant. From any thread."""
        text = read_past_jobs(self._tools, since_s) if keeps_past_jobs(look.config) else None
        return PastJobs(text, PAST_FORM, remarks_on(look.config), self.limits(look))

    def limits(self, look: QueueLook) -> SiteLimits:
        """See `Limiting.limits`."""
        return limits_or_remark(self._tools, look.config)

    def clocks_ahead(self, ctld_s: float | None) -> tuple[str, ...]:
        """Nodes whose daemon, by its own clock, started later than it is by slurmctld's."""
        return tuple(sorted(name for name, at in self._daemons.items() if ctld_s is not None and at > ctld_s + 5.0))

    def config(self) -> Config:
        """What ``scontrol show config`` says. Raises `ClusterBusy` where the controller does not answer."""
        with self._dialogs.dialog() as scontrol:
            self._site.known = None
            return self._site.ask(scontrol)

    # Looking

    @property
    def spool(self) -> Spool | None:
        return self._spool

    def answer(self, job_id: str) -> None:
        """Answer the epilog of a failed attempt, where it waits for a decision. From any thread."""
        question = self._waiting.get(job_id)
        if question is not None and self._spool is not None and self._spool.answer(question):
            self._waiting.pop(job_id, None)

    def waiting(self) -> dict[str, Question]:
        """The epilogs that wait, by job."""
        return dict(self._waiting)

    def listen(self) -> Taken:
        """Take what hooks dropped, from any thread. What it tells is kept for the next look. Costs no call to Slurm."""
        if self._spool is None:
            return Taken()
        with self._listening:
            taken = self._spool.take()
            self._notices.extend(taken.notices)
            self._waiting |= {question.job_id: question for question in taken.questions}
            for row in taken.ends:
                if row.start_s is not None:
                    self._told[row.job_id, row.start_s] = row
            while len(self._told) > MAX_TOLD:
                del self._told[next(iter(self._told))]
        return taken

    def observe(self, since_s: float) -> Observation:
        """Look once. Never raises for a part that is down: it names the part in `Observation.unseen`."""
        unseen: dict[str, str] = {}
        now = time.time()
        self.listen()  # before the controller is asked, so that its answer is never older
        records, mark = JobRecords(()), ""
        nodes: tuple[NodeRecord, ...] = ()
        scripts: dict[str, bytes] = {}
        try:
            records, nodes, mark, scripts = self._ask_controller()
        except PerdureError as err:
            unseen["controller"] = err.what
        before = self._look.records
        merged = merge_records(records.whole)
        after = before if unseen else {record.job_id: record for record in merged}
        ends = Counter(attempt.job_id for attempt in self._ended)
        self._gaps = gaps_between(self._gaps, before, after, now, ends, self._waiting)
        in_doubt = self._outputs.in_doubt(merged, scripts)
        rows = self._needed_rows(since_s, now, records, in_doubt, unseen)
        late = in_doubt - told_lines(rows).keys() if not unseen else set()
        jobs: list[JobRecord] | None = None
        if "controller" not in unseen:
            jobs = [self._left_to_slurm(record, now) for record in self._repaired(records, rows, mark, unseen)]
            self._partitions.note(jobs)
        with self._listening:
            told = {key: row for key, row in self._told.items() if row.raw_id not in self._components}
        self._look.nodes = frozenset(record.node.name for record in nodes) or self._look.nodes
        if jobs is not None:
            self._look.records = {job.job_id: job for job in jobs}
            self._account_again(now)
            self._queue.note(now, tuple(jobs), nodes)
        start_s = max((r.start_s or 0.0 for r in merged if r.job_id.partition("_")[0] in late), default=0.0)
        lines = self._outputs.submit_lines(late, start_s + LINES_AFTER_S)
        failed = self._outputs.note(merged, scripts, (*rows, *lines))
        self._outputs.note_siblings(failed, self._look.records.values())
        jobs = None if jobs is None else self._partitions.of_ended(jobs, self._outputs.known)
        accounted = self._without_open_ends(picture.with_reported_ends(rows, told), jobs or (), now)
        sources = picture.Sources(jobs, nodes, accounted, self._outputs.warnings(jobs or ()))
        found = {attempt.id: attempt for attempt in picture.attempts(self.cluster, sources, now)}
        kept = {i: one for i, one in self._ended.items() if one.end_s is None or one.end_s >= since_s}
        self._ended = kept | {i: one for i, one in found.items() if one.state.is_over}
        attempts = tuple(sorted((kept | found).values(), key=lambda one: (one.start_s, one.id)))
        self._writers.note(attempts, None if jobs is None else now)
        self._remember(jobs or (), rows, now)
        return Observation(
            cluster=self.cluster,
            time_s=now,
            jobs=self._converter.jobs(sources, now),
            attempts=attempts,
            nodes=tuple(record.node for record in nodes),
            unseen=unseen,
        )

    def look_at(self, questions: Iterable[Question]) -> Observation:
        """Look at a few jobs only, which have just failed and whose epilogs wait: `Observation.only` names them.

        Those that Slurm puts back, or holds, by itself for their exit code are left to it. Raises `ClusterBusy`.
        """
        now = time.time()
        jobs: list[JobRecord] = []
        with self._dialogs.dialog() as scontrol:
            self._site.ask(scontrol)
            for question in questions:
                record = failed_record(scontrol, question.job_id)
                if record is not None and ended_badly(record, now) and not self._is_left_to_slurm(record, now):
                    jobs.append(self._finished(replace(record, nodes=record.nodes or question.nodes)))
            scripts = self._outputs.ask_scripts(scontrol, jobs)
        lines = self._outputs.submit_lines(self._outputs.in_doubt(jobs, scripts), now + LINES_WAIT_S)
        self._outputs.note_siblings(self._outputs.note(jobs, scripts, lines), self._look.records.values())
        jobs = self._partitions.of_ended(jobs, self._outputs.known)
        sources = picture.Sources(jobs, (), (), self._outputs.warnings(jobs))
        attempts = picture.attempts(self.cluster, sources, now)
        self._writers.note(attempts)
        self._ended |= {one.id: one for one in attempts if one.state.is_over}
        self._look.latest |= {job.job_id: (job.start_s, job.restarts) for job in jobs if job.start_s is not None}
        self._uids |= picture.uids_by_name(jobs)
        return Observation(
            cluster=self.cluster,
            time_s=now,
            jobs=picture.jobs(self.cluster, sources, now),
            attempts=attempts,
            only=frozenset(job.job_id for job in jobs),
        )

    def _needed_rows(
        self, since_s: float, now: float, records: JobRecords, in_doubt: Collection[str], unseen: dict[str, str]
    ) -> tuple[AccountingRow, ...]:
        """What accounting says of the jobs that it must be asked about; of all that ran, from time to time.

        `in_doubt`: jobs and arrays that failed, of which the line with which they were submitted is wanted.
        """
        if self._gaps:
            with self._listening:
                told = list(self._told)
            self._gaps = open_gaps(self._gaps, [*told, *((one.job_id, one.incarnation) for one in self._ended)])
        numbers = ({number for number, _ in one.candidates} for one in records.torn)
        torn = {str(number) for some in numbers if not some & self._proved for number in some}
        asked = sorted({*self._gaps, *torn, *in_doubt})
        is_whole = now - self._whole_rows_s >= ACCOUNTING_EVERY_S or len(asked) > MAX_ASKED
        if not is_whole and not asked:
            return ()
        ran = accounting.since(since_s) if torn else accounting.ran_since(since_s)
        which = ran if is_whole else (*accounting.since(since_s), "-j", ",".join(asked))
        try:
            rows = self._accounts.ask(*which, submit_lines=bool(in_doubt))
        except PerdureError as err:
            unseen["accounting"] = err.what
            self._whole_rows_s = -math.inf
            return ()
        if is_whole and "controller" not in unseen:
            self._whole_rows_s = now
        over = ((row.job_id, row.start_s) for row in rows if row.start_s is not None and row.end_s is not None)
        self._gaps = open_gaps(self._gaps, over)
        return rows

    def notices(self) -> list[str]:
        """What the site's own hooks said of nodes since the last time, as `coordination.bridges.slurm` reads it."""
        said = []
        while self._notices:
            said.append(self._notices.popleft())
        return said

    def _ask_controller(self) -> tuple[JobRecords, tuple[NodeRecord, ...], str, dict[str, bytes]]:
        with self._dialogs.dialog() as scontrol:
            text = answered(scontrol, "show job")
            nodes = read_nodes(answered(scontrol, "show node"), scontrol.mark)
            lines = self._accounts.lines.any
            self._boot = read_config(answered(scontrol, "show config"), scontrol.mark)["BOOT_TIME"] if lines else ""
            self._daemons = {n.node.name: n.daemon_start_s for n in nodes if n.daemon_start_s is not None}
            self._outputs.hosts = {
                n.node.name: n.host for n in nodes if n.host not in ("", n.node.name)
            } or self._outputs.hosts
            records = read_jobs(text, scontrol.mark, self._by_text, self._finished)
            self._by_text = records.by_text
            with self._listening:
                told = {row.raw_id for row in self._told.values()}
            self._components = component_numbers(records.whole, self._components & told)
            return records, nodes, scontrol.mark, self._outputs.ask_scripts(scontrol, merge_records(records.whole))

    def _repaired(
        self, records: JobRecords, rows: Iterable[AccountingRow], mark: str, unseen: dict[str, str]
    ) -> list[JobRecord]:
        """Fix what users' text tore; name what is left in doubt."""
        if records.torn:
            told = ((row.raw_id, OwnerClaim(row.uid, row.submit_s)) for row in rows)
            self._claims = claims_in_doubt(records.torn, told, self._claims)
        repaired = repair(records.torn, {record.raw_id for record in records.whole}, self._claims, mark)
        if unreadable := records.unreadable + repaired.unreadable:
            unseen["records"] = f"{unreadable} job records cannot be told apart from what users wrote into them"
        self._proved = frozenset(record.raw_id for record in repaired.whole)
        return merge_records([*records.whole, *map(self._finished, repaired.whole)])

    def _left_to_slurm(self, record: JobRecord, now: float) -> JobRecord:
        """A failure that Slurm puts back by itself, for its exit code, does not count while the job completes."""
        return replace(record, reason="") if self._is_left_to_slurm(record, now) else record

    def _without_open_ends(
        self, rows: tuple[AccountingRow, ...], jobs: Iterable[JobRecord], now: float
    ) -> tuple[AccountingRow, ...]:
        """What is accounted, or told by hooks, without ends after which Slurm has yet to put the job back."""
        left = {(job.job_id, job.start_s) for job in jobs if self._is_left_to_slurm(job, now)}
        return tuple(row for row in rows if (row.job_id, row.start_s) not in left) if left else rows

    def _is_left_to_slurm(self, record: JobRecord, now: float) -> bool:
        """Whether the job is about to be put back, or held, by the site's rule for its exit code."""
        if record.state != "COMPLETING" or waits_again(record, now) or self._site.known is None:
            return False
        return any(record.exit_code in self._site.known.codes(rule) for rule in ("RequeueExit", "RequeueExitHold"))

    def _finished(self, record: JobRecord) -> JobRecord:
        """With its paths written out. Nodes are freed while a job completes: others tell which they were."""
        if record.state == "COMPLETING":
            question, before = self._waiting.get(record.job_id), self._look.records.get(record.job_id)
            known = [record.nodes, question.nodes if question else ()]
            known += [before.nodes] if before and before.start_s == record.start_s else []
            record = replace(record, nodes=max(known, key=len))
        return expand_patterns(record, self._outputs.hosts)

    def _remember(self, jobs: Collection[JobRecord], rows: Iterable[AccountingRow], now: float) -> None:
        """Keep each known job's latest start, to know later whose a waiting job's last attempt was."""
        for job in jobs:
            if plans.has_run(job, now) and job.start_s is not None:
                self._look.latest[job.job_id] = (job.start_s, job.restarts)
        for job_id in self._look.latest.keys() - self._look.records.keys():
            del self._look.latest[job_id]
        self._look.dependants = dependants(jobs, self._look.dependants) if jobs else self._look.dependants
        told = (row for row in rows if row.uid != accounting.NOT_TOLD)
        self._uids |= picture.uids_by_name(told) | picture.uids_by_name(jobs)

    def _account_again(self, now: float) -> None:
        """Write lines again that a slurmctld that restarted has written over; at the next look if that fails."""
        if not self._boot:
            return
        over = {plans.named(job) for job in self._look.records.values() if plans.is_over(job)}
        due = self._accounts.lines.looked(self._boot, over, now)
        try:
            self._accounts.write(due)
        except PerdureError:
            self._accounts.lines.put_off(due)

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        """See `Backend.output`. Whose the lines are is told by who else had the same path recently."""
        outputs = self._outputs_of(attempt)
        if not attempt.stdout:
            return Output((), (Absent("", Why.UNKNOWN, _NO_BATCH_JOB if outputs else _FORGOTTEN),))
        read = self._reader.read(request_of(attempt, outputs, uid_of(attempt.user, self._uids), max_bytes, known))
        self._note_newcomers(attempt)
        mine = (self._owned(file, attempt, outputs) for file in read.files if not self._is_anothers(file, attempt))
        files = with_ranks(tuple(mine), attempt.start_s)
        read = dataclasses.replace(read, absent=tuple(self._without_obstacle(each, attempt) for each in read.absent))
        if outputs is None:
            return dataclasses.replace(read, files=files)
        return dataclasses.replace(
            read,
            files=files,
            absent=(*read.absent, *outputs.files.untold),
            resubmits=outputs.resubmits,
            survives_steps=outputs.survives_steps,
            ends_with_test=outputs.ends_with_test,
            components=outputs.components,
        )

    def _note_newcomers(self, attempt: Attempt) -> None:
        """Learn of jobs of the same paths that waited at the last look, and may have started before the read."""
        paths = {attempt.stdout, attempt.stderr} - {"", "/dev/null"}
        same = (
            job for job in self._look.records.values() if is_waiting(job.state) and paths & {job.stdout, job.stderr}
        )
        asked = [job.job_id for job in same if job.job_id != attempt.id.job_id and JOB_ID.fullmatch(job.job_id)]
        if not asked:
            return
        with contextlib.suppress(PerdureError), self._tools.dialog() as scontrol:
            found = [job_record(scontrol, job_id) for job_id in asked[:MAX_NEWCOMERS]]
            started = [self._finished(record) for record in found if record is not None]
            self._writers.note(picture.attempts(self.cluster, picture.Sources(started, (), ()), time.time()))

    def _without_obstacle(self, absent: Absent, attempt: Attempt) -> Absent:
        """What is absent; a directory that went while a job ran is made again for its next attempt by newer Slurms."""
        if absent.why is not Why.NO_DIRECTORY or has_failed_to_launch(attempt) or self.version < MAKES_DIRECTORIES:
            return absent
        return dataclasses.replace(absent, why=Why.MISSING)

    def _outputs_of(self, attempt: Attempt) -> JobOutputs | None:
        """Where the attempt's job writes to; None where that is known of another only, which had the id before."""
        known, record = self._outputs.known.get(attempt.id.job_id), self._look.records.get(attempt.id.job_id)
        if known is None or known.told[0] != str(self._uids.get(attempt.user, known.told[0])):
            return None
        is_latest = record is not None and record.start_s == attempt.id.incarnation
        return None if record is not None and is_latest and not known.are_of(record) else known

    def _is_anothers(self, file: OutputFile, attempt: Attempt) -> bool:
        """Whether what may be a rank's file is the one that Slurm writes another job's output to."""
        return file.kind is OutputKind.RANK and bool(self._writers.others(file.path, attempt))

    def _owned(self, file: OutputFile, attempt: Attempt, outputs: JobOutputs | None) -> OutputFile:
        own = file.kind is not OutputKind.RANK
        if own:
            path = attempt.stdout if file.kind is OutputKind.STDOUT else attempt.stderr
            others = self._writers.others(path, attempt)
        elif outputs is None or outputs.bears_id(file.path):
            others = ()
        else:
            others = self._outputs.rivals_of(file.path, attempt)
        appends = outputs is not None and (outputs.appends if own else file.path in outputs.files.appended)
        ids = {attempt.id.job_id, *([str(outputs.raw_id)] if outputs else [])}
        return with_owner(file, attempt, others, ids if not appends or self._is_first(attempt) else (), appends)

    def _is_first(self, attempt: Attempt) -> bool:
        """Whether it is known that its job had not run before."""
        return self._look.latest.get(attempt.id.job_id) == (attempt.id.incarnation, 0)

    # Acting

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block one ``scontrol`` answers all questions and takes all commands."""
        return self._dialogs.batch()

    def perform(self, action: Action) -> Outcome:
        """Carry out an action, from wherever an earlier try left it."""
        return self._actor.perform(action)

    def lookup(self, action: Action) -> Outcome | None:
        """See `Actor.lookup`."""
        return self._actor.lookup(action)

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        """See `Reorderable.set_nice`."""
        return set_nice(self._tools, nice)

    def set_sizes(self, sizes: Mapping[str, tuple[JobSize, JobSize]]) -> dict[str, str]:
        """See `Resizable.set_sizes`."""
        return set_sizes(self._tools, sizes)

    def write_comments(self, actions: Sequence[Comment]) -> list[Outcome]:
        """See `Actor.write_comments`."""
        return self._actor.write_comments(actions)
