"""The Python stack of a rank, as ``py-spy dump`` (text or ``--json``) and Python's ``faulthandler`` write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.hangs.rank_state import SHOWN_FRAMES, Frame, RankState, Seen, life_of

MAX_LINES = 100_000
MAX_NAME = 200
_PY_SPY_THREAD = re.compile(r'Thread (?:0x)?[0-9A-Fa-f]{1,20} \(([a-z+]{1,20})\)(?:: "([^"]{0,200})")?')
_PY_SPY_FRAME = re.compile(r"    (\S{1,200}) \(([^()]{1,300}):(\d{1,7})\)")
_FAULT_THREAD = re.compile(r"(?:Current t|T)hread 0x[0-9A-Fa-f]{1,20}.{0,80} \(most recent call first\):")
_FAULT_FRAME = re.compile(r'  File "([^"]{1,300})", line (\d{1,7}) in (\S{1,200})')

Thread = tuple[str, list[Frame]]  # its name, its frames from the innermost on


def read_stack(text: str) -> tuple[Frame, ...]:
    """The frames of the main thread, the innermost first; () where the text is no such dump."""
    threads = list(_threads(text.splitlines()[:MAX_LINES]))
    main = next((frames for name, frames in threads if name == "MainThread"), None)
    return tuple(main if main is not None else threads[-1][1] if threads else ())  # faulthandler ends with the main one


def read_stack_json(value: object) -> tuple[Frame, ...]:
    """The same of a decoded ``py-spy dump --json``."""
    listed = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    threads: list[Thread] = [(str(each.get("thread_name")), list(_json_frames(each.get("frames")))) for each in listed]
    main = next((frames for name, frames in threads if name == "MainThread"), None)
    return tuple(main if main is not None else threads[0][1] if threads else ())


def state_of(rank: int, frames: Sequence[Frame], node: str = "") -> RankState:
    """What the rank is at. A stack alone cannot tell work from a wait for the GPU: both are unclear."""
    life, where, collective = life_of(Seen(frames=tuple(frames), has_gpu=True))
    return RankState(rank, node, life, where, collective=collective, stack=tuple(map(str, frames[:SHOWN_FRAMES])))


def _threads(lines: Sequence[str]) -> Iterator[Thread]:
    thread: Thread | None = None
    for line in lines:
        started = _PY_SPY_THREAD.match(line)
        if started or _FAULT_THREAD.match(line):
            if thread and thread[1]:
                yield thread
            thread = ((started[2] or "") if started else "", [])
        elif thread is not None and (frame := _frame(line)):
            thread[1].append(frame)
    if thread and thread[1]:
        yield thread


def _frame(line: str) -> Frame | None:
    if found := _PY_SPY_FRAME.match(line):
        return Frame(found[1], found[2], int(found[3]))
    if found := _FAULT_FRAME.match(line):
        return Frame(found[3], found[1], int(found[2]))
    return None


def _json_frames(listed: object) -> Iterator[Frame]:
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("filename"), str):
            line: Any = each.get("line")
            yield Frame(each["name"][:MAX_NAME], each["filename"][:MAX_NAME], line if isinstance(line, int) else 0)
