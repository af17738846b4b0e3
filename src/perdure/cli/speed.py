"""``perdure speed``: how fast a model will train, on which GPUs and over which network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.options import AsJson, Wide
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import InputError
from perdure.throughput.option_values import known, numbers, rate, words

if TYPE_CHECKING:
    from perdure.throughput.layout_speed import Prior
    from perdure.throughput.training_speed import TrainingSetting, TrainingSpeed

MOST_SETTINGS = 10_000
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
        metavar="FILE:CLASS",
        show_default=False,
        help="A PyTorch model of your own: its layers are read in a process of its own.",
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
        metavar="LOG[,nodes=N,gpus=N,batch=N]",
        show_default=False,
        help="A training log of the job: its steps are fitted. May be given several times.",
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
    options = _Options(
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


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that say what is trained on what, as they were given."""

    model: str
    model_file: str
    example: str
    gpu: str
    batch: str
    nodes: str
    gpus_per_node: str
    link: str
    transport: str
    inside: str
    servers: int
    racks: int
    oversubscription: float
    step_ms: float | None
    priorities: bool


def _of_model(options: _Options, as_json: bool, wide: bool) -> int:
    from perdure.throughput.training_speed import batch_without_gain, gain_of_rdma, rate_wanted, speed_of

    settings = list(_settings(options))
    answers = [speed_of(each) for each in settings]
    gains = [gain_of_rdma(each) if each.layout.nodes > 1 else None for each in settings]
    last = max(settings, key=lambda each: each.layout.gpus)
    found: dict[str, Any] = {
        "batch_without_gain": batch_without_gain(last), "rate_for_95_percent_gbit": rate_wanted(last),
        "incast": _incast(last),
    }  # fmt: skip
    if last.layout.nodes == 1:
        found = dict.fromkeys(found)
    if as_json:
        rows = [_row(answer, gain) for answer, gain in zip(answers, gains, strict=True)]
        print_json("speed", 1, model=options.model or options.model_file, settings=rows, **found)
        return 0
    print_table(COLUMNS, (_cells(answer, gain) for answer, gain in zip(answers, gains, strict=True)), wide=wide)
    for line in _conclusions(last, found):
        print_line(line)
    return 0


def _of_logs(options: _Options, logs: Sequence[str], as_json: bool, wide: bool) -> int:
    from perdure.cli.speed_log import answer

    if options.step_ms is not None:
        raise InputError("--step-ms", "the logs say how long steps take", "Give --step-ms or --from-log")
    each = numbers("--gpus-per-node", options.gpus_per_node) if options.gpus_per_node else None
    batch = numbers("--batch", options.batch) if options.batch else None
    return answer(logs, numbers("--nodes", options.nodes), each, batch, _prior(options), as_json, wide)


def _prior(options: _Options) -> Prior | None:
    """What the model's layers say where the logs say nothing, if a model is named."""
    if not (options.model or options.model_file or options.gpu):
        return None
    from perdure.throughput.training_speed import prior_from

    return prior_from(max(_settings(options), key=lambda each: each.layout.gpus))


def _of_choices(
    options: _Options, logs: Sequence[str], choices: Sequence[str], work: str, as_json: bool, wide: bool
) -> int:
    from perdure.cli.speed_choice import answer

    if logs:
        from perdure.cli.speed_log import steps_on

        batch, steps = steps_on(logs, _prior(options), _one("--batch", options.batch, 0), _per_node(options))
        return answer(choices, work, batch, steps, as_json, wide)
    from perdure.throughput.collectives import GpuLayout
    from perdure.throughput.training_speed import speed_of

    setting = next(iter(_settings(options)))

    def on(gpus: int) -> tuple[float, float, float]:
        found = speed_of(replace(setting, layout=GpuLayout(*_layout(gpus, _per_node(options) or 1))))
        return found.low_s, found.step.step_s, found.high_s

    return answer(choices, work, setting.batch, on, as_json, wide)


def _layout(gpus: int, per_node: int) -> tuple[int, int]:
    """Nodes, and GPUs of each: as many as fit on a node."""
    each = min(gpus, per_node)
    if gpus % each:
        raise InputError("--or", f"{gpus} GPUs are no whole nodes of {each}", "Give a multiple of --gpus-per-node")
    return gpus // each, each


def _per_node(options: _Options) -> int:
    return _one("--gpus-per-node", options.gpus_per_node, 0)


def _one(option: str, given: str, otherwise: int) -> int:
    found = numbers(option, given) if given else [otherwise]
    if len(found) > 1:
        raise InputError(option, "it has several values", "Give one of them with --or")
    return found[0]


