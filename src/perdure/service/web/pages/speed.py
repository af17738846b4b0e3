"""Speed: how fast a model would train, how it scales, and where RDMA pays; what `perdure speed` says, as pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.errors import InputError
from perdure.service.web.pages.render import page
from perdure.service.web.pages.speed_plot import HEIGHT, WIDTH, SpeedPoint, speed_plot
from perdure.service.web.state import Here, Viewer
from perdure.throughput.collectives import INSIDE, GpuLayout, Transport
from perdure.throughput.compute import GPUS
from perdure.throughput.layers import KNOWN_MODELS, layers_of
from perdure.throughput.option_values import known, numbers, rate
from perdure.throughput.training_speed import (
    LARGEST_BATCH,
    WORTH,
    TrainingSetting,
    batch_without_gain,
    gain_of_rdma,
    rate_wanted,
    speed_of,
)

router = APIRouter()

MAP_BATCHES = (8, 16, 32, 64, 128, 256)
MAP_MODELS = (
    "alexnet",
    "resnet18",
    "resnet50",
    "resnet101",
    "vgg16",
    "vgg19",
    "bert-base",
    "bert-large",
    "gpt2",
    "gpt2-xl",
)
SHADES = (1.02, WORTH, 1.25, 1.6, 2.2)  # of the map: from each gain on, the next one
_MOST_NODES = 12  # that are drawn


@dataclass(frozen=True, slots=True)
class SpeedQuestion:
    """What the form asks, as it was typed."""

    model: str = "resnet50"
    gpu: str = "v100"
    batch: str = "32"
    nodes: str = "1,2,4,8,16"
    gpus_per_node: str = "1"
    link: str = "100G"
    inside: str = "pcie"


USUAL = SpeedQuestion()
Typed = Annotated[str, Query(max_length=200)]


@router.get("/speed")
def speed_page(
    request: Request,
    web: Here,
    _identity: Viewer,
    model: Typed = USUAL.model,
    gpu: Typed = USUAL.gpu,
    batch: Typed = USUAL.batch,
    nodes: Typed = USUAL.nodes,
    gpus_per_node: Typed = USUAL.gpus_per_node,
    link: Typed = USUAL.link,
    inside: Typed = USUAL.inside,
) -> Response:
    """The form, and its answer; of a form that cannot be answered, why."""
    asked = SpeedQuestion(model, gpu, batch, nodes, gpus_per_node, link, inside)
    try:
        shown = {"trouble": "", **answer(asked)}
    except InputError as err:
        shown = {"trouble": str(err)}
    return page(
        request, web, "speed", "Speed", given=asked, models=KNOWN_MODELS, gpus=tuple(GPUS), insides=tuple(INSIDE),
        width=WIDTH, height=HEIGHT, map_batches=MAP_BATCHES, **shown,
    )  # fmt: skip


def answer(asked: SpeedQuestion) -> dict[str, Any]:
    """What the page shows. Raises `InputError`, naming the option."""
    counts = sorted(numbers("--nodes", asked.nodes))
    if len(counts) > _MOST_NODES:
        raise InputError("--nodes", f"{len(counts)} numbers of nodes", f"Give at most {_MOST_NODES}")
    each, batch = (
        _single(name, given) for name, given in (("--gpus-per-node", asked.gpus_per_node), ("--batch", asked.batch))
    )
    gbit = rate(asked.link.strip())
    setting = TrainingSetting(
        layers_of(known("--model", asked.model, KNOWN_MODELS)),
        GPUS[known("--gpu", asked.gpu, GPUS)], batch, GpuLayout(counts[-1], each), gbit,
        Transport.TCP, known("--inside", asked.inside, INSIDE),
    )  # fmt: skip
    found = {
        carrier: [speed_of(replace(setting, layout=GpuLayout(count, each), transport=carrier)) for count in counts]
        for carrier in Transport
    }
    lines = {
        carrier.value.upper(): [
            SpeedPoint(one.setting.layout.gpus, *(batch * one.setting.layout.gpus / second for second in (
                one.high_s, one.step.step_s, one.low_s)))
            for one in answers
        ]
        for carrier, answers in found.items()
    }  # fmt: skip
    alone = speed_of(replace(setting, layout=GpuLayout(1)))
    rows = [
        {"tcp": tcp, "rdma": rdma, "gain": tcp.step.step_s / rdma.step.step_s}
        for tcp, rdma in zip(found[Transport.TCP], found[Transport.RDMA], strict=True)
    ]
    several = counts[-1] > 1
    return {
        "setting": setting, "rows": rows, "plot": speed_plot(alone.examples_per_s, lines), "largest": LARGEST_BATCH,
        "last": rows[-1], "several": several, "break_even": batch_without_gain(setting) if several else None,
        "wanted": {each: rate_wanted(replace(setting, transport=each)) for each in Transport} if several else {},
        "map": _map(setting) if several else (),
    }  # fmt: skip


def _single(option: str, given: str) -> int:
    found = numbers(option, given)
    if len(found) > 1:
        raise InputError(option, "it has several values", "Give one")
    return found[0]


def _map(setting: TrainingSetting) -> list[tuple[str, list[tuple[float, int]]]]:
    """RDMA's gain by model and batch, with the shade of each."""
    models = sorted({*MAP_MODELS, setting.layers.name}, key=lambda name: layers_of(name).total_parameters)
    rows = []
    for name in models:
        gains = [gain_of_rdma(replace(setting, layers=layers_of(name), batch=batch)) for batch in MAP_BATCHES]
        rows.append((name, [(gain, sum(gain >= shade for shade in SHADES)) for gain in gains]))
    return rows
