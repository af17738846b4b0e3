"""The verdict: rules, facts and the model weighed together.

    z = logit(p of the primary cause) + pull * clip(z of the model, -cap, cap) + shift of the circumstances

Where a launcher's report names the task that failed first, that task's own words are the primary cause, else what the
report says of its end (`launchers`). Elsewhere it is, in this order: a decisive fact or line of the resource manager;
the first plain root in the block of failure lines that was not survived; the first generic root; the first cascade, of
text or of fact; the first faint root; what merely confirms a failure; what was dealt with. The surer
the cause, the smaller the model's pull; next to a cascade it is zero, since there the rules were right more often than
the model on logs that it had not seen. p = 1 / (1 + exp(-z)); the label follows from it by thresholds that keep the
share of errors of each kind under what was promised (`conformal`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.model.jobs import Attempt
from perdure.model.output import Output
from perdure.triage.asked_wait import asked_wait_s
from perdure.triage.classifiers.linear import own_model
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.conformal import Thresholds, own_thresholds
from perdure.triage.culprit import culprit
from perdure.triage.evidence.answered import OF_SERVICES, answered_before
from perdure.triage.evidence.context import (
    Circumstance,
    Context,
    became_read_only,
    circumstances,
    progress_of,
    shift_of,
    with_steps_of,
)
from perdure.triage.evidence.deaths import ABORT, ASKS_AGAIN, NOT_FOUND, OF_EXIT_CODE, OF_SIGNAL, aborts_itself
from perdure.triage.evidence.earlier_runs import without_earlier_runs
from perdure.triage.evidence.excerpt import excerpt, last_block
from perdure.triage.evidence.frames import CRASH, companions, innermost_own, raised
from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.evidence.hardware import proof_of, without_crashed_kernels, without_older
from perdure.triage.evidence.last_word import LAST_WORD, ended_itself, last_word, of_last_test, unexplained
from perdure.triage.evidence.launchers import OF_PEERS, LauncherReport, first_failure, of_component
from perdure.triage.evidence.matching import Hit, RuleBook
from perdure.triage.evidence.other_end import with_ended_readers, without_cut_by_crash
from perdure.triage.evidence.other_jobs import without_other_jobs
from perdure.triage.evidence.outlived import without_long_past, without_outlived
from perdure.triage.evidence.ranks import Merged, merged
from perdure.triage.evidence.reckoning import reckoned
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.evidence.rules import own_rules
from perdure.triage.evidence.scheduler import Fact, facts, lost_nodes, names_missing_workdir
from perdure.triage.evidence.settled import settled_or_doubted
from perdure.triage.evidence.survived_steps import after_steps, as_guess, is_of_step
from perdure.triage.evidence.telling import most_telling
from perdure.triage.evidence.warning_lines import without_overruled
from perdure.triage.narrower import narrowed
from perdure.triage.passing_trouble import trouble_near
from perdure.triage.remarks import remarks_on
from perdure.triage.root_line import digest, fingerprint_of, is_named, message_of, of_message, shown_message
from perdure.triage.sentence import quoted
from perdure.triage.services import outside_of_nodes
from perdure.triage.text.logtext import LogText
from perdure.triage.text.masking import mask
from perdure.triage.text.patterns import compiled
from perdure.triage.unnamed import explained, is_death_from_outside, is_guess, is_of_login, is_open, told_by_node
from perdure.triage.verdict import MAX_LOGS, Bound, CauseRole, Evidence, Label, Verdict

Sign = Hit | Fact | LauncherReport


FRAME = "own-frame"
"""What the evidence of the innermost frame in a job's own code is called."""

_MODULE_MISSING, _ENVIRONMENT_MISSING, _MODULE_LOAD = "python-module-missing", "environment-missing", "module-load"
_INSTALL_FAILED = "package-install"
_FOUND_MODULE = r"cannot import name|undefined symbol"
"""Words of what fails in a module that was found, whatever environment is missing."""

_OF_SETUP = frozenset({_MODULE_MISSING, "command-missing", "command-missing-translated"})
"""What a script lacks whose environment module did not load."""

