"""What the resource manager says of an attempt, as evidence of its own: state, exit code, signal, reason."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import IS_NOT_THERE, Absent, Why
from perdure.model.signals import in_words, persons_deed, persons_signal
from perdure.triage.evidence.deaths import OF_EXIT_CODE, OF_SIGNAL
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.text.patterns import capturing
from perdure.triage.verdict import Bound, CauseRole

_NAMES = r"([A-Za-z0-9][\w.,\[\]-]{0,255})"  # one node, or a list as Slurm writes it: gpu[01-03]
_SAYS = rf"(?:srun|salloc): error: (?:Node failure on {_NAMES}|Task launch for \S{{1,80}} failed on node {_NAMES}: )"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something known of an attempt that is in no log."""

    cause: Cause
    text: str


def facts(attempt: Attempt, absent: Sequence[Absent] = ()) -> tuple[Fact, ...]:
    """The facts that bear on why `attempt` failed, the weightiest first; none for one that runs or went well.

    `absent` is what could not be read of its output: a launch that failed since its output has no place is no
    node's fault.

    A state that the resource manager knows at first hand (a node lost, a preemption, a limit) is decisive: no
    text outranks it. Where it says only that the program failed, the exit code and signal are faint evidence,
    to which any root in the text is preferred.
    """
    if not attempt.state.is_failure and attempt.state not in _OF_STATE:
        return ()
    if (workdir := _of_workdir(attempt)) is not None:
        return (workdir,)
    found = [
        _of_output(attempt, absent),
        _of_state(attempt),
        _of_launch(attempt),
        _of_signal(attempt),
        _of_exit_code(attempt),
    ]
    return tuple(fact for fact in found if fact is not None)


_NODE_ADVICE = "Retry on another node."

_OF_STATE: dict[AttemptState, Cause] = {
    AttemptState.NODE_FAIL: Cause(
        "state-node-fail", "node_loss", 0.97, CauseRole.ROOT, Force.DECISIVE, "a node failed under the job",
        _NODE_ADVICE,
        Bound.NODE, True,
    ),
    AttemptState.BOOT_FAIL: Cause(
        "state-boot-fail", "node_loss", 0.96, CauseRole.ROOT, Force.DECISIVE, "a node did not boot for the job",
        _NODE_ADVICE, Bound.NODE, True,
    ),
    AttemptState.PREEMPTED: Cause(
        "state-preempted", "preempt", 0.98, CauseRole.ROOT, Force.DECISIVE, "the job was preempted",
        "Nothing is wrong with the job; checkpoint on the warning signal.", Bound.NOTHING, True,
    ),
    AttemptState.LAUNCH_FAILED: Cause(
        "state-launch-failed", "launcher", 0.85, CauseRole.ROOT, Force.PLAIN, "the job never got as far as its program",
        "A retry on another node usually starts; check that the output directory exists on it.", Bound.NODE, True,
    ),
    AttemptState.OUT_OF_MEMORY: Cause(
        "state-out-of-memory", "host_oom", 0.05, CauseRole.ROOT, Force.DECISIVE,
        "the job needs more host memory than it may use",
        "Ask for more memory, or use fewer data loading workers or smaller batches.",
    ),
    AttemptState.TIMEOUT: Cause(
        "state-timeout", "time_limit", 0.04, CauseRole.ROOT, Force.DECISIVE, "the walltime was reached",
        "Ask for more walltime, or checkpoint and continue in a further job.",
    ),
    AttemptState.DEADLINE: Cause(
        "state-deadline", "time_limit", 0.03, CauseRole.ROOT, Force.DECISIVE, "the job's deadline passed",
        "Submit it with a later deadline.",
    ),
    AttemptState.CANCELLED: Cause(
        "state-cancelled", "cancelled", 0.02, CauseRole.ROOT, Force.DECISIVE, "somebody cancelled the job",
        "It is not recovered against a person's wish.",
    ),
    AttemptState.LOST: Cause(
        "state-lost", "forgotten", 0.65, CauseRole.ROOT, Force.DECISIVE,
        "its resource manager has forgotten that it ran, and nobody saw how it ended",
        "The resource manager may have lost its latest state; no node is blamed.", Bound.NOTHING, True,
    ),
}  # fmt: skip


_WORKDIR_MISSING = Cause(
    "working-directory-missing", "missing_file", 0.03, CauseRole.ROOT, Force.DECISIVE,
    "the job was not started, as its working directory does not exist",
    "Create the directory or name another, then submit the job again.",
)  # fmt: skip


def names_missing_workdir(fact: Fact) -> bool:
    """Whether it says all: where a job has no place to start in, it has no log either."""
    return fact.cause is _WORKDIR_MISSING


def _of_workdir(attempt: Attempt) -> Fact | None:
    """The manager looked for the directory itself; it is missing on every node alike."""
    said = attempt.reason.partition("working directory ")[2]
    if attempt.state is not AttemptState.LAUNCH_FAILED or not said.endswith(" does not exist"):
        return None
    return Fact(_WORKDIR_MISSING, f"state {attempt.state.value.upper()}: {attempt.reason}")


