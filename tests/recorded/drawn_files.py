"""Random folders that commands read: what ranks of a hung program leave, a site's accounting, logs of many ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.recorded.altered import altered

RANKS = 4
WRITTEN_S = 1_789_000_000
OWN = {"name": "load", "filename": "/home/ada/data.py", "line": 31}
FRAMES: tuple[list[dict[str, Any]], ...] = (
    [],
    [OWN],
    [{"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c10d.py", "line": 1}, OWN],
    [{"name": "_call", "filename": "<frozen importlib>", "line": 7}, OWN, {**OWN, "line": 9}],
    [{"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "line": 320}],
)
STACKS = (
    'Thread 4711 (idle): "MainThread"\n    {name} ({filename}:{line})\n    <module> (train.py:9)\n'
    'Thread 4712 (idle): "Thread-1"\n    wait (threading.py:320)\n',
    "Thread 0x00007f0000000000 (most recent call first):\n"
    '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n\n'
    "Current thread 0x00007f0000000001 (most recent call first):\n"
    '  File "{filename}", line {line} in {name}\n  File "train.py", line 9 in <module>\n',
)
STANDS = (
    {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c10d.py", "line": 2501},
    {"name": "barrier", "filename": "/v/site-packages/torch/distributed/c10d.py", "line": 9},
    {"name": "_engine_run_backward", "filename": "/v/site-packages/torch/autograd/graph.py", "line": 8},
    {"name": "_try_get_data", "filename": "/v/site-packages/torch/utils/data/dataloader.py", "line": 3},
    OWN,
)
LOGS = (
    "step 1 loss 2.0\nstep 2 loss 1.9\n",
    "step 1 loss 2.0\nTraceback (most recent call last):\nRuntimeError: mat1 and mat2 shapes cannot be multiplied\n",
    "ConnectionResetError: [Errno 104] Connection reset by peer\n",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n",
    "",
    "\0\0\0 binary",
)
STATES = (
    "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED by 7", "REQUEUED", "PREEMPTED",
    "RUNNING", "BOOT_FAIL",
)  # fmt: skip
_AROUND = (("slurm-", "", "run-7-"), ("", "_1", "-100"), ("out", "err"))  # a job's id in the name of its log


def hang_named(number: int) -> str:
    """What ``perdure why ranks`` is asked: a folder, or a job that has one."""
    return str(number) if number % 2 == 0 else f"hang{number}"


def site_named(number: int) -> str:
    """What ``perdure why report`` is asked: a folder, or accounting alone."""
    return f"site{number}/sacct.txt" if number % 4 == 0 else f"site{number}"


def write_hang(home: Path, number: int) -> None:
    """What ranks of one hung program left."""
    rng = Random(f"hang {number}")
    if number % 2 == 0:
        attempts = home / ".perdure" / "c" / str(number) / "attempts"
        for attempt in ("1", "9", "10", "x"):
            for launcher in ("a", "b"):
                (attempts / attempt / launcher).mkdir(parents=True)
        folders = [attempts / "10", attempts / "10" / "a", attempts / "10" / "b"]
        _write_files(attempts / "9", dict(_heartbeats(rng)))
    else:
        folders = [home / f"hang{number}"]
        folders[0].mkdir()
    left: dict[str, str] = {}
    for what, likely in ((_dumps, 0.7), (_ras, 0.5), (_stacks, 0.4), (_heartbeats, 0.6), (_logs, 0.2)):
        if rng.random() < likely:
            left.update(what(rng))
    for name, text in left.items():
        changed = list(altered(text, rng.randrange(1, 9)))[-1] if text and rng.random() < 0.2 else text
        _write_files(rng.choice(folders), {name: changed})


def _dumps(rng: Random) -> Iterator[tuple[str, str]]:
    """Of the flight recorder: one rank or two are behind, elsewhere, or in something else."""
    odd = {rng.randrange(RANKS): rng.choice(("behind", "absent", "other", "size", "sends", "none", "ring"))}
    odd[rng.randrange(RANKS)] = rng.choice(("behind", "absent", "circle", "none", ""))
    pair = sorted(rng.sample(range(RANKS), 2))
    lists_ranks = rng.random() < 0.8
    for rank in range(RANKS):
        how = odd.get(rank, "")
        if how == "none":
            continue
        last = 4 if how == "behind" else 5
        entries = [
            _entry(rng, "0", seq, seq < last or (how == "absent" and seq == last))
            for seq in range(3 if how == "ring" else 1, last + 1)
        ]
        if how in ("other", "size"):
            entries[-1] |= {"profiling_name": "nccl:broadcast"} if how == "other" else {"input_sizes": [[9]]}
        if how == "sends":
            entries[-1] |= {"is_p2p": True, "profiling_name": f"nccl:send {rank}->{(rank + 1) % RANKS}"}
        if rank in pair and rng.random() < 0.5:
            entries.insert(-1 if how != "circle" else len(entries), _entry(rng, "1", 2, rng.random() < 0.5))
        groups = {"0": list(range(RANKS)), "1": pair}
        config = {
            name: {"name": name, "ranks": str(ranks)} for name, ranks in groups.items() if lists_ranks or name == "1"
        }
        yield f"trace_rank_{rank}.json", json.dumps({"version": "2.9", "pg_config": config, "entries": entries})


def _entry(rng: Random, group: str, seq: int, done: bool) -> dict[str, Any]:
    return {
        "process_group": [group, "default_pg" if group == "0" else "undefined"], "collective_seq_id": seq,
        "profiling_name": "nccl:all_reduce", "state": "completed" if done else "started", "is_p2p": False,
        "time_created_ns": seq * 10**9, "input_sizes": [[4]], "input_dtypes": ["Float"], "frames": rng.choice(FRAMES),
        **({"retired": done} if rng.random() < 0.3 else {}),
    }  # fmt: skip


def _ras(rng: Random) -> Iterator[tuple[str, str]]:
    members = [
        {
            "rank": rank, "host": f"gpu{rank // 2}", "pid": 100 + rank, "cuda_dev": rank % 2,
            "collective_counts": {"AllReduce": 7 - (rng.random() < 0.2), "Broadcast": 1},
            "status": {name: True for name in ("unresponsive", "considered_dead") if rng.random() < 0.3},
        }
        for rank in range(RANKS)
    ]  # fmt: skip
    here = rng.randrange(2, RANKS + 1)
    world = {"size": RANKS, "ranks": members[:here], "missing_ranks": members[here:]}
    pair = {"size": 2, "ranks": [{**members[3], "rank": 0}, {**members[0], "rank": 1}], "missing_ranks": []}
    yield "ras.json", json.dumps({"communicators": rng.choice(([world], [pair, world], [world, pair], [pair]))})


def _stacks(rng: Random) -> Iterator[tuple[str, str]]:
    usual = rng.choice(STANDS)
    form = rng.choice((*STACKS, ""))
    for rank in range(RANKS):
        frame = usual if rng.random() < 0.7 else rng.choice(STANDS)
        threads = [
            {"thread_name": "Other", "frames": [STANDS[1]]},
            {"thread_name": "MainThread", "frames": [frame, OWN]},
        ]
        yield (f"stack-rank{rank}.txt", form.format(**frame)) if form else (f"stack{rank}.json", json.dumps(threads))


def _heartbeats(rng: Random) -> Iterator[tuple[str, str]]:
    for rank in range(RANKS):
        told = {
            "schema": "perdure.heartbeat/1",
            "rank": rank,
            "node": f"n{rng.randrange(3)}",
            "step": rng.randrange(40, 42),
        }
        yield f"beat{rank}.json", json.dumps(told)


def _logs(rng: Random) -> Iterator[tuple[str, str]]:
    for rank in range(RANKS):
        yield f"log-{rank}.out", rng.choice(LOGS[:4])


def write_site(home: Path, number: int) -> None:
    """Accounting and logs of a site."""
    rng = Random(f"site {number}")
    rows = ["JobID|User|Submit|Start|ElapsedRaw|State|ExitCode|AllocTRES"]
    jobs = [
        str(job) if rng.random() < 0.7 else f"{job}_{rng.randrange(3)}" for job in range(100, 100 + rng.randrange(3, 9))
    ]
    for job in jobs:
        user, gpus = rng.choice(("ada", "bob", "")), rng.choice((0, 1, 8))
        for attempt in range(rng.choice((1, 1, 2, 3))):
            state, code = rng.choice(STATES), rng.choice(("0:0", "1:0", "0:9", "137:0", ""))
            elapsed = rng.choice(("60", "3600", "86400", ""))
            rows.append(
                f"{job}|{user}|2026-01-01T00:00:00|2026-01-01T0{attempt}:00:10|{elapsed}|{state}|{code}|gres/gpu={gpus}"
            )
        rows += [f"{job}.batch||2026-01-01T00:00:00|2026-01-01T00:00:10|9|FAILED|1:0|"]
    table = (
        list(altered("\n".join(rows) + "\n", rng.randrange(1, 9)))[-1] if rng.random() < 0.2 else "\n".join(rows) + "\n"
    )
    folder = home / f"site{number}"
    folder.mkdir()
    logs = {}
    for job in [*jobs, "99", "x"]:
        if rng.random() < 0.5:
            before, behind, kind = (rng.choice(some) for some in _AROUND)
            logs[f"{before}{job}{behind}.{kind}"] = rng.choice(LOGS)
    has_table = number % 4 == 0 or rng.random() < 0.8
    _write_files(folder, {**logs, **({"sacct.txt": table} if has_table else {})})


def write_log_folder(home: Path, number: int) -> None:
    """Logs of one job's ranks, some of several attempts."""
    rng = Random(f"logs {number}")
    folder = home / f"logs{number}"
    form = rng.choice(("rank{}.log", "out.{}", "attempt_{1}/{0}/stderr.log", "a{}", "job-7-{}.txt"))
    for rank in rng.sample(range(12), rng.randrange(1, 9)):
        file = folder / form.format(rank, rng.randrange(8, 11))
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_files(file.parent, {file.name: rng.choice(LOGS)})
    if rng.random() < 0.5:
        _write_files(folder, {".hidden": LOGS[1], "notes.txt": LOGS[2]})
    if rng.random() < 0.3:
        (folder / ".git").mkdir()
        _write_files(folder / ".git", {"x.log": LOGS[3]})


def _write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (WRITTEN_S, WRITTEN_S + len(text)))
