"""What a launcher says of the task that failed first: torchrun, MPI, srun, DeepSpeed, Lightning, Accelerate, and
``perdure exec`` of a program that hangs.

Of a task that died in native code or was killed this is the only witness, as it had no time for a word of its own;
what its peers say of lost connections follows from it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.exits import FAILED_SAID, HANG_ENDED, HANG_SAID
from perdure.triage.evidence.deaths import ABORT, HANG, LEFT_EARLY, STEP_CANCELLED, aborts_itself, death_of_task
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.text.clean import decode, scrub, tidy
from perdure.triage.text.logtext import LogText, TextWindow
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.verdict import CauseRole

END_BYTES = 512 * 1024
"""Reports are at the end of a log: this much of each of its stretches is looked at."""

_SLURM = "Slurm"  # which says that somebody cancelled a step
_WAIT = "srun --wait"  # which ends the other tasks some time after the first
MAX_REPORTS, MAX_WINDOWS = 4096, 256
BLOCK_LINES = 14
"""A report of several lines has at most this many, without a traceback that it quotes."""

NEAR_LINES = 12
"""What stands so few lines before a report, without the name of a task, is taken for the last words of the task."""


class LauncherReport(Struct, frozen=True):
    """The first failure as a launcher reports it."""

    launcher: str
    line: int  # that holds the code
    text: str  # the same, cleaned
    window: TextWindow
    first_line: int  # of the report and of the list of other failures before it
    last_line: int
    rank: str = ""  # "" where it is not known
    local_rank: str = ""
    node: str = ""
    exit_code: int = 0  # 0 where a signal ended it
    signal: int = 0
    time: str = ""  # as the launcher writes it, which sorts
    hangs: bool = False  # it did not end: it stood still first
    is_last: bool = False  # nothing of the program itself comes after it
    is_of_one: bool = False  # no other task of this launch failed, or was ended
    in_component: bool = False  # its number counts within a component of the job, and is no rank
    after: int = 0  # the last line, in the same window, of an earlier launch that was survived; 0: there was none

    @property
    def cause(self) -> Cause:
        """What the code or signal alone means, that it stood still, or that somebody cancelled its step."""
        if self.hangs:
            return HANG
        if self.launcher == _SLURM:
            return STEP_CANCELLED
        if self.launcher == _WAIT:
            return LEFT_EARLY
        return death_of_task(self.exit_code, self.signal)

    @property
    def who(self) -> str:
        """The task, for a sentence."""
        task = f"rank {self.rank}" if self.rank else f"local rank {self.local_rank}" if self.local_rank else "a task"
        return f"{task} on {self.named_node}" if self.named_node else task

    @property
    def named_node(self) -> str:
        """The node, if its name is one that other machines know; torchrun may call its own host "localhost"."""
        return "" if self.node.startswith("localhost") else self.node

    @property
    def how(self) -> str:
        """What that task did."""
        return "stopped" if self.hangs else "ended" if self.launcher == _WAIT else "failed"

    @property
    def is_known(self) -> bool:
        """Whether it names the task, or its node; srun may name several tasks at once, no one of which is the first."""
        return bool(self.rank or self.local_rank or (self.node and (self.launcher != "srun" or self.in_component)))

    @property
    def is_exception(self) -> bool:
        """Whether it ended as an interpreter does after an exception: its own last words say why."""
        return self.exit_code == 1

    @property
    def source(self) -> str:
        """The file that it is in; "" for a log of one file."""
        return self.window.source.name if self.window.source is not None else ""

    def tells(self, hit: Hit) -> bool:
        """Whether a hit is a line of this report itself, no cause next to it."""
        return hit.block.window is self.window and self.first_line <= hit.line <= self.last_line

    def is_of(self, hit: Hit) -> bool:
        """Whether the task that failed first wrote this line, by its number."""
        if hit.block.window.source is not None and hit.block.window.source.rank == hit.rank != "":
            return hit.rank in (self.rank, self.local_rank)
        return hit.rank == (self.rank or self.local_rank) != ""

    def is_of_another(self, hit: Hit) -> bool:
        """Whether another task wrote this line, as far as ranks show."""
        return hit.rank.isdecimal() and not (self.in_component or self.is_of(hit) or self._lists(int(hit.rank)))

    def _lists(self, rank: int) -> bool:
        """Whether it names several tasks at once, and this is one of them."""
        found = capturing(_TASKS).search(self.text.encode())
        spans = (part.partition(b"-") for part in found[1].split(b",")) if found else ()
        return any(int(low or 0) <= rank <= int(high or low or 0) for low, _, high in spans)

    def is_followed_by(self, hit: Hit) -> bool:
        """Whether a hit is a line of this report, or of another task than the one that it names."""
        return self.is_known and (self.tells(hit) or (hit.rank.isdecimal() and not self.is_of(hit)))

    def is_before(self, hit: Hit) -> bool:
        """Whether a hit is before it, in its file."""
        return hit.block.window is self.window and hit.line < self.first_line

    def _is_near(self, hit: Hit) -> bool:
        """Whether a hit is in the lines right before it."""
        return self.is_before(hit) and self.first_line - hit.line <= NEAR_LINES

    def place(self, hit: Hit) -> float:
        """How a hit ranks next to this report, which has 0: less is believed first.

        The words of the task that failed first explain its end, and so do a root's that bear no task's number. A lost
        peer explains no signal, and no exit code that a program chose; other tasks' errors follow from the first.
        """
        cause, own = hit.cause, self.is_of(hit)
        others = self.is_of_another(hit)
        if self.tells(hit) or (cause.name == _AGENT_LOST and self.launcher in _OF_TORCHRUN):
            return _LAST
        if cause.force is Force.DECISIVE:
            return -5.0
        if self.hangs:  # what comes after it follows from the end that it was put to
            return (
                -4.0 if cause.role is CauseRole.ROOT and cause.force is Force.PLAIN and self.is_before(hit) else _LAST
            )
        if cause.role is CauseRole.CONFIRMATION:
            return -1.0 if own and self.is_exception else _LAST
        if not self.is_exception and cause.wider in OF_PEERS:
            if self.is_of_one and cause.wider == "net":  # there is no peer whose end it could follow from
                return -1.5
            return -2.0 if self.signal == ABORT and aborts_itself(cause) and not others else _LAST
        if cause.role is CauseRole.ROOT and cause.force is Force.PLAIN:
            return -3.0 if others else -4.0
        if others:
            return _LAST
        if cause.force is Force.GENERIC:
            return -3.5
        near = self.is_exception and self._is_near(hit)
        if near and cause.force is Force.FAINT:  # words right before a box of mpirun
            return -0.5
        explains = self.is_exception or cause.category == self.cause.category == "native_crash"
        return -1.5 if explains and (cause.role is CauseRole.CASCADE or own) else _LAST


_TASKS = r": tasks ([\d,-]{1,200}): "
_LAST = 2.0
_AGENT_LOST = "elastic-agent"
"""The rule for an agent without its rendezvous: so every agent ends once a rank has failed."""
_OF_TORCHRUN = ("torchrun", "torchrun's agent")
OF_PEERS = frozenset({"net", "rdzv_store", "nccl_timeout", "nccl_comm"})
"""Categories of what a task says whose peer is gone."""

_PEER_GONE = frozenset({"peer-gone", "peer-gone-here"})
"""Rules for a connection that a peer closed."""


def first_failure(text: LogText, hits: Sequence[Hit]) -> LauncherReport | None:
    """The report of the launcher that knows best which task failed first, None where there is none.

    `hits` are those of the last block of failure lines; a report from before it was survived.
    """
    begins: dict[int, int] = {}
    for hit in hits:
        key = id(hit.block.window)
        begins[key] = min(hit.line, begins.get(key, hit.line))
    found: list[LauncherReport] = []
    for window in text.windows[-MAX_WINDOWS:]:
        begin = begins.get(id(window), 0)
        found += [report for report in _reports(window) if report.is_last or _stands_in(report, begin)]
    best = min((_KNOWS_BEST.index(report.launcher) for report in found), default=None)
    if best is None:
        return None
    told = [report for report in found if report.launcher == _KNOWS_BEST[best]]
    launch = _last_launch(told)
    first = min(launch, key=lambda report: (_follows(report, hits), report.time, report.is_exception))
    before = told[: -len(launch)] if first.launcher not in _ONE_EACH else []
    earlier = [report.last_line for report in before if report.window is first.window]
    return replace(first, is_of_one=_is_of_one(launch), after=max(earlier, default=0))


def of_component(report: LauncherReport | None) -> LauncherReport | None:
    """The report on a job of several components: srun counts the tasks of each from 0."""
    if report is None or report.launcher not in ("srun", _WAIT):
        return report
    return replace(report, rank="", in_component=True)


def _follows(report: LauncherReport, hits: Sequence[Hit]) -> bool:
    """Whether the task's only words are that a peer closed its connection: that one ended before it."""
    words = [hit.cause for hit in hits if report.is_of(hit) and hit.cause.role is not CauseRole.CONFIRMATION]
    return bool(words) and all(cause.name in _PEER_GONE for cause in words)


