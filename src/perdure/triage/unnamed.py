"""What a failure is that no rule names: its decisive line looked up in the catalogue, then read by the grammar.

It is asked only where the rules found nothing, a mere confirmation, a class of exceptions, or a line that scripts print
and go on after: what a rule names is never read again. Where neither knows the line, nothing like it was seen before,
and the verdict is unsure: a wrong stop costs more than one probing retry.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from perdure.triage.catalogue import KnownMessage, WhoseFault, own_catalogue
from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.deaths import ASKS_AGAIN
from perdure.triage.evidence.frames import companions
from perdure.triage.evidence.launchers import LauncherReport
from perdure.triage.evidence.matching import FRAME_OF_CPP, Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.evidence.rules import own_categories, own_rules
from perdure.triage.evidence.scheduler import Fact
from perdure.triage.grammar import BY, PASSING, own_grammar
from perdure.triage.text.clean import (
    CLEARED,
    INFORMED,
    MENTIONED,
    NO_GPU,
    QUOTED,
    SURVIVED,
    WARNED,
    decode,
    is_advice,
    tidy,
)
from perdure.triage.text.log_levels import is_told
from perdure.triage.text.logtext import END_BLOCK_BYTES, LogText, TextBlock, TextWindow
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.verdict import Bound, CauseRole

MOST_HITS, END_LINES = 16, 40
"""This many lines that confirm a failure, and this many of a log's end, are read at most."""

LINES_OF_ERROR = 3
"""A tool that writes its name before each line says in so many what is wrong; then come hints and help."""

NEAR = 4
"""Within this many lines the next one of a task is looked for."""

UNKNOWN = "unknown"

COARSE = frozenset(
    {
        "matlab-error",
        "python-value",
        "python-os",
        "timeout-python",
        "assertion",
        "app-config",
        "workflow-config",
        "java",
        "sql-error",
    }
)
"""Rules of no more than the class of an exception, or a word that any program uses: the message is read."""

NEW = "not-seen-before"
"""What the evidence of an error is called that no rule, no table and no wording of the grammar knows."""

LEAST_BY_THE_END = 0.3
"""What is only near the end of a log, where nothing says that it ended the job, does not stop it."""

MOST_UNDECIDED = 0.38
"""What was dealt with does not retry it either, whatever way the model leans."""

_LOGIN = (
    r".{0,60}(?:\.(?:bashrc|bash_profile|profile|login|cshrc|tcshrc|zshrc|zprofile)"
    r"|/etc/(?:[\w-]+/)?(?:profile|motd|issue|bash|csh|zsh)[\w.-]*)\b"
)
_BY_LOGIN = rf"(?i)^\s*{_LOGIN}"
"""What the files say that a shell reads when it starts: the job goes on."""

_IDLE = (
    rf"(?i)^\s*(?:usage: |\[-{{1,2}}\w|-{{1,2}}[a-z][\w-]*[ =,]|{_LOGIN}"
    r"|module(?:cmd)?: |(?:Lmod|ModuleCmd)|\++ |#|//|\*+ |>{3} )"
    r"|^\s*[\w.\[\]'\"-]{1,60}\s*(?:=|:|=>|\|)\s*(?:true|false|none|null|-?\d[\d.e+-]*|'[^']*'|\"[^\"]*\")[\s,;]*$"
    r"|\b(?:0|no|without|zero) (?:errors?|failures?|warnings?)\b|\b(?:errors?|failures?) ?[:=] ?0\b"
    r"|\b(?:info|debug|trace|notice|verbose)\b[\]:| -]"
)
"""Lines that alarm by a word and assert nothing: help texts, settings, noise of login files, counts of nothing."""

FROM_OUTSIDE = frozenset({1, 6, 9, 15})
"""Signals that come from outside: a hang-up, a kill, a wish to end, and the abort of a runtime whose peer is gone."""

_HOST_OOM, _HOST_OOM_RULE = "host_oom", "host-oom-alloc"
_ALLOCATION = r"Allocation of (\d{6,15}) exceeds \d+% of free system memory"
_LARGE_BYTES = 2**30
"""One that a process may be killed for; TensorFlow warns of small ones too where memory is short."""
_OF_DEATHS = frozenset({"killed", "launcher"})
_BY_SIGNAL = (
    r"(?i)(?:signal |exit(?:ed)? (?:on|by|with) signal )(?:1|6|9|15)\b|\b(?:Killed|Terminated|Hangup|Aborted)\b"
)

