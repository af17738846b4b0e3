"""Which task wrote a line, as launchers and runtimes say it before the line."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.triage.patterns import compiled

LOOKED_AT_BYTES = 100

_TASK = (
    r"(?P<rank>\[(?:rank|Rank|RANK|default|GPU|worker)[ _-]?\d{1,6}\])"  # torch, torchrun, NCCL's watchdog
    r"|(?P<mpi>\[\d+,\d{1,6}\]<(?:std)?(?:err|out))"  # mpirun --tag-output
    r"|(?P<horovod>^\[\d{1,6}\](?::|<?(?:std)?(?:err|out)))"
    r"|(?P<srun>^ *\d{1,6}: )"  # srun --label
    r"|(?P<ray>^\(\w+(?:\([^)]*\))? pid=\d+(?:, ip=[\w.:-]+)?\))"
    r"|(?P<pod>\[pod/[\w.-]+/)"  # kubectl logs --prefix
    r"|(?P<nccl>^\w[\w.-]*:\d+:\d+ \[\d+\])"
    r"|(?P<process>\[[\w.-]+:\d+(?::\d+)*\])"  # Open MPI, UCX
)


def rank_of(line: bytes) -> str:
    """The task that a line says it comes from: its rank, or what else it is called; "" where it says nothing.

    >>> rank_of(b"[rank3]: ValueError: x"), rank_of(b"n7:1021:1188 [2] NCCL WARN x"), rank_of(b"step 7")
    ('3', 'n7 GPU 2', '')
    """
    head = line[:LOOKED_AT_BYTES]
    found = compiled(_TASK).search(head) if b"[" in head or b": " in head or b"pid=" in head else None
    if found is None:
        return ""
    said = found.group().decode()
    match found.lastgroup:
        case b"ray":
            words = said.strip("()").partition(" ")[2].replace("pid=", "pid ").replace(", ip=", " on ")
            return str(words)
        case b"pod":
            return str(said.split("/")[1])
        case b"nccl":
            host, _, rest = said.partition(":")
            return f"{host} GPU {rest.partition('[')[2].rstrip(']')}"
        case b"process":
            return str(said.strip("[]"))
        case b"mpi":
            said = said.partition(",")[2]
    return "".join(c for c in said if c.isdigit())


def named(rank: str) -> str:
    """How a task is called in a sentence."""
    return f"rank {rank}" if rank.isdigit() else rank


def ranges(ranks: Iterable[str]) -> str:
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
