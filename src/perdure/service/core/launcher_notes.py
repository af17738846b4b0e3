"""What ``perdure exec`` says of an attempt's end: that it hung, or that its walltime was near. Pure.

Both are their owner's word, and count where nothing else is the cause. A hang is a witness where the log does not say
so. A walltime counts where the resource manager's own times agree: the attempt used its walltime but for the seconds
that the launcher speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.coordination.record import ExceptionRecord
from perdure.model.exits import HANG_ENDED, OURS, RETRY_ME, WALLTIME_SAID, WALLTIME_TOLD
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output, OutputFile
from perdure.retry.history import WALLTIME_FINGERPRINT
from perdure.triage.judge import judge
from perdure.triage.verdict import CauseRole, Evidence, Label, Reached, Verdict

HANG, WALLTIME = "app.hang", "app.walltime"
SLACK_S = 60.0  # Slurm counts walltime in minutes, and starts the program some seconds after the attempt
P_GOES_ON = 0.98
MAX_LINE = 300
_SAID = WALLTIME_SAID.encode()


def notes_of(kind: str, attempt: Attempt, records: Iterable[ExceptionRecord]) -> list[str]:
    """The notes of all exceptions of this kind about an attempt, the latest last."""
    own = (attempt.id.cluster, attempt.id.job_id, attempt.id.incarnation)
    return [
        record.note
        for record in records
        if record.type == kind and (record.subject.cluster, record.subject.job_id, record.incarnation) == own
    ]


def of_hang(verdict: Verdict, attempt: Attempt, notes: Sequence[str]) -> Verdict:
    """The verdict; that of a hang if the launcher reported one for this attempt and nothing else is the cause.

    The report is the owner's word about their own job, and is read like the same line in the log.
    """
    if not notes or attempt.exit_code != RETRY_ME or any(line.role is CauseRole.ROOT for line in verdict.evidence):
        return verdict
    found = judge(f"{HANG_ENDED}{notes[-1]}".encode("utf-8", "replace"), attempt)
    return replace(
        found, logs=verdict.logs, reached=verdict.reached, ending=verdict.ending, work_done=verdict.work_done
    )


def of_walltime(
    verdict: Verdict, output: Output, attempt: Attempt, walltime_s: float | None, notes: Sequence[str] = ()
) -> Verdict:
    """The verdict; that of an expired walltime if the launcher had warned the program and nothing else is the cause.

    `notes` are the launcher's reports while the attempt ran; they count like the same line in the log. An attempt that
    the resource manager ended at its walltime keeps that verdict, and can be continued if it had been warned.
    """
    steps, first_step = _progress(verdict)
    if attempt.state is AttemptState.TIMEOUT:
        verdict = replace(verdict, steps=steps, first_step=first_step)
    elif attempt.state is not AttemptState.FAILED or _has_a_cause(verdict, attempt):
        return verdict
    found = _told(output) or _told(Output(tuple(OutputFile("", f"{OURS}{note}".encode()) for note in notes)))
    if found is None or walltime_s is None or attempt.elapsed_s < walltime_s - found[0] - SLACK_S:
        return verdict
    left_s, line = found
    evidence = (Evidence(0, line, CauseRole.ROOT, "walltime-told"), *verdict.evidence)
    if attempt.state is AttemptState.TIMEOUT:
        return replace(verdict, fingerprint=WALLTIME_FINGERPRINT, evidence=evidence)
    return Verdict(
        Label.TRANSIENT,
        P_GOES_ON,
        "time_limit",
        f"its walltime was near: it was told {left_s:.0f} s before",
        evidence,
        fingerprint=WALLTIME_FINGERPRINT,
        advice="It goes on from its last checkpoint, as long as it gets further each time.",
        logs=verdict.logs,
        steps=steps,
        first_step=first_step,
        reached=verdict.reached,
    )


def _has_a_cause(verdict: Verdict, attempt: Attempt) -> bool:
    """Whether the log names a cause that stays: it failed while it had little time left."""
    if attempt.exit_code == RETRY_ME and not attempt.signal:
        return False
    return verdict.label is Label.DETERMINISTIC and any(each.role is CauseRole.ROOT for each in verdict.evidence)


def _progress(verdict: Verdict) -> tuple[int | None, int | None]:
    """How far it came, by its last checkpoint where the log shows that, and where it began."""
    reached = verdict.reached or Reached()
    return reached.step if reached.saved_step is None else reached.saved_step, reached.first_step


def _told(output: Output) -> tuple[float, str] | None:
    """The seconds that were left when the program was last warned, and the line that says so."""
    latest = None
    for file in output.files:
        at = -1 if file.doubt else file.tail.rfind(_SAID)
        if at < 0:
            continue
        line = file.tail[at : at + MAX_LINE].split(b"\n", 1)[0].decode("utf-8", "replace")
        seconds = line.removeprefix(WALLTIME_SAID).split(" ", 1)[0]
        if WALLTIME_TOLD in line and seconds.isascii() and seconds.isdecimal() and len(seconds) < 8:
            latest = max(latest or (0.0, line), (float(seconds), line))
    return latest