OF_LAUNCHER = r"^\s*(?:srun|sbatch|slurmstepd|mpirun|mpiexec|prterun|prted|orted|flux-\w+|torchrun)\b.{0,20}: "
"""Who speaks of another's end: tables know what they say, and their wording says nothing of its cause."""

_OF_PROGRAM = r"^\s*[a-z][\w.+-]{1,30}: \S"
"""How programs report an error, by the conventions of POSIX and GNU: their name, a colon, what is wrong."""

_BEHIND_ERROR = r"^(\S{1,40} (?:error|ERR!|ERROR))(?:\s|$)"
"""A tool's name and the word, which some write before every line."""

_GOES_ON_BELOW = r":$| - @unknown$|^\{?Error using \S+(?: \(line \d+\))?$"
"""A line whose message is the next: Nextflow writes the second before an exception of no task, MATLAB the third."""

_CHAINED = r"exception was the direct cause of the following|During handling of the above exception"

_UNREAD = Cause("", UNKNOWN, LEAST_BY_THE_END)

Sign = Hit | Fact | LauncherReport


class _Line(Struct, frozen=True):
    """A line that may be decisive."""

    number: int
    text: bytes  # tidied
    like: Hit  # of the same task and stretch of the log
    is_last: bool = False  # of the log, in the form in which programs report errors


def is_of_login(line: bytes) -> bool:
    """Whether a file says it that a shell reads when it starts."""
    return compiled(_BY_LOGIN).search(line) is not None


def is_guess(cause: Cause) -> bool:
    """Whether the cause is too little known to stop a job for it, or to retry it more than once."""
    return cause.name == NEW or cause.unproven


def is_open(primary: Sign | None) -> bool:
    """Whether the sign that is believed leaves the cause open."""
    if primary is None:
        return True
    cause = primary.cause
    if not isinstance(primary, Hit):
        return cause.category == UNKNOWN and cause not in ASKS_AGAIN
    if cause.role is CauseRole.ROOT:
        return cause.force in (Force.GENERIC, Force.FAINT)
    return cause.role is CauseRole.CONFIRMATION


def is_death_from_outside(primary: Sign | None) -> bool:
    """Whether all that is known is that a signal ended a task which a task does not send to itself: its node may "
    "say why."""
    if primary is None or primary.cause.role is CauseRole.ROOT:
        return False
    if isinstance(primary, LauncherReport):
        return primary.signal in FROM_OUTSIDE
    of_signal = compiled(_BY_SIGNAL).search(primary.text.encode()) is not None
    return primary.cause.category in _OF_DEATHS or of_signal


def told_by_node(hits: Sequence[Hit], passed: Container[int], text: LogText) -> Hit | None:
    """The line in which the node or its manager says why it ended a task: hardware that broke, memory that did not
    suffice; None where there is none.
    """
    lines = [line for line in end_lines(text, hits) if line.number not in passed and _asserts(line)]
    found = ((line, own_catalogue().find(line.text)) for line in lines)
    told = [(line, known) for line, known in found if known and known.fault is WhoseFault.HARDWARE]
    if told:
        return _hit(*told[-1])
    short = ((line, own_grammar().parse(line.text)) for line in lines)
    of_memory = [(line, own_grammar().means(parsed)) for line, parsed in short if parsed and parsed.kind == "memory"]
    named = next((_hit(line, read) for line, read in of_memory if read.category == _HOST_OOM), None)
    return named or _large_allocation(text, hits)


def _large_allocation(text: LogText, hits: Sequence[Hit]) -> Hit | None:
    """The last line near the end in which TensorFlow warns of an allocation of a gigabyte or more."""
    rule = own_rules().named(_HOST_OOM_RULE)
    for line in end_lines(text, hits):
        found = capturing(_ALLOCATION).search(line.text)
        if rule and found and int(found[1]) >= _LARGE_BYTES:
            return replace(line.like, cause=rule.cause, line=line.number, text=decode(line.text).strip())
    return None


