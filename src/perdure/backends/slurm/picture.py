"""One picture from three sources: the controller's jobs and nodes, and accounting's starts."""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.backends.owner_requests import OwnerRequests, owner_requests
from perdure.backends.slurm.accounting import TAKEN_OFF, AccountingRow
from perdure.backends.slurm.node_records import NodeRecord
from perdure.backends.slurm.records import CLOCKS_APART_S, JobRecord, ended_badly, waits_again
from perdure.backends.slurm.sbatch import WalltimeWarning
from perdure.model.exits import ExitRequest, exit_request_of
from perdure.model.identity import AttemptId
from perdure.model.job_comment import chain_link_of
from perdure.model.jobs import Attempt, AttemptState, Job
from perdure.model.nodes import NodeState
from perdure.model.signals import SHELL_ADDS, persons_signal
from perdure.slurm_words.reasons import CLEARS_UP, LAUNCH_FAILED, SPECIAL_EXIT, WHILE_WAITING
from perdure.slurm_words.states import attempt_state, is_waiting, job_state

OWNER_KNOWN_S = 60.0  # at most, from the end of a job to when accounting knows whose it was
WARNED_EARLY_S = 60.0  # at most, that Slurm sends a signal before it is due
LEAVES_WITHIN_S = 600.0  # at most, from that signal to the end of a program that catches it, saves and leaves
SHUT_DOWN_S = 600.0  # at most, from the signal that a shutdown sends to the next start of the machine


class Sources(Struct, frozen=True):
    """What was seen. `jobs` is None where the controller could not be asked."""

    jobs: Sequence[JobRecord] | None
    nodes: Sequence[NodeRecord]
    rows: Sequence[AccountingRow]
    warnings: Mapping[str, WalltimeWarning] = field(default_factory=dict)  # by job


def jobs(cluster: str, sources: Sources, now: float) -> tuple[Job, ...]:
    """The jobs that the controller knows, each once."""
    return JobConverter(cluster).jobs(sources, now)


