"""What the code or signal means that a process ended with, where nothing else says why it ended."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.verdict import CANCELLED, Bound, CauseRole


def _faint(name: str, category: str, p: float, says: str, advice: str = "") -> Cause:
    return Cause(name, category, p, CauseRole.CASCADE, Force.PLAIN, says, advice)


NOT_FOUND = 127
"""What a shell ends with where the last command is not there."""

OF_EXIT_CODE: dict[int, Cause] = {
    75: _faint("exit-75", "unknown", 0.85, "the program asked to be tried again (exit code 75)"),
    78: _faint("exit-78", "config", 0.05, "the program says that its configuration is wrong (exit code 78)",
               "Fix its settings."),
    93: _faint("exit-93", "config", 0.08, "the program says that a restart cannot help (exit code 93)",
               "Read its last words."),
    99: _faint("exit-99", "unknown", 0.85, "the program asked to be queued again (exit code 99)"),
    120: _faint("exit-120", "config", 0.1,
                "Python could not write out the rest of its output (exit code 120), as where its reader had ended",
                "Let what reads its output read to the end, and look at the space where the output goes."),
    124: _faint("exit-124", "time_limit", 0.15, "a time limit inside the job was reached (exit code 124)",
                "Raise that limit."),
    126: _faint("exit-126", "permission", 0.05, "the program is not executable (exit code 126)",
                "Set its mode, or name another."),
    NOT_FOUND: _faint("exit-127", "missing_file", 0.06, "the program was not found (exit code 127)",
                "Check its name and the PATH."),
}  # fmt: skip

ASKS_AGAIN = (OF_EXIT_CODE[75], OF_EXIT_CODE[99])
"""The program ended by its own wish, and wants to go on."""

OF_SIGNAL: dict[int, Cause] = {
    2: _faint("signal-int", CANCELLED, 0.03, "it was interrupted (signal 2), as Ctrl-C and scancel -s INT do",
              "Its owner submits it again."),
    4: replace(
        _faint("signal-ill", "native_crash", 0.3,
               "the program met an instruction that this machine's processor lacks (signal 4)",
               "Build it for the oldest processor of the partition (-march), or ask for nodes that have it "
               "(--constraint)."),
        bound=Bound.NODE,
    ),
    6: _faint("signal-abort", "native_crash", 0.35, "the program aborted (signal 6)"),
    7: _faint("signal-bus", "env_limit", 0.35, "the program met a bus error, often a full /dev/shm (signal 7)",
              "Look at the size of /dev/shm on the node (df /dev/shm); use fewer data loading workers."),
    8: _faint("signal-fpe", "numeric", 0.08, "the program divided by zero in native code (signal 8)"),
    9: _faint("signal-kill", "killed", 0.4, "the program was killed (signal 9), and nothing says by whom",
              "Look for who killed it: the kernel for lack of memory (dmesg, the job's peak memory), or a person."),
    11: _faint("signal-segv", "native_crash", 0.45, "the program crashed (signal 11)"),
    13: _faint("signal-pipe", "unknown", 0.15, "it wrote to a pipe whose reader had ended, as head does (signal 13)",
               "Let the reader read to the end, or leave out set -o pipefail for that line."),
    15: _faint("signal-term", "preempt", 0.6, "the program was told to end from outside (signal 15)"),
    24: _faint("signal-xcpu", "env_limit", 0.06, "a limit on CPU time was reached (signal 24)"),
    25: _faint("signal-xfsz", "disk_quota", 0.05, "a file grew beyond the limit on its size (signal 25)"),
}  # fmt: skip

ABORT = 6
_OF_WATCHDOGS = frozenset({"nccl_timeout", "nccl_comm"})
_OF_FATAL = frozenset({"jax-coordination", "infiniband"})


def aborts_itself(cause: Cause) -> bool:
    """Whether a watchdog, the client of JAX's coordination service, or UCX says it before it aborts its process."""
    return cause.category in _OF_WATCHDOGS or cause.name in _OF_FATAL


_TERMINATED = _faint(
    "rank-term", "killed", 0.45, "a process was told to end from outside (signal 15), and not by its launcher",
    "Look for who ended it on that node: a person, a clean-up script, a watchdog.",
)  # fmt: skip
LEFT_EARLY = _faint(
    "first-task-exited", "dist_config", 0.12, "a task ended while others still ran, and srun --wait then ended those",
    "Look at why that task ended before the others; srun --wait=0 waits for all of them.",
)  # fmt: skip
STEP_CANCELLED = _faint(
    "step-cancelled", CANCELLED, 0.03, "its step was cancelled, as scancel JOB.STEP does",
    "Its owner submits it again.",
)  # fmt: skip


def death_of_task(exit_code: int, signal: int) -> Cause:
    """What it means that one task of a job ended so, and its launcher then ended the others."""
    if signal == 15:
        return _TERMINATED
    if signal:
        how = f"the program was ended by signal {signal}"
        return OF_SIGNAL.get(signal) or _faint(f"signal-{signal}", "native_crash", 0.35, how)
    if exit_code == 1:
        says = "it ended with exit code 1, and this log holds no traceback of it"
        advice = "Read that task's own log (with torchrun: perdure why on the directory of --log-dir)."
        return _faint("exit-1", "unknown", 0.35, says, advice)
    chosen = f"the program ended itself with exit code {exit_code}"
    advice = "Look up what ends the program with this code: no connection or node does."
    return OF_EXIT_CODE.get(exit_code) or _faint(f"exit-{exit_code}", "unknown", 0.3, chosen, advice)


HANG = _faint("exec-hang", "hang", 0.72, "it stood still, and perdure exec ended it",
              "Look at the place at which the first one stopped; it may stop there again.")  # fmt: skip
"""A program that ``perdure exec`` holds to hang."""