_TRACEBACK, _EXCEPTION = "traceback", "python-other-exception"
_SIGNALLED, _STEP_CANCELLED = "preempt-signal", "slurm-cancelled"
_NOT_FOUND_LINES = ("command-missing", "command-missing-translated", _ENVIRONMENT_MISSING)

MESSAGE = "message"
"""What the evidence of lines that go on with the message of the cause is called."""


class Leaning(Protocol):
    """What a verdict needs of a model (`classifiers.protocol.Model`)."""

    def log_odds(self, reading: Reading) -> float:
        """Calibrated natural log-odds that the failure is transient, both kinds being equally frequent."""
        ...


class NoModel(Struct, frozen=True):
    """Leans nowhere: rules and facts decide alone."""

    def log_odds(self, reading: Reading) -> float:  # noqa: ARG002  (a model reads it)
        return 0.0


class Weights(Struct, frozen=True):
    """How much each kind of evidence may move a verdict."""

    cap: float = 2.5  # of the model's log-odds
    pulls: tuple[float, float, float, float, float, float, float] = (0.0, 0.2, 0.4, 0.0, 0.2, 0.2, 0.2)
    """The model's say next to a primary cause that is decisive, plain, generic, a cascade, faint, a confirmation, and
    a failure that was dealt with.
    """
    pull_of_silence: float = 0.3
    """Its say where no rule matched. All of them round what held-out stacking gave (`benchmarks/triage_quality.md`)."""

    max_evidence: int = 8
    thresholds: Thresholds = field(default_factory=own_thresholds)


NOTHING = Cause("nothing", "unknown", 0.4, CauseRole.CONFIRMATION, says="nothing that looks like a failure")


class Finding(Struct, frozen=True):
    """A verdict, and what a model was given to read, from which it can learn once the truth is known."""

    verdict: Verdict
    reading: Reading
    message: str = ""  # its root line, normalised: what its fingerprint is of
    named: bool = False  # a rule names the cause: what one site sees of it moves the verdict less


def judge(
    log: bytes | LogText | Output,
    attempt: Attempt | None = None,
    context: Context | None = None,
    model: Leaning | None = None,
    rules: RuleBook | None = None,
    weights: Weights | None = None,
    good: GoodRun | None = None,
) -> Verdict:
    """Say why an attempt failed, and whether a retry would get past this point: `examine`, without the reading."""
    return examine(log, attempt, context, model, rules, weights, good).verdict


