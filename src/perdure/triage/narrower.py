"""A category made narrower by what is around the line that proves it: whose service, which data, which types.

The chance that a retry passes stays the rule's own; only what a person reads as the category changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.catalogue import own_catalogue
from perdure.triage.evidence.frames import raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.rules import own_categories
from perdure.triage.evidence.telling import RAISED
from perdure.triage.grammar import own_grammar
from perdure.triage.text.patterns import compiled
from perdure.triage.verdict import CauseRole

_OF_TRACKERS = (
    r"(?i)\bwandb\b|wandb\.ai|\bmlflow\b|comet(?:\.com|_ml)|neptune\.ai|clear\.?ml\b|swanlab|api\.aim|tensorboard\.dev"
)
_OF_KUBERNETES = r"k8s\.io|client-go|kube-?apiserver|\bkubelet\b|\bkubectl\b|^error: http2: client connection"
_OF_TYPES = (
    r"(?i)\bdtypes?\b|\bscalar ?type|(?:input|bias|weight|mat\d|query|key|value)\w* type \(|"
    r"\b(?:double|float|half|bfloat16|long|int|char|bool|byte) (?:!=|and|vs\.?) "
    r"(?:double|float|half|bfloat16|long|int|char|bool|byte)\b"
)
_OF_DATA_LOADER = r"^\s*\S*(?:Error|Exception): Caught \w+ in DataLoader worker process"
_OF_STORES = r"(?i)\b(?:s3|gs|gcs|abfss?|wasbs?)://|amazonaws|storage\.googleapis|core\.windows\.net|\bboto|\bminio\b|\bbucket\b|\w+Object\b"
_OF_PICKLES = r"\b(?:c?pickle|pkl|dill|joblib|np|numpy)\.loads?\("
"""A line of source that reads a file of the program's own making; checkpoints are read by their libraries."""

_OF_ENVIRONMENT = b"raise KeyError(key) from None"
"""How os.environ reports a variable that is not set (CPython, Lib/os.py)."""

_NAME_OF_VARIABLE = r"^KeyError: '[A-Z][A-Z0-9_]+'$"
_OF_KEYS = r"^\s*(?:Key|Lookup|NotImplemented)Error: .?(?:\S+ ){2,}\S+"
"""A sentence where the class by itself would name a key: it is read as one."""

_BY_CLASS = frozenset({"python-api", "python-index", "not-implemented"})
"""Rules of a class of exceptions whose message may say more."""

_LASTING = 0.15  # a message of something that passes is no narrower category of wrong code
_OF_FILES = frozenset({"ckpt", "data", "config"})
_NO_FILE = r"^\s*(?:[\w.]*\.)?(?:FileNotFound|NotADirectory)Error: "
"""Whatever the file should hold, it is not there."""

_DAMAGED = frozenset({"checkpoint-corrupt", "checkpoint-is-text"})

_COLLATE = r"(?:\b|_)collate"
_INDEX_ERROR = r"^\s*IndexError:"

_OF_DATA = frozenset({"assertion", "index", "config"})
"""What in the code that reads the data means that the data are not what it expects."""


def narrowed(primary: Hit, hits: Sequence[Hit]) -> Hit:
    """`primary`, with a narrower category where the log tells one; `hits` are all that count."""
    category = _narrower(primary, hits)
    return primary if category is None else replace(primary, cause=_as(primary.cause, category))


def _narrower(primary: Hit, hits: Sequence[Hit]) -> str | None:
    cause, line = primary.cause, primary.text.encode()
    if cause.category == "net":
        raised = (hit.text.encode() for hit in hits if hit.cause.wider == "net" and hit.run == primary.run)
        chain = [line, *(each for each in raised if compiled(RAISED).search(each))]
        if any(compiled(_OF_TRACKERS).search(each) for each in chain):
            return "tracker"
        return "k8s_infra" if compiled(_OF_KUBERNETES).search(line) else None
    if cause.category == "obj_store" and not compiled(_OF_STORES).search(line):
        return "net"
    if cause.wider in _OF_FILES and compiled(_NO_FILE).search(line):
        return "missing_file"
    if cause.name in _DAMAGED and compiled(_OF_PICKLES).search(raising_line(primary)):
        return "data"
    if cause.name in _BY_CLASS and (told := _told_by_message(primary, line)) is not None:
        return told
    if cause.category == "shape":
        if compiled(_INDEX_ERROR).search(line):
            return "index"
        return "dtype" if compiled(_OF_TYPES).search(line) else None
    of_data = cause.category in _OF_DATA or (cause.category == "api" and compiled(_COLLATE).search(line))
    if of_data and cause.role is CauseRole.ROOT and any(_in_data_loader(hit, primary) for hit in hits):
        return "data"
    return None


def _told_by_message(primary: Hit, line: bytes) -> str | None:
    """What a message says that any exception of its class could have."""
    if compiled(_NAME_OF_VARIABLE).search(line.strip()) and raising_line(primary).strip() == _OF_ENVIRONMENT:
        return "config"
    if primary.cause.name == "python-api" and compiled(_OF_TYPES).search(line):
        return "dtype"
    known = own_catalogue().find(line)
    if known is None and compiled(_OF_KEYS).search(line) and (parsed := own_grammar().parse(line)) is not None:
        known = own_grammar().means(parsed)
    return (
        known.category if known and known.p_transient < _LASTING and known.category != primary.cause.category else None
    )


def _in_data_loader(hit: Hit, primary: Hit) -> bool:
    near = hit.run == primary.run and hit.rank == primary.rank
    return near and compiled(_OF_DATA_LOADER).search(hit.text.encode()) is not None


def _as(cause: Cause, category: str) -> Cause:
    of = own_categories()[category]
    if cause.category == "obj_store":  # what its rule says of a service is true of any
        return replace(cause, category=category, part_of=of.part_of)
    return replace(cause, category=category, says=of.says, advice=of.advice, part_of=of.part_of)
