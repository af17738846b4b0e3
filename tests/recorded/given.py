"""Arguments that tell something where drawn ones would not: texts for parsers, instants apart, amounts at edges.

A key names a function's argument, with its module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.model.identity import AttemptId
from tests.recorded.drawn import NOW

APART_S = (
    0.0,
    0.4,
    1.0,
    59.4,
    60.0,
    3599.0,
    3600.0,
    86_400.0,
    2 * 86_400.0,
    6.5 * 86_400.0,
    31 * 86_400.0,
    366 * 86_400.0,
)
INSTANTS = tuple(NOW + sign * apart_s for apart_s in APART_S for sign in (-1, 1))
UNSURE_INSTANTS = (*INSTANTS, None, 0.0, -1.0, 1e18)
STRETCHES = (
    0.0,
    0.4,
    0.5,
    1.0,
    59.4,
    59.6,
    60.0,
    90.0,
    3599.0,
    3600.0,
    5400.0,
    86_400.0,
    172_799.0,
    172_800.0,
    4e6,
    -5.0,
)
AMOUNTS = (0, 0.004, 0.25, 1, 9.994, 9.996, 10, 59, 60, 99.6, 100, 999.4, 1000, 1023, 1024, 99_999, 1e6, 1.5e9, -3)
DEPENDENCIES = (
    "", "singleton", "afterok:7", "afterok:7_*(failed)", "afterok:7(failed),afterany:8(unfulfilled)", "after:8_3+5",
    "afterok:7_1(failed)?aftercorr:7_*(failed)", "afterany:7(fulfilled)", "afterok:70(failed)", "afterok:7:8",
    "after what",
)  # fmt: skip
GPUS = (
    "h100",
    "a100",
    "NVIDIA_A100-SXM4-40GB",
    "NVIDIA A100-SXM4-80GB",
    "Tesla_V100-PCIE-32GB",
    "l4",
    "l40s",
    "none",
    "",
)
LISTS = ("8", "8,16,32", "1", "0", "3,2", "8,,16", "1e2", "-1", "999999999", "1000000000", "eight", "")
RATES = ("25G", "100G", "100", "1G", "6400G", "6401G", "0.5G", "fast", "")
POLICIES = (
    "fifo", "srtf", "las", "las:2", "las-2d:8", "dlas-gpu-8", "sjf", "sjf:skip", "easy", "conservative",
    "conservative:replan", "philly:2", "capacity", "capacity:x", "gittins-2d", "tiresias", "pollux", "none", "",
)  # fmt: skip
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 1.50 GiB already allocated; "
    "0 bytes free; 2.00 GiB reserved in total by PyTorch)",
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 18.00 MiB is "
    "free. Process 77 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has 39.00 GiB memory in "
    "use. Of the allocated memory 37.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
    "unallocated",
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is "
    "free. Process 77 has 30.00 GiB memory in use. Process 78 has 47.00 GiB memory in use. Of the allocated "
    "memory 44.00 GiB "
    "is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated",
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB; 20.00 GiB allowed; this "
    "process has 19.50 GiB memory in use",
    "Free memory on device (10.5/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)",
    "only 3.0 GiB of 80.0 GiB GPU memory are free",
    "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 15843721216",
    "CUDA out of memory",
    "",
)
SLURM_SETTINGS = ("RequeueExit", "RequeueExitHold", "MinJobAge", "PrivateData", "MaxJobCount", "none")
STEPS = (
    "step 10 of 20\nstep 20 of 20", "Epoch 1: loss 0.5\nEpoch 2: loss 0.4", "epoch 3/90", "epochs: 90", "iteration 500",
    "WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=4) ran for 1800 ms\nWorkNCCL(SeqNum=18, OpType=BROADCAST)",
    "Epoch [4] step 7\nglobal_step=300", "step", "",
)  # fmt: skip
SAID = (
    "NCCL error", "CUDA out of memory", "mesh tangled", "negative volume", "loss is nan", "loss became inf",
    "mat1 and mat2 shapes (2x3 and 4x5) cannot be multiplied", "size mismatch", "No space left on device",
    "Stale file handle", "RendezvousTimeoutError", "ModuleNotFoundError: torch", "PermissionError", "no such thing", "",
)  # fmt: skip
STACKS = (
    'Thread 7 (idle): "MainThread"\n    wait (threading.py:320)\n    train (/home/ada/train.py:9)\n',
    'Process 7: python train.py\nPython v3.11\n\nThread 8 (active): "loader"\n    load (data.py:3)\n'
    'Thread 7 (active+gil): "MainThread"\n    all_reduce (torch/distributed/c10d.py:40)\n    <module> (train.py:2)\n',
    'Current thread 0x00007f (most recent call first):\n  File "/home/ada/train.py", line 9 in step\n'
    '  File "/home/ada/train.py", line 20 in <module>\n',
    'Thread 0x00007e (most recent call first):\n  File "data.py", line 3 in load\n\n'
    'Thread 0x00007f (most recent call first):\n  File "train.py", line 9 in step\n',
    "no stack",
    "",
)
TREES = (
    ("SwitchName=leaf1 Nodes=n[1-3]", "SwitchName=leaf2 Nodes=n10", "SwitchName=top Switches=leaf[1-2]"),
    ("# two leaves", "switchname=leaf1 nodes=n1,n2 LinkSpeed=100", "", "SwitchName=leaf2 Nodes=n3"),
    ("SwitchName=leaf1 Nodes=n1", "SwitchName=leaf1 Nodes=n2"),
    ("SwitchName=leaf1 Nodes=n1", "SwitchName=leaf2 Nodes=n1"),
    ("SwitchName=leaf1 Nodes=n1", "SwitchName=a Switches=leaf1", "SwitchName=b Switches=a", "SwitchName=c Switches=b"),
    ("SwitchName=a Switches=b", "SwitchName=b Switches=a"),
    ("SwitchName=leaf1 Nodes=n1 Switches=leaf2",), ("Nodes=n1",), ("leaf1",), (),
)  # fmt: skip
ENVIRONMENTS = (
    {}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "1,-1,2"}, {"CUDA_VISIBLE_DEVICES": "-1"},
    {"CUDA_VISIBLE_DEVICES": "2,2"}, {"CUDA_VISIBLE_DEVICES": "GPU-ab,GPU-cd"}, {"SLURM_JOB_GPUS": "2,3"},
    {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,5"}, {"CUDA_VISIBLE_DEVICES": "4", "SLURM_JOB_GPUS": "4,5"},
    {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "6", "SLURM_JOB_GPUS": "4,6"}, {"SLURM_JOB_GPUS": "two"},
)  # fmt: skip
COMMANDS = (
    ("python", "train.py"), ("torchrun", "--nproc-per-node=8", "train.py"), ("/v/bin/torchrun", "train.py"),
    ("python",),
    ("python", "-m", "torch.distributed.run", "t.py"), ("accelerate", "launch", "t.py"), ("python", "t.py", "torchrun"),
    ("python", "-u", "-m", "submitit.core._submit", "/home/logs"), ("lightning", "run", "model", "t.py"), ("fabric",
    "run"), (),
)  # fmt: skip
SETTINGS_OF_FRAMEWORKS = (
    {},
    {"PL_TRAINER_GPUS": "2"},
    {"LIGHTNING_X": ""},
    {"SUBMITIT_EXECUTOR": "slurm"},
    {"PLX": ""},
)
PLAYBOOKS = (
    "", "[failures.gpu]\nprobe = true\n", '[failures."gpu.xid79"]\nretries = 3\n', "[failures.none]\nx = 1\n", "x = [",
    "[plans.gpu]\n", '[faults."node.failure"]\nsteps = []\n', "failures = 3\n",
)  # fmt: skip
HISTORY = (
    "", "[]", "no json", '[{"i":1,"s":"failed","b":1599999000,"e":1599999900,"c":1,"g":0,"r":"Error","gpus":8}]',
    '[{"i":1,"s":"running","b":1599999000},{"i":2,"s":"completed","b":1599999000,"e":1599999100}]', '[{"i":"x"}]', "{}",
)  # fmt: skip
CHAIN_COMMENTS = (
    "", "mine perdure-keep=train-1/2.1", "perdure-keep=t/3.2 (60-600-3600 s)",
    "perdure-keep=t/3.2 because of the queue",
    "perdure-keep=t/3.2 (60-600-3600 s) because it waits", "perdure-keep=t/3", "perdure-keep=a b/1.1", "theirs",
    "perdure-keep=t/1234567.1",
)  # fmt: skip
OUR_LINES = (
    "perdure: a wrong shape: it would fail again. perdure why 7 #0a1b2c", "perdure: retry=never",
    "perdure why 7 #0a1b2c",
    '"perdure: a line. perdure why 7_1 #ffffff"', "perdure: a line. perdure why 7 #xyz",
    " perdure: two\nlines. perdure why 8 #000000 ", "",
)  # fmt: skip
JOBS_OF_KUBERNETES = (
    "team.train:jobset",
    "team.train:job",
    "team.train:pytorchjob",
    "team.train",
    "team:job",
    ".a:job",
    "4711",
    "",
)
CONDOR_JOBS = tuple(
    AttemptId("c", job_id, at) for at, job_id in enumerate(("7.0", "7", "7.x", "12.3", "\u0667.0", ".1", "7."))
)

GIVEN: Mapping[str, Sequence[Any]] = {
    "backends.condor.ads.that_run.attempt": CONDOR_JOBS,
    "backends.kubernetes.attempts.from_history.text": HISTORY,
    "backends.kubernetes.objects.seconds_of.told": ("1600000000", "1600000000.5", "-1", "0", "1e30", "nan", "soon", ""),
    "backends.kubernetes.runs.is_gpu.resource": ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "cpu", ""),
    "backends.kubernetes.workloads.place_of.job_id": JOBS_OF_KUBERNETES,
    "backends.slurm.config.Config.codes.name": SLURM_SETTINGS,
    "backends.slurm.config.Config.number.name": SLURM_SETTINGS,
    "backends.slurm.config.Config.words.name": SLURM_SETTINGS,
    "backends.slurm.dependants.is_dependant.expression": DEPENDENCIES,
    "backends.slurm.dependants.is_singleton.expression": DEPENDENCIES,
    "backends.slurm.dependants.parts.expression": DEPENDENCIES,
    "backends.slurm.dependants.repaired_dependency.expression": DEPENDENCIES,
    "backends.slurm.dependants.word_on.before": DEPENDENCIES,
    "backends.slurm.plans.asks_for_admin.command": (
        'scontrol update JobId=7 AdminComment="x"', "scontrol requeue 7", "scancel 7", "",
    ),
    "backends.slurm.records.instant.mark": ("m",),
    "backends.slurm.records.instant.text": ("1600000000~m", "1600000000~x", "Unknown~m", "1600000000",
        "1234567890123~m", ""),
    "backends.slurm.records.pairs.text": ("", "JobId=7 UserId=ada(1)", "a=1 a=2 b", "Comment=x=y \n", "no words"),
    "blame.builders.topology.read_topology.lines": TREES,
    "cli.emulate_study.show_study.name": ("none", ""),
    "cli.emulate_values.given_gpus.environment": ENVIRONMENTS,
    "cli.emulate_values.numbers.given": LISTS,
    "cli.emulate_values.numbers.most": (16, 1_000_000),
    "cli.emulate_values.rate.given": RATES,
    "cli.simulated.cluster_named.spec": ("32x8", "1x1", "0x8", "32", "2x8,4x4", "ax8", ""),
    "cli.simulated.loads_of.text": ("0.8", "0.5,1.0", "x", ""),
    "cli.simulated.numbers.text": ("3250,7200", "1", "0,1", "2,2", "3,2", "nan", "inf", "x", ""),
    "cli.simulated.quotas.text": ("lab=64,ops=32", "lab = 64", "lab=0", "lab=x", "lab=1,lab=2", "=3", "lab", ""),
    "cli.speed_choice.choice_of.given": ("8 GPUs now", "16 GPUs in 5 hours", "16 gpus", "0 GPUs", "4 gpus in 90 s",
        "1 gpu in 1.5 d", "16", ""),
    "cli.speed_choice.examples_of.work": ("90 epochs of 1,281,167", "500000 steps", "3e8 examples", "0 steps",
        "1 step", "1e19 examples", "9e19 examples", "work", ""),
    "coordination.bridges.causes.of_exit.code": (0, 1, 2, 75, 126, 127, 137, 139, 143, 255, -9, -15),
    "coordination.bridges.causes.of_message.text": SAID,
    "coordination.bridges.causes.signal_of.code": (0, 1, 128, 129, 137, 143, 255, -9, -200),
    "coordination.playbook.site_playbook.text": PLAYBOOKS,
    "emulation.profiles.capacity_mib.gpu": GPUS,
    "emulation.profiles.estimated.batch": (1, 16, 256),
    "emulation.profiles.estimated.gpu": ("h100", "a100", "v100", "none"),
    "emulation.profiles.estimated.model": ("resnet50", "bert", "bert_large", "gpt2", "vgg16", "none"),
    "emulation.profiles.found_gpu.gpu": GPUS,
    "emulation.profiles.found_gpu.names": (GPUS[:5], ("NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"), ()),
    "emulation.profiles.known_name.gpu": GPUS,
    "hangs.stacks.read_stack.text": STACKS,
    "job.fence.current_claim.environment": (
        {}, {"PERDURE_FENCE_DIR": "/home/f"}, {"PERDURE_FENCE_DIR": "/home/f", "PERDURE_FENCE_TOKEN": "7"},
        {"PERDURE_FENCE_DIR": "/home/f", "PERDURE_FENCE_TOKEN": "x"}, {"PERDURE_FENCE_TOKEN": "7"},
    ),
    "job.framework.framework_of.name": ("plain", "torchrun", "lightning", "submitit", "Plain", "keras", ""),
    "job.framework.recognised.argv": COMMANDS,
    "job.framework.recognised.environment": SETTINGS_OF_FRAMEWORKS,
    "job.framework.signal_of.name": ("USR1", "SIGUSR1", "term", "sigint", "KILL", "10", "SIGSIG", ""),
    "model.job_comment.chain_link_of.comment": CHAIN_COMMENTS,
    "model.job_comment.mark_of.text": OUR_LINES,
    "scheduling.policies.how_it_chooses.text": POLICIES,
    "scheduling.policies.policy_named.text": POLICIES,
    "service.core.orders.job_order.kind": ("hold", "release", "cancel", "retry", "retry", "drain"),
    "service.core.orders.node_order.kind": ("drain", "undrain", "retry"),
    "service.exceptions.permissions.answered.verdict": ("handled", "annotated", "declined", "deferred", "rejected",
        "none"),
    "service.exceptions.permissions.enlisted.component": ("job", "workflow", "scheduler", "resource_manager", "none"),
    "service.exceptions.permissions.enlisted.types": (("",), ("job.net", ""), ("storage.full",), ("no type",), ()),
    "service.learning.outcome_store.day_of.time_s": INSTANTS,
    "service.learning.outcome_store.is_day.value": ("2020-09-13", "2020-02-30", "2020-9-13", "20200913", ""),
    "service.learning.outcome_store.start_of.day": ("2020-09-13", "2020-02-30", "1970-01-01", "2020-9-13", ""),
    "service.store.queries.jobs.category_of.exception_type": ("job.net", "node.failure", "node", "gpu.xid79.x", ""),
    "service.web.pages.labels.about.seconds": INSTANTS,
    "service.web.pages.labels.ago.then": UNSURE_INSTANTS,
    "service.web.pages.labels.amount.hours": AMOUNTS,
    "service.web.pages.labels.badge.of": ("job", "attempt", "node", "action", "decision", "label", "exception", "none"),
    "service.web.pages.labels.badge.state": ("held", "failed", "up", "planned", "probe", "unsure", "handled", "",
        "of_late"),
    "service.web.pages.labels.instant.seconds": UNSURE_INSTANTS,
    "service.web.pages.labels.change.share": (-1.0, -0.998, -0.234, -0.0004, 0.0, 0.0004, 0.0006, 0.031, 0.0996, 12.5),
    "service.web.pages.labels.clock.seconds": UNSURE_INSTANTS,
    "service.web.pages.labels.iso.seconds": UNSURE_INSTANTS,
    "service.web.pages.labels.span.seconds": STRETCHES,
    "service.web.pages.labels.whole.number": (0, 999, 1000, 1_000_000, -1024),
    "service.web.pages.labels.zone.seconds": UNSURE_INSTANTS,
    "service.web.pages.now.window_of.first_s": UNSURE_INSTANTS[:-3],
    "service.web.pages.waits.place.wait_s": STRETCHES,
    "simulation.foresight.knows_running_times.policy": POLICIES,
    "simulation.foresight.learns_from_samples.policy": POLICIES,
    "throughput.collectives.link_inside.gpu": GPUS,
    "throughput.collectives.link_inside.name": ("nvlink", "nvswitch", "pcie", "none"),
    "throughput.option_values.known.given": ("a", "b", "none", ""),
    "throughput.option_values.known.names": (("a", "b"), ("a",)),
    "throughput.option_values.numbers.given": LISTS,
    "throughput.option_values.numbers.option": ("--gpus-per-node", "--batch", "--nodes", "--racks"),
    "throughput.option_values.rate.given": RATES,
    "triage.conformal.read_thresholds.text": (
        '{"transient_from": 0.8, "deterministic_to": 0.1}', '{"transient_from": 2, "deterministic_to": 0.1}',
        '{"transient_from": "x"}', '{"transient_from": 0.5}', "[]", "{", "",
    ),
    "triage.evidence.context.progress_of.excerpt": STEPS,
    "triage.evidence.gpu_memory.gpu_memory.message": OUT_OF_MEMORY,
    "triage.evidence.scheduler.lost_nodes.line": (
        "srun: error: Node failure on gpu[01-03]", "salloc: error: Node failure on n1.", "srun: Node failure on n1",
        "srun: error: Task launch for StepId=7.0 failed on node n2: Communication failure",
        "srun: error: n1: task 0: Exited",
        "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE ***", "",
    ),
    "waits.awaited.conditions.dependency": DEPENDENCIES,
    "waits.calibration.Promise.is_late_at.now_s": INSTANTS,
}  # fmt: skip