def examine(
    log: bytes | LogText | Output,
    attempt: Attempt | None = None,
    context: Context | None = None,
    model: Leaning | None = None,
    rules: RuleBook | None = None,
    weights: Weights | None = None,
    good: GoodRun | None = None,
) -> Finding:
    """Say why an attempt failed, and whether a retry would get past this point.

    `log` is raw, of any size and content; of an `Output` only what is known to be the attempt's own counts, and what
    could not be read is said. `attempt` adds what the resource manager knows, `context` what surrounds
    the failure. `model` and `rules` are those that come with Perdure unless others are given. What `good`, the last
    good run of the job, said as well is held against nobody. Never fails on any input; what shows no failure is
    unsure.
    """
    weights = weights or Weights()
    output = log if isinstance(log, Output) else Output()
    text = _text_of(log)
    remarks = remarks_on(output)
    rules = rules or own_rules()
    in_order = _in_order(text, rules, attempt)
    known = facts(attempt, output.absent) if attempt is not None else ()
    hits = without_earlier_runs(last_block(good.unfamiliar(in_order.hits) if good else in_order.hits))
    report = first_failure(text, hits)
    report = of_component(report) if output.components > 1 else report
    survives = output.survives_steps and ended_itself(attempt)
    hits, report = _that_count(hits, report, known, survives, text)
    reading = Reading(excerpt(text, hits, good).text, tuple(hit.cause for hit in hits))
    named = _naming(_primary(without_crashed_kernels(hits, text), known, report), hits)
    says_nothing = named is None or (isinstance(named, LauncherReport) and named.cause.category == NOTHING.category)
    if says_nothing and (word := last_word(text, attempt)) is not None:
        return Finding(_with_output(_of_last_word(word, weights), output, remarks), reading)
    ruled = _raised(named, hits, rules) if named is not None else None
    primary = _refined(ruled, hits, _passed(in_order.hits, hits, report), text)
    if primary is None and (test := of_last_test(attempt, output.ends_with_test)) is not None:
        return Finding(_with_output(_of_cause(test, weights), output, remarks), reading)
    if primary is None:
        p = _weighed(NOTHING, _leaning(weights.pull_of_silence, model, reading, weights.cap))
        verdict, message = _of_nothing(p, hits, text, attempt)
        return Finding(_with_output(verdict, output, remarks), reading, shown_message(message))
    around = _around(context or Context(), attempt, primary)
    progress = with_steps_of(progress_of(reading.excerpt), text)
    read = reckoned(primary) if isinstance(primary, Hit) else primary
    primary = settled_or_doubted(read, progress, around, text) if isinstance(read, Hit) else read
    surroundings = circumstances(primary.cause, progress, around, primary.text)
    leaning = _leaning(weights.pulls[(named or primary).cause.rank], model, reading, weights.cap)
    p = _weighed(primary.cause, leaning + shift_of(surroundings))
    stops = weights.thresholds.label(p) is Label.DETERMINISTIC
    may_doubt = stops and primary is read
    passed = _passed(in_order.hits, hits, report)
    trouble = trouble_near(primary, in_order.hits, passed) if may_doubt and isinstance(primary, Hit) else ()
    if is_guess(primary.cause) or became_read_only(primary.cause, progress) or trouble:
        p = weights.thresholds.unsure(p)
    seen = _Signs(replace(in_order, hits=tuple(hits)), known, report, ruled)
    shown = most_telling(primary, hits) if isinstance(primary, Hit) else primary
    verdict = _verdict(shown, p, seen, (*surroundings, *trouble), weights)
    message = message_of(primary, hits, text, attempt)
    hardware = proof_of(primary, hits, text) if isinstance(primary, Hit) else ""
    verdict = replace(verdict, fingerprint=fingerprint_of(primary, message), hardware=hardware)
    if survives and is_of_step(primary, report):
        verdict = as_guess(verdict)
    told = _with_output(verdict, output, _that_matter(remarks, primary))
    return Finding(told, reading, shown_message(message), is_named(primary.cause, message))


def _that_count(
    hits: Sequence[Hit], report: LauncherReport | None, known: Sequence[Fact], survives: bool, text: LogText
) -> tuple[Sequence[Hit], LauncherReport | None]:
    """Without what the job got over: by the order of its lines, by steps that its script survived, by a late signal."""
    asks_again = any(sign.cause in ASKS_AGAIN for sign in (known if report is None else [report]))
    hits, report = without_outlived(without_cut_by_crash(hits), report, asks_again)
    if survives:
        hits, report = after_steps(hits, report)
    if (report is not None and report.signal) or any(fact.cause in OF_SIGNAL.values() for fact in known):
        hits = without_long_past(hits, text)
    return hits, report


def _of_nothing(p: float, hits: Sequence[Hit], text: LogText, attempt: Attempt | None) -> tuple[Verdict, bytes]:
    """What is said where no line shows a failure, and the message that stands for it, empty without one."""
    verdict = Verdict(Label.UNSURE, round(p, 4), NOTHING.category, unexplained(text, attempt) or NOTHING.says)
    message = message_of(None, hits, text, attempt)
    return (replace(verdict, fingerprint=of_message(message)) if message else verdict), message


def _that_matter(remarks: Sequence[str], primary: Sign) -> Sequence[str]:
    """What to say of reading the output: a line of it that names the cause was read, and no directory is no log."""
    return remarks if isinstance(primary, Fact) and not names_missing_workdir(primary) else ()


def _in_order(text: LogText, rules: RuleBook, attempt: Attempt | None) -> Merged:
    """What the rules find of this attempt, the words of all tasks in one order."""
    found = merged(without_overruled(with_ended_readers(rules.hits(text), rules)))
    if attempt is None:
        return found
    own = without_other_jobs(without_older(found.hits, attempt.start_s, attempt.end_s), attempt)
    return replace(found, hits=tuple(own))


def _around(context: Context, attempt: Attempt | None, primary: Sign) -> Context:
    """The context with what the attempt and the line that is believed add to it."""
    if attempt is not None and context.gpus is None:
        context = replace(context, gpus=attempt.gpus)
    if isinstance(primary, Hit) and primary.cause.wider in OF_SERVICES:
        context = replace(context, answered=answered_before(primary))
    return context