def explained(primary: Sign | None, hits: Sequence[Hit], passed: Container[int], text: LogText) -> Hit | None:
    """The decisive line with what catalogue or grammar say of it; None where they say no more than `primary`.

    `hits` are those that count; lines of the numbers `passed` were found to be no cause.
    """
    if isinstance(primary, Hit) and primary.cause.role is CauseRole.ROOT:
        return _of_root(primary, hits)
    if isinstance(primary, Hit) and primary.cause.force is Force.FAINT:  # it was dealt with
        return replace(primary, cause=_undecided(primary.cause))
    told = [hit for hit in hits if hit.cause.category == UNKNOWN]
    others = {hit.line for hit in hits} - {hit.line for hit in told}
    lines = [*chain.from_iterable(map(_own_lines, told[:MOST_HITS])), *end_lines(text, hits)]
    found = _known([line for line in lines if not (line.number in others or line.number in passed) and _asserts(line)])
    if found is None or isinstance(primary, LauncherReport | Fact) or _ends(found):  # which says that it failed
        return found
    return replace(found, cause=_careful(found.cause))


def _ends(found: Hit) -> bool:
    known = own_catalogue().find(found.text.encode())
    return known is not None and known.ends


def _of_root(primary: Hit, hits: Sequence[Hit]) -> Hit | None:
    """What is known of a line that a rule took for the cause, and of which it says little."""
    lines, cause = list(_own_lines(primary)), primary.cause
    if cause.category == UNKNOWN:
        return _known(lines, asserted=True) or _told_by_chain(primary, hits) or replace(primary, cause=_new(cause))
    if cause.force is Force.FAINT and is_of_login(lines[0].text):
        return replace(primary, cause=_undecided(cause))
    if cause.name in COARSE and (found := _known(lines, asserted=True)) is not None:
        return found if found.cause.category != cause.category else None
    return _passing(lines) if cause.force is Force.FAINT and cause.p_transient < PASSING else None


def _told_by_chain(primary: Hit, hits: Sequence[Hit]) -> Hit | None:
    """The exception that was raised from one which nobody knows, where it is known; None where there is none."""
    below = primary.block.scrubbed().split(b"\n")[primary.line - primary.block.first_line + 1 :][:NEAR]
    if not any(compiled(_CHAINED).search(line) for line in below):
        return None
    later = (hit for hit in hits if hit.run == primary.run and hit.rank == primary.rank and hit.order > primary.order)
    named = (hit for hit in later if hit.cause.role is CauseRole.ROOT and hit.cause.category != UNKNOWN)
    return next(named, None)


def _passing(lines: Sequence[_Line]) -> Hit | None:
    """What mostly passes, by a table, or by the words of a line: those alone do not retry a job."""
    found = _listed(lines) or _known(lines, asserted=True)
    if found is None or found.cause.p_transient < PASSING:
        return None
    return found if found.cause.name != BY else replace(found, cause=_undecided(found.cause))


def _new(cause: Cause) -> Cause:
    says, advice = "an error whose like was not seen before", "Read the line; a site can add a rule for it."
    return replace(cause, name=NEW, says=says, advice=advice)


def _undecided(cause: Cause) -> Cause:
    """What was dealt with, or is in a login file, decides nothing."""
    return replace(cause, p_transient=min(max(cause.p_transient, LEAST_BY_THE_END), MOST_UNDECIDED))


def _careful(cause: Cause) -> Cause:
    return replace(cause, p_transient=max(cause.p_transient, LEAST_BY_THE_END))


def _listed(lines: Sequence[_Line]) -> Hit | None:
    """The first line that the catalogue knows."""
    found = ((line, own_catalogue().find(line.text)) for line in lines)
    return next((_hit(line, known) for line, known in found if known is not None), None)


def _known(lines: Sequence[_Line], asserted: bool = False) -> Hit | None:
    """The first line that the catalogue knows, else that the grammar reads, else whose class a table knows."""
    if (listed := _listed(lines)) is not None:
        return listed
    catalogue, grammar = own_catalogue(), own_grammar()
    for line in lines:
        if compiled(OF_LAUNCHER).search(line.text):
            continue
        if (parsed := grammar.parse(line.text, asserted or line.is_last)) and (
            read := grammar.means(parsed)
        ).category != UNKNOWN:
            return _hit(line, read)
        if known := catalogue.find(line.text, general=True):
            return _hit(line, known)
    return None


