"""What the rest of a log says that settles a cause which its own line leaves open.

A crash, a watchdog or a kill has many causes. That an earlier run ended at the same step, that a workflow's step was
killed each time, that the killed process alone filled the node, or that others filled the card before the start, tells
which it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from perdure.triage.evidence.context import Context, TrainingProgress, progress_of
from perdure.triage.evidence.doubts import doubted
from perdure.triage.evidence.frames import raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.evidence.rules import own_rules
from perdure.triage.text.clean import decode, scrub
from perdure.triage.text.logtext import LogText
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.quantities import SIZE, size_in, to_bytes
from perdure.triage.verdict import Bound

LOOKED_BYTES = 256 * 1024
"""So much of a log's beginning, and so much before the line that is believed, is read."""

MOST_OF_IT = 0.8
"""Who holds this share of a node's or a card's memory fills it."""

LASTING, PASSING = 0.05, 0.75

_OPEN = frozenset({"native_crash", "nccl_timeout", "nccl_comm", "hang", "killed"})
"""Categories of ends that broken hardware and wrong code bring about alike."""

_RUN = r"(?:run|attempt|try|job|restart)s?"
_POINT = r"(?:step|iter(?:ation)?|epoch|batch|sample|file|point|place|line)"
_ENDED_ALIKE = (
    rf"(?i)\b(?:previous|earlier|last|prior|other|all|both|every) (?:\w+ )?{_RUN}\b[^\n]{{0,80}}\bsame {_POINT}\b"
    rf"|\bsame {_POINT}\b[^\n]{{0,60}}\b(?:as|in|of) (?:the )?(?:previous|earlier|last|prior|other|all|both|every)"
    rf" (?:\w+ )?{_RUN}\b"
)
_ENDED_AT = rf"(?i)\b{_RUN} #?\d{{1,4}}\b[^\n:.]{{0,40}}: [^\n.;]{{0,80}}?\bat ({_POINT} \d{{1,12}})\b"
"""What a script that submits its job again tells of each try."""

_KILLED_STEP, _KILLED_BEFORE = "workflow-killed", r"exit status \(137\) -- Execution is retried"
"""The rule, and how Nextflow tells of a step that it runs again after a kill."""

_NODE_FULL = "node-out-of-memory"
_HELD = r"\banon-rss:(\d{1,15})kB"
_HOST_TOTAL = rf"(?i)\b(?:rss|mem(?:ory)?|ram)\b[^\n/]{{0,30}}?\b[\d.]+ ?[KMGT]?i?B? ?/ ?{SIZE}|\bMemTotal:? +{SIZE}"

_LOCK = "lock"
_LOCK_LINES = 40
"""Who holds a lock is told so many lines before or after the one that gives it up."""

_OWNER_GONE = (
    r"(?i)\b(?:owner|holder|held by|holds|lock\w*|pid|process|job)\b[^\n]*?(?:\bno such process\b"
    r"|\b(?:is|was|has) (?:dead|gone)\b|\bnot (?:running|alive)\b|\bleft (?:it|the \w+) behind\b"
    r"|\b(?:already |has |have )?(?:ended|died|exited|crashed|terminated|finished)\b"
    r"|(?-i:\b(?:COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY)\b))"
    r"|\bstale \S*lock|\block(?: file)?\b[^\n]{0,40}\bis stale\b"
)
_LOCK_FREED = (
    r"(?i)\b(?:remov|delet|clear|releas|overrid)(?:ed|ing)\b"
    r"|\b(?:breaking|broke|stole|stealing|took over|taking over)\b"
)
"""What is done about a lock whose owner is gone."""

_OF_LOCK, _PID = r"(?i)\block|\bowner\b|\bholder\b", r"(?i)\bpid[ =:]{1,2}(\d{1,10})\b"
"""Words of a line that tells of a lock, and a process that such a line may name."""

_UNAVAILABLE, _FORKS = "exit-temporary", r"\b(?:_?fork_exec|os\.fork|os\.forkpty|posix_spawn\w*|subprocess\.Popen)\("
"""The rule for what was unavailable for the moment, and the calls by which Python starts a process."""

_NO_MORE_PROCESSES = "processes-refused"