def _refined(ruled: Sign | None, hits: Sequence[Hit], passed: set[int], text: LogText) -> Sign | None:
    """The primary cause, by what the log says beyond the rules: `passed` are numbers of lines that are no cause."""
    primary = (explained(ruled, hits, passed, text) if is_open(ruled) else None) or ruled
    if is_death_from_outside(primary) and (told := told_by_node(hits, passed, text)):
        primary = told
    return outside_of_nodes(narrowed(primary, hits), hits) if isinstance(primary, Hit) else primary


def _passed(found: Sequence[Hit], counted: Sequence[Hit], report: LauncherReport | None) -> set[int]:
    """Numbers of lines that are no cause: what was survived, and a launcher's report."""
    told = range(report.first_line, report.last_line + 1) if report is not None else ()
    return {hit.line for hit in found} - {hit.line for hit in counted} | set(told)


def _text_of(log: bytes | LogText | Output) -> LogText:
    if isinstance(log, Output):
        return LogText.of_output(log)
    return LogText.of(log) if isinstance(log, bytes) else log


def _with_output(verdict: Verdict, output: Output, remarks: Sequence[str]) -> Verdict:
    """Say of what the verdict was made, and what `remarks` there are on it."""
    return replace(verdict.remarked(*remarks), logs=tuple(file.mark for file in output.files[:MAX_LOGS]))


def _primary(hits: Sequence[Hit], known: Sequence[Fact], report: LauncherReport | None) -> Sign | None:
    """The sign that is believed: the best rank, then facts before text, then the first in time.

    A launcher's report is believed before all but the words of the task that it names.
    """
    if report is None:
        aborted = any(aborts_itself(hit.cause) for hit in hits)  # and that is why
        signs: list[Sign] = [*(fact for fact in known if not (aborted and fact.cause == OF_SIGNAL[ABORT])), *hits]
        return min(signs, key=lambda sign: sign.cause.rank, default=None)
    placed: list[tuple[float, Sign]] = [(_place_of_fact(fact), fact) for fact in known]
    placed += [(0.0, report), *_placed(report, hits)]
    return min(placed, key=lambda pair: pair[0])[1]


def _naming(primary: Sign | None, hits: Sequence[Hit]) -> Sign | None:
    """What tells more than `primary`, where a line does: the node, the command, who signalled, or why a module is
    missing.
    """
    if isinstance(primary, Fact | LauncherReport) and primary.cause is OF_EXIT_CODE[NOT_FOUND]:
        return next((hit for hit in reversed(hits) if hit.cause.name in _NOT_FOUND_LINES), primary)
    if not isinstance(primary, Hit) or lost_nodes(primary.text):
        return primary
    if primary.cause.name in _OF_SETUP:
        loads = (hit for hit in hits if hit.cause.name == _MODULE_LOAD and hit.order < primary.order)
        if (load := next(loads, None)) is not None:
            return replace(load, cause=replace(load.cause, role=CauseRole.ROOT))
    if primary.cause.name == _MODULE_MISSING and not compiled(_FOUND_MODULE).search(primary.text.encode()):
        return _without_environment(primary, hits)
    if primary.cause.name == _SIGNALLED:  # a launcher says that it got SIGTERM, Slurm that it cancelled the step
        return next((hit for hit in hits if hit.cause.name == _STEP_CANCELLED), primary)
    alike = (hit for hit in hits if hit.cause is primary.cause)
    return next((hit for hit in alike if lost_nodes(hit.text)), primary)


def _without_environment(primary: Hit, hits: Sequence[Hit]) -> Hit:
    """Why a module is missing: scripts go on without their environment, under another Python, and where it could not be
    made.
    """
    before = [hit for hit in hits if hit.order < primary.order and not is_of_login(hit.text.encode())]
    if (failed := next((hit for hit in before if hit.cause.name == _INSTALL_FAILED), None)) is not None:
        return failed
    missing = next((hit for hit in before if hit.cause.name == _ENVIRONMENT_MISSING), None)
    return replace(missing, cause=_of_category(missing.cause, primary.cause)) if missing else primary