def _of_state(attempt: Attempt) -> Fact | None:
    cause = _OF_STATE.get(attempt.state)
    if cause is None:
        return None
    where = f" on {', '.join(attempt.failed_nodes)}" if attempt.failed_nodes else ""
    reason = f": {attempt.reason}" if attempt.reason and attempt.reason.lower() != "none" else ""
    return Fact(cause, f"state {attempt.state.value.upper()}{where}{reason}")


LAUNCH_SIGNAL = 53
"""Slurm's own: with exit code 0 it says that the launch failed, often an output file that could not be opened."""


def _of_launch(attempt: Attempt) -> Fact | None:
    told = attempt.reason.replace(" ", "").lower()
    named = not attempt.signal and ("launchfail" in told or "joblaunch" in told)
    if attempt.state is AttemptState.FAILED and (named or (attempt.signal, attempt.exit_code) == (LAUNCH_SIGNAL, 0)):
        text = f"exit {attempt.exit_code}:{attempt.signal} {attempt.reason}".strip()
        return Fact(_OF_STATE[AttemptState.LAUNCH_FAILED], text)
    return None


_OUTPUT_ADVICE = "Create the directory or correct --output and --error, then submit the job again."

_OF_OUTPUT: dict[Why, Cause] = {
    Why.NO_DIRECTORY: Cause(
        "output-directory-missing", "missing_file", 0.03, CauseRole.ROOT, Force.DECISIVE,
        "the job was not started, as the directory for its output does not exist", _OUTPUT_ADVICE,
    ),
    Why.NOT_WRITABLE: Cause(
        "output-not-writable", "permission", 0.04, CauseRole.ROOT, Force.DECISIVE,
        "the job was not started, as its user may not write its output there", _OUTPUT_ADVICE,
    ),
    Why.MISSING: Cause(
        "output-not-seen", "launcher", 0.4, CauseRole.ROOT, Force.DECISIVE,
        "the job was not started, and the directory for its output is not seen from here", _OUTPUT_ADVICE,
    ),
}  # fmt: skip


def has_failed_to_launch(attempt: Attempt) -> bool:
    """Whether the attempt never got as far as its program."""
    is_told = attempt.state is AttemptState.LAUNCH_FAILED or _of_launch(attempt) is not None
    return is_told and not attempt.exit_code


_DIRECTORY_GONE = Cause(
    "output-directory-gone", "missing_file", 0.03, CauseRole.ROOT, Force.DECISIVE,
    "the directory for its output is gone since it began, and without it no new attempt can start",
)  # fmt: skip


def _of_output(attempt: Attempt, absent: Sequence[Absent]) -> Fact | None:
    """Why a launch failed, or the next one would, by where the output was to go."""
    if not has_failed_to_launch(attempt):
        gone = next((each for each in absent if each.why is Why.NO_DIRECTORY), None)
        if gone is None or attempt.state is not AttemptState.FAILED:
            return None
        advice = f"Run mkdir -p {shlex.quote(os.path.dirname(gone.path))}, then submit the job again."
        return Fact(replace(_DIRECTORY_GONE, advice=advice), f"{gone.path}: {gone.says}")
    found = [each for each in absent if each.why in (Why.NO_DIRECTORY, Why.NOT_WRITABLE)]
    found += [each for each in absent if each.why is Why.MISSING and each.says != IS_NOT_THERE]
    return Fact(_OF_OUTPUT[found[0].why], f"{found[0].path}: {found[0].says}") if found else None


def _of_person(number: int, deed: str) -> Cause:
    advice = "Nobody starts it again but its owner."
    return Cause(f"signal-of-a-person-{number}", "cancelled", 0.02, CauseRole.ROOT, Force.DECISIVE, deed, advice)


def _of_signal(attempt: Attempt) -> Fact | None:
    if attempt.state is not AttemptState.FAILED:
        return None
    if number := persons_signal(attempt):
        cause = _of_person(number, persons_deed(attempt))
        return Fact(cause, f"the script ended by {in_words(number)}, exit code {attempt.exit_code}")
    signal = attempt.signal or (attempt.exit_code - 128 if attempt.exit_code > 128 else 0)
    found = OF_SIGNAL.get(signal)
    code = f"exit code {attempt.exit_code}, " if attempt.exit_code else ""
    return Fact(found, f"{code}signal {signal}") if found is not None else None


def _of_exit_code(attempt: Attempt) -> Fact | None:
    if attempt.state is not AttemptState.FAILED or attempt.signal:
        return None
    cause = OF_EXIT_CODE.get(attempt.exit_code)
    return Fact(cause, f"exit code {attempt.exit_code}") if cause is not None else None


def lost_nodes(line: str) -> str:
    """The nodes that a line of srun or salloc calls lost, as Slurm takes them; "" where it names none.

    Only what these print of other nodes counts: ``*** JOB 17 ON n1 CANCELLED ... DUE TO NODE FAILURE ***`` names the
    node of the slurmstepd that says so, which is one that survived.

    >>> lost_nodes("srun: error: Node failure on gpu[01-03]")
    'gpu[01-03]'
    >>> lost_nodes("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE ***")
    ''
    """
    if ": error: " not in line:
        return ""
    found = capturing(_SAYS).search(line.encode("utf-8", "replace"))
    return next(((name or b"").decode().rstrip(".,") for name in found.groups() if name), "") if found else ""
