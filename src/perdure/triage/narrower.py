"""A category made narrower by what is around the line that proves it: whose service, which data, which types.

The chance that a retry passes stays the rule's own; only what a person reads as the category changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.catalogue import KnownMessage, own_catalogue
from perdure.triage.evidence.frames import companions, raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.rules import own_categories
from perdure.triage.evidence.telling import RAISED, explains_key
from perdure.triage.grammar import own_grammar
from perdure.triage.subject import subject_of
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

_OF_ENVIRONMENT = r'^\s*(?:raise KeyError\(key\) from None|File "<frozen os>", line \d+, in __getitem__)\s*$'
"""How os.environ reports a variable that is not set (CPython, Lib/os.py, frozen since 3.11)."""

_NAME_OF_VARIABLE = r"^KeyError: '[A-Z][A-Z0-9_]+'$"
_OF_KEYS = r"^\s*(?:Key|Lookup|NotImplemented)Error: .?(?:\S+ ){2,}\S+"
"""A sentence where the class by itself would name a key: it is read as one."""

_BY_CLASS = frozenset({"python-api", "python-index", "not-implemented"})
"""Rules of a class of exceptions whose message may say more."""

_BY_WORDS: tuple[tuple[str, str, str], ...] = (
    ("exec-missing", r"(?i)permission denied|\bEACCES\b|\[Errno 13\]", "permission"),
    ("exec-missing", r"(?i)exec format error|\bENOEXEC\b", "config"),
    ("json-damaged", r"\b(?:No|Duplicate)(?:Option|Section)Error\b", "config"),
    ("http-refused", r"(?i)(?:error|status)\D{0,12}40[137]\b", "auth"),
    (
        "import-error",
        r"(?i)failed to import|\binstall(?:ed)?\b|\bis required\b|\brequires (?:the |an? )?\S+ (?:to|for|package)",
        "import",
    ),
    ("python-api", r"(?i)\bcuda(?::\d+)? (?:device|tensor)|\bsame device\b|\bdevice type tensor", "device"),
    (
        "compile-error",
        r"(?i)undefined reference|undeclared|not declared|expected .;|no matching function|has no member|redefinition"
        r"|CompilationErrors?Exception",
        "syntax",
    ),
    ("python-api", r"Error when deserializing class|Unrecognized keyword arguments passed to \w+: \{", "version"),
    ("assertion-native", r"(?i)\bversion (?:tag )?(?:does not match|mismatch)|VERSION failed", "version"),
    ("assertion-native", r"(?i)\bplugin not found\b", "config"),
    ("tf-misuse", r"(?i)\blabel value of \S+ which is outside", "data"),
    # What an older Python or library lacks: dict | dict (PEP 584), X | Y (PEP 604), list[int] (PEP 585).
    ("python-api", r"for \|: '(?:dict|type|NoneType)' and |'(?:ABCMeta|type)' object is not subscriptable", "version"),
)
"""By a rule, the words of its line that tell more than the rule: an error number, a status, what is to be done."""

_BY_TABLE = {"missing-file": "database", "build-stopped": "build-tool"}
"""Rules of words that many programs use, each with the family of the catalogue that may know which program speaks."""

_ASSERTED = "assertion-native"
_LOCKS = r"\b(?:flock|lockf|locking)\("
"""A call that takes a lock of a file."""

_UNKNOWN = "unknown"
_UNAVAILABLE = frozenset({"fabric", "gpu", "launcher", "license", "lock", "service", "tracker"})
"""Things of which a line says enough that calls them unavailable; a file may be so for many reasons."""

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
    found = (tell(primary, hits) for tell in (_of_service, _by_rule, _told_by_handler, _by_kind))
    return next((category for category in found if category is not None), None)


def _of_service(primary: Hit, hits: Sequence[Hit]) -> str | None:
    """Whose service, or what else, was not available."""
    cause, line = primary.cause, primary.text.encode()
    if cause.category == _UNKNOWN and cause.role is CauseRole.CASCADE:
        return "lock" if compiled(_LOCKS).search(raising_line(primary)) else _told_by_thing(line)
    if cause.category == "net":
        raised = (hit.text.encode() for hit in hits if hit.cause.wider == "net" and hit.run == primary.run)
        chain = [line, *(each for each in raised if compiled(RAISED).search(each))]
        if any(compiled(_OF_TRACKERS).search(each) for each in chain):
            return "tracker"
        return "k8s_infra" if compiled(_OF_KUBERNETES).search(line) else None
    return "net" if cause.category == "obj_store" and not compiled(_OF_STORES).search(line) else None


def _by_rule(primary: Hit, hits: Sequence[Hit]) -> str | None:  # noqa: ARG001
    """What the line says beyond the rule that knows it: an error number, a status, who speaks."""
    cause, line = primary.cause, primary.text.encode()
    for name, words, category in _BY_WORDS:
        if cause.name == name and compiled(words).search(line):
            return category
    if cause.name == _ASSERTED and (parsed := own_grammar().parse(line, asserted=True)) and parsed.thing == "ranks":
        return "dist_config"
    return _told_by_table(primary) if cause.name in _BY_TABLE else None


def _by_kind(primary: Hit, hits: Sequence[Hit]) -> str | None:
    """Which files, types or data it is about."""
    cause, line = primary.cause, primary.text.encode()
    if cause.wider in _OF_FILES and compiled(_NO_FILE).search(line):
        return "missing_file"
    if cause.name in _DAMAGED and compiled(_OF_PICKLES).search(raising_line(primary)):
        return "data"
    if cause.name in _BY_CLASS and (told := _told_by_message(primary, line)) is not None:
        return told
    told = subject_of(primary)
    if told == "api" and cause.category in _OF_DATA and any(_in_data_loader(hit, primary) for hit in hits):
        return "data"
    if told is not None:
        return told
    if cause.category == "shape":
        if compiled(_INDEX_ERROR).search(line):
            return "index"
        return "dtype" if compiled(_OF_TYPES).search(line) else None
    of_data = cause.category in _OF_DATA or (cause.category == "api" and compiled(_COLLATE).search(line))
    if of_data and cause.role is CauseRole.ROOT and any(_in_data_loader(hit, primary) for hit in hits):
        return "data"
    return None


def _told_by_table(primary: Hit) -> str | None:
    """What the catalogue says of the line, or of the one below that goes on with it."""
    lines = (primary.text.encode(), *(each.text.encode() for each in companions(primary)))
    found = (own_catalogue().find(line) for line in reversed(lines))
    told = (known.category for known in found if known is not None and known.by == _BY_TABLE[primary.cause.name])
    return next((category for category in told if category != primary.cause.category), None)


def _told_by_handler(primary: Hit, hits: Sequence[Hit]) -> str | None:
    """What is raised in place of a bare KeyError says what the key is: an option, a column, a variable.

    Another KeyError says no more.
    """
    frame = explains_key(primary, hits) if primary.cause.name == "python-index" else None
    if frame is None:
        return None
    known = _known(frame.text.encode())
    return known.category if known is not None and known.p_transient < _LASTING else None


def _told_by_thing(line: bytes) -> str | None:
    """The category of a line that says who was unavailable; None where it does not."""
    parsed = own_grammar().parse(line, asserted=True)
    return own_grammar().means(parsed).category if parsed is not None and parsed.thing in _UNAVAILABLE else None


def _known(line: bytes) -> KnownMessage | None:
    known = own_catalogue().find(line)
    if known is None and (parsed := own_grammar().parse(line, asserted=True)) is not None:
        known = own_grammar().means(parsed)
    return known


def _told_by_message(primary: Hit, line: bytes) -> str | None:
    """What a message says that any exception of its class could have."""
    if compiled(_NAME_OF_VARIABLE).search(line.strip()) and compiled(_OF_ENVIRONMENT).search(raising_line(primary)):
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
    if cause.category == "obj_store" or (cause.category, category) == ("index", "api"):
        # What its rule says of a service is true of any, and that of a key of the field that a record lacks.
        return replace(cause, category=category, part_of=of.part_of)
    return replace(cause, category=category, says=of.says, advice=of.advice, part_of=of.part_of)
