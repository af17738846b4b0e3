"""What is next to the message of an exception: the place in the job's own code above, what explains it below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perdure.triage.evidence.matching import Hit
from perdure.triage.text.clean import MAX_LINE_BYTES, decode, indent, scrub, tidy
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.prefixes import rank_of

LOOK_BACK_LINES, LOOK_BACK_BYTES = 600, 128 * 1024
"""The traceback of a message is looked for in this much text before it."""

_FRAME = r'^\s*File "([^"]{1,1000})", line \d{1,9}'
_FRAME_OF_NOTEBOOK = r"^\s*File ([^\s:\"]{1,1000}):\d{1,9}, in "
"""How IPython names a frame."""

_IN_NO_FILE = (b"<string>", b"<stdin>", b"<frozen os>")
_NOT_OWN = r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|/s?bin/[^/]*$"
"""Paths of libraries, of what was never a file, and of launchers."""


MOST_COMPANIONS, LOOK_AHEAD_LINES = 3, 6
_EXPLAINS = (
    r"(?i)^\s*(?:size mismatch|(?:missing|unexpected) key|key '|full_key:|object_type=|to append to|cannot |could not "
    r"|unknown attribute |no implementation of |invalid use of |untyped "
    r"|you must|please |access to |did you mean|expected |got |hint:|note:|caused by|the (?:above|following) )"
)
"""A line below a message that goes on explaining it, though it is not indented."""


CRASH = "Fatal Python error:"
"""What faulthandler says of the end of a process, before the stack of each of its threads."""

_STACK = r"^(Current thread )?.{0,200}\(most recent call first\):"


_EXCEPTION = r"^(?:(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w*[a-z]\w*)(?:: .*|:?\s*)$"
"""The last line of a traceback: the name of a class, by itself or before a message."""

_OF_GROUP = r"^\s*[|+] ?"
"""What Python puts before the lines of an exception in a group."""

_NOT_OF_PROGRAM = r"^(?:srun|slurmstepd)[\w-]*: "


@dataclass(frozen=True, slots=True)
class CodeFrame:
    """A line next to a message: one of its traceback that names a place in a file, or one that goes on with it."""

    line: int
    text: str


def companions(hit: Hit) -> tuple[CodeFrame, ...]:
    """The lines that go on with a message and explain it: "size mismatch for fc.weight", "Key 'lr' is not in struct".

    They are indented, or begin with words that explain. A line of another kind ends them; lines of other tasks between
    them are passed over.
    """
    block = hit.block
    lines = scrub(block.window.data[block.start : block.end + LOOK_BACK_BYTES]).split(b"\n")
    at = hit.line - block.first_line
    if not 0 <= at < len(lines):
        return ()
    task, found = rank_of(lines[at]), list[CodeFrame]()
    for index in range(at + 1, min(len(lines), at + 1 + LOOK_AHEAD_LINES)):
        raw = lines[index][:MAX_LINE_BYTES]
        if rank_of(raw) != task:
            continue
        line = tidy(raw)
        goes_on = line.strip() and (line[:1] in b" \t" or compiled(_EXPLAINS).search(line))
        if not goes_on or capturing(_FRAME).search(line):
            break
        found.append(CodeFrame(block.first_line + index, decode(line).strip()))
    return tuple(found[:MOST_COMPANIONS])


def innermost_own(hit: Hit) -> CodeFrame | None:
    """The innermost frame of a message whose file is not a library's; None where the message has no traceback.

    It is above the message; below it, with the most recent call first, where Python's faulthandler wrote it.
    Lines of other tasks between them are passed over.
    """
    if hit.text.startswith(CRASH):
        return _crashed_in(hit)
    block = hit.block
    data, start = block.window.data, max(0, block.start - LOOK_BACK_BYTES)
    lines = scrub(data[start : block.end]).split(b"\n")
    first = block.first_line - data.count(b"\n", start, block.start)
    at = min(hit.line - first, len(lines) - 1)
    task = rank_of(lines[at])
    for index in range(at - 1, max(-1, at - LOOK_BACK_LINES), -1):
        raw = lines[index][:MAX_LINE_BYTES]
        if rank_of(raw) != task:
            continue
        line = tidy(raw)
        if b"Traceback (most recent call last)" in line:
            return None
        found = capturing(_FRAME).search(line)
        if found and not compiled(_NOT_OWN).search(found[1]):
            return CodeFrame(first + index, decode(line).strip())
    return None


def raised(header: Hit) -> CodeFrame | None:
    """The line below the frames of a traceback that names its exception; None where the log ends before it.

    Lines of other tasks and of Slurm between them are passed over.
    """
    block = header.block
    lines = scrub(block.window.data[block.start : block.end + LOOK_BACK_BYTES]).split(b"\n")
    at = header.line - block.first_line
    if not 0 <= at < len(lines):
        return None
    task, framed = rank_of(lines[at]), False
    margin = indent(compiled(_OF_GROUP).sub(b"", lines[at][:MAX_LINE_BYTES]))
    for index in range(at + 1, min(len(lines), at + LOOK_BACK_LINES)):
        raw = compiled(_OF_GROUP).sub(b"", lines[index][:MAX_LINE_BYTES])
        line = tidy(raw)
        if not line.strip() or rank_of(raw) != task or compiled(_NOT_OF_PROGRAM).search(line):
            continue
        if indent(raw) > margin or raw[:1].isspace():
            framed = framed or compiled(_FRAME).search(line) is not None
            continue
        is_one = framed and compiled(_EXCEPTION).search(line.strip())
        return CodeFrame(block.first_line + index, decode(line).strip()) if is_one else None
    return None


def raising_line(hit: Hit) -> bytes:
    """The line of source code that raised the exception of a message, as its traceback quotes it; b"" where none is.

    What marks a part of it is passed over, as lines of other tasks are. Of code that is in no file (``python -c``)
    Python quotes nothing: then it is the frame's own line.
    """
    line = next((line for line in _above(hit) if line.strip(b" ^~")), b"")
    frame = capturing(_FRAME).search(line)
    return b"" if frame and frame[1] not in _IN_NO_FILE else line


def innermost_file(hit: Hit) -> bytes:
    """The file that raised the exception of a message, be it a library's; b"" where no traceback is above it."""
    for line in _above(hit):
        if frame := capturing(_FRAME).search(line) or capturing(_FRAME_OF_NOTEBOOK).search(line):
            return bytes(frame[1])
        if b"Traceback (most recent call last)" in line:
            break
    return b""