_NO_INTERNET = (
    r"(?i)\b(?:compute |batch )?nodes? (?:have|has|had) (?:no|not any) (?:\w+ ){0,3}(?:internet|outside|external)"
    r"|\bno (?:internet|outbound|external) (?:access|connection|connectivity|route|network)\b"
    r"[^\n]{0,40}\b(?:compute|batch|worker|this) nodes?\b"
)
"""What sites greet jobs with."""

_EACH_TASK = (
    r"\bsrun\b[^\n]*\b(?:torchrun|torch\.distributed\.(?:run|launch))\b",
    r"--(?:ntasks|tasks)-per-node[= ](?:[2-9]|[1-9]\d)\b",
)
_CARD_TABLE = r"\|[ \t]+\d+[ \t]+(?:N/A[ \t]+N/A[ \t]+)?\d+[ \t]+[CGM+]{1,3}[ \t]+[^\n|]{1,80}?(\d{1,7})MiB[ \t]*\|"
_CARD_TOTAL = r"(?:/[ \t]*|\btotal[ \t:=]+)(\d{4,7}) ?MiB\b"
"""Rows of the processes of nvidia-smi, and a card's memory."""

_OF_CARD = frozenset({"gpu_oom", "gpu_busy", "cuda_env", "native_crash"})
_OF_CUDA = r"(?i)cuda|cudnn|cublas|gpu"
MIB = 1 << 20


def settled(primary: Hit, text: LogText) -> Hit:
    """`primary`, with the cause that the rest of `text` leaves."""
    if primary.cause.force is Force.DECISIVE:
        return primary
    for settle in _SETTLED:
        if (cause := settle(primary, text)) is not None:
            return replace(primary, cause=cause)
    return primary


def _ended_alike(primary: Hit, text: LogText) -> Cause | None:
    """A run that ended at the same point before, on whichever node: no hardware does that."""
    cause = primary.cause
    if cause.category not in _OPEN:
        return None
    if not any(_tells_same_end(data) for data in _looked_at(primary, text)):
        return None
    return _own(cause, cause.category, f"{cause.says or 'it ended'}; by the log an earlier run ended at the same point")


def _tells_same_end(data: bytes) -> bool:
    """Whether a text tells of runs that ended at one point: in words, or by the points of two."""
    points = Counter(found[1].lower() for found in capturing(_ENDED_AT).finditer(data))
    return max(points.values(), default=0) > 1 or compiled(_ENDED_ALIKE).search(data) is not None


def _killed_again(primary: Hit, text: LogText) -> Cause | None:
    """A step that its workflow ran again, and that was killed each time, lacks memory."""
    if primary.cause.name != _KILLED_STEP or not any(
        compiled(_KILLED_BEFORE).search(data) for data in _looked_at(primary, text)
    ):
        return None
    says = "a step of a workflow was killed in each of its tries (exit status 137), as for lack of memory"
    return _own(
        primary.cause, "host_oom", says, "Give that step more memory (process.memory), or less to do at a time."
    )


def _filled_node(primary: Hit, text: LogText) -> Cause | None:
    """A node that the killed process had filled by itself, in its own figures."""
    held = capturing(_HELD).search(primary.text.encode()) if primary.cause.name == _NODE_FULL else None
    if held is None:
        return None
    size = to_bytes(held[1], b"KiB")
    totals = (
        size_in(_HOST_TOTAL, found) for data in _looked_at(primary, text) for found in _lines_of(_HOST_TOTAL, data)
    )
    if not any(total is not None and size >= MOST_OF_IT * total for total in totals):
        return None
    return _own(primary.cause, "host_oom", "the program filled the node's memory by itself, and the kernel killed it")


def _without_owner(primary: Hit, text: LogText) -> Cause | None:  # noqa: ARG001
    """A lock whose owner is gone, as the log says: nobody will release it."""
    if primary.cause.category != _LOCK:
        return None
    near = _lines_near(primary)
    gone = [line for line in near if compiled(_OWNER_GONE).search(line)]
    held = {pid for line in near if compiled(_OF_LOCK).search(line) for pid in capturing(_PID).findall(line)}
    told = [line for line in gone if compiled(_OF_LOCK).search(line) or held & set(capturing(_PID).findall(line))]
    if not told or any(compiled(_LOCK_FREED).search(line) for line in told):
        return None
    says = "the lock is held by what has ended, as the log says, and nobody will release it"
    return _own(primary.cause, _LOCK, says, "Remove the lock file, once nothing runs that it may protect.")


