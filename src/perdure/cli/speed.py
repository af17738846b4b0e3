"""``perdure speed``: how fast a model will train, on which GPUs and over which network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.options import AsJson, Wide
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.speed_settings import SpeedOptions, one_setting, settings_of
from perdure.cli.table import text, word
from perdure.errors import InputError
from perdure.throughput.option_values import digits, milliseconds, numbers

if TYPE_CHECKING:
    from perdure.cli.speed_log import LayersPrior
    from perdure.throughput.training_speed import TrainingSetting, TrainingSpeed

COLUMNS = (
    word("GPU", leave=3), word("NODES"), word("GPUS"), word("BATCH"), word("LINK", leave=2), word("STEP"),
    word("80 %", leave=4), word("EXAMPLES/S"), word("SCALING"), word("TCP/RDMA", leave=1), text("BOUND BY", leave=5),
)  # fmt: skip


ModelName = Annotated[
    str,
    typer.Option(metavar="NAME", help="The model, such as resnet50, vgg16, bert-large, gpt2.", show_default=False),
]
ModelFile = Annotated[
    str,
    typer.Option(
        metavar="FILE:CLASS|FILE.onnx",
        show_default=False,
        help="A model of your own: a class of a PyTorch program, or an ONNX file, read in a process of its own.",
    ),
]
Example = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="SHAPE",
        show_default=False,
        help="One example for --model-file: 3,224,224, or int:128 for words; or as its first layer asks for.",
    ),
]
GpuNames = Annotated[str, typer.Option(metavar="NAME,...", help="GPUs, such as v100,a100,h100.", show_default=False)]
Batches = Annotated[str, typer.Option(metavar="N,...", help="Examples of one GPU in a step; 32, or as the logs say.")]
Nodes = Annotated[str, typer.Option(metavar="N,...", help="Nodes that train together.")]
GpusPerNode = Annotated[str, typer.Option(metavar="N,...", help="GPUs of each node; 1, or as the logs say.")]
Links = Annotated[str, typer.Option(metavar="RATE,...", help="Network link of one node, such as 25G or 100G.")]
Transports = Annotated[str, typer.Option(metavar="tcp,rdma", help="What carries messages between nodes.")]
Inside = Annotated[str, typer.Option(metavar="NAME", help="What connects a node's GPUs: pcie, nvlink, nvswitch.")]
Servers = Annotated[
    int, typer.Option(metavar="N", min=0, max=4096, help="Parameter servers, on nodes of their own; 0: all-reduce.")
]
Racks = Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Racks among which nodes are spread.")]
Oversubscription = Annotated[
    float, typer.Option(metavar="X", help="Rate of a rack's nodes over the rate of its uplinks.")
]
StepMs = Annotated[
    float | None,
    typer.Option(metavar="MS", help="What one step takes on one GPU, from a log of yours.", show_default=False),
]
FromLog = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LOG[,NAME=N...]",
        show_default=False,
        help="A training log of the job, whose steps are fitted; NAME: nodes, gpus, batch, or waiting (ms of each step "
        "for gradients). Repeatable.",
    ),
]
Choices = Annotated[
    list[str] | None,
    typer.Option(
        "--or",
        metavar="'N GPUs [now|in TIME]'",
        show_default=False,
        help="A way to run the job; several are compared by when they end. Without a time, the queue is asked.",
    ),
]
Work = Annotated[
    str,
    typer.Option(
        metavar="WORK",
        help="What is left, for --or: 90 epochs of 1281167, 500000 steps, 3e8 examples.",
        show_default=False,
    ),
]
Priorities = Annotated[
    bool, typer.Option("--priorities", help="Gradients that are needed first are sent first (ByteScheduler).")
]


def speed(
    model: ModelName = "",
    model_file: ModelFile = "",
    example: Example = "",
    gpu: GpuNames = "",
    batch: Batches = "",
    nodes: Nodes = "1,2,4,8",
    gpus_per_node: GpusPerNode = "",
    link: Links = "100G",
    transport: Transports = "tcp,rdma",
    inside: Inside = "pcie",
    servers: Servers = 0,
    racks: Racks = 1,
    oversubscription: Oversubscription = 1.0,
    step_ms: StepMs = None,
    from_log: FromLog = None,
    choices: Choices = None,
    work: Work = "",
    priorities: Priorities = False,
    as_json: AsJson = False,
    wide: Wide = False,
) -> int:
    """Say how fast a model trains with data parallelism: the step, how it scales, what bounds it, what RDMA would gain.

    Options that take several values are combined. Compute times are estimated from the GPU's data sheet unless
    --step-ms gives a measured one (with one GPU, one batch): 80 % of true times lie in the interval that is shown. The
    network is taken to do what its link promises: 75 % of it for TCP and no more than 30 Gbit/s, 92 % for RDMA.

    --from-log reads how long the steps of a job of yours took, and says how it trains on other layouts and batches.
    With --model and --gpu, what the logs do not show is taken from the model's layers.

    --or '8 GPUs now' --or '16 GPUs in 5 hours' --work '90 epochs of 1281167' says which of them ends first.

    Exit codes: 0 answered, 2 usage, or a model, a GPU, a link or a log that cannot be used.
    """
    options = SpeedOptions(
        model,
        model_file,
        example,
        gpu,
        batch,
        nodes,
        gpus_per_node,
        link,
        transport,
        inside,
        servers,
        racks,
        oversubscription,
        step_ms,
        priorities,
    )
    if choices or work:
        return _of_choices(options, from_log or [], choices or [], work, as_json, wide)
    if from_log:
        return _of_logs(options, from_log, as_json, wide)
    return _of_model(options, as_json, wide)


def _of_model(options: SpeedOptions, as_json: bool, wide: bool) -> int:
    from perdure.throughput.training_speed import batch_without_gain, gain_of_rdma, rate_wanted, speed_of

    settings = settings_of(options)
    answers = [speed_of(each) for each in settings]
    gains = [gain_of_rdma(each) if each.layout.nodes > 1 else None for each in settings]
    last = max(settings, key=lambda each: each.layout.gpus)
    found: dict[str, Any] = {
        "batch_without_gain": batch_without_gain(last), "rate_for_95_percent_gbit": rate_wanted(last),
        "incast": _incast(settings, last),
    }  # fmt: skip
    if last.layout.nodes == 1:
        found = dict.fromkeys(found)
    if as_json:
        rows = [_row(answer, gain) for answer, gain in zip(answers, gains, strict=True)]
        held = last.layers.file_batch
        print_json(
            "speed", 1, model=last.layers.name, file_batch=held, settings=rows, of_setting=settings.index(last), **found
        )
        return 0
    print_table(COLUMNS, (_cells(answer, gain) for answer, gain in zip(answers, gains, strict=True)), wide=wide)
    for line in (*_of_file_batch(settings), *_conclusions(last, found)):
        print_line(line)
    return 0


def _of_logs(options: SpeedOptions, logs: Sequence[str], as_json: bool, wide: bool) -> int:
    from perdure.cli.speed_log import answer

    if options.step_ms is not None:
        raise InputError("--step-ms", "the logs say how long steps take", "Give --step-ms or --from-log")
    each = numbers("--gpus-per-node", options.gpus_per_node) if options.gpus_per_node else None
    batch = numbers("--batch", options.batch) if options.batch else None
    prior = _prior(replace(options, batch="", gpus_per_node=""))
    return answer(logs, numbers("--nodes", options.nodes), each, batch, prior, as_json, wide)


def _prior(options: SpeedOptions) -> LayersPrior | None:
    """What the model's layers say where the logs say nothing, if a model is named."""
    if not (options.model or options.model_file or options.gpu):
        return None
    from perdure.throughput.training_speed import prior_from

    setting = one_setting(options, "--from-log")
    return lambda batch, step_s: prior_from(replace(setting, batch=batch, measured_s=step_s))


