"""The last line of a program that ended itself, where it says what is wrong with its configuration.

``sys.exit("config.yaml: unknown optimiser")`` prints such a line and ends with exit code 1; no rule knows its words.
"""

from __future__ import annotations

from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.rule import Cause
from perdure.triage.text.clean import MAX_LINE_BYTES, decode, scrub, tidy
from perdure.triage.text.logtext import LogText
from perdure.triage.text.patterns import compiled
from perdure.triage.verdict import CauseRole, Evidence

LOOK_BACK_BYTES = 64 * 1024
MOST_OWN = 125  # exit codes above it are a shell's, or stand for a signal
LAST_WORD = Cause(
    "last-word", "config", 0.12, CauseRole.ROOT,
    says="the program ended itself, and its last line says what is wrong with its configuration",
    advice="Correct what the line names, then submit the job again.",
)  # fmt: skip
LAST_TEST = Cause(
    "last-test", "config", 0.1,
    says="its script ends with a test that was false, which is then its exit code; its log shows no failure",
    advice="Make the last line an `if`, or end the script with `exit 0`; see whether its output is complete.",
)  # fmt: skip

_OF_CONFIGURATION = (
    r"(?i)\b[\w.-]+\.(?:ya?ml|toml|json|ini|cfg|conf)\b|\bconfig(?:uration)?\b|\bsettings?\b|\bhyper-?parameters?\b"
    r"|\b(?:option|argument|flag)s?\b|(?:^|[\s'\"`])--[a-z][\w-]+|\benvironment variable\b"
)
_IS_WRONG = (
    r"(?i)\b(?:unknown|unrecogni[sz]ed|invalid|missing|required|must|unsupported|unexpected|duplicate|undefined|wrong|bad"
    r"|no such|not (?:a|an|set|found|allowed|supported|valid|one of|given|defined)|expected|out of range"
    r"|does not exist|cannot|can't|could not)\b"
)
_GOES_ON = r"(?i)\b(?:ignor\w+|defaults?|defaulting|warn\w*|skip\w*|using|fall\w* back|deprecat\w+|re-?try\w*)\b"
_OF_A_LAUNCHER = r"^(?:srun|slurmstepd|make|bash|sh)\b[^ ]*: "


def ended_itself(attempt: Attempt | None) -> bool:
    """Whether the program ended by an exit code of its own choice that means a failure."""
    is_failed = attempt is not None and attempt.state is AttemptState.FAILED and not attempt.signal
    return is_failed and attempt is not None and 0 < attempt.exit_code <= MOST_OWN


def last_word(text: LogText, attempt: Attempt | None) -> Evidence | None:
    """That line; None where it names nothing wrong, or steps were made: what worked is configured rightly."""
    if not text.windows or not ended_itself(attempt):
        return None
    window = text.windows[0 if text.windows[0].source else -1]  # of several files errors come first
    data = scrub(window.data)
    lines = data.split(b"\n")
    at = next((n for n in range(len(lines) - 1, -1, -1) if _is_own(lines[n])), None)
    if at is None or progress_of(decode(data[-LOOK_BACK_BYTES:])).steps is not None:
        return None
    line = tidy(lines[at][:MAX_LINE_BYTES])
    says_so = compiled(_OF_CONFIGURATION).search(line) and compiled(_IS_WRONG).search(line)
    if not says_so or compiled(_GOES_ON).search(line):
        return None
    source = window.source.name if window.source else ""
    return Evidence(window.first_line + at, decode(line).strip(), LAST_WORD.role, LAST_WORD.name, source)


def of_last_test(attempt: Attempt | None, ends_with_test: bool) -> Cause | None:
    """Why a script ended with exit code 1 though nothing of its log shows a failure; None where that is not it."""
    is_test = ends_with_test and attempt is not None and ended_itself(attempt) and attempt.exit_code == 1
    return LAST_TEST if is_test else None


def unexplained(text: LogText, attempt: Attempt | None) -> str:
    """What to say of a program that ended itself, and of whose words no rule knows any; "" of others."""
    if attempt is None or not text.windows or not ended_itself(attempt):
        return ""
    return f"the program ended itself with exit code {attempt.exit_code}, and no rule knows why by its log"


def _is_own(raw: bytes) -> bool:
    return bool(raw.strip()) and not compiled(_OF_A_LAUNCHER).search(raw[:MAX_LINE_BYTES])