def _of_category(cause: Cause, other: Cause) -> Cause:
    return replace(cause, category=other.category, part_of=other.part_of)


def _raised(primary: Sign, hits: Sequence[Hit], rules: RuleBook) -> Sign:
    """The line that ends a traceback, whatever its exception is called; `primary` where the last one is cut off.

    It names the cause where no rule knows it, and stands for no more than the traceback: the model pulls as before.
    """
    if not isinstance(primary, Hit) or primary.cause.role is not CauseRole.CONFIRMATION:
        return primary
    headers = [hit for hit in hits if hit.cause.name == _TRACEBACK and hit.rank == primary.rank]
    other = rules.named(_EXCEPTION)
    if other is None or primary.cause.force is Force.FAINT or not headers or raised(headers[-1]) is None:
        return primary
    header, line = next((hit, line) for hit in headers if (line := raised(hit)) is not None)
    return replace(header, cause=other.cause, line=line.line, text=line.text)


def _placed(report: LauncherReport, hits: Sequence[Hit]) -> Iterator[tuple[float, Hit]]:
    """How each hit ranks next to a report; next to the task's own traceback what others say of peers explains
    nothing.
    """
    own = {hit.order for hit in hits if report.is_of(hit)}
    spoke = report.is_exception and any(hit.order in own and hit.cause.role is CauseRole.CONFIRMATION for hit in hits)
    for hit in hits:
        place = report.place(hit)
        follows = spoke and hit.cause.role is CauseRole.CASCADE and hit.cause.wider in OF_PEERS and hit.order not in own
        yield (max(0.0, place) if follows else place), hit


def _place_of_fact(fact: Fact) -> float:
    """How a fact ranks next to a launcher's report: what ended one task is known better than the job's own code."""
    if fact.cause.role is not CauseRole.ROOT:
        return 1.0
    return -6.0 if fact.cause.force is Force.DECISIVE else -4.5


def _leaning(pull: float, model: Leaning | None, reading: Reading, cap: float) -> float:
    """What the model adds to the log-odds."""
    if not pull or not reading.excerpt:
        return 0.0
    return pull * max(-cap, min(cap, (model or own_model()).log_odds(reading)))


def _weighed(cause: Cause, shift: float) -> float:
    z = math.log(cause.p_transient / (1.0 - cause.p_transient)) + shift
    return 1.0 / (1.0 + math.exp(-z))


class _Signs(Struct, frozen=True):
    """All signs of a failure."""

    merged: Merged
    known: Sequence[Fact]
    report: LauncherReport | None
    ruled: Sign | None  # what the rules believe, before it was read


def _verdict(primary: Sign, p: float, seen: _Signs, surroundings: Sequence[Circumstance], weights: Weights) -> Verdict:
    cause = primary.cause
    # A user's log can say anything: what it says of the site is hearsay until another source says it too.
    hearsay = isinstance(primary, Hit) and cause.infrastructure
    rank, node, who = culprit(primary, seen.report, seen.merged, seen.ruled)
    says, quote = cause.says or cause.category, quoted(primary, cause)
    added = (", by the job's own log alone" if hearsay else "") + (f"; {who}" if who else "")
    return Verdict(
        weights.thresholds.label(p),
        round(p, 4),
        cause.category,
        says + added,
        (*_told(surroundings), *_evidence(primary, seen, weights.max_evidence)),
        cause.bound,
        cause.infrastructure,
        advice=cause.advice,
        wait_s=max(cause.wait_s, _asked_wait_s(primary)),
        hearsay=hearsay,
        rank=rank,
        node=node,
        quoted=quote + added if quote else "",
    )


def _asked_wait_s(primary: Sign) -> float:
    """How long what failed asks to wait; 0 where it is no service, or asks for nothing."""
    of_service = isinstance(primary, Hit) and primary.cause.bound in (Bound.SERVICE, Bound.CALLER)
    return asked_wait_s(primary) if isinstance(primary, Hit) and of_service else 0.0


def _of_last_word(word: Evidence, weights: Weights) -> Verdict:
    """The verdict where no rule matches, and the program's last line says what is wrong."""
    fingerprint = digest(LAST_WORD.category, mask(word.text.encode()))
    return replace(_of_cause(LAST_WORD, weights), evidence=(word,), fingerprint=fingerprint)