def _is_of_one(launch: Sequence[LauncherReport]) -> bool:
    """Whether srun reports one task alone, and has ended no other."""
    report, window = launch[0], launch[0].window
    ended = any(word in window.data[-END_BYTES:] for word in _STOPS_OTHERS)
    return len(launch) == 1 and report.launcher == "srun" and ": task " in report.text and not ended


def _stands_in(report: LauncherReport, begin: int) -> bool:
    """Whether a report is of the block that begins there: srun's own may stand right before the words that follow."""
    return report.last_line >= (begin - BLOCK_LINES if report.launcher in ("srun", _WAIT) else begin)


def _last_launch(reports: Sequence[LauncherReport]) -> list[LauncherReport]:
    """Those of the last launch: a launcher that reports a second time reports another."""
    launch: list[LauncherReport] = []
    for report in reports:
        again = any(each.who == report.who for each in launch)
        if report.launcher == "torchrun":
            again = again or any(each.node == report.node not in ("", "localhost") for each in launch)
        if report.launcher in _ONE_EACH or again:
            launch = []
        launch.append(report)
    return launch


_KNOWS_BEST = (
    "perdure exec", _SLURM,
    "torchrun", "torchrun's agent", "torch.multiprocessing", "MPI", "DeepSpeed", "Lightning", "Accelerate", "srun",
    "Flux", _WAIT,
)  # fmt: skip
"""The inner before the outer: the exit code that an outer one sees is that of the inner."""