class JobConverter:
    """Makes jobs of the controller's records; a record that has not changed gives the same object again."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._made: dict[str, tuple[JobRecord, Job]] = {}

    def jobs(self, sources: Sources, now: float) -> tuple[Job, ...]:
        """What `jobs` returns."""
        made: dict[str, tuple[JobRecord, Job]] = {}
        for record in sources.jobs or ():
            before = self._made.get(record.job_id)
            keeps = before is not None and before[0] is record and record.state != "COMPLETING"
            made[record.job_id] = before if keeps and before else (record, _job(self._cluster, record, now))
        self._made = made
        return tuple(job for _, job in made.values())


def with_reported_ends(
    rows: Iterable[AccountingRow], told: Mapping[tuple[str, int], AccountingRow]
) -> tuple[AccountingRow, ...]:
    """Add the ends that hooks reported. They know how an attempt ended that was put back at once; GPUs they do not.

    A row that ends in RESIZING has the same start as the row that goes on with fewer nodes, which counts.
    """
    found = {(row.job_id, row.start_s or -row.submit_s): row for row in rows if row.state != "RESIZING"}
    for key, end in told.items():
        row = found.get(key)
        found[key] = end if row is None else replace(end, gpus=row.gpus, stdout=row.stdout, stderr=row.stderr)
    return tuple(found.values())


def attempts(cluster: str, sources: Sources, now: float) -> tuple[Attempt, ...]:
    """Every start that is known, oldest first. `now`: just before the controller was asked.

    Both sources report one start under one key, job and start instant. Accounting alone knows starts that were
    put back since; it may lag, so what it calls running counts only where the controller does not know better.
    It was asked last: where it calls over what the controller calls running, the controller's word stands until
    the next look, which will see jobs and nodes as the end left them. A start that came and ended between the two
    questions is left to the next look too, which knows its owner's wishes and its log. COMPLETING says only that it
    ended. So does accounting while slurmdbd catches up: it reports an old start as FAILED, and when it ended later.
    """
    records = {record.job_id: record for record in sources.jobs or ()}
    latest = {row.job_id: row for row in sorted(sources.rows, key=lambda r: r.start_s or 0) if row.start_s}
    submitted = {row.job_id: row.submit_s for row in sorted(sources.rows, key=lambda r: r.submit_s)}
    found: dict[AttemptId, Attempt] = {}
    for row in sources.rows:
        if row.start_s is None or (sources.jobs is not None and _is_ahead(row, records.get(row.job_id), now)):
            continue
        record = records.get(row.job_id)
        again = row.submit_s < submitted[row.job_id] or row is not latest.get(row.job_id)
        never_ran = row.lost_its_node_at_once and (again or (record is not None and record.restarts > 0))
        if never_ran or _is_anothers(row, record):
            continue
        attempt = _of_row(cluster, row, row.start_s, record)
        if row is latest.get(row.job_id):
            attempt = replace(_launch_failure(attempt, record, sources.nodes), exit_code=_whole_code(attempt, record))
        is_told = attempt.end_s is not None if attempt.state.is_over else _may_run(row, records, sources)
        if is_told and not (row.job_id not in records and _owner_is_open(row, now)):
            found[attempt.id] = attempt
    for record in records.values():
        seen = _of_record(cluster, record, now)
        if seen is None:
            continue
        accounted = found.get(seen.id)
        if accounted is None or not accounted.state.is_over or record.state != "COMPLETING":
            found[seen.id] = seen
        else:  # slurmdbd may name only the nodes that still clear up (22.05)
            found[seen.id] = replace(accounted, nodes=max(accounted.nodes, seen.nodes, key=len))
        found[seen.id] = _at_walltime(_in_grace_time(found[seen.id], record), record, sources.warnings)
    blamed = _NodeBlame(sources.nodes)
    return tuple(sorted((blamed(attempt) for attempt in found.values()), key=lambda a: (a.start_s, a.id)))


def _is_anothers(row: AccountingRow, record: JobRecord | None) -> bool:
    """Whether it is of a job that had the id before: a slurmctld that lost its state gives ids out again."""
    if record is None:
        return False
    is_earlier = not record.restarts and row.submit_s < record.submit_s - CLOCKS_APART_S
    return is_earlier or (row.uid > 0 and row.uid != record.uid)


def _owner_is_open(row: AccountingRow, now: float) -> bool:
    """Whether it may be another's than root's: for a while slurmdbd says 0, hence root, of a job that is new to it."""
    return row.uid <= 0 and row.end_s is not None and row.end_s + OWNER_KNOWN_S > now


def _job(cluster: str, record: JobRecord, now: float) -> Job:
    waiting = is_waiting(record.state) or waits_again(record, now)
    asked = owner_requests(record.comment)
    allowed = _restart_nodes(record, asked)
    return Job(
        cluster=cluster,
        job_id=record.job_id,
        name=record.name,
        user=user_name(record.user, record.uid),
        state=job_state("PENDING" if waiting else record.state, record.priority, record.reason),
        submit_s=float(record.submit_s),
        partition=record.partition,
        licences=record.licences,
        gpus=record.gpus,
        node_count=record.tasks // record.tasks_per_node if allowed and waiting else record.node_count,
        restart_nodes=allowed,
        walltime_s=record.walltime_s,
        may_requeue=record.requeue and not record.is_cron,
        is_batch=record.is_batch,
        is_cron=record.is_cron,
        wish=asked.retry,
        misread=asked.misread,
        requeue_at_timeout=asked.requeue_at_timeout,
        reason=_reason(record, waiting),
        excluded=record.excluded,
        required=record.required,
        restarts=record.restarts,
        eligible_s=float(record.eligible_s) if waiting and record.eligible_s is not None else None,
        command=record.command,
        work_dir=record.work_dir,
        submitted_from=record.submitted_from,
        qos=record.qos,
        account=record.account,
        link=chain_link_of(record.comment),
    )


def _reason(record: JobRecord, waiting: bool) -> str:
    """Why it waits, that it ends, or how it ended.

    Of what the site's rule holds Slurm says that its user does, but for the state.
    """
    if record.state == "SPECIAL_EXIT":
        return SPECIAL_EXIT
    if record.state == "COMPLETING" and not waiting:
        return CLEARS_UP
    return "" if record.reason in WHILE_WAITING and not waiting else record.reason


def _restart_nodes(record: JobRecord, asked: OwnerRequests) -> tuple[int, int] | None:
    """None also where what the job asks for cannot be cut by nodes: a total of GPUs or tasks, or a part of a whole."""
    allowed = asked.nodes
    if allowed is None or record.gpus_in_all:
        return None
    node_count, left_over = divmod(record.tasks, record.tasks_per_node)
    return allowed if 1 <= node_count <= max(allowed[1], record.node_count) and not left_over else None


def _of_row(cluster: str, row: AccountingRow, start_s: int, record: JobRecord | None) -> Attempt:
    state = attempt_state(row.state, row.exit_code, row.signal, row.reason)
    exit_code, signal = _own_end(state, row.exit_code, row.signal)
    return Attempt(
        id=AttemptId(cluster, row.job_id, start_s),
        state=state,
        nodes=row.nodes,
        start_s=float(start_s),
        end_s=float(row.end_s) if row.end_s is not None else None,
        exit_code=exit_code,
        signal=signal,
        reason=row.state if " by " in row.state else "",
        gpus=row.gpus,
        user=user_name(record.user, record.uid) if record else user_name(row.user, row.uid),
        stdout=record.stdout if record else row.stdout,
        stderr=record.stderr if record else row.stderr,
        failed_nodes=row.failed_nodes,
    )


def _own_end(state: AttemptState, exit_code: int, signal: int) -> tuple[int, int]:
    """Code and signal of the program; of one that its node took with it newer versions say 0:1, or 1:0 in sacct."""
    return (0, 0) if state is AttemptState.NODE_FAIL else (exit_code, signal)


def _launch_failure(attempt: Attempt, record: JobRecord | None, nodes: Iterable[NodeRecord]) -> Attempt:
    """A prolog that failed is recorded as a mere requeue; that the launch failed stands where the job waits."""
    if record is None or attempt.state is not AttemptState.REQUEUED or not record.reason.startswith(LAUNCH_FAILED):
        return attempt
    told = [f"{n.node.name}: {n.node.reason}" for n in nodes if n.node.name in attempt.nodes and n.node.reason]
    return replace(attempt, state=AttemptState.LAUNCH_FAILED, reason="; ".join([record.reason, *told]))


def _is_ahead(row: AccountingRow, record: JobRecord | None, now: float) -> bool:
    """True for an end so new that the controller may not have known of the start, and of which it shows no trace.

    Its record, where there is one, waits still as it was submitted; a job that was put back was submitted again.
    """
    is_new = row.end_s is not None and row.end_s + 1 + CLOCKS_APART_S > now
    return is_new and (record is None or (is_waiting(record.state) and record.submit_s == row.submit_s))


def _whole_code(attempt: Attempt, record: JobRecord | None) -> int:
    """The exit code of a job's latest start, which the controller tells in full, also of a job that waits again."""
    taken_off = record is not None and attempt.exit_code == record.exit_code - TAKEN_OFF
    return record.exit_code if record is not None and taken_off else attempt.exit_code


