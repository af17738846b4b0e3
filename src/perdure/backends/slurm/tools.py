"""Running Slurm's command-line tools: argument lists, one locale, one time zone, a time limit, a size limit.

``scontrol`` reads commands from its standard input, so one process answers many questions (`Dialog`). How each
answer ends is told by a word drawn at random for it: ``scontrol show hostlist WORD`` prints WORD without asking the
controller, and nobody who named a job beforehand could know it. The same word is in every instant that
``scontrol`` prints (through SLURM_TIME_FORMAT), which is how `records` tells Slurm's text from a user's.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perdure.backends.tool_process import Advice, ToolAnswer, ToolPipes
from perdure.errors import ClusterBusy, ClusterError, ConfigError, JobBusy

CAP_BYTES = 256 * 1024 * 1024
DIALOG_PATIENCE_S = 3.0  # a scontrol built without readline keeps its answers back until its input ends

ADVICE = Advice("Run `scontrol ping` and `sacctmgr ping`", "Lower MinJobAge")

_PROMPT = b"scontrol: "
_NOT_CONFIGURED = b"Could not establish a configuration source"
_FORMATS_OF_OTHERS = ("SACCT_", "SQUEUE_", "SINFO_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_BITSTR")


@dataclass(frozen=True, slots=True)
class Tools:
    """How the tools are run."""

    timeout_s: float = 30.0
    cap_bytes: int = CAP_BYTES
    environment: Mapping[str, str] | None = None  # None: this process's own
    cluster: str = ""  # another than slurm.conf's, of the same slurmdbd; all tools look and act there

    def find(self, name: str) -> str:
        """Return the path of a tool. Raises `ConfigError` where there is none."""
        found = shutil.which(name, path=self._base().get("PATH"))
        if found is None:
            raise ConfigError(name, "not found in PATH", "Run Perdure where Slurm's client tools are installed")
        return found

    def check(self) -> None:
        """Raise `ConfigError` for a SLURM_CONF that cannot be read: Slurm's tools would try again for a minute."""
        conf = self._base().get("SLURM_CONF", "")
        if conf and not os.access(conf, os.R_OK):
            what = "cannot be read" if os.path.exists(conf) else "is not there"
            raise ConfigError(f"SLURM_CONF={conf}", what, "Name this site's slurm.conf, or unset SLURM_CONF")

    def run(self, *argv: str, time_mark: str = "", stdin: bytes = b"") -> ToolAnswer:
        """Run one command to its end; `stdin` is what it reads, at most what a pipe holds.

        Raises `ClusterBusy` where it takes longer than `timeout_s`, `ClusterError` where it prints more than
        `cap_bytes`. A failure of the command itself is in the answer.
        """
        with self.start(argv, time_mark) as pipes:
            pipes.write(stdin)
            pipes.close_input()
            return pipes.read(until=b"", prompts=(), deadline=time.monotonic() + self.timeout_s)

    @contextlib.contextmanager
    def start(self, argv: tuple[str, ...], time_mark: str) -> Iterator[ToolPipes]:
        """Start one tool; it is ended, by force where need be, when the caller is through with it."""
        program = self.find(argv[0])
        chosen = ("-M", self.cluster) if self.cluster and argv[0] == "sacct" else ()  # the one that no variable tells
        try:
            pipes = ToolPipes((program, *chosen, *argv[1:]), self._environment(time_mark), self.cap_bytes, ADVICE)
        except OSError as err:
            raise ClusterBusy(program, f"cannot be started: {err.strerror}", "Raise this machine's limits") from err
        try:
            yield pipes
        finally:
            pipes.end()

    @contextlib.contextmanager
    def dialog(self) -> Iterator[Dialog]:
        """Open one ``scontrol`` to talk to. Of a federation it sees this cluster alone."""
        mark = secrets.token_hex(8) + "z"  # ends in a letter: a trailing number would be a host number
        with self.start(("scontrol", "-a", "-o", "--local"), mark) as pipes:
            yield Dialog(self, pipes, mark)

    def _base(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment

    def _environment(self, time_mark: str) -> dict[str, str]:
        kept = {k: v for k, v in self._base().items() if not k.startswith(_FORMATS_OF_OTHERS)}
        kept |= {"SLURM_CLUSTERS": self.cluster} if self.cluster else {}
        return {**kept, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": f"%s~{time_mark}" if time_mark else "%s"}


class Dialog:
    """A ``scontrol`` that is open: each question gets its answer before the next one is put."""

    def __init__(self, tools: Tools, pipes: ToolPipes, mark: str) -> None:
        self._tools, self._pipes, self.mark = tools, pipes, mark
        self._asked = 0
        self._at_once: bool | None = None

    @property
    def has_ended(self) -> bool:
        """True once the process is gone."""
        return self._pipes.has_ended

    def ask(self, command: str) -> ToolAnswer:
        """Put one command and return its answer.

        Raises `ClusterBusy` where none came in time: the command may have been carried out.
        """
        if "\n" in command or "\0" in command:
            raise ClusterError("scontrol", f"a command of more than one line: {command!r}", "Report this")
        if self._at_once is None:
            self._at_once = self._answers_at_once()
        if not self._at_once:
            return self._ask_alone(command)
        return self._exchange(self._pipes, command, self._tools.timeout_s)

    def _answers_at_once(self) -> bool:
        try:
            self._exchange(self._pipes, "", DIALOG_PATIENCE_S)
        except ClusterBusy:
            return False
        return True

    def _ask_alone(self, command: str) -> ToolAnswer:
        with self._tools.start(("scontrol", "-a", "-o", "--local"), self.mark) as pipes:
            return self._exchange(pipes, command, self._tools.timeout_s, last=True)

    def _exchange(self, pipes: ToolPipes, command: str, timeout_s: float, last: bool = False) -> ToolAnswer:
        self._asked += 1
        word = f"{self.mark}{self._asked}e".encode()
        question = b"show hostlist " + word
        lines = [*([command.encode()] if command else []), question, *([b"exit"] if last else [])]
        pipes.write(b"".join(line + b"\n" for line in lines))
        if last:
            pipes.close_input()
        answer = pipes.read(until=word + b"\n", prompts=(b"", _PROMPT), deadline=time.monotonic() + timeout_s)
        if answer.code is not None and _NOT_CONFIGURED in answer.err:
            raise ConfigError(
                "Slurm", "none is configured on this machine", "Ask where squeue works, or set SLURM_CONF"
            )
        if answer.code is not None:
            raise ClusterBusy("scontrol", f"ended early: {answer.complaint or 'no word why'}", "Run `scontrol ping`")
        return ToolAnswer(answer.out.removesuffix(_PROMPT + question + b"\n"), answer.err)


class CallBatch:
    """One ``scontrol`` for several conversations: opened for the first one, and again after one that failed.

    `keep_s`: also again where it is older than that, as slurm.conf may have changed since it was read.
    """

    def __init__(self, tools: Tools, keep_s: float = math.inf) -> None:
        self._tools, self._keep_s = tools, keep_s
        self._stack = contextlib.ExitStack()
        self._open: Dialog | None = None
        self._opened_s = 0.0

    def __enter__(self) -> CallBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        self._open = None
        self._stack.close()

    @contextlib.contextmanager
    def dialog(self) -> Iterator[Dialog]:
        """The open dialog, which stays open at the end of the block."""
        now = time.monotonic()
        if self._open is not None and (now - self._opened_s > self._keep_s or self._open.has_ended):
            self.close()
        if self._open is None:
            self._open, self._opened_s = self._stack.enter_context(self._tools.dialog()), now
        try:
            yield self._open
        except JobBusy:
            raise
        except BaseException:  # the rest of an answer may still come
            self.close()
            raise


class Dialogs:
    """Through which ``scontrol`` the controller is spoken to: that of a round, one that is kept open, or a new one."""

    def __init__(self, tools: Tools, keep_s: float = 0.0) -> None:
        """`keep_s`: one stays open so long, for whoever asks next."""
        self._tools = tools
        self._kept = CallBatch(tools, keep_s) if keep_s else None
        self._round: CallBatch | None = None
        self.waited_s = 0.0  # in this round, for jobs that take no change yet

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Inside the block one ``scontrol`` answers all questions and takes all commands."""
        with contextlib.nullcontext(self._kept) if self._kept else CallBatch(self._tools) as self._round:
            try:
                yield
            finally:
                self._round, self.waited_s = None, 0.0

    def note_wait(self, seconds: float) -> None:
        """Count what was waited within a round."""
        if self._round is not None:
            self.waited_s += seconds

    @contextlib.contextmanager
    def dialog(self) -> Iterator[Dialog]:
        """One conversation."""
        batch = self._round or self._kept
        with batch.dialog() if batch else self._tools.dialog() as scontrol:
            yield scontrol

    def close(self) -> None:
        """End the process that is kept open, if there is one."""
        if self._kept is not None:
            self._kept.close()