_ONE_EACH = frozenset(_KNOWS_BEST) - {_SLURM, "torchrun", "srun"}
"""Launchers that report one failure each time."""

_CODE = r"(?P<code>-?\d{1,4})"
_WHO = r"rank (?P<rank>\d{1,6})(?: on (?P<node>[\w.-]{1,255}))?"
_HANGS = rf"(?:{HANG_SAID}|{HANG_ENDED})(?:{_WHO}(?: and \d+ more(?: on [\w., -]{{1,999}})?)? stopped first: )?"
_ENDS = rf"(?:ended with exit code {_CODE}|was ended by signal (?P<signal>\d{{1,3}}))"
_LINES: tuple[tuple[str, str], ...] = (
    ("perdure exec", f"{FAILED_SAID}{_WHO} {_ENDS}"),
    ("perdure exec", f"{_HANGS}it {_ENDS}"),
    ("perdure exec", _HANGS),
    ("torchrun", r"Root Cause \(first observed failure\):"),
    ("torchrun's agent", rf"failed \(exitcode: {_CODE}\) local_rank: (?P<local>\d{{1,6}}) \(pid: \d+\)"),
    (
        "torch.multiprocessing",
        rf"process (?P<rank>\d{{1,6}}) terminated with (?:exit code {_CODE}|signal (?P<name>SIG[A-Z0-9]+))",
    ),
    (
        "MPI",
        r"(?:mpirun|mpiexec\S*|prterun|orterun) noticed that process rank (?P<rank>\d{1,6}) with PID \d+ on node "
        r"(?P<node>\S{1,255}) exited on signal (?P<signal>\d{1,3})",
    ),
    ("MPI", rf"application called MPI_Abort\([^)]{{0,200}}?,? ?{_CODE}\) - process (?P<rank>\d{{1,6}})"),
    ("MPI", r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6})"),
    ("MPI", r"BAD TERMINATION OF ONE OF YOUR APPLICATION"),
    ("MPI", r"Process name: \[[^\]]{0,100}[\],]+(?P<rank>\d{1,6})\]"),
    ("DeepSpeed", rf"(?:--local_rank=(?P<local>\d{{1,6}})\b.*)?exits with return code = {_CODE}"),
    ("Lightning", rf"Child process with PID \d+ terminated with code {_CODE}"),
    (
        "Accelerate",
        rf"CalledProcessError: Command (?:'\[)?'?[^',\s]*python[^,\s]*.*(?:returned non-zero exit status {_CODE}"
        r"|died with <Signals\.(?P<name>SIG[A-Z0-9]+))",
    ),
    (
        "srun",
        r"srun: error: (?P<node>[\w.-]{1,255}): (?:task (?P<rank>\d{1,6})|tasks [\d,-]{1,200}): "
        r"(?:Exited with exit code "
        + _CODE
        + r"|(?P<word>Killed|Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction"
        r"|Floating point exception))",
    ),
    ("Flux", rf"flux-job: task\(s\) exited with exit code {_CODE}"),
    (_WAIT, r"srun: First task exited \d+s ago"),
    (
        _SLURM,  # newer versions name the signal
        r"\*\*\* STEP \d+\.\d+ ON \S+ (?P<word>CANCELLED) AT [\dT:.-]+(?: DUE to SIGNAL (?:Killed|Terminated))? \*\*\*",
    ),
)
_ENDED = HANG_ENDED.encode()
_EXITED = r"srun: \S+ task (?P<rank>\d{1,6}): exited"
_SCREEN = (
    r"Root Cause \(first|failed \(exitcode:|terminated with|noticed that process rank|application called MPI_Abort"
    r"|MPI_ABORT was invoked|BAD TERMINATION|Process name: \[|exits with return code|CalledProcessError: Command"
    r"|perdure exec: (?:hang|ended for a hang|failed rank): "
    r"|srun: error: |srun: (?:Job step aborted|Terminating|Force Terminated|forcing job|launch/slurm: _step_signal)"
    r"|srun: First task exited |flux-job: task"
    r"|\*\*\* STEP "
)
_STOPS_OTHERS = b"srun: Job step aborted", b"Terminating StepId", b"srun: Terminating", b"srun: Force Terminated"
_SRUNS_OWN = b"Terminating StepId", b"srun: Terminating", b"srun: First task exited", b"srun: forcing job termination"
"""What srun says where it ends a step itself: since a task failed or ended, or since srun itself was told to end."""
_OF_WORD = {
    "Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Illegal instruction": 4,
    "Floating point exception": 8, "CANCELLED": 15,
}  # fmt: skip