def _settings(options: _Options) -> Iterator[TrainingSetting]:
    from perdure.throughput.collectives import INSIDE, GpuLayout, Transport
    from perdure.throughput.compute import GPUS
    from perdure.throughput.layers import KNOWN_MODELS, layers_of
    from perdure.throughput.training_speed import TrainingSetting

    if options.model and options.model_file:
        raise InputError("--model-file", "there is a --model too", "Give one of them")
    for option, value in (("--model", options.model or options.model_file), ("--gpu", options.gpu)):
        if not value:
            raise InputError(option, "it is missing", "Name one, or give a training log with --from-log")
    if not 1 <= options.oversubscription <= 1000:
        what = f"{options.oversubscription:g} is no number of 1 to 1,000"
        raise InputError("--oversubscription", what, "Give 1 where uplinks are as fast as all links of their rack")
    step_ms, racks = options.step_ms, options.racks
    if options.model_file:
        from perdure.cli.model_file import layers_in

        layers = layers_in(options.model_file, options.example)
    else:
        layers = layers_of(known("--model", options.model, KNOWN_MODELS))
    gpus = [GPUS[known("--gpu", name, GPUS)] for name in words("--gpu", options.gpu.lower())]
    carriers = [
        Transport(known("--transport", name, list(Transport))) for name in words("--transport", options.transport)
    ]
    within = known("--inside", options.inside, INSIDE)
    batches, counts, each = (
        numbers(name, given)
        for name, given in (
            ("--batch", options.batch or "32"),
            ("--nodes", options.nodes),
            ("--gpus-per-node", options.gpus_per_node or "1"),
        )
    )
    rates = [rate(given) for given in words("--link", options.link)]
    chosen = [
        (*row, gbit, carrier)
        for row in product(gpus, batches, counts, each)
        for gbit, carrier in product(rates, carriers)
        if row[2] > 1 or (gbit, carrier) == (rates[0], carriers[0])  # one node uses no network
    ]
    if len(chosen) > MOST_SETTINGS:
        raise InputError("the options", f"they make {len(chosen):,} settings", f"Give at most {MOST_SETTINGS:,}")
    if step_ms is not None and not 0 < step_ms < 1e9:
        raise InputError("--step-ms", f"{step_ms:g} is no time of a step", "Give milliseconds of one step on one GPU")
    if step_ms is not None and (len(gpus) > 1 or len(batches) > 1):
        raise InputError("--step-ms", "it was measured on one GPU with one batch", "Give one --gpu and one --batch")
    measured = None if step_ms is None else step_ms / 1e3
    for one, size, count, per_node, gbit, carrier in chosen:
        yield TrainingSetting(
            layers,
            one,
            size,
            GpuLayout(count, per_node, min(racks, count)),
            gbit,
            carrier,
            within,
            measured,
            priorities=options.priorities,
            servers=options.servers,
            oversubscription=options.oversubscription,
        )


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
        f"{setting.rate_gbit:g}G {setting.transport}" if setting.layout.nodes > 1 else "", _ms(step.step_s),
        f"{answer.low_s * 1e3:,.3g}-{answer.high_s * 1e3:,.3g}", f"{answer.examples_per_s:,.0f}",
        f"{step.efficiency:.0%}", f"{gain:.2f}" if gain is not None else "", answer.bottleneck,
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _incast(last: TrainingSetting) -> Mapping[str, float] | None:
    """The risk that many nodes sending to one parameter server bring."""
    from perdure.throughput.training_speed import incast_of

    if (found := incast_of(last)) is None:
        return None
    return {
        "senders": last.layout.nodes, "queue_bytes": found.queue_bytes, "most_queue_bytes": found.most_queue_bytes,
        "utilisation": found.utilisation, "pause_share": found.pause_share,
    }  # fmt: skip


def _conclusions(last: TrainingSetting, found: Mapping[str, Any]) -> Iterator[str]:
    """What the largest layout needs, in sentences."""
    from perdure.throughput.training_speed import WORTH

    if last.layout.nodes == 1:
        return
    where = f"On {last.layout.nodes} nodes of {last.layout.gpus_per_node} {last.gpu.name} with {last.rate_gbit:g}G"
    batch, wanted = found["batch_without_gain"], found["rate_for_95_percent_gbit"]
    if batch is None:
        yield f"{where}, RDMA makes steps more than {WORTH - 1:.0%} quicker at any batch."
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
            f"Incast: {risk['senders']} nodes send to a server at once; with DCQCN its switch queues "
            f"{risk['queue_bytes'] / 1e3:,.0f} KB (at most {risk['most_queue_bytes'] / 1e3:,.0f}), pauses them "
            f"{risk['pause_share']:.1%} of the time and uses {risk['utilisation']:.0%} of the link."
        )
