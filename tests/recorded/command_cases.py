"""Which commands are asked what, group by group, and the files or the service that they are asked about."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from perdure.cli import completion_values, node, when_answer
from perdure.cli.chain_journal import ChainJournal
from perdure.cli.service_client import Client
from perdure.client import Service
from perdure.coordination.wire import encode
from perdure.model.jobs import JobState
from perdure.succession.chain_state import ChainStanding, JobChain
from perdure.waits.queue import Queue, QueuedPartition
from tests.coordination.bridges import samples
from tests.coordination.test_replay import history
from tests.copying import replace
from tests.recorded.drawn import Drawn
from tests.recorded.drawn_files import hang_named, site_named, write_hang, write_log_folder, write_site
from tests.service.full_world import full_site
from tests.service.web_world import BASE, RESET, SHAPE, Site, TestClient
from tests.throughput.test_layout_fit import TRUE

Command = tuple[Sequence[str], bytes, bool]
"""Its words, its standard input, and whether it is also shown on terminals."""


class Group(NamedTuple):
    """Commands that are run one after the other in one home."""

    prepare: Callable[[Path, pytest.MonkeyPatch], None]
    commands: list[Command]


def commands_of(lines: str) -> list[Command]:
    """A command a line; what follows `<<` is its standard input, and an exclamation mark before it: a pipe alone."""
    found: list[Command] = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        command, _, given = line.removeprefix("!").partition(" << ")
        words = shlex.split(command)
        found.append(
            (words, given.encode().decode("unicode_escape").encode(), line[0] != "!" and "--json" not in words)
        )
    return found


# ---------------------------------------------------------------- logs, and what ranks leave behind

LOGS = {
    "shape.log": SHAPE,
    "reset.log": RESET,
    "calm.log": b"epoch 1 loss 2.3\nepoch 2 loss 1.9\ndone\n",
    "empty.log": b"",
    "port.log": b"OSError: [Errno 98] Address already in use\n",
    "oom.log": b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n",
    "binary.log": b"\x00\x01\x02\xff" * 500,
    "ranks.log": b"".join(
        b"[rank%d]: RuntimeError: NCCL error: remote process exited or there was a network error\n" % rank
        for rank in (3, 1, 2)
    ),
    "hostile.log": "\x1b[2J\x1b[31mTraceback (most recent call last):\nKeyError: '\u202e\x07name'\n".encode(),
    "slurm-9.out": b"slurmstepd: error: *** JOB 9 ON n3 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
    "disk.log": b"OSError: [Errno 28] No space left on device: '/scratch/a'\n",
    "wide.log": b"ValueError: " + b"very " * 300 + b"long\n",
}
SACCT = """JobID|User|Submit|Start|ElapsedRaw|State|ExitCode|AllocTRES
7|ada|2026-01-01T00:00:00|2026-01-01T00:00:10|3600|NODE_FAIL|0:0|gres/gpu=8
7|ada|2026-01-01T00:00:00|2026-01-01T02:00:10|7200|COMPLETED|0:0|gres/gpu=8
7.batch||2026-01-01T00:00:00|2026-01-01T02:00:10|7200|FAILED|1:0|
8|bob|2026-01-01T00:00:00|2026-01-01T00:00:10|60|FAILED|1:0|gres/gpu=1
9_2|bob|2026-01-01T00:00:00|2026-01-01T00:00:10|120|OUT_OF_MEMORY|0:9|gres/gpu=1
10|eve|2026-01-01T00:00:00|2026-01-01T00:00:10|60|CANCELLED by 0|0:0|gres/gpu=1
11|eve|2026-01-02T00:00:00|2026-01-02T00:00:10|86400|TIMEOUT|0:0|gres/gpu=4
12|ada|2026-01-02T00:00:00|2026-01-02T00:00:10|30|FAILED|1:0|gres/gpu=2
"""
SITE_RULES = """[[rule]]
name = "own"
category = "fs"
pattern = "loss 1[.]9"
p = 0.7
says = "our filer was away"
advice = "wait for it"
yes = ["loss 1.9"]
"""


def write_logs(home: Path, _: pytest.MonkeyPatch) -> None:
    for name, text in LOGS.items():
        (home / name).write_bytes(text)
    records = [{"id": name, "text": text.decode(errors="replace")} for name, text in LOGS.items()]
    (home / "records.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    (home / "bad.jsonl").write_text('{"id": 1, "text": "x"}\n{"id": true, "text": "x"}\n')
    (home / "sacct.txt").write_text(SACCT)
    (home / "site").mkdir()
    (home / "site" / "sacct.txt").write_text(SACCT)
    for job, log in (("8", "shape"), ("12", "oom"), ("77", "port"), ("78", "calm")):
        (home / "site" / f"slurm-{job}.out").write_bytes(LOGS[f"{log}.log"])
    (home / "folder").mkdir()
    for rank, log in enumerate(("calm", "shape", "reset", "reset")):
        (home / "folder" / f"rank{rank}.log").write_bytes(LOGS[f"{log}.log"])
    for name, behind in (("stuck", 2), ("even", 9)):
        _write_ranks(home / name, behind)
    (home / "rules.toml").write_text(SITE_RULES)
    (home / "good.toml").write_text('[triage]\nrules = "rules.toml"\n[service]\nport = 99\n[retry]\nmax_probes = 3\n')
    (home / "site.toml").write_text("[service]\nport = 99\n[retry]\nmax_probes = 3\n[retry.budgets]\n")
    (home / "past.json").write_text(json.dumps({"exceptions": [encode(record) for record in history()]}))
    (home / "book.toml").write_text('[failures.gpu]\nseats = { resource_manager = "leave" }\n')
    (home / "slow.toml").write_text('[failures.app]\nfall_back = "leave"\ndeadline_s = 2\n')


def _write_ranks(folder: Path, behind: int) -> None:
    """What the flight recorder of four ranks says; one is `behind`."""
    folder.mkdir()
    for rank in range(4):
        done = 4 if rank == behind else 5
        entries = [
            {
                "process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
                "state": "completed" if seq < done else "started", "is_p2p": False, "time_created_ns": seq * 10**9,
                "input_sizes": [[4]], "input_dtypes": ["Float"],
            }
            for seq in range(1, done + 1)
        ]  # fmt: skip
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        dump = {"version": "2.5", "entries": entries, "pg_config": config}
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))


LOG_COMMANDS = commands_of("""
why shape.log
why reset.log
why calm.log
!why empty.log
why port.log
why oom.log
!why binary.log
why ranks.log
why hostile.log
why slurm-9.out
why disk.log
why wide.log
NO_COLOR=1 why wide.log
TERM=dumb why wide.log
!PERDURE_URL=ftp://x jobs
!PERDURE_URL=http://127.0.0.1:1 jobs
!PERDURE_SOCKET=nothere nodes
!PERDURE_RETRY__MAX_PROBES=x config check
why folder
!why folder --json
!why shape.log --json
!why ranks.log --json
!why shape.log reset.log calm.log
!why reset.log port.log --json
!why empty.log reset.log nothere.log
why ranks.log --good calm.log
!why nothere.log
!why
!why - << RuntimeError: CUDA error: an illegal memory access was encountered\\n
!why - --json << nothing here\\n
why reset.log --config good.toml
!why calm.log --config good.toml
why excerpt ranks.log shape.log
why excerpt wide.log
!why excerpt reset.log --good calm.log
!why excerpt
why batch records.jsonl
!why batch records.jsonl --json
!why batch bad.jsonl
!why batch nothere.jsonl
!why batch - << {"id": "a", "text": "SyntaxError: invalid syntax"}\\n
!why --batch records.jsonl
!why reset.log --excerpt
why follow reset.log --for 0
!why follow reset.log --for 0 --json --resume place
!why follow reset.log --for 0 --json --resume place
!why follow nothere.log --for 0
!put grow.log << step 1 loss 2.0\\nstep 2 loss 1.9\\n
!why follow grow.log --for 0 --resume at
!put grow.log << step 1 loss 2.0\\nstep 2 loss 1.9\\nstep 3 loss nan\\nstep 4 loss nan\\n
!why follow grow.log --for 0 --resume at
!why follow grow.log --for 0 --resume at --json
!put grow.log << step 5 loss nan\\nstep 6 loss nan\\n
!why follow grow.log --for 0 --resume at
!put grow.log << step 5 loss nan\\nstep 6 loss nan\\nstep 7 loss nan\\n
!why follow grow.log --for 0 --resume at --json
!put at << {}
!why follow grow.log --for 0 --resume at
why ranks stuck
!why ranks stuck --json
why ranks even
!why ranks even --json
!why ranks folder
!why ranks nothere
!why ranks
!why ranks --ras nowhere
why report sacct.txt
!why report sacct.txt --json
!why report sacct.txt --wide
why report site
!why report site --json
!why report folder
!why report shape.log
!why report nothere
!why --report sacct.txt
!why correct shape.log transient
!why correct 7 wrong
!why 4711.0
!why 4711_3.batch
!rules --json
rules
rules --wide
rules shape
rules cuda-oom
!rules nosuchrule
!rules shapes
rules own --config good.toml
!rules own --config good.toml --json
config check
!config check --json
!config check site.toml
!config check good.toml
!config check good.toml --json
!config check book.toml
!config check nothere.toml
!config
events replay past.json
!events replay past.json --json
events replay past.json --playbook book.toml
!events replay past.json --playbook book.toml --json
events replay past.json --playbook slow.toml
!events replay past.json --playbook slow.toml --json
!events replay shape.log
!events --replay past.json
!jobs
!nodes
!actions
!actions --stop --resume
!actions --stop
!learn --now --rollback
!learn --approve x
!policy maybe
!policy off
!notices
!notices test
!raise 7
!raise 7 --type app.nan --severity 9
!raise 7 --type app.nan -- [1]
!raise 7 --type app.nan -- {
!node drain a/b
!submit --signal USR1 -- true
!open
!who
!who suspects
!token
!nonsense
!correct
!up --nonsense
!completion bash
!completion zsh
!completion fish
!completion tcsh
!help
help why
!help node drain
!help keep script
!help nothing
!help why x
why --help
whatif compare -h
!help --man man
!cat man/man1/perdure.1
!cat man/man1/perdure-why.1
!cat man/man1/perdure-node.1
!cat man/man1/perdure-node-drain.1
!cat man/man1/perdure-completion.1
!completion --values rule
!completion --values policy
!completion --values placement
!completion --values retry
!completion --values type
!completion --values nothing
!completion --values job
!events --follow x --json=1
!why explain --batch records.jsonl --json
!why --batch=records.jsonl
!why -- --batch
!why --follow reset.log --for 0
!agent agents --node a/b --once
!agent agents --node n1 --check '' --once
!agent agents --node n1 --check 'a "b' --once
""")


# ---------------------------------------------------------------- models, planners, studies

STATES = {
    "sia": {
        "goodput_matrix": [[1, 2, 3], [None, 2, 5], [1, 1, 1]],
        "configs_nodes_gpus_type": [[1, 1, "A"], [1, 2, "A"], [2, 4, "B"]],
        "capacity": {"A": 2, "B": 4},
    },
    "gavel": {
        "throughputs": [[4.0, 1.0], [3.0, 2.0], [1.0, 0.5]], "workers": [1, 2], "weights": [1, 2, 1],
        "scale_factors": [1, 1, 2], "steps_left": [100, 500, 50], "spent_s": [10, 0, 90], "alone_s": [30, 60, 90],
        "prices": [3.0, 1.0], "pairs": [[0, 1]], "pair_throughputs": [[[2.0, 0.5], [1.0, 1.5]]],
    },
    "themis": {"valuation_1_over_rho_by_gpus": [[0, 0.2, 0.4, 0.5], [0, 0.3, 0.35, 0.4]], "gpus": 3},
    "pollux": {
        "nodes": 2, "gpus_per_node": 2, "speed_up_inside": [[0, 1, 1.9, 1.9, 1.9], [0, 1, 1.2, 1.3, 1.4]],
        "speed_up_across": [[0, 1, 1.5, 2.1, 2.6], [0, 1, 1.1, 1.1, 1.1]], "current": [[1, 0], [0, 1]],
        "kept": [0.9, 0.5], "seed": 3,
    },
    "goodput": {
        "alpha_c": 0.1, "beta_c": 0.01, "alpha_n": 0.1, "beta_n": 0.02, "alpha_r": 0.05, "beta_r": 0.01, "gamma": 2,
        "m": 8, "accum": 1, "nodes": 2, "gpus": 4, "phi": 100, "M0": 8,
    },
    "lone": {"goodput_matrix": [[0.0], [1.0]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1}},
}  # fmt: skip
LAYOUTS = ((1, 1, 8), (1, 1, 32), (1, 4, 16), (1, 8, 16), (2, 8, 16), (2, 16, 32), (4, 32, 16))
DAYS = "day,hops,units,failures\n" + "".join(
    f"2021-03-{day:02},{hops},{units + day},{(day * hops) % 7 + failures}\n"
    for day in range(1, 25)
    for hops, units, failures in ((2, 4000, 1), (6, 900, 2))
)


def write_models(home: Path, _: pytest.MonkeyPatch) -> None:
    for name, state in STATES.items():
        (home / f"{name}.json").write_text(json.dumps(state))
    (home / "two.jsonl").write_text(f"{json.dumps(STATES['sia'])}\n\n{json.dumps(STATES['lone'])}\n")
    (home / "list.json").write_text("[1]")
    (home / "days.csv").write_text(DAYS)
    for number, (nodes, gpus, batch) in enumerate(LAYOUTS):
        step_ms = 1e3 * float(TRUE.step_s(nodes, gpus, batch))
        told = [f"world_size: {gpus}", f"nnodes: {nodes}", f"micro_batch_size: {batch}"]
        steps = [f"step_time: {step_ms * (1 + 0.01 * (i % 3)):.6g} ms" for i in range(30)]
        (home / f"{number}.log").write_text("\n".join([*told, *steps]))
    (home / "silent.log").write_text("nothing\n")
    _write_windows(home)


def _write_windows(home: Path) -> None:
    """Paths over links and switches, of which one of each kind is bad."""
    import duckdb  # it complains as a process ends that has it and no need of it

    rng, tables = np.random.default_rng(7), duckdb.connect()
    (home / "cases").mkdir()
    for name, bad in (("one", 3), ("none", -1)):
        crossed = [sorted(rng.choice(12, 3, replace=False).tolist()) for _ in range(60)]
        failed = [int(rng.binomial(100, 0.2 if bad in each else 0.002)) for each in crossed]
        paths = ",".join(f"({at}, {each}, 100, {e})" for at, (each, e) in enumerate(zip(crossed, failed, strict=True)))
        tiers = ",".join(f"({at}, '{'link' if at < 8 else 'switch'}')" for at in range(14))
        for kind, rows, columns in (
            ("paths", paths, "path, components, n, e"),
            ("components", tiers, "component, tier"),
        ):
            out = home / "cases" / f"{name}.{kind}.parquet"
            tables.execute(f"COPY (SELECT * FROM (VALUES {rows}) AS t({columns})) TO '{out}' (FORMAT parquet)")


ALL_LOGS = " ".join(f"--from-log {number}.log" for number in range(len(LAYOUTS)))
MODEL_COMMANDS = commands_of(f"""
!plan sia.json --policy sia
!plan sia.json --policy sia --json
!plan two.jsonl --policy sia
!plan two.jsonl --policy sia --json
!plan lone.json --policy sia
!plan gavel.json --policy gavel-las
!plan gavel.json --policy gavel-las --json
!plan gavel.json --policy gavel-las-packed --json
!plan gavel.json --policy gavel-water --json
!plan gavel.json --policy gavel-ftf --json
!plan gavel.json --policy gavel-makespan --json
!plan gavel.json --policy gavel-fifo --json
!plan gavel.json --policy gavel-cost --json
!plan themis.json --policy themis
!plan themis.json --policy themis --json
!plan pollux.json --policy pollux --json
!plan goodput.json --policy goodput
!plan goodput.json --policy goodput --json
!plan goodput.json --policy sia
!plan list.json --policy sia
!plan nothere.json --policy sia
!plan sia.json --policy nosuch
!plan - --policy themis << {{"valuation_1_over_rho_by_gpus": [[0, 1]]}}
!plan - --policy themis << {{
!plan - --policy themis << \\n
speed --model resnet50 --gpu v100
speed --model resnet50 --gpu v100 --wide
!speed --model resnet50 --gpu v100 --json
speed --model vgg16 --gpu v100,a100 --batch 16,64 --nodes 1,4 --link 25G --transport tcp,rdma
!speed --model vgg16 --gpu v100,a100 --batch 16,64 --nodes 1,4 --link 25G --transport tcp,rdma --json
speed --model bert-large --gpu a100 --nodes 16 --gpus-per-node 8 --inside nvlink --racks 4 --oversubscription 3
speed --model resnet50 --gpu v100 --nodes 8 --servers 2 --transport rdma
!speed --model resnet50 --gpu v100 --nodes 8 --servers 2 --transport rdma --json
speed --model resnet50 --gpu v100 --nodes 1
speed --model vgg16 --gpu v100 --nodes 1,2 --step-ms 210 --priorities
!speed --model vgg16 --gpu v100 --nodes 1,2 --step-ms 210 --priorities --json
!speed --model gpt2 --gpu h100 --nodes 2 --gpus-per-node 8 --inside nvswitch --link 400G --transport rdma
!speed --model resnet50
!speed --gpu v100
!speed
!speed --model nosuch --gpu v100
!speed --model resnet50 --gpu nosuch
!speed --model resnet50 --gpu v100 --batch 0
!speed --model resnet50 --gpu v100 --link fast
!speed --model resnet50 --gpu v100 --transport pigeon
!speed --model resnet50 --gpu v100 --inside glue
!speed --model resnet50 --gpu v100,a100 --step-ms 9
!speed --model resnet50 --gpu v100 --oversubscription 0.5
!speed --model-file nothere.py:Net --gpu v100
speed {ALL_LOGS} --nodes 3 --gpus-per-node 4 --batch 16
!speed {ALL_LOGS} --nodes 3 --gpus-per-node 4 --batch 16 --json
speed --from-log 0.log
!speed --from-log 0.log --nodes 1,4 --batch 16 --json
speed --from-log 2.log --model resnet50 --gpu v100 --nodes 2
!speed --from-log 2.log,gpus=2,waiting=3 --nodes 2 --json
!speed --from-log silent.log
!speed --from-log nothere.log
!speed --from-log 0.log,gpus=x
!speed --from-log 0.log --step-ms 3
speed --model resnet50 --gpu v100 --batch 64 --or '8 GPUs now' --or '16 GPUs in 5 hours' --work '90 epochs of 1281167'
!speed --model resnet50 --gpu v100 --batch 64 --or '8 GPUs now' --or '16 GPUs in 5 hours' --work '3e8 examples' --json
speed --model resnet50 --gpu v100 --gpus-per-node 4 --or '2 gpus in 30 m' --or '8 GPUs now' --work '5e5 steps'
!speed {ALL_LOGS} --work '7200 steps' --or '8 GPUs now' --or '4 GPUs in 1 h' --json
!speed --model resnet50 --gpu v100 --or '8 GPUs now'
!speed --model resnet50 --gpu v100 --work '1 steps'
!speed --model resnet50 --gpu v100 --or '8 GPUs now' --or '4 GPUs now'
!speed --model resnet50 --gpu v100 --work 'much' --or '8 GPUs now' --or '4 GPUs now'
!speed --model resnet50 --gpu v100 --work '1 steps' --or 'some GPUs now' --or '4 GPUs now'
!speed --model resnet50 --gpu v100 --gpus-per-node 4 --work '9 steps' --or '6 GPUs now' --or '4 GPUs now'
emulate profile --gpu a100,h100 --model resnet50,gpt2 --batch 8,512
!emulate profile --gpu a100,h100 --model resnet50,gpt2 --batch 8,512 --json
emulate profile --gpu v100 --model resnet50
!emulate profile --gpu nosuch --model resnet50
!emulate profile --gpu a100 --model nosuch
!emulate profile --gpu a100 --model resnet50 --batch x
!emulate fleet --gpu a100 --model resnet50 --gpus 64 --hours 0.5 --json
!emulate fleet --gpu a100 --model resnet50 --gpus 64 --gang 16 --hours 2 --mtbf-hours 50 --seed 4 --json
!emulate fleet --gpu h100 --model gpt2 --batch 4 --gpus 32 --gang 32 --fault xid79@60s --fault slow2@10s+60s#5 --json
!emulate fleet --gpu a100 --model resnet50 --gpus 4 --gang 1 --hours 0.1 --jitter 0.5 --checkpoint-s 30 --json
!emulate fleet --gpu a100 --model resnet50 --gpus 8 --gang 4 --hours 0.2 --json
!emulate fleet --gpu a100 --model bert-large --gpus 24 --gang 12 --hours 0.2 --link 25G --inside pcie
!emulate fleet --gpu v100 --model resnet50 --gpus 2 --gang 2 --hours 0.2 --mtbf-hours 1 --checkpoint-s 60
!emulate fleet --gpu a100 --model resnet50 --gpus 9
!emulate fleet --gpu a100 --model resnet50 --fault xid79@step3
!emulate fleet --gpu v100 --model gpt2 --batch 4096
!emulate study nosuch
!emulate run --gpu a100 --model resnet50 --time slow x.py
!emulate run --gpu a100 --model nosuch x.py
!emulate device --gpu nosuch --socket s
!emulate device --gpu a100 --socket s --order lifo
!emulate device --gpu a100 --socket s --gpus 2
!emulate device --gpu a100 --socket s --fault xid79@step3
!emulate device --gpu a100 --socket s --kernel-log no/where
!emulate device --gpu a100 --socket s --jobs nowhere
study tor
!study tor --json
study tor --failing-share 0.01 --soft-share 0.5 --soft-min 10 --hard-min 600
!study tor --failing-share 2
study colocation days.csv
!study colocation days.csv --json
!study colocation nothere.csv
!study colocation list.json
!who tor --json
who cases/one.paths.parquet
!who cases/one.paths.parquet --json
who cases/one.paths.parquet --components cases/one.components.parquet
!who cases/one.paths.parquet --components cases/one.components.parquet --json
who cases/none.paths.parquet --components cases/none.components.parquet
!who cases/one.paths.parquet --solver 007 --json
!who cases/one.paths.parquet --solver score --json
!who cases/one.paths.parquet --solver nosuch
!who nothere.parquet
!who batch . --json
!who --batch . --solver deepview --json
!trace generate --jobs 40 --cluster 2x8 --out a.csv
!cat a.csv
!trace generate --jobs 40 --cluster 2x8 --out b.csv --seed 3 --load 1.5 --no-failures
!trace generate --jobs 30 --cluster 2x4+1x8 --out c.csv --arrivals a.csv
!trace generate --jobs 1 --cluster x --out d.csv
!trace generate --jobs 1 --cluster 1x1 --out d.txt
!trace apps --apps 3 --out apps.csv
!cat apps.csv
!trace apps --apps 3 --out apps.csv --search nosuch
!trace apps --apps 2 --out first.csv --search first --every 60 --seed 5
!trace convert a.csv e.csv
!cat e.csv
!trace convert list.json e.csv
!trace convert nothere.csv e.csv
!when bench nothere.csv --cut 2021-05-10
!study successors --trace nothere
!study retry --load x
""")


# ---------------------------------------------------------------- replays of traces

JOBS = """job_id,submit_s,gpus,duration_s
long,0,4,1000
short,10,1,50
wide,20,8,300
again,30,2,700
late,5000,1,10
"""
WAS = """job_id,submit_s,start_s,gpus,duration_s,partition,user,walltime_s
a,0,0,4,1000,main,ada,3600
b,10,10,1,50,main,bob,3600
c,20,1000,8,300,big,ada,600
d,30,1300,2,700,main,bob,3600
e,5000,5000,1,10,big,ada,600
f,5001,5400,8,60,main,cyd,600
"""
SLURM_CONF = """ClusterName=aurora
SchedulerType=sched/backfill
PriorityType=priority/multifactor
PriorityWeightAge=1000
NodeName=n[1-2] CPUs=32 RealMemory=100000 Gres=gpu:4
PartitionName=main Nodes=ALL Default=YES MaxTime=1-00:00:00 State=UP
"""
ELASTIC = "name,time,application,num_replicas,batch_size\nnet-0,0,net,1,64\nnet-1,30,net,4,64\n"


def write_traces(home: Path, _: pytest.MonkeyPatch) -> None:
    (home / "jobs.csv").write_text(JOBS)
    (home / "was.csv").write_text(WAS)
    (home / "bad.csv").write_text(JOBS + "odd,1,x,5\n")
    (home / "slurm.conf").write_text(SLURM_CONF)
    (home / "nodes.toml").write_text(
        "[[nodes]]\ncount = 2\ngpus = 4\nrack = 1\ncpus = 8\n[[nodes]]\ncount = 1\ngpus = 2\ncpus = 4\n"
    )
    (home / "odd.toml").write_text("[[nodes]]\ncount = 0\ngpus = 4\n")
    (home / "quota.csv").write_text("vc,gpus\n,8\n")
    (home / "twice.csv").write_text("vc,gpus\na,8\na,4\n")
    (home / "samples").write_text("10\n100\n1000\n")
    laid = ["app,cluster,local_bsz,placement,step_time,sync_time"]
    laid += [
        f"net,{kind},{batch},{digits},{batch * each + 0.001},0.0001"
        for kind, each in (("aws", 0.01), ("rtx", 0.005))
        for digits in ("1", "2", "4")
        for batch in (1, 16, 64)
    ]
    learnt = ["app,global_batch,progress,grad_sqr,grad_var"]
    learnt += [f"net,{batch},{epoch * 1000},1.0,100.0" for batch in (16, 64) for epoch in range(1, 6)]
    wide = ["app,cluster,local_bsz,step_time,sync_time,num_nodes,num_replicas", "net,aws,16,0.2,0.0001,1,4"]
    (home / "profiles").mkdir()
    for name, lines in (("placements", laid), ("scalability", wide), ("validation_stat_efficiency", learnt)):
        (home / "profiles" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (home / "elastic.csv").write_text(ELASTIC)


REPLAY_COMMANDS = commands_of("""
!trace generate --jobs 120 --cluster 2x8 --out t.csv --load 1.2 --seed 1
whatif jobs.csv --cluster 1x8 --policy fifo
whatif jobs.csv --cluster 1x8 --policy fifo,srtf,las-2d
whatif jobs.csv --cluster 1x8 --policy fifo,srtf
!whatif jobs.csv --cluster 1x8 --policy fifo,srtf,las-2d --json
!whatif t.csv --cluster 2x8 --policy fifo,srtf --retry recorded,none
!whatif t.csv --cluster 2x8 --policy fifo,srtf --retry recorded,none --json
whatif t.csv --cluster 2x8 --policy las --seeds 3 --retry always --load 0.5
!whatif t.csv --cluster 2x8 --policy las --seeds 3 --load 0.5 --json
!whatif t.csv --cluster 2x8 --policy fifo --preemption-cost 5 --placement yarn --json
!whatif jobs.csv --cluster 1x8 --policy fifo,gittins-2d --gittins-samples samples --queue-limits 100,2000 --json
!whatif t.csv jobs.csv --cluster 2x8 --policy fifo --json
!whatif t.csv jobs.csv --cluster 2x8 --policy fifo,srtf
!whatif jobs.csv --cluster 1x8 --policy fifo,srtf --jobs-out out.csv
!cat out.csv
!whatif jobs.csv --cluster 1x8 --policy fifo --compat tiresias --json
whatif jobs.csv --slurm-conf slurm.conf --policy slurm
!whatif jobs.csv --slurm-conf slurm.conf --policy slurm --json
!whatif jobs.csv --cluster 1x8 --policy fifo --replay-error
whatif was.csv --cluster 1x8 --policy fifo,las-2d --replay-error
!whatif was.csv --cluster 1x8 --policy fifo,srtf --replay-error --json
!whatif was.csv --cluster 1x8 --policy fifo,srtf --seeds 2 --retry never,always
!whatif was.csv jobs.csv --cluster 1x8 --policy fifo,srtf
!whatif was.csv t.csv --cluster 1x8 --policy fifo --replay-error
!whatif was.csv --cluster 1x8 --policy fifo,gittins-2d --gittins-split 0.1
!whatif was.csv --cluster 1x8 --policy fifo --load 0.5 --replay-error
!whatif was.csv --slurm-conf slurm.conf --policy slurm,fifo --replay-error
!whatif was.csv --cluster 1x8 --policy fifo,srtf --seeds 2 --jobs-out was-out.csv
!cat was-out.csv
!whatif was.csv jobs.csv --cluster 1x8 --policy fifo --retry never,always --jobs-out both-out.csv
!cat both-out.csv
!whatif jobs.csv --cluster 1x8 --policy fifo --jobs-out no/where.csv
!whatif jobs.csv --cluster 1x8 --policy fifo --jobs-out page.txt
!whatif jobs.csv --cluster nodes.toml --policy fifo --json
!whatif jobs.csv --cluster odd.toml --policy fifo
!whatif jobs.csv --cluster 1x8 --policy capacity --vc-quota quota.csv --json
!whatif jobs.csv --cluster 1x8 --policy fifo --vc-quota a=1,a=2
!whatif jobs.csv --cluster 1x8 --policy fifo --vc-quota twice.csv
!whatif jobs.csv --cluster 1x8 --policy gittins-2d --gittins-samples odd.toml
!whatif elastic was.csv --cluster 1x8:a --policy sia,pollux
!whatif bad.csv --cluster 1x8 --policy fifo
!whatif bad.csv --cluster 1x8 --policy fifo --skip-bad
!whatif bad.csv --cluster 1x8 --policy fifo --skip-bad --json
!whatif jobs.csv --cluster 1x4 --policy fifo
!whatif jobs.csv --policy fifo
!whatif jobs.csv --cluster 1x8
!whatif
!whatif jobs.csv --cluster 1x8 --policy nosuch
!whatif jobs.csv --cluster 1x8 --policy fifo --retry nosuch
!whatif jobs.csv --cluster 1x8 --policy fifo --load 1,2
!whatif jobs.csv --cluster 1x8 --policy fifo --load x
!whatif jobs.csv --cluster 1x8 --policy fifo --gittins-split 0.5
!whatif jobs.csv --cluster 1x8 --policy fifo --compat nosuch
!whatif jobs.csv --cluster 1x8 --policy fifo --workers nosuch
!whatif jobs.csv --cluster 1x8 --policy fifo --vc-quota a
!whatif jobs.csv --cluster 1x8 --policy fifo --placement nosuch
!whatif jobs.csv --cluster 1x8 --policy fifo --queue-limits 5,x
!whatif nothere.csv --cluster 1x8 --policy fifo
!whatif jobs.csv --cluster 1x8 --policy fifo,srtf --out page --json
!cat page/figures.json
!whatif again page/figures.json --json
!whatif again nothere.json
whatif elastic profiles elastic.csv --cluster '1x4:t4 + 1x4:rtx' --policy sia
!whatif elastic profiles elastic.csv --cluster '1x4:t4 + 1x4:rtx' --policy sia,pollux --json
!whatif elastic profiles elastic.csv --cluster 1x4 --policy nosuch
!whatif elastic a b c --cluster 1x4 --policy sia
!whatif elastic profiles nothere.csv --cluster 1x4:t4 --policy sia
""")


# ---------------------------------------------------------------- a service

MANY_EVENTS, BATCH = 7, 3  # that one file tells, and that are sent at once


def open_site(home: Path, patch: pytest.MonkeyPatch) -> None:
    """A site that is asked in this process."""
    _write_bridged(home)
    place = full_site(home / "service")
    _connect(place, patch, place.operator)


def open_own(home: Path, patch: pytest.MonkeyPatch) -> None:
    """The same, asked by one who may see their own jobs alone."""
    place = full_site(home / "service")
    _connect(place, patch, place.mira)


def _write_bridged(home: Path) -> None:
    """What other programs tell."""
    health = [samples.HEALTH | {"nodeName": f"gpu{n % 6 + 1:02}", "isFatal": n % 2 == 0} for n in range(MANY_EVENTS)]
    for name, text in (
        ("flux", samples.FLUX), ("elastic", samples.TORCHELASTIC), ("pmix", samples.PMIX),
        ("health", json.dumps(samples.HEALTH)), ("many", "\n".join(map(json.dumps, health))),
    ):  # fmt: skip
        (home / f"{name}.json").write_text(text.replace("17637", "17900").replace("2025-11-21T08", "2026-09-21T15"))


def _connect(place: Site, patch: pytest.MonkeyPatch, token: str) -> None:
    client: TestClient = place.client(token)

    def exchange(_: Service, method: str, path: str, body: Any = None, most: int = 0) -> tuple[int, bytes]:
        answer = client.request(method, f"/api/v1{path}", json=body)
        return answer.status_code, answer.content[: most or None]

    patch.setattr(Service, "exchange", exchange)
    patch.setattr(Client, "of", classmethod(lambda *_: Client(BASE, token)))
    patch.setattr(completion_values, "_client", lambda _: Client(BASE, token))
    patch.setattr("perdure.cli.bridge.BATCH", BATCH)
    patch.setattr(time, "time", lambda: place.world.now + 100.0)
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if place.commands.armed:
            place.world.carry_out()

    patch.setattr(node, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))


SITE_READ = commands_of("""
jobs
jobs --wide
!jobs --json
jobs --limit 4
jobs --job-state held
jobs --job-state failed --user jonas
!jobs --user nobody
!jobs --job-state running --json
!jobs --job-state nosuch
!jobs --limit 0
nodes
nodes --wide
!nodes --json
actions
!actions --json
actions --limit 3
events
events --limit 5
!events --json
events --open
!events --open --json
events --type app
!events --type nothing
events 104
events 101
events odd-aurora
events scratch-aurora
!events 104 --json
!events nosuch/id
!events 99999
notices
notices --limit 1
!notices --json
learn
!learn --json
learn --wide
policy
!policy --json
who
!who --json
who suspects --wide
why 101
why 102
why 103
why 104
why 105
why 106
why 107
why 201
!why 101 --json
!why 102 --json
!why 105 --wide
!why 99999
!why 101 103
!why 106 107 99999
why 1004
why 1010
""")
SITE_ORDERS = commands_of("""
!node drain gpu01 --reason 'bad fan'
!node undrain gpu01
!node drain nosuch
!node fail gpu02
!node freeze gpu02
!node thaw gpu02
!node return nosuch
nodes
!submit --gpus 2 --name a --user bob --time 60 --memory 100 --exclude n1 --signal USR1@60 --policy order -- python a.py
!submit --nodes 2 --min-nodes 1 --no-requeue --json -- true
!submit -- true
!submit --signal 60 -- true
!raise 104 --type app.nan --severity 3 --note 'loss is NaN' --id mine
!raise 104 --type app.nan --severity 3 --note 'loss is NaN' --id mine
!raise --type storage.down --resource pfs:/scratch
!raise --type node.fault --node gpu04 --json
!raise 104 --type app.nan -- '{"rank": 262, "node": "gpu05", "step": 7, "more": [1]}'
!raise --type app.nan -- '{"gpu": 3}'
!raise 104 --type nonsense..x
!raise nosuch --type app.nan
!raise 104 --from flux --file flux.json
!raise 104 --from torchelastic --file elastic.json --json
!raise --from pmix --file pmix.json
!raise --from nvsentinel --file health.json
!raise --from nvsentinel --file many.json --json
!raise --from nosuch --file flux.json
!raise --from flux --file nothere
!raise --from flux
!raise 104 --from flux --file - << {}
!completion --values job
!completion --values node
events --type node
events mine
!events close odd-aurora 'two disks replaced'
!events close odd-aurora again
!events close nosuch x
events odd-aurora
!why correct 103 transient
!why correct 103 none
!why correct 103 none
!why correct 101 deterministic --attempt 1
!why correct 106 transient
!why correct 99999 transient
!why correct 101 transient --attempt 7
why 103
learn
!learn --set-aside user=jonas
!learn --set-aside message=nosuch
!learn --set-aside day=2026-02-30
!learn --set-aside day=2026-01-31
!learn --set-aside word=1
!learn --approve user=jonas
!learn --approve word=nosuch
!learn --approve job=102
!learn --approve job=99999
!learn --now
!learn --rollback
learn
!actions --withhold nosuch
!actions --undo nosuch
!actions --stop
nodes
!nodes --json
!actions --resume
actions
!policy on
!policy off
""")
SITE_OWN = commands_of("""
jobs
!jobs --json
nodes
actions
events
events 104
why 101
why 102
!why 101 --json
learn
who
!notices
!policy
!node drain gpu01
!actions --stop
!why correct 101 transient
!why correct 102 deterministic
!learn --set-aside user=jonas
!raise 101 --type app.nan
!raise 104 --type app.nan
!events close mine-aurora done
!submit -- true
""")


# ---------------------------------------------------------------- Slurm: when jobs start, and chains

CHAINS = 12


def write_slurm(home: Path, patch: pytest.MonkeyPatch) -> None:
    from tests.cli.test_when_job import NODES, NOW_S, PARTITIONS, job, site_of

    jobs = (
        job("1", JobState.RUNNING, start_s=NOW_S - 600, running_on=("n1",), reason="", walltime_s=3000.0),
        job("2"),
        job("3", reason="Priority", gpus=2, walltime_s=600.0),
        job("4", JobState.HELD, reason="JobHeldUser"),
        job("5", partitions=("down",), reason="PartitionDown"),
        job("6", reason="Dependency"),
        job("7", reason="BeginTime", eligible_s=NOW_S + 7200),
        job("8", reason="AssocGrpGRES"),
        job("9", gpus=64),
        job("10", walltime_s=9000.0, reason="PartitionTimeLimit"),
        job("11", JobState.HELD, reason="JobHeldAdmin"),
        job("12_[1-3]", reason="Priority", tasks=3),
    )
    site = site_of(ended="42")
    patch.setattr(time, "time", lambda: NOW_S)
    patch.setattr(when_answer, "live_queue", lambda: (Queue(NOW_S, jobs, NODES, PARTITIONS), site))
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=2 -t 60\n")
    patch.setenv("PERDURE_KEEP_DIR", str(home / "chains"))
    (home / "chains").mkdir(mode=0o700)
    journal = ChainJournal.of({"PERDURE_KEEP_DIR": str(home / "chains")}, "aurora")
    patch.setattr("perdure.cli.keep_shown._journal", lambda: journal)
    for number in range(CHAINS):
        kept = journal.make(f"train{number}")
        kept.write(_chain(number, kept.id))


def _chain(number: int, id_: str) -> JobChain:
    drawn: JobChain = Drawn(f"chain {number}", {})(JobChain, "chain")
    links = tuple(replace(link, number=at) for at, link in enumerate(drawn.links, 1))
    return replace(
        drawn, spec=replace(drawn.spec, id=id_), links=links, standing=list(ChainStanding)[number % len(ChainStanding)]
    )


SLURM_COMMANDS = commands_of(
    "\n".join(
        [
            *(f"!when {number}" for number in range(1, 12)),
            *(f"!when {number} --json" for number in (1, 2, 4, 6, 9)),
            *(f"keep show train{number}-1" for number in range(CHAINS)),
            *(f"!keep show train{number}-1 --json" for number in range(CHAINS)),
            *(f"!keep explain train{number}-1" for number in range(CHAINS)),
        ]
    )
    + """
when
when 4
!when --json
when 2 --by +3h
!when 2 --by 18:00
!when 2 --by yesterday
!when 2 --by 2026-12-01T08:00 --json
!when '12_[1-3]'
!when 12_2
!cat .cache/perdure/when/e3b0c44298fc1c14/promises.json
!when 42
!when 99
when job.sh
!when job.sh --gpus 1 --time 10
!when job.sh --partition down
!when job.sh --gpus 100
!when job.sh --nodes 9 --json
!when nothere.sh
!when 2 --gpus 3
keep list
!keep list --json
!keep show nosuch
!keep explain train0-1 --json
!keep explain nosuch
"""
)

# ---------------------------------------------------------------- chains that begin

SCRIPTS = {
    "train": "#SBATCH --time=10 --gpus=2\n#SBATCH --comment='my own'\ntorchrun train.py\n",
    "warned": "#SBATCH -t 1:00:00 --signal=B:USR1@90 -J named -p big\nsrun python train.py\n",
    "steps": "#SBATCH --signal=TERM@30 --comment perdure-keep=x.1/1.1\n# torchrun x\npython -m lightning fit\n",
    "endless": "#SBATCH --time=UNLIMITED\ntrue\n",
    "odd": "#SBATCH --time=soon\ntrue\n",
    "array": "#SBATCH --array=1-3\ntrue\n",
}
PARTITIONS = (
    QueuedPartition("main", is_default=True, max_time_s=7200.0, default_time_s=1800.0),
    QueuedPartition("big"),
    QueuedPartition("short", max_time_s=600.0),
)


class _Idle:
    """Keeps nothing."""

    def keep(self, ids: Sequence[str] | None, *, once: bool = False) -> None:
        sys.stdout.write(f"keeps {ids}{' once' if once else ''}\n")


def write_scripts(home: Path, patch: pytest.MonkeyPatch) -> None:
    for name, text in SCRIPTS.items():
        (home / f"{name}.sh").write_text(f"#!/bin/bash -e\n{text}")
    (home / "run").mkdir()
    patch.setenv("PERDURE_KEEP_DIR", str(home / "chains"))
    patch.setattr("perdure.cli.keep_run.cluster_name", lambda _: "aurora")
    patch.setattr("perdure.cli.keep_shown.cluster_name", lambda _: "aurora")
    patch.setattr("perdure.cli.keep_start.read_partitions", lambda _: PARTITIONS)
    patch.setattr("perdure.cli.keep_run._keeper", lambda *_, **__: _Idle())
    patch.setattr("secrets.token_hex", lambda _: "abcd")


KEEP_COMMANDS = commands_of("""
!keep
!keep --until 3
!keep --progress x
!keep train.sh --once
!keep train.sh
!keep --chdir run train.sh --time 20
!keep -J other train.sh -- --epochs 3 'a b'
!keep warned.sh --until 4 --strategy hold --planner quantile --overlap-cost 2 --max-interruption 0.1
!keep warned.sh --job-name w2 --until +3h --done-file done --progress out/step --chdir run
!keep steps.sh --until 2026-12-01T08:00
!keep steps.sh -J now --until 2001-01-01
!keep steps.sh -J many --until 100001
!keep steps.sh -J sometime --until sometime
!keep endless.sh
!keep odd.sh
!keep array.sh
!keep nothere.sh
!keep train.sh -J long --time 3:00:00
!keep train.sh -J p --partition nosuch
!keep train.sh -J q --partition short,main --time 11
!keep train.sh -J s --strategy nosuch
!keep train.sh -J u --planner nosuch
!keep train.sh -J v --trained nothere
!SBATCH_TIMELIMIT=5 keep train.sh -J timed
!SBATCH_TIMELIMIT=5 keep steps.sh -J timed2
!SBATCH_PARTITION=big keep steps.sh -J parted
!SBATCH_PARTITION=big keep steps.sh -J parted2 --time 3:00:00
!SBATCH_SIGNAL=USR2@20 keep train.sh -J warned2
!SBATCH_JOB_NAME=env keep steps.sh
!cat chains/aurora/train-sh-1/plan.json
!cat chains/aurora/train-sh-2/plan.json
!cat chains/aurora/other-1/plan.json
!cat chains/aurora/other-1/chain.json
!cat chains/aurora/named-1/plan.json
!cat chains/aurora/named-1/chain.json
!cat chains/aurora/w2-1/chain.json
!cat chains/aurora/steps-sh-1/plan.json
!cat chains/aurora/steps-sh-1/chain.json
!cat chains/aurora/warned2-1/plan.json
!cat chains/aurora/parted2-1/chain.json
keep list
!keep list --json
!keep stop train-sh-1
!keep stop other-1 --now
!keep stop nosuch
!cat chains/aurora/other-1/stop
!keep show train-sh-1
!keep explain train-sh-1
""")


# ---------------------------------------------------------------- many folders

MANY = 60


def write_folders(home: Path, _: pytest.MonkeyPatch) -> None:
    for number in range(MANY):
        for write in (write_hang, write_site, write_log_folder):
            write(home, number)


FOLDER_COMMANDS = commands_of(
    "\n".join(
        line
        for number in range(MANY)
        for line in (
            f"!why ranks {hang_named(number)} --json",
            f"!why ranks {hang_named(number)}",
            f"!why report {site_named(number)} --json",
            f"!why logs{number} --json",
        )
    )
)

GROUPS = {
    "logs": Group(write_logs, LOG_COMMANDS),
    "models": Group(write_models, MODEL_COMMANDS),
    "replays": Group(write_traces, REPLAY_COMMANDS),
    "site": Group(open_site, SITE_READ),
    "orders": Group(open_site, SITE_ORDERS),
    "own": Group(open_own, SITE_OWN),
    "slurm": Group(write_slurm, SLURM_COMMANDS),
    "keep": Group(write_scripts, KEEP_COMMANDS),
    "folders": Group(write_folders, FOLDER_COMMANDS),
}
