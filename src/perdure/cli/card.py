"""A diagnosis as a card for a person: the cause once, the line that shows it first, and what to do."""

from __future__ import annotations

import posixpath
import re
import shlex
import sys
from collections.abc import Iterator, Sequence

from perdure.cli.diagnosis import SAME_NODE, Diagnosis
from perdure.cli.output import STYLES, clock, coloured, paint, screen_width
from perdure.cli.table import GAP, cell_width, wrapped
from perdure.cli.text import plain
from perdure.installation import program, to_type
from perdure.retry.decide import DecisionKind
from perdure.triage.judge import FRAME, MESSAGE
from perdure.triage.reading_order import in_order_of_reading, naming_rule
from perdure.triage.remedies import JOB_ID, OUTPUT_DIR, remedy
from perdure.triage.verdict import CANCELLED, CauseRole, Evidence, Label, Verdict

WOULD = {
    Label.DETERMINISTIC: "it would fail again",
    Label.TRANSIENT: "a retry would help",
    Label.UNSURE: "nobody can tell yet",
    CANCELLED: "somebody ended it; its owner decides whether it runs again",
}
AS_SERVICE = {
    DecisionKind.RETRY: "it would retry",
    DecisionKind.PROBE: "it would give one probing retry, since a job's own log can say anything of the site",
    DecisionKind.STOP: "it would stop",
}
ROLES = {
    CauseRole.ROOT: ("root", "red"),
    CauseRole.CASCADE: ("cascade", "yellow"),
    CauseRole.CONFIRMATION: ("also", "dim"),
}
CODE = ("code", "cyan")  # the innermost frame of the job's own code
JOB_NUMBER = re.compile(r"\d{1,10}(?:_\d{1,10})?", re.ASCII)  # of a job, or of a task of an array
MAX_SHOWN = 400  # characters of a line of evidence
_NODE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(?:\[[0-9,-]{1,200}\])?"
NODE_NAMES = re.compile(rf"{_NODE_NAME}(?:,{_NODE_NAME}){{0,31}}", re.ASCII)  # as Slurm lists them: gpu[01-03],gpu7
_FULL = r"(?:No space left on device|\[Errno 28\])"
_PATH = r"(/[\w.+=@,%~/-]{1,300})"
# The file that could not be written: the last in quotes, or the one before ": No space left on device".
_WRITTEN = re.compile(rf"""{_FULL}.*['"]{_PATH}['"]|['"]{_PATH}['"].*{_FULL}|: {_PATH}: {_FULL}""", re.ASCII)
_REPEATED = re.compile(rf"^(?:{'|'.join(DecisionKind)})[ ,]+")  # the label says it already
NARROW, NARROWEST = 60, 36  # a narrower terminal shows no roles next to the lines: with colours, and without


def print_card(diagnosis: Diagnosis) -> None:
    """Print the verdict, the lines that show it, and the advice."""
    for line in card(diagnosis, screen_width()):
        sys.stdout.write(f"{line}\n")


def card(diagnosis: Diagnosis, width: int | None = None) -> Iterator[str]:
    """The lines of a card, in `width` characters; None: each as long as it is."""
    if not diagnosis.has_failed:
        yield from _done(diagnosis, width)
        return
    verdict, decision = diagnosis.verdict, diagnosis.decision
    word = decision.headline(verdict)
    says = WOULD[word]
    if verdict.label is Label.TRANSIENT and decision.kind is DecisionKind.STOP:
        word, says = str(decision.kind), "by its log alone a retry would help, but not for this job"
    p = decision.p_transient or verdict.p_transient
    first = f"{plain(str(diagnosis.id))}  "
    for n, part in enumerate(_parts(f"{first}{word.upper()}: {says} (p = {p:.2f})", width)):
        yield paint(part, "bold" if n else f"bold {STYLES[word]}")
    yield from _parts(f"{plain(verdict.category)}: {plain(verdict.quoted or verdict.summary)}", width)
    yield ""
    if verdict.evidence:
        yield from _evidence(verdict, width)
        yield ""
    labelled = list(_what_to_do(diagnosis))
    margin = max(len(label) for label, _ in labelled)
    for label, text in labelled:
        yield from _labelled(label, margin, text, f"bold {STYLES.get(label.lower(), '')}".strip(), width)
    yield ""


def _done(diagnosis: Diagnosis, width: int | None) -> Iterator[str]:
    for n, part in enumerate(_parts(f"{plain(str(diagnosis.id))}  DONE: {diagnosis.why_done}", width)):
        yield paint(part, "bold" if n else "bold green")
    yield ""
    yield from _labelled("NOTE", len("NOTE"), diagnosis.verdict.ending, "bold", width)
    yield ""