def _may_run(row: AccountingRow, records: Mapping[str, JobRecord], sources: Sources) -> bool:
    if sources.jobs is None:
        return True
    record = records.get(row.job_id)
    return record is not None and record.start_s == row.start_s and not is_waiting(record.state)


def _of_record(cluster: str, record: JobRecord, now: float) -> Attempt | None:
    """The start that a record shows; a waiting job's start is only a forecast.

    COMPLETING hides how it ended, unless the reason tells.
    """
    if record.start_s is None or not record.nodes or is_waiting(record.state) or waits_again(record, now):
        return None
    word = "FAILED" if ended_badly(record, now) else record.state
    state = (
        AttemptState.RUNNING
        if word == "COMPLETING"
        else attempt_state(word, record.exit_code, record.signal, record.reason)
    )
    exit_code, signal = _own_end(state, record.exit_code, record.signal) if state.is_over else (0, 0)
    return Attempt(
        id=AttemptId(cluster, record.job_id, record.start_s),
        state=state,
        nodes=record.nodes,
        start_s=float(record.start_s),
        end_s=float(record.end_s) if state.is_over and record.end_s is not None else None,
        exit_code=exit_code,
        signal=signal,
        reason=record.reason if state.is_over else "",
        gpus=record.gpus,
        user=user_name(record.user, record.uid),
        stdout=record.stdout,
        stderr=record.stderr,
        failed_nodes=record.failed_nodes,
    )