def _reports(window: TextWindow) -> Iterator[LauncherReport]:
    """All reports in the end of a window, in their order."""
    start = max(0, len(window.data) - END_BYTES)
    data = scrub(window.data[start:])
    first, counted, position = window.first_line + window.data.count(b"\n", 0, start), 0, 0
    srun_stops = is_sruns = has_failed = False
    for _ in range(MAX_REPORTS):
        if not (stop := compiled(_SCREEN).search(data, position)):
            return
        begin = data.rfind(b"\n", 0, stop.start()) + 1
        end = data.find(b"\n", stop.end())
        position = len(data) if end < 0 else end
        first, counted = first + data.count(b"\n", counted, begin), begin
        line = tidy(data[begin:position])
        srun_stops |= any(word in line for word in _STOPS_OTHERS)
        is_sruns |= any(word in line for word in _SRUNS_OWN)
        report = _report(window, line, first, data, begin)
        if report is None or (srun_stops and report.launcher == "srun"):
            continue
        # of an srun that was killed nothing more is said, and a task that failed before may be why it is cancelled
        speaks = srun_stops or data.find(b"srun: ", position) >= 0
        if report.launcher != _SLURM or (speaks and not is_sruns and not has_failed):
            yield report
        has_failed = True


def _report(window: TextWindow, line: bytes, number: int, data: bytes, begin: int) -> LauncherReport | None:
    for launcher, pattern in _LINES:
        if found := capturing(pattern).search(line):
            told = _named(found)
            code = _code(told)
            if launcher == "torchrun" or (launcher == "MPI" and code is None):
                return _of_block(launcher, window, told, number, data, begin)
            if launcher == _WAIT:
                return _of_wait(window, line, number, data, begin)
            if launcher == "perdure exec" and code is None:
                made = _made(launcher, window, *_one_line(number, line), told, 0)
                return replace(made, hangs=True, is_last=_ENDED in line)
            if code in (None, 0):
                return None
            return _made(launcher, window, *_one_line(number, line), told, code)
    return None