def _what_to_do(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Labels, each with what is said under it."""
    verdict, decision = diagnosis.verdict, diagnosis.decision
    if verdict.ending:
        yield "NOTE", verdict.ending
    reason = decision.reason.removeprefix(f"{verdict.summary}: ")  # the cause was said above
    when = f"decided at {clock(diagnosis.decided_s).short}: " if diagnosis.decided_s is not None else ""
    yield decision.kind.upper(), when + _with_node(_REPEATED.sub("", reason), verdict)
    if diagnosis.by_service is not None:
        yield "SERVICE", f"by this log alone: {AS_SERVICE[diagnosis.by_service]}"
    if advice := verdict.advice if decision.retries else _after_stop(verdict.advice):
        yield "DO", to_type(advice)
    yield from (("RUN", command) for command in _commands(diagnosis))
    if rule := naming_rule(verdict):
        yield "SEE", f"{program()} rules {rule}"


def _after_stop(advice: str) -> str:
    """The advice without "Retry ..." at its head, which contradicts a stop.

    >>> _after_stop("Retry on another node; tell the operators about this one."), _after_stop("Retry on another node.")
    ('Tell the operators about this one.', '')
    """
    first, _, rest = advice.partition("; ")
    return f"{rest[:1].upper()}{rest[1:]}" if first.startswith("Retry") else advice


def _commands(diagnosis: Diagnosis) -> Iterator[str]:
    """Commands to paste. Names of nodes and paths come from a log: only what can be one gets into a command."""
    verdict, rule = diagnosis.verdict, naming_rule(diagnosis.verdict)
    line = next((line.text for line in verdict.evidence if line.rule == rule), "")
    if rule and (command := remedy(rule, line)):
        command = command.replace(OUTPUT_DIR, _output_dir(verdict) or OUTPUT_DIR)
        yield command.replace(JOB_ID, diagnosis.job_id if JOB_NUMBER.fullmatch(diagnosis.job_id) else JOB_ID)
    if SAME_NODE in diagnosis.decision.exclude and _is_node(verdict.node):
        yield f"sbatch --exclude={shlex.quote(verdict.node)} SCRIPT"
    if diagnosis.elsewhere:
        yield diagnosis.elsewhere


def _output_dir(verdict: Verdict) -> str:
    """The directory of the file that found its disk full, as far as the lines of evidence name it; else ""."""
    matches = [match for line in verdict.evidence if (match := _WRITTEN.search(line.text))]
    path = next(filter(None, matches[0].groups()), "") if matches else ""
    parent = posixpath.dirname(path)
    return shlex.quote(path if parent == "/" else parent) if path else ""


def _with_node(reason: str, verdict: Verdict) -> str:
    return reason.replace(SAME_NODE, verdict.node) if _is_node(verdict.node) else reason


def _is_node(name: str) -> bool:
    return NODE_NAMES.fullmatch(name) is not None


def _evidence(verdict: Verdict, width: int | None) -> Iterator[str]:
    """The lines, each behind its number: what named the cause, where in the job's code, then the others in order."""
    shown = in_order_of_reading(verdict)
    numbers = [_number(line) for line in shown]
    margin = max(map(cell_width, numbers))
    with_roles = width is None or width >= (NARROW if coloured() else NARROWEST)
    for number, line in zip(numbers, shown, strict=True):
        role, style = {FRAME: CODE, MESSAGE: ("", "dim")}.get(line.rule, ROLES[line.role])
        before = f"{number:>{margin}}{GAP}" + (f"{role:<7}{GAP}" if with_roles else "")
        after = None if width is None else width - cell_width(before)
        parts = _parts(_place(line) or plain(line.text, MAX_SHOWN), after)
        for n, part in enumerate(parts):
            indent = paint(before, style) if n == 0 else " " * cell_width(before)
            yield indent + paint(part, "bold" if line.role is CauseRole.ROOT else "")


def _place(line: Evidence) -> str:
    """A frame as editors take it: train.py:12, in step; "" for what is not a frame. Of a crash it has no comma."""
    if line.rule != FRAME:
        return ""
    path, found, rest = line.text.removeprefix('File "').partition('", line ')
    number, _, place = rest.replace(",", "", 1).partition(" ")
    return plain(f"{path}:{number}" + (f", {place}" if place else ""), MAX_SHOWN) if found else ""


def _number(line: Evidence) -> str:
    return ":".join(filter(None, (plain(line.source), str(line.line)))) if line.line else "fact"


def _labelled(label: str, margin: int, text: str, style: str, width: int | None) -> Iterator[str]:
    """A label, and next to it what is said under it; a command to paste stays on one line."""
    room = None if width is None or label in ("RUN", "SEE") else width - margin - len(GAP)
    for n, part in enumerate(_parts(plain(text), room)):
        yield (paint(label, style) + " " * (margin - len(label)) if n == 0 else " " * margin) + GAP + part


def _parts(sentence: str, width: int | None) -> Sequence[str]:
    """A text as it is where it fits, else as lines broken between words."""
    return [sentence] if width is None or cell_width(sentence) <= width else wrapped(sentence, max(20, width))