def _of_choices(
    options: SpeedOptions, logs: Sequence[str], choices: Sequence[str], work: str, as_json: bool, wide: bool
) -> int:
    from perdure.cli.speed_choice import answer

    if logs:
        from perdure.cli.speed_log import steps_on

        batch, steps = steps_on(logs, _prior(replace(options, batch="")), options.one_batch, options.per_node)
        return answer(choices, work, batch, steps, as_json, wide)
    from perdure.throughput.collectives import GpuLayout
    from perdure.throughput.training_speed import speed_of

    setting = one_setting(options, "--or")

    def on(gpus: int) -> tuple[float, float, float]:
        nodes, each = _layout(gpus, options.per_node or 1)
        found = speed_of(replace(setting, layout=GpuLayout(nodes, each, min(options.racks, nodes))))
        return found.low_s, found.step.step_s, found.high_s

    status = answer(choices, work, setting.batch, on, as_json, wide, one_cause=True)
    if not as_json:
        network = f"{setting.rate_gbit:g}G {setting.transport} between nodes of {options.per_node or 1}"
        print_line(f"Taken: {setting.gpu.name}, a batch of {setting.batch} on each GPU, {network}.")
    return status


def _layout(gpus: int, per_node: int) -> tuple[int, int]:
    """Nodes, and GPUs of each: as many as fit on a node."""
    each = min(gpus, per_node)
    if gpus % each:
        raise InputError("--or", f"{gpus} GPUs are no whole nodes of {each}", "Give a multiple of --gpus-per-node")
    return gpus // each, each