def _in_grace_time(attempt: Attempt, record: JobRecord) -> Attempt:
    """Slurm 22.05 reports a start that ends itself within the grace time of a preemption, by SIGTERM, as failed.

    A program that asks by its exit code not to be run again is heard all the same.
    """
    began, end_s = record.preempt_s, attempt.end_s
    asks = exit_request_of(attempt.exit_code) in (ExitRequest.NEVER, ExitRequest.STOP)
    if attempt.state is not AttemptState.FAILED or None in (began, end_s) or asks:
        return attempt
    within = attempt.start_s <= (began or 0) <= (end_s or 0)
    return replace(attempt, state=AttemptState.PREEMPTED) if within else attempt


def _at_walltime(attempt: Attempt, record: JobRecord, warnings: Mapping[str, WalltimeWarning]) -> Attempt:
    """What ends by the signal that it asked for before its walltime has reached that. Slurm says that it failed.

    Of what ends itself at that time it is noted: it may have caught the signal.
    """
    warning = warnings.get(record.job_id)
    if warning is None or attempt.state is not AttemptState.FAILED or record.walltime_s is None:
        return attempt
    by_it = (attempt.exit_code, attempt.signal) in ((0, warning.signal), (SHELL_ADDS + warning.signal, 0))
    since_s = attempt.elapsed_s - (record.walltime_s - warning.before_s)
    if since_s < -WARNED_EARLY_S:
        return attempt
    if not by_it:
        may_have_caught_it = attempt.exit_code and since_s <= LEAVES_WITHIN_S
        return replace(attempt, warning=warning.option) if may_have_caught_it else attempt
    reason = f"ended by its walltime warning, {warning.option}"
    return replace(attempt, state=AttemptState.TIMEOUT, warning=warning.option, reason=reason)


class _NodeBlame:
    """Says which nodes of an attempt failed under it: Slurm before 23.02 tells only the whole allocation.

    A machine that shuts down ends scripts by signal 15 before Slurm knows that it is gone.
    """

    def __init__(self, nodes: Iterable[NodeRecord]) -> None:
        self._nodes = {record.node.name: record for record in nodes}

    def __call__(self, attempt: Attempt) -> Attempt:
        if attempt.failed_nodes or not (attempt.state is AttemptState.NODE_FAIL or persons_signal(attempt)):
            return attempt
        known = [self._nodes[name] for name in attempt.nodes if name in self._nodes]
        down = tuple(record.node.name for record in known if record.node.state is NodeState.DOWN)
        returned = tuple(record.node.name for record in known if _came_back(record, attempt))
        return replace(attempt, failed_nodes=down or returned)


def _came_back(record: NodeRecord, attempt: Attempt) -> bool:
    """True where the machine, or its daemon, has started since the attempt was given up."""
    booted = record.boot_s is not None and record.boot_s > attempt.start_s
    if persons_signal(attempt):
        return booted and (record.boot_s or 0) < (attempt.end_s or 0) + SHUT_DOWN_S
    restarted = None not in (record.daemon_start_s, attempt.end_s) and (record.daemon_start_s or 0) > (
        attempt.end_s or 0
    )
    return booted or restarted


def user_name(name: str, uid: int) -> str:
    """Slurm's tools write "nobody" for a user that they cannot look up: then the number names the user."""
    if name and (name != "nobody" or _uid_of_nobody() == uid):
        return name
    return str(uid)


@lru_cache(maxsize=1)
def _uid_of_nobody() -> int | None:
    return uid_of_name("nobody")


def uid_of_name(name: str) -> int | None:
    """The number of a user by name; None where the name is not known here, or not now."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def uids_by_name(told: Iterable[JobRecord | AccountingRow]) -> dict[str, int]:
    """The numbers of users, each by the name that others are told."""
    return {user_name(one.user, one.uid): one.uid for one in told}
