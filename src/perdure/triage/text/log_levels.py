"""The level that a program's logger gives a line: what it only tells, at INFO or below, is not what ended it.

Loggers put the level before the message and after time, place and name, each in its own form. It is looked for in the
line as it was written, since times and places are taken off before rules see it. A program that relays another's output
gives all of it one level, which says nothing of it.
"""

from __future__ import annotations

from perdure.triage.text.patterns import capturing, compiled

HEAD_BYTES = 400
"""So far in a line its level is looked for."""

_TIME = (
    r"\d{4}[-/.]\d\d[-/.]\d\d(?:[T ,]+\d\d:\d\d:\d\d)?(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"  # ISO, Python
    r"|\d\d[-/]\d\d(?:[-/]\d\d(?:\d\d)?)?[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"  # Spark, vLLM
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[AP]M)?|\d{1,2}:\d\d[AP]M"
    r"|[A-Z][a-z]{2} +\d{1,2},?(?: \d{4})? \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"  # syslog, java.util.logging
    r"|\d{9,19}(?:\.\d{1,9})?"  # seconds since 1970
)
_GROUP = r"\[[^\]]{0,80}\]|\([^)]{0,80}\)|\{[^}]{0,80}\}|<[^>]{0,60}>"
_NAME = r"[\w.$/@#-]{1,100}(?::\w{1,60}){0,2}:?"
_GAP = r"[ \t|:,;-]*"
_LEVELS = (
    r"INFO|INFORMATION|INF|DEBUG|DBG|TRACE|VERBOSE|NOTICE|FINE|FINER|FINEST|SUCCESS"
    r"|WARN|WARNING|WRN|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|ALERT|EMERG|PANIC|EXCEPTION"
)
_LEVEL = rf"({_LEVELS}|(?i:info|debug|trace|notice|verbose)\b:)"
_ENDED = r"(?:[ \t]*[:|\])>-]|[ \t]{1,8}[^ \t=(]|[ \t]*$)"  # LAPACK's INFO = 3 and INFO(1) are values

_AFTER_TIME = (
    rf"^(?:{_GAP}(?:{_GROUP}|\d{{1,6}}:))?{_GAP}[\[(<]?(?:{_TIME})[\])>]?(?:{_GAP}(?:{_GROUP}"
    rf"|{_NAME})){{0,5}}?{_GAP}{_LEVEL}{_ENDED}"
)
_AT_START = rf"^(?:{_GAP}(?:{_GROUP}|\d{{1,6}}:)){{0,4}}?{_GAP}[\[(<]?[ \t]*{_LEVEL}{_ENDED}"
_AFTER_NAME = rf"^{_GAP}(?:[\w.$/-]{{1,60}} (?:- )|[\w.$/-]{{1,60}}(?:\[\d+\])?: ){_LEVEL}(?: ?[:|-] |\])"
_BY_NAME = rf"^[a-z_]\w{{0,30}}(?:\.\w{{1,30}}){{0,5}} {_LEVEL} +[A-Z]"
_BRACKETED = (
    r"^(?:[ \t]*(?:\[[^\]]{0,80}\]|\([^)]{0,80}\)|[\w:.,+-]{1,40})){0,4}?[ \t]*"
    r"[\[(<] ?((?i:info|debug|trace|notice|verbose)) {0,8}[\])>]"
)
_LETTER = (
    r"(?:^|[\s:\])>|])\[?([IDVT])(?:\] |\d{3,8} \d\d:\d\d:\d\d(?:\.\d+)?[\s:]| [\w./-]+\.\w{1,4}:\d+\]"  # glog, TF
    r"|[ \t]\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d| \d\d:\d\d:\d\d(?:\.\d+)? )"  # Tornado, Jupyter, Optuna
)
_FIELD = r"(?:^|[\s,{])\"?(?i:level|levelname|severity|lvl|log\.level|log_level)\"? ?[=:] ?\"?((?i:[a-z]{3,11}))\b"
_FORMS = (_LETTER, _FIELD, _AFTER_TIME, _AT_START, _BRACKETED, _AFTER_NAME, _BY_NAME)

_TOLD = frozenset(
    {"i", "d", "v", "t", "info", "information", "inf", "debug", "dbg", "trace", "verbose", "notice", "fine", "finer",
     "finest", "success"}
)  # fmt: skip
_MAY_HOLD = (
    r"(?i)\b(?:info|inf|debug|dbg|trace|notice|verbose|fine|finer|finest|success|information)\b|[IDVT]\d{3}"
    r"|\b[IDVT][ \]]"
)

_PROSE = (
    r"(?i)\b(?:a|an|and|are|by|can|cannot|could|error|err|exception|fail\w*|fatal|for|from|in|is|not|of|on|set"
    r"|the|to|unable"
    r"|use|was|with|without)\b"
)
"""Words of a sentence: what they stand before is a word of it, and no level."""

_RELAYED = (
    r"(?i)\{?(?:subprocess|pod_manager|docker|bash(?:_operator)?|ssh|spark_submit|kubernetes_pod|local_task_job_runner)"
    r"\.py:\d+\}?|\[(?:base|std(?:out|err))\]|\b(?:stdout|stderr)\b|NCCL INFO"
)
"""Who writes the output of another program at a level of its own, and NCCL, which says at INFO how calls ended."""


def may_tell(data: bytes) -> bool:
    """False where no line of a stretch holds the word of a level that `is_told` knows."""
    return compiled(_MAY_HOLD).search(data) is not None


def is_told(line: bytes) -> bool:
    """Whether a scrubbed line is of a level at which a program tells what it does.

    >>> is_told(b"2026-01-01 10:00:00,123 - plug - INFO - cannot import apex, the plain one is used")
    True
    >>> is_told(b"I0101 10:00:00.000000 139 net.cc:12] Could not connect"), is_told(b"ERROR: see INFO: above")
    (True, False)
    """
    head = line[:HEAD_BYTES]
    if not may_tell(head):
        return False
    found = next((found for form in _FORMS if (found := capturing(form).search(head))), None)
    if found is None or found[1].rstrip(b":").decode("latin-1").lower() not in _TOLD:
        return False
    before = head[: found.start(1)]
    return (
        compiled(_RELAYED).search(head) is None and compiled(_PROSE).search(capturing(_GROUP).sub(b"", before)) is None
    )
