"""A cause in the log's own words, for whoever may read the log: no more than is known.

Where a rule or a table names one cause, its words are the sentence. Where it knows no more than the class of an
exception, a word that many programs use, or a whole category, such words claim too much on logs that nobody has read:
there the message is quoted, escaped and cut, with who wrote it. A summary is told to all, and so never has a quotation.
"""

from __future__ import annotations

from perdure.triage.evidence.frames import companions, raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.rules import own_categories, own_rules
from perdure.triage.grammar import BY
from perdure.triage.text.clean import decode
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.unnamed import COARSE, NEW
from perdure.triage.verdict import CauseRole

MOST_QUOTED = 140
"""So many characters of a message are quoted."""

_WIDE = frozenset(
    {"api", "assertion", "ckpt", "config", "cuda_env", "data", "dist_config", "env", "env_limit", "import", "index"}
    | {"numeric", "unknown", "version"}
)
"""Categories whose own words say more than a line of them proves, or next to nothing."""

_BY_CLASS = frozenset(
    {BY, "absl-status", "cpp-exception-class", "errno", "input-refused", "java-exception", "julia-exception"}
    | {"python-exact-exception", "python-exception", "python-message", "python-other-exception"}
    | {"batch-of-one", "dataset-broken", "error-of-rank-with-place", "slurm-bad-request", "stale-handle"}
    | {"host-oom-alloc", "host-oom-python", "script-memory"}
)
"""Rules and tables that know a class of errors, or words that are said of several."""

_RAISED = (
    r"(?:^|[\s:\]|])(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Failure|Fault|Exit|Interrupt))(?::\s+|:?$)(.*)$"
)
_BY_LINE = r", (?:by the words of its line|as .{1,80} says)$"
_HEADS = r":\s*$| - @unknown$|\(step: [\w ]{1,40}\)$|^\[ERROR\]\S* \S+(?: \(\w+\))?$"
_NO_MESSAGE = r"^\s*(?:Traceback \(most recent call last\)|File \"[^\"]+\", line \d+)"


def quoted(primary: object, cause: Cause) -> str:
    """What the line says that proves a cause, where the cause's own words would claim too much; "" elsewhere."""
    if not isinstance(primary, Hit) or not (cause.name == NEW or _claims_too_much(cause)):
        return ""
    found = _quoted(primary)
    return f"{cause.says}: {found}" if found and cause.name == NEW else found


def _claims_too_much(cause: Cause) -> bool:
    if cause.role is not CauseRole.ROOT:
        return False
    rule = own_rules().named(cause.name)
    if cause.name in COARSE or cause.name in _BY_CLASS:
        told_by_line = compiled(_BY_LINE).search(cause.says.encode()) if rule is None else cause.says == rule.cause.says
        return bool(told_by_line)  # and not by the rest of the log
    categories = {cause.category, rule.cause.category if rule is not None else cause.category}
    return cause.category in _WIDE and cause.says in {own_categories()[each].says for each in categories}


def _quoted(hit: Hit) -> str:
    """Who says what, in one line; "" where the line holds no message."""
    line = hit.text.strip()
    if compiled(_NO_MESSAGE).search(line.encode()):
        return ""
    if compiled(_HEADS).search(line.encode()) and (below := companions(hit)):
        line = f"{line} {below[0].text}"
    found = capturing(_RAISED).search(line.encode("utf-8", "replace"))
    if found is None:
        return f"the log says {_quote(line)}"
    name, message = found[1].decode(), found[2].decode("utf-8", "replace").strip()
    if message:
        return f"the program raised {name}: {_quote(message)}"
    code = decode(raising_line(hit)).strip()
    return f"the program raised {name} at {_quote(code)}" if code else f"the program raised {name}"


def _quote(text: str) -> str:
    """A text in quotation marks that it cannot end, without what no terminal prints, cut where it is long.

    >>> _quote('no field "cls"' + chr(27))
    '"no field \\'cls\\'"'
    """
    shown = " ".join("".join(c for c in text if c.isprintable()).replace('"', "'").split())
    return f'"{shown if len(shown) <= MOST_QUOTED else shown[: MOST_QUOTED - 1] + "…"}"'