def _hit(line: _Line, known: KnownMessage) -> Hit:
    return replace(line.like, cause=_cause(known), line=line.number, text=decode(line.text).strip())


def _cause(known: KnownMessage) -> Cause:
    of = own_categories()[known.category]
    read = known.by == BY
    says = f"{known.means}, by the words of its line" if read else f"{known.means}, as {known.speaker} says"
    bound = {WhoseFault.HARDWARE: Bound.NODE, WhoseFault.SERVICE: Bound.SERVICE}.get(known.fault, Bound.NOTHING)
    return Cause(
        known.by,
        known.category,
        known.p_transient,
        CauseRole.ROOT,
        Force.GENERIC,
        says,
        of.advice,
        bound,
        of.infrastructure and not read and known.fault is not WhoseFault.JOB,
        of.wait_s,
        part_of=of.part_of,
        unproven=not known.proven,
    )


def _own_lines(hit: Hit) -> Iterator[_Line]:
    """A hit's line, with the next where it ends in a colon, and those that go on with its message."""
    text = hit.text.encode()
    yield _Line(hit.line, text, hit)
    if compiled(_GOES_ON_BELOW).search(text.rstrip()) and (after := _line_after(hit)).strip():
        yield _Line(hit.line, text + b" " + after.strip(), hit)
    for frame in companions(hit):
        yield _Line(frame.line, frame.text.encode(), hit)


def _line_after(hit: Hit) -> bytes:
    """The next line of the task that wrote a hit; b"" where its block ends before."""
    lines = hit.block.scrubbed().split(b"\n")[hit.line - hit.block.first_line + 1 :][:NEAR]
    return next((tidy(raw) for raw in lines if rank_of(raw) == hit.rank), b"")


def end_lines(text: LogText, hits: Sequence[Hit]) -> Iterator[_Line]:
    """The last lines of the log, or of the file that the hits are in, the last first, back to where work was done."""
    if not text.windows:
        return
    source = (hits[-1].block.window if hits else text.windows[0]).source
    block = _end_of(next(window for window in reversed(text.windows) if window.source is source))
    lines = block.scrubbed().split(b"\n")
    run, order = max(((hit.run, hit.order) for hit in hits), default=(0, 0))
    last = next((index for index in range(len(lines) - 1, -1, -1) if lines[index].strip()), -1)
    own = (index for index in range(len(lines) - 1, -1, -1) if not _goes_on(lines, index))
    for index in islice(own, END_LINES):
        line = tidy(lines[index])
        if b"%|" in lines[index] or progress_of(decode(line)).steps is not None:
            return
        if line.strip() and not is_told(lines[index]):
            like = Hit(_UNREAD, 0, "", order, rank_of(lines[index]), block, run)
            is_last = index == last and compiled(_OF_PROGRAM).search(line) is not None
            yield _Line(block.first_line + index, line, like, is_last)


def _goes_on(lines: Sequence[bytes], index: int) -> bool:
    """Whether a line goes on with what a tool said lines before behind the same words: help, where it was called wrong.

    npm writes "npm error" before every line, and says in the first what is wrong.
    """
    said = capturing(_BEHIND_ERROR).search(lines[index])
    before = lines[max(0, index - LINES_OF_ERROR) : index]
    return said is not None and len(before) == LINES_OF_ERROR and all(line.startswith(said[1]) for line in before)


def _end_of(window: TextWindow) -> TextBlock:
    data = window.data
    start = data.rfind(b"\n", 0, max(0, len(data) - END_BLOCK_BYTES)) + 1
    return TextBlock(window, start, len(data), window.first_line + data.count(b"\n", 0, start))


def _asserts(line: _Line) -> bool:
    """Whether a line may say that something failed; a help text, a setting or a remark does not."""
    if not (line.is_last or own_grammar().alarms(line.text) or own_catalogue().may_know(line.text)):
        return False
    if is_advice(line.text) or is_told(line.text) or line.text.startswith(FRAME_OF_CPP):
        return False
    return not any(compiled(pattern).search(line.text) for pattern in _IDLE_LINES)


_IDLE_LINES = (_IDLE, CLEARED, INFORMED, MENTIONED, NO_GPU, QUOTED, SURVIVED, WARNED)