def _row(answer: TrainingSpeed, gain: float | None) -> Mapping[str, Any]:
    setting, step = answer.setting, answer.step
    return {
        "gpu": setting.gpu.name, "nodes": setting.layout.nodes, "gpus": setting.layout.gpus, "batch": setting.batch,
        "link_gbit": setting.rate_gbit, "transport": setting.transport.value, "step_s": step.step_s,
        "step_s_80_percent": [answer.low_s, answer.high_s], "compute_s": step.compute_s,
        "communication_s": step.communication_s, "exposed_s": step.exposed_s,
        "examples_per_s": answer.examples_per_s, "scaling_efficiency": step.efficiency, "tcp_over_rdma": gain,
        "bottleneck": answer.bottleneck, "measured": setting.measured_s is not None,
    }  # fmt: skip


def _cells(answer: TrainingSpeed, gain: float | None) -> Sequence[str]:
    setting, step = answer.setting, answer.step
    return (
        setting.gpu.name, str(setting.layout.nodes), str(setting.layout.gpus), str(setting.batch),
        f"{setting.rate_gbit:g}G {setting.transport}" if setting.layout.nodes > 1 else "",
        f"{milliseconds(step.step_s)} ms", f"{milliseconds(answer.low_s)}-{milliseconds(answer.high_s)}",
        digits(answer.examples_per_s),
        f"{step.efficiency:.0%}", f"{gain:.2f}" if gain is not None else "", answer.bottleneck,
    )  # fmt: skip


def _incast(settings: Sequence[TrainingSetting], last: TrainingSetting) -> Mapping[str, float] | None:
    """The risk that many nodes sending to one parameter server bring, with RDMA where it was asked for."""
    from perdure.throughput.collectives import Transport
    from perdure.throughput.training_speed import incast_of

    if all(each.transport is Transport.TCP for each in settings):
        return None
    if (found := incast_of(replace(last, transport=Transport.RDMA))) is None:
        return None
    return {
        "senders": last.layout.nodes, "queue_bytes": found.queue_bytes, "most_queue_bytes": found.most_queue_bytes,
        "utilisation": found.utilisation, "pause_share": found.pause_share,
    }  # fmt: skip


def _of_file_batch(settings: Sequence[TrainingSetting]) -> Iterator[str]:
    """Which batch is meant, where the model's file has one of its own."""
    layers = settings[0].layers
    if layers.file_batch is None:
        return
    held = f"holds a batch of {layers.file_batch}" if layers.file_batch else "leaves the batch open"
    taken = ", ".join(str(each) for each in dict.fromkeys(each.batch for each in settings))
    yield f"{layers.name} {held}; its layers are counted by the example, and each GPU takes {taken} (--batch)."


def _conclusions(last: TrainingSetting, found: Mapping[str, Any]) -> Iterator[str]:
    """What the largest layout needs, in sentences."""
    from perdure.throughput.training_speed import LARGEST_BATCH, WORTH

    if last.layout.nodes == 1:
        return
    where = f"On {last.layout.nodes} nodes of {last.layout.gpus_per_node} {last.gpu.name} with {last.rate_gbit:g}G"
    batch, wanted = found["batch_without_gain"], found["rate_for_95_percent_gbit"]
    if batch is None:
        yield f"{where}, RDMA makes steps more than {WORTH - 1:.0%} quicker at any batch up to {LARGEST_BATCH:,}."
    elif batch == 1:
        yield f"{where}, RDMA makes no step {WORTH - 1:.0%} quicker, whatever the batch."
    else:
        yield f"{where}, RDMA makes steps more than {WORTH - 1:.0%} quicker up to a batch of {batch - 1} a GPU."
    carrier = last.transport.upper()
    if wanted is None:
        yield f"No link lets {carrier} scale to 95 % at a batch of {last.batch}."
    else:
        yield f"{carrier} scales to 95 % at a batch of {last.batch} from a link of {wanted:.3g}G on."
    if (risk := found["incast"]) is not None:
        yield (
            f"Incast with RDMA: {risk['senders']} nodes send to a server at once; with DCQCN its switch queues "
            f"{risk['queue_bytes'] / 1e3:,.0f} KB (at most {risk['most_queue_bytes'] / 1e3:,.0f}), pauses them "
            f"{risk['pause_share']:.1%} of the time and uses {risk['utilisation']:.0%} of the link."
        )