def _of_cause(cause: Cause, weights: Weights) -> Verdict:
    p = cause.p_transient
    return Verdict(weights.thresholds.label(p), p, cause.category, cause.says, advice=cause.advice)


def _told(surroundings: Sequence[Circumstance]) -> tuple[Evidence, ...]:
    return tuple(Evidence(0, each.says, CauseRole.CONFIRMATION, each.name) for each in surroundings)


def _evidence(primary: Sign, seen: _Signs, most: int) -> tuple[Evidence, ...]:
    """The lines that show it: the facts, then in order the primary one, and one line a rule, roots before cascades."""
    others: list[Sign] = [*seen.known, *([seen.report] if seen.report else [])]
    chosen: list[Sign] = [primary, *(sign for sign in others if sign is not primary)]
    names = {sign.cause.name for sign in chosen}
    for hit in sorted(seen.merged.hits, key=lambda hit: (hit.cause.rank, hit.order)):
        told = (seen.report is not None and seen.report.tells(hit)) or _is_line_of(primary, hit)
        idle = hit.cause.force is Force.FAINT and primary.cause.force in (Force.PLAIN, Force.DECISIVE)
        if hit.cause.name not in names and len(chosen) < most and not (told or idle):
            names.add(hit.cause.name)
            chosen.append(hit)
    hits = sorted((sign for sign in chosen[:most] if isinstance(sign, Hit)), key=lambda hit: hit.order)
    in_order: list[Sign] = [sign for sign in chosen[:most] if isinstance(sign, Fact)]
    in_order += [*hits, *(sign for sign in chosen[:most] if isinstance(sign, LauncherReport))]
    shown = [(sign, _shown(sign, primary, seen.merged)) for sign in in_order]
    return tuple(
        line
        for sign, told in shown
        for line in ((*_frame(sign, seen.merged), told, *_rest(told, sign, shown)) if sign is primary else (told,))
    )


def _is_line_of(primary: Sign, hit: Hit) -> bool:
    """Whether a hit is the line of the primary cause, as a rule has it that the cause was read again from."""
    return isinstance(primary, Hit) and primary.line == hit.line and primary.block.window is hit.block.window


def _frame(primary: Sign, merged: Merged) -> tuple[Evidence, ...]:
    """The place in the job's own code that raised it, or in which Python saw the signal that ended it."""
    crash = next((hit for hit in merged.hits if hit.text.startswith(CRASH)), None)
    hit = primary if isinstance(primary, Hit) else crash
    frame = innermost_own(hit) if hit else None
    return (
        (Evidence(frame.line, frame.text, CauseRole.CONFIRMATION, FRAME, merged.place(hit)),) if hit and frame else ()
    )


def _rest(told: Evidence, primary: Sign, shown: Sequence[tuple[Sign, Evidence]]) -> tuple[Evidence, ...]:
    """The lines that go on with what `told` says, but for those that are evidence by themselves."""
    if not isinstance(primary, Hit):
        return ()
    by_themselves = {(line.source, line.line) for _, line in shown}
    lines = (
        Evidence(each.line, each.text, CauseRole.CONFIRMATION, MESSAGE, told.source) for each in companions(primary)
    )
    return tuple(line for line in lines if (line.source, line.line) not in by_themselves)


def _shown(sign: Sign, primary: Sign, merged: Merged) -> Evidence:
    if isinstance(sign, Fact):
        return Evidence(0, sign.text, sign.cause.role, sign.cause.name)
    if isinstance(sign, Hit):
        yields = sign.cause.force is Force.GENERIC and primary.cause.rank < sign.cause.rank
        follows = (sign.cause.name, primary.cause.name) == (_MODULE_MISSING, _ENVIRONMENT_MISSING)
        role = CauseRole.CONFIRMATION if yields or follows else sign.cause.role
        return Evidence(sign.line, sign.text, role, sign.cause.name, merged.place(sign))
    role = CauseRole.ROOT if sign is primary else CauseRole.CONFIRMATION
    return Evidence(sign.line, sign.text, role, sign.cause.name, sign.source)
