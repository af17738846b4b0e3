"""The line that tells most of a cause, where several lines of one task tell the same one.

Programs announce an error in one line and name its object in another: a library's wrapper before the server that did
not answer, "failed to listen" after the port that is taken, a field `Reason` before its `Message`, the class of a C++
exception before its text. The verdict stands; only the line that a person reads first changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.frames import CodeFrame, companions, raised
from perdure.triage.evidence.matching import Hit
from perdure.triage.text.clean import decode
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.verdict import TRACEBACK, CauseRole

NEAR_LINES = 40
"""So far from each other are the lines of one failure."""

_NAMES_OBJECT = (
    r"(?i)\[?errno[ :=]+\d|\bhost ?=|://|\b(?:\d{1,3}\.){3}\d{1,3}\b|\bport[ :=]+\d|['\"]/[^'\"]+['\"]|: /\S"
)
"""What the error is about: its number, a server, an address, a file."""

RAISED = r"^\s*[\w.]+(?:Error|Exception|Timeout|Failure)\b"
"""A line that ends a traceback: what a program only remarks on is not of the chain that ended it."""

_BARE_FIELD = r"^\s*(?i:reason|status|state|code|type)[\"']?\s*[:=]\s*[\"']?\w+[\"',]*\s*$"
_MESSAGE_FIELD = r"^\s*[\"']?(?i:message|description|details?)[\"']?\s*[:=]\s*\S"
_THROWN = r"terminate called after throwing an instance of|terminating due to uncaught exception of type [\w:]+\s*$"
_ANNOUNCED = r"Polled an error from coordination service|detected fatal errors\. This most likely indicates"
_OF_TASK = r"(?i)heartbeat|/task:\d|unhealthy|barrier"
_OF_FRAME = r'^\s*File "[^"]+", line \d+'
_REFERS = r"^\s*(?:See|see|For more|Refer)\b[^\n]{0,80}://"
"""A line that only says where to read on: the address in it is not what the error is about."""

_GRAPH = r"Error: Graph execution error:\s*$"
"""How TensorFlow heads the error of an operation, which follows."""

_STATUS, _ACCESS = r"\b40[13]\b", r"(?i)\bgated\b|\brestricted\b|not in the authorized list"
"""A status of HTTP, and the words in which a hub says why it refused."""

_HEAD = r"\b\d+ validation errors? for \w+\s*$|Error\(s\) in loading state_dict for \w+:\s*$"
"""How pydantic and PyTorch head what they found wrong; what it is follows."""

_BARE_KEY = r"^\s*KeyError: ('[^']{1,200}'|\"[^\"]{1,200}\"|[\w.-]{1,200})\s*$"
_LINK = r"^\s*(?:During handling of the above exception|(The above exception was the direct cause))"
_NO_MARKS = str.maketrans(dict.fromkeys("'\"`,;:()[]{}", " "))
_LINK_LINES = 4
"""So far below an exception Python says that another was raised in its place."""

_WHAT = r"^\s*what\(\):\s+\S"


def most_telling(primary: Hit, hits: Sequence[Hit]) -> Hit:
    """`primary`, as told by the line of its task near it that says the same and names what it is about."""
    line = primary.text.encode()
    if (told := _told_of_key(primary, hits)) is not None:
        return told
    near = [hit for hit in hits if hit is not primary and _is_near(hit, primary)]
    if compiled(_THROWN).search(line):
        return _told_by(primary, [hit for hit in near if hit.line > primary.line], _WHAT)
    if compiled(_ANNOUNCED).search(line):
        return _told_by(primary, [hit for hit in near if hit.cause.role is CauseRole.CASCADE], _OF_TASK)
    if compiled(_OF_FRAME).search(line):
        return _told_by_message(primary, near)
    if compiled(_HEAD).search(line) and (below := companions(primary)):
        return replace(primary, line=below[0].line, text=below[0].text)
    alike = [hit for hit in near if _is_as_sure(hit, primary) and _is_alike(hit, primary)]
    alike = [hit for hit in alike if not compiled(_REFERS).search(hit.text.encode())]
    if compiled(_GRAPH).search(line) or compiled(_REFERS).search(line):
        return _told_by(primary, alike, r"\S")
    if compiled(_STATUS).search(line):
        shown = {each.line for each in companions(primary)}
        why = _told_by(primary, [hit for hit in alike if hit.line not in shown], _ACCESS)
        if why is not primary:
            return why
    if compiled(_BARE_FIELD).search(line):
        return _told_by(primary, alike, _MESSAGE_FIELD)
    return primary if compiled(_NAMES_OBJECT).search(line) else _told_by(primary, alike, _NAMES_OBJECT)


def explains_key(primary: Hit, hits: Sequence[Hit]) -> CodeFrame | None:
    """What was raised in place of a bare KeyError and says what the key is of; None without any.

    It names the key as well, or was raised from it on purpose; what fails while a program cleans up does neither.
    """
    key = capturing(_BARE_KEY).search(primary.text.encode())
    frame, on_purpose = _raised_in_place(primary, hits) if key else (None, False)
    if key is None or frame is None or frame.text.startswith("KeyError"):
        return None
    return frame if on_purpose or _names(frame, decode(key[1])) else None


def _raised_in_place(primary: Hit, hits: Sequence[Hit]) -> tuple[CodeFrame | None, bool]:
    """What was raised while `primary` was handled, and ended the task in its place; whether it was raised from it."""
    below = primary.block.scrubbed().split(b"\n")[primary.line - primary.block.first_line + 1 :][:_LINK_LINES]
    link = next((found for line in below if (found := capturing(_LINK).search(line))), None)
    if link is None:
        return None, False
    after = (hit for hit in hits if hit.run == primary.run and hit.rank == primary.rank and hit.order > primary.order)
    frame = next((raised(hit) for hit in after if hit.text.startswith(TRACEBACK)), None)
    return frame, link[1] is not None


def _names(frame: CodeFrame, key: str) -> bool:
    return key.translate(_NO_MARKS).strip() in frame.text.translate(_NO_MARKS).split()


def _told_of_key(primary: Hit, hits: Sequence[Hit]) -> Hit | None:
    """`primary`, a bare KeyError, as told by what names its key as well."""
    key, frame = capturing(_BARE_KEY).search(primary.text.encode()), explains_key(primary, hits)
    if key is None or frame is None or not _names(frame, decode(key[1])):
        return None
    return replace(primary, line=frame.line, text=frame.text)


def _told_by_message(primary: Hit, near: Sequence[Hit]) -> Hit:
    """`primary`, a frame of a traceback, as told by the message with which that traceback ends."""
    headers = [hit for hit in near if hit.text.startswith(TRACEBACK) and hit.line < primary.line]
    frame = raised(headers[-1]) if headers else None
    return primary if frame is None else replace(primary, line=frame.line, text=frame.text)


def _is_near(hit: Hit, primary: Hit) -> bool:
    same = hit.run == primary.run and hit.rank == primary.rank
    return same and hit.block.window is primary.block.window and abs(hit.line - primary.line) <= NEAR_LINES


def _is_as_sure(hit: Hit, primary: Hit) -> bool:
    """Whether it states the failure as `primary` does: a warning does not, nor what was dealt with."""
    return hit.cause.role is CauseRole.ROOT is primary.cause.role and not hit.warns and not hit.cause.hard


def _is_alike(hit: Hit, primary: Hit) -> bool:
    """Whether it tells the same failure: by the same rule, or raised from it."""
    raised = all(compiled(RAISED).search(each.text.encode()) for each in (hit, primary))
    return hit.cause.name == primary.cause.name or (raised and hit.cause.wider == primary.cause.wider)


def _told_by(primary: Hit, others: Sequence[Hit], pattern: str) -> Hit:
    other = next((hit for hit in others if compiled(pattern).search(hit.text.encode())), None)
    return primary if other is None else replace(other, cause=primary.cause)