def _of_wait(window: TextWindow, line: bytes, number: int, data: bytes, begin: int) -> LauncherReport:
    """What srun reports of the task that ended first: the lines after the first list the tasks by their states."""
    told, last = dict[str, str](), number
    for at, following in enumerate(_following(data, begin), number):
        if found := capturing(_EXITED).search(following):
            told, last = _named(found), at
    return _made(_WAIT, window, (number, decode(line).strip()), (number, last), told, 0)


def _one_line(number: int, line: bytes) -> tuple[tuple[int, str], tuple[int, int]]:
    return (number, decode(line).strip()), (number, number)


def _named(found: Any) -> dict[str, str]:
    """What the groups of a match hold, those that took part."""
    return {name.decode(): value.decode("ascii", "replace") for name, value in found.groupdict().items() if value}


def _code(told: dict[str, str]) -> int | None:
    """The code as Python tells it, a signal as a negative number; None where the line has none."""
    if "code" in told:
        return int(told["code"])
    if "signal" in told:
        return -int(told["signal"])
    if "name" in told:
        return -_number(told["name"]) or None
    return -_OF_WORD[told["word"]] if "word" in told else None


def _number(name: str) -> int:
    try:
        return int(signal.Signals[name])
    except KeyError:
        return 0


def _made(
    launcher: str, window: TextWindow, shown: tuple[int, str], lines: tuple[int, int], told: dict[str, str], code: int
) -> LauncherReport:
    number = -code if code < 0 else code - 128 if 128 < code <= 128 + 64 else 0
    return LauncherReport(
        launcher, *shown, window, *lines, _plain(told.get("rank", "")), _plain(told.get("local", "")),
        told.get("node", ""), 0 if number else code, number, told.get("time", ""),
    )  # fmt: skip


def _plain(number: str) -> str:
    return str(int(number)) if number.isdecimal() else ""


# ---------------------------------------------------------------- reports of several lines

_FIELDS = (
    r"rank\s*: (?P<rank>\d{1,6}) \(local_rank: (?P<local>\d{1,6})\)",
    rf"exitcode\s*: {_CODE} \(pid",
    r"host\s*: (?P<node>[\w.-]{1,255})",
    r"time\s*: (?P<time>[\w:.-]{10,40})",
    rf"(?:Exit code: +|with errorcode |EXIT CODE: ){_CODE}",
    r"RANK (?P<rank>\d{1,6}) PID \d+ RUNNING AT (?P<node>[\w.-]{1,255})",
    r"PID \d+ RUNNING AT (?P<node>[\w.-]{1,255})",
    r"(?:KILLED BY SIGNAL: |\(signal )(?P<signal>\d{1,3})",
)


def _of_block(
    launcher: str, window: TextWindow, told: dict[str, str], number: int, data: bytes, begin: int
) -> LauncherReport | None:
    """A report whose first line is at `begin`; lines of other tasks between its own are passed over."""
    told, shown, last = dict(told), (number, ""), number
    lines = _following(data, begin)
    for at, line in enumerate(lines, number):
        for field in _FIELDS:
            if (found := capturing(field).search(line)) is None:
                continue
            named = _named(found)
            told, last = told | named, at
            if {"code", "signal"} & set(named) and not shown[1]:
                shown = at, decode(line).strip()
            break
        if b"received by PID" in line or b"To enable traceback" in line:
            last = at
            break
    if told.get("signal"):
        told.pop("code", None)
    code = _code(told)
    if not code:
        return None
    first = _listed_from(data, begin, number) if launcher == "torchrun" else number
    return _made(launcher, window, shown, (first, last), told, code)


def _following(data: bytes, begin: int) -> list[bytes]:
    """The lines from `begin` on, tidied, as many as a block may have."""
    end = begin
    for _ in range(BLOCK_LINES):
        end = data.find(b"\n", end) + 1
        if not end:
            end = len(data)
            break
    own = rank_of(data[begin : begin + 100])
    return [tidy(line) if rank_of(line) == own else b"" for line in data[begin:end].split(b"\n")]


def _listed_from(data: bytes, begin: int, number: int) -> int:
    """The line at which the list of other failures begins, which is before a root cause."""
    at = data.rfind(b"Failures:", max(0, begin - END_BYTES // 2), begin)
    return number - data.count(b"\n", at, begin) if at >= 0 else number