def _lines_near(primary: Hit) -> list[bytes]:
    """The lines around the one that is believed."""
    block, data = primary.block, primary.block.window.data
    start = max(0, block.start - LOOKED_BYTES)
    at = primary.line - block.first_line + data.count(b"\n", start, block.start)
    lines = scrub(data[start : block.end + LOOKED_BYTES]).split(b"\n")
    return lines[max(0, at - _LOCK_LINES) : at + _LOCK_LINES]


def _without_processes(primary: Hit, text: LogText) -> Cause | None:  # noqa: ARG001
    """What was unavailable for the moment, where a process was to be started: a limit on their number."""
    if primary.cause.name != _UNAVAILABLE or not compiled(_FORKS).search(raising_line(primary)):
        return None
    rule = own_rules().named(_NO_MORE_PROCESSES)
    return rule.cause if rule is not None else None


def _without_internet(primary: Hit, text: LogText) -> Cause | None:
    """Nodes that have no way out, as their site says at each job's start."""
    cause = primary.cause
    if cause.wider != "net" or not any(compiled(_NO_INTERNET).search(data) for data in _looked_at(primary, text)):
        return None
    return _own(cause, cause.category, "the nodes have no internet, as the log says itself", cause.advice)


def _started_by_each_task(primary: Hit, text: LogText) -> Cause | None:
    """A port that the other launchers of the same job had taken: srun starts torchrun once for each task."""
    seen = list(_looked_at(primary, text))
    if primary.cause.category != "port_busy" or not all(
        any(compiled(pattern).search(data) for data in seen) for pattern in _EACH_TASK
    ):
        return None
    says = "srun starts torchrun in each of several tasks of a node, and all of them want one port"
    return _own(
        primary.cause, "dist_config", says, "Set --ntasks-per-node=1: torchrun starts the node's processes itself."
    )


def _held_before(primary: Hit, text: LogText) -> Cause | None:
    """A card that other processes filled before the program began, by the table of nvidia-smi."""
    cause, window = primary.cause, text.windows[0]
    if cause.category not in _OF_CARD or not compiled(_OF_CUDA).search(primary.text.encode()):
        return None
    data = scrub(window.data[:LOOKED_BYTES])
    rows = list(capturing(_CARD_TABLE).finditer(data))
    total = capturing(_CARD_TOTAL).search(data)
    if not rows or not total or progress_of(decode(data[: rows[0].start()])).steps is not None:
        return None
    if sum(int(row[1]) for row in rows) < MOST_OF_IT * int(total[1]):
        return None
    return replace(
        cause,
        category="gpu_busy",
        part_of="",
        bound=Bound.NODE,
        infrastructure=True,
        p_transient=PASSING,
        says="other processes held the GPU's memory before the program began, by the table of nvidia-smi",
        advice="A retry on another node gets a free GPU; ask whose processes these are.",
    )


def _own(cause: Cause, category: str, says: str, advice: str = "") -> Cause:
    """The cause, as one of the job's own that comes back."""
    return replace(
        cause,
        category=category,
        part_of=cause.part_of if category == cause.category else "",
        bound=Bound.NOTHING,
        infrastructure=False,
        p_transient=min(cause.p_transient, LASTING),
        says=says,
        advice=advice or cause.advice,
    )


def _looked_at(primary: Hit, text: LogText) -> Iterator[bytes]:
    """The beginning of the log, and what is before the line."""
    yield scrub(text.windows[0].data[:LOOKED_BYTES])
    block = primary.block
    yield scrub(block.window.data[max(0, block.end - LOOKED_BYTES) : block.end])


def _lines_of(pattern: str, data: bytes) -> Iterator[bytes]:
    return (found.group() for found in capturing(pattern).finditer(data))


_SETTLED: tuple[Callable[[Hit, LogText], Cause | None], ...] = (
    _ended_alike,
    _killed_again,
    _filled_node,
    _without_owner,
    _without_processes,
    _without_internet,
    _started_by_each_task,
    _held_before,
)


def settled_or_doubted(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Hit:
    """`primary`, as the rest of the log settles it, or makes it open."""
    told = settled(primary, text)
    return told if told is not primary else doubted(primary, progress, around, text)
