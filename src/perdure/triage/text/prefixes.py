"""Which task wrote a line, as launchers and runtimes say it before the line."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from perdure.triage.text.patterns import compiled

LOOKED_AT_BYTES = 100

_TASK = (
    r"\[(?:rank|Rank|RANK|default|GPU|worker)[ _-]?\d{1,6}\]"  # torch, torchrun, NCCL's watchdog
    r"|\[\d+,\d{1,6}\]<(?:std)?(?:err|out)"  # mpirun --tag-output
    r"|^\[\d{1,6}\](?::|<?(?:std)?(?:err|out))"  # horovodrun
    r"|^ *\d{1,6}: "  # srun --label
    r"|^\(\w+(?:\([^)]*\))? pid=\d+(?:, ip=[\w.:-]+)?\)"  # Ray
    r"|\[pod/[\w.-]+/"  # kubectl logs --prefix
    r"|^\w[\w.-]*:\d+:\d+ \[\d+\]"  # NCCL: host:process:thread [GPU]
    r"|\[(?:[A-Za-z][\w.-]*|[\d.]*\.[\d.]*):\d+(?::\d+)*\]"  # Open MPI, UCX: [host:process]; no time of day
)
_OF_CODE = (".py", ".pyx", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".go", ".rs", ".java", ".scala", ".jl", ".js")
"""Ends of names of source files: [train.py:42] tells where a line was logged, and no task."""


def rank_of(line: bytes) -> str:
    """The task that a line says it comes from: its rank, or what else it is called; "" where it says nothing.

    >>> rank_of(b"[rank3]: ValueError: x"), rank_of(b"n7:1021:1188 [2] NCCL WARN x"), rank_of(b"step 7")
    ('3', 'n7 GPU 2', '')
    >>> rank_of(b"[10:00:09] [train.py:42] [rank1]: x"), rank_of(b"[gpu7:4121] *** Process received signal ***")
    ('1', 'gpu7:4121')
    """
    head = line[:LOOKED_AT_BYTES]
    if b"[" not in head and b": " not in head and b"pid=" not in head:
        return ""
    return _rank_in(head)


@lru_cache(maxsize=4096)
def _rank_in(head: bytes) -> str:
    said = (_called(found.group().decode("latin-1")) for found in compiled(_TASK).finditer(head))
    return next(filter(None, said), "")


def rank_before(line: bytes, text: bytes) -> str:
    """The task that is named before `text`, which is `line` without its prefix; cheap where prefixes repeat."""
    return rank_of(line[: len(line) - len(text)]) if line.endswith(text) else rank_of(line)


def _called(said: str) -> str:
    """The task's name in what is before a line."""
    if said.startswith("("):
        process = said.rpartition(" pid=")[2].rstrip(")")  # before it is what a program calls its actor: any words
        return f"pid {process.replace(', ip=', ' on ')}"
    before, bracket, inner = said.partition("[")
    inner = inner.partition("]")[0]
    if inner.startswith("pod/"):
        return inner.split("/")[1]
    if bracket and before:
        return f"{before.partition(':')[0]} GPU {inner}"
    if ":" in inner:
        return "" if inner.partition(":")[0].endswith(_OF_CODE) else inner
    return "".join(c for c in (inner.rpartition(",")[2] or before) if c.isdigit())


def named(rank: str) -> str:
    """How a task is called in a sentence."""
    return f"rank {rank}" if rank.isdigit() else rank


def ranges(ranks: Collection[str]) -> str:
    """Several tasks in few words.

    >>> ranges(["7", "0", "1", "2"]), ranges(["n1 GPU 0"])
    ('ranks 0-2, 7', 'n1 GPU 0')
    """
    numbers = sorted({int(rank) for rank in ranks if rank.isdigit()})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spoken = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    others = sorted(rank for rank in ranks if not rank.isdigit())
    return ", ".join([f"ranks {spoken}"] * bool(runs) + others)
