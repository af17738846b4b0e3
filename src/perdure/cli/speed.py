"""``perdure speed``: how fast a model will train, on which GPUs and over which network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.options import AsJson, Wide
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.throughput.training_speed import TrainingSetting, TrainingSpeed

MOST_SETTINGS = 10_000
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*[gG](?:[bB]?(?:it)?(?:/s|ps)?)?")
_MOST = {"--batch": 1 << 20, "--nodes": 1 << 16, "--gpus-per-node": 64}
COLUMNS = (
    word("GPU", leave=3), word("NODES"), word("GPUS"), word("BATCH"), word("LINK", leave=2), word("STEP"),
    word("80 %", leave=4), word("EXAMPLES/S"), word("SCALING"), word("TCP/RDMA", leave=1), text("BOUND BY", leave=5),
)  # fmt: skip


def speed(
    model: Annotated[str, typer.Option(metavar="NAME", help="The model, such as resnet50, vgg16, bert-large, gpt2.")],
    gpu: Annotated[str, typer.Option(metavar="NAME,...", help="GPUs, such as v100,a100,h100.")],
    batch: Annotated[str, typer.Option(metavar="N,...", help="Examples of one GPU in a step.")] = "32",
    nodes: Annotated[str, typer.Option(metavar="N,...", help="Nodes that train together.")] = "1,2,4,8",
    gpus_per_node: Annotated[str, typer.Option(metavar="N,...", help="GPUs of each node.")] = "1",
    link: Annotated[
        str, typer.Option(metavar="RATE,...", help="Network link of one node, such as 25G or 100G.")
    ] = "100G",
    transport: Annotated[
        str, typer.Option(metavar="tcp,rdma", help="What carries messages between nodes.")
    ] = "tcp,rdma",
    inside: Annotated[
        str, typer.Option(metavar="NAME", help="What connects a node's GPUs: pcie, nvlink, nvswitch.")
    ] = "pcie",
    step_ms: Annotated[
        float | None,
        typer.Option(metavar="MS", help="What one step takes on one GPU, from a log of yours.", show_default=False),
    ] = None,
    priorities: Annotated[
        bool, typer.Option("--priorities", help="Gradients that are needed first are sent first (ByteScheduler).")
    ] = False,
    as_json: AsJson = False,
    wide: Wide = False,
) -> int:
    """Say how fast a model trains with data parallelism: the step, how it scales, what bounds it, what RDMA would gain.

    Options that take several values are combined. Compute times are estimated from the GPU's data sheet unless
    --step-ms gives a measured one (with one GPU, one batch): 80 % of true times lie in the interval that is shown. The
    network is taken to do what its link promises: 75 % of it for TCP and no more than 30 Gbit/s, 92 % for RDMA.

    Exit codes: 0 answered, 2 usage, or a model, a GPU or a link that is not known.
    """
    from perdure.throughput.training_speed import batch_without_gain, gain_of_rdma, rate_wanted, speed_of

    settings = list(_settings(model, gpu, batch, nodes, gpus_per_node, link, transport, inside, step_ms, priorities))
    answers = [speed_of(each) for each in settings]
    gains = [gain_of_rdma(each) if each.layout.nodes > 1 else None for each in settings]
    last = max(settings, key=lambda each: each.layout.gpus)
    found = {"batch_without_gain": batch_without_gain(last), "rate_for_95_percent_gbit": rate_wanted(last)}
    if last.layout.nodes == 1:
        found = dict.fromkeys(found)
    if as_json:
        rows = [_row(answer, gain) for answer, gain in zip(answers, gains, strict=True)]
        print_json("speed", 1, model=model, settings=rows, **found)
        return 0
    print_table(COLUMNS, (_cells(answer, gain) for answer, gain in zip(answers, gains, strict=True)), wide=wide)
    for line in _conclusions(last, found):
        print_line(line)
    return 0


def _settings(
    model: str, gpu: str, batch: str, nodes: str, gpus_per_node: str, link: str, transport: str, inside: str,
    step_ms: float | None, priorities: bool,
) -> Iterator[TrainingSetting]:  # fmt: skip
    from perdure.throughput.collectives import INSIDE, GpuLayout, Transport
    from perdure.throughput.compute import GPUS
    from perdure.throughput.layers import KNOWN_MODELS, layers_of
    from perdure.throughput.training_speed import TrainingSetting

    layers = layers_of(_known("--model", model, KNOWN_MODELS))
    gpus = [GPUS[_known("--gpu", name, GPUS)] for name in _words("--gpu", gpu.lower())]
    carriers = [Transport(_known("--transport", name, list(Transport))) for name in _words("--transport", transport)]
    within = _known("--inside", inside, INSIDE)
    batches, counts, each = (
        _numbers(name, given)
        for name, given in (("--batch", batch), ("--nodes", nodes), ("--gpus-per-node", gpus_per_node))
    )
    rates = [_rate(given) for given in _words("--link", link)]
    chosen = [
        (*row, rate, carrier)
        for row in product(gpus, batches, counts, each)
        for rate, carrier in product(rates, carriers)
        if row[2] > 1 or (rate, carrier) == (rates[0], carriers[0])  # one node uses no network
    ]
    if len(chosen) > MOST_SETTINGS:
        raise InputError("the options", f"they make {len(chosen):,} settings", f"Give at most {MOST_SETTINGS:,}")
    if step_ms is not None and not 0 < step_ms < 1e9:
        raise InputError("--step-ms", f"{step_ms:g} is no time of a step", "Give milliseconds of one step on one GPU")
    if step_ms is not None and (len(gpus) > 1 or len(batches) > 1):
        raise InputError("--step-ms", "it was measured on one GPU with one batch", "Give one --gpu and one --batch")
    measured = None if step_ms is None else step_ms / 1e3
    for one, size, count, per_node, rate, carrier in chosen:
        yield TrainingSetting(
            layers, one, size, GpuLayout(count, per_node), rate, carrier, within, measured, priorities=priorities
        )


def _words(option: str, given: str) -> list[str]:
    found = [each.strip() for each in given.split(",") if each.strip()]
    if not found:
        raise InputError(option, "it is empty", "Give one value or several, with commas between them")
    return list(dict.fromkeys(found))


def _numbers(option: str, given: str) -> list[int]:
    found = []
    for each in _words(option, given):
        if not (each.isascii() and each.isdecimal() and len(each) < 10 and 1 <= int(each) <= _MOST[option]):
            raise InputError(
                option, f"{each[:80]!r} is no number of 1 to {_MOST[option]:,}", "Give whole numbers, as 8,16,32"
            )
        found.append(int(each))
    return found


def _rate(given: str) -> float:
    found = _RATE.fullmatch(given)
    if found is None or not 1 <= float(found[1]) <= 6400:
        raise InputError(
            "--link", f"{given[:80]!r} is no rate of 1G to 6400G", "Give gigabits a second, as 25G or 100G"
        )
    return float(found[1])


def _known(option: str, given: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    known = list(names)
    if given in known:
        return given
    like = get_close_matches(given, known, 3, 0.5) or known
    raise InputError(option, f"{given[:80]!r} is not known", f"Use one of: {', '.join(like)}")


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


def _conclusions(last: TrainingSetting, found: Mapping[str, Any]) -> Iterator[str]:
    """What the largest layout needs, in sentences."""
    from perdure.throughput.training_speed import WORTH

    if last.layout.nodes == 1:
        return
    where = f"On {last.layout.nodes} nodes of {last.layout.gpus_per_node} {last.gpu.name} with {last.rate_gbit:g}G"
    batch, rate = found["batch_without_gain"], found["rate_for_95_percent_gbit"]
    if batch is None:
        yield f"{where}, RDMA makes steps more than {WORTH - 1:.0%} quicker at any batch."
    elif batch == 1:
        yield f"{where}, RDMA makes no step {WORTH - 1:.0%} quicker, whatever the batch."
    else:
        yield f"{where}, RDMA makes steps more than {WORTH - 1:.0%} quicker up to a batch of {batch - 1} a GPU."
    carrier = last.transport.upper()
    if rate is None:
        yield f"No link lets {carrier} scale to 95 % at a batch of {last.batch}."
    else:
        yield f"{carrier} scales to 95 % at a batch of {last.batch} from a link of {rate:.3g}G on."
