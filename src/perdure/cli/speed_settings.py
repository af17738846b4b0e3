"""What the options of ``perdure speed`` ask about: each combination of their values is a setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from perdure.errors import InputError
from perdure.throughput.option_values import known, numbers, rate, words

if TYPE_CHECKING:
    from perdure.throughput.collectives import Transport
    from perdure.throughput.layers import Layers
    from perdure.throughput.training_speed import TrainingSetting

MOST_SETTINGS = 10_000


@dataclass(frozen=True, slots=True)
class SpeedOptions:
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

    @property
    def per_node(self) -> int:
        """The one value of --gpus-per-node; 0 where it was not given."""
        return _one("--gpus-per-node", self.gpus_per_node)

    @property
    def one_batch(self) -> int:
        """The one value of --batch; 0 where it was not given."""
        return _one("--batch", self.batch)


def settings_of(options: SpeedOptions) -> list[TrainingSetting]:
    """All combinations; one node uses no network, so that its links are one. Raises `InputError`, naming the option."""
    from perdure.throughput.collectives import INSIDE, GpuLayout
    from perdure.throughput.compute import GPUS
    from perdure.throughput.training_speed import TrainingSetting

    _check_named(options)
    gpus = [GPUS[name] for name in _all_known("--gpu", options.gpu, GPUS)]
    batches = numbers("--batch", options.batch or "32")
    counts, each = numbers("--nodes", options.nodes), numbers("--gpus-per-node", options.gpus_per_node or "1")
    networks = _networks(options)
    chosen = [
        (gpu, batch, GpuLayout(nodes, per_node, min(options.racks, nodes)), network)
        for gpu, batch, nodes, per_node in product(gpus, batches, counts, each)
        for network in (networks if nodes > 1 else networks[:1])
    ]
    if len(chosen) > MOST_SETTINGS:
        raise InputError("the options", f"they make {len(chosen):,} settings", f"Give at most {MOST_SETTINGS:,}")
    setting = partial(
        TrainingSetting,
        inside=known("--inside", options.inside, INSIDE),
        measured_s=_measured_s(options, len(gpus), len(batches)),
        priorities=options.priorities,
        servers=options.servers,
        oversubscription=options.oversubscription,
    )
    layers = _layers(options)
    return [setting(layers, gpu, batch, layout, *network) for gpu, batch, layout, network in chosen]


def one_setting(options: SpeedOptions, beside: str) -> TrainingSetting:
    """The setting of the largest layout, where other options may take several values but `beside` needs one."""
    for option, given in (("--gpu", options.gpu), ("--batch", options.batch), ("--link", options.link)):
        _one_of(option, words(option, given) if given else [], beside)
    return max(
        settings_of(replace(options, gpus_per_node=str(options.per_node or 1))), key=lambda each: each.layout.gpus
    )


def _check_named(options: SpeedOptions) -> None:
    if options.model and options.model_file:
        raise InputError("--model-file", "there is a --model too", "Give one of them")
    for option, value in (("--model", options.model or options.model_file), ("--gpu", options.gpu)):
        if not value:
            raise InputError(option, "it is missing", "Name one, or give a training log with --from-log")
    if not 1 <= options.oversubscription <= 1000:
        what = f"{options.oversubscription:g} is no number of 1 to 1,000"
        raise InputError("--oversubscription", what, "Give 1 where uplinks are as fast as all links of their rack")


def _all_known(option: str, given: str, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(known(option, each, names) for each in words(option, given)))


def _networks(options: SpeedOptions) -> list[tuple[float, Transport]]:
    from perdure.throughput.collectives import Transport

    carriers = [Transport(name) for name in _all_known("--transport", options.transport, list(Transport))]
    return list(product([rate(each) for each in words("--link", options.link)], carriers))


def _measured_s(options: SpeedOptions, gpus: int, batches: int) -> float | None:
    step_ms = options.step_ms
    if step_ms is None:
        return None
    if not 0.1 <= step_ms < 1e9:
        raise InputError("--step-ms", f"{step_ms:g} is no time of a step", "Give milliseconds of one step on one GPU")
    if gpus > 1 or batches > 1:
        raise InputError("--step-ms", "it was measured on one GPU with one batch", "Give one --gpu and one --batch")
    return step_ms / 1e3


def _layers(options: SpeedOptions) -> Layers:
    from perdure.throughput.layers import KNOWN_MODELS, layers_of

    if options.model_file:
        from perdure.cli.model_file import layers_in

        return layers_in(options.model_file, options.example)
    return layers_of(known("--model", options.model, KNOWN_MODELS))


def _one(option: str, given: str) -> int:
    found = numbers(option, given) if given else [0]
    _one_of(option, found, "--or")
    return found[0]


def _one_of(option: str, values: Sequence[object], beside: str) -> None:
    if len(values) > 1:
        raise InputError(option, "it has several values", f"Give one of them with {beside}")