def _above(hit: Hit) -> Iterator[bytes]:
    """The lines of the same task above a message, the nearest first."""
    block = hit.block
    data, start = block.window.data, max(0, block.start - LOOK_BACK_BYTES)
    lines = scrub(data[start : block.end]).split(b"\n")
    at = min(hit.line - block.first_line + data.count(b"\n", start, block.start), len(lines) - 1)
    task = rank_of(lines[at])
    for raw in reversed(lines[max(0, at - LOOK_BACK_LINES) : at]):
        if rank_of(raw) == task:
            yield tidy(raw[:MAX_LINE_BYTES])


def _crashed_in(hit: Hit) -> CodeFrame | None:
    """The innermost own frame of the thread that crashed, below a line of faulthandler's."""
    block = hit.block
    lines = scrub(block.window.data[block.start : block.end + LOOK_BACK_BYTES]).split(b"\n")
    at = hit.line - block.first_line
    if not 0 <= at < len(lines):
        return None
    task, crashed = rank_of(lines[at]), False
    for index in range(at + 1, min(len(lines), at + LOOK_BACK_LINES)):
        raw = lines[index][:MAX_LINE_BYTES]
        if rank_of(raw) != task:
            continue
        line = tidy(raw)
        if stack := capturing(_STACK).search(line):
            if crashed:
                return None
            crashed = bool(stack[1])
            continue
        found = capturing(_FRAME).search(line)
        if crashed and found and not compiled(_NOT_OWN).search(found[1]):
            return CodeFrame(block.first_line + index, decode(line).strip())
    return None
