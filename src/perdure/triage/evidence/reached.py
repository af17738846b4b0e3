"""How far an attempt came by its own log, what it saved last, and how much of its work is lost."""

from __future__ import annotations

from perdure.model.output import Output, OutputFile
from perdure.triage.evidence.context import progress_of
from perdure.triage.text.clean import decode, scrub
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.verdict import Reached

HEAD_BYTES, TAIL_BYTES = 64 * 1024, 512 * 1024
"""This much of the beginning and of the end of each file is looked at."""

NEXT_STEP_BYTES = 16 * 1024
"""So near a line about a checkpoint the steps before and after it are looked for."""

MAX_NAME = 200  # characters of a checkpoint's name


def reached(output: Output) -> Reached | None:
    """The steps and checkpoints in the attempt's own files; None where they show none."""
    found = [_of_file(file) for file in output.files if not file.doubt and file.text]
    steps = [each for each in found if each.step is not None]
    saved = [each for each in found if each.checkpoint]
    if not steps and not saved:
        return None
    last = max(steps, key=lambda each: each.step or 0, default=Reached())
    best = max(saved, key=lambda each: each.saved_step or 0, default=last)
    firsts = [each.first_step for each in steps if each.first_step is not None]
    whole = all(each.whole for each in found)
    return Reached(last.step, min(firsts, default=None), best.saved_step, best.checkpoint, whole)


def _of_file(file: OutputFile) -> Reached:
    head = scrub((file.head or file.tail)[:HEAD_BYTES])
    tail = scrub(file.tail[-TAIL_BYTES:])
    name, saved_step = _last_saved(tail)
    last = _step(tail)
    whole = not file.skipped and not file.head and len(file.tail) <= TAIL_BYTES
    first = None if whole and last is None else _first_step(head)
    return Reached(last, first, saved_step, name, whole)


def _first_step(head: bytes) -> int | None:
    return next((step for line in head.split(b"\n") if (step := _step(line)) is not None), None)


_NAME = r"(?i)[\w./=+-]*(?:checkpoint|ckpt|global_?step|\.pth?\b|\.safetensors|\.npz\b)[\w./=+-]*"
_SAVED = r"(?i)[^\n]{0,300}\b(?:saved|saving|wrote|written|dumped|stored)\b[^\n]{0,500}"
_NOT_DONE = r'(?i)fail|error|could not|cannot|unable|\bnot\b|\bwill\b|\bto be\b|File "|warn'
_AT_STEP = r"(?i)(?:global_?step|steps?|iter(?:ation)?|checkpoint|ckpt)[-_=:# ]{0,8}(\d{1,12})\b"


def _last_saved(text: bytes) -> tuple[str, int | None]:
    """The last checkpoint that a line calls saved, and its step. One that is being saved counts once steps follow."""
    name, step, position = b"", None, 0
    while found := compiled(_SAVED).search(text, position):
        position, line = found.end(), found.group()
        names = compiled(_NAME).findall(line)
        if not names or compiled(_NOT_DONE).search(line):
            continue
        if b"saving" in line.lower() and _step(text[position : position + NEXT_STEP_BYTES]) is None:
            continue
        name = max(names, key=len)
        told = capturing(_AT_STEP).search(name) or capturing(_AT_STEP).search(line)
        step = int(told[1]) if told else _step(text[max(0, found.start() - NEXT_STEP_BYTES) : found.start()])
    return decode(name)[:MAX_NAME], step


def _step(text: bytes) -> int | None:
    return progress_of(text.decode("utf-8", "replace")).steps
