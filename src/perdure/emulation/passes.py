"""A model's passes, without what they compute: shapes come out as they would, and the GPU is busy as long.

The first call with inputs of some shapes goes through the model on tensors without data, so that wrong shapes are the
program's own error. Later calls give tensors of the shapes that came out then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from perdure.emulation.faults import DeviceError
from perdure.emulation.gpu import DeviceFull, EmulatedGpu
from perdure.emulation.node import EmulatedNode
from perdure.emulation.placement import index_of, place
from perdure.emulation.precision import is_on
from perdure.emulation.profiles import MIB, GpuStep

DEVICE_ERROR: type[Exception] = getattr(torch, "AcceleratorError", RuntimeError)

Recipe = tuple[Any, list[tuple[tuple[int, ...], torch.dtype, bool]], tuple[int, ...]]
"""How outputs lie in one another, their shapes, and where there are several, their GPUs."""


class NotPlain(Exception):
    """Inputs or outputs that are more than tensors and plain values: the model is gone through each time."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What one call of a model asks of which GPUs: one after the other its share, or all of them the same at once."""

    batch: int
    share: float  # of the table's time
    gpus: tuple[tuple[EmulatedGpu, float], ...]
    in_turn: bool
    after_backward: Callable[[GpuStep, float], None] | None

    @property
    def first(self) -> EmulatedGpu:
        return self.gpus[0][0]

    def run(self, seconds: float, gpus: tuple[tuple[EmulatedGpu, float], ...], asked_at: float) -> None:
        """A pass that takes so long on one GPU. Raises what a fault raises."""
        for gpu, part in gpus:
            end = gpu.run(seconds * self.share * part, asked_at=asked_at)
            if self.in_turn:
                asked_at = end


@dataclass(slots=True)
class PassEmulator:
    """Calls models in place of ``torch.nn.Module.__call__``."""

    node: EmulatedNode
    call: Callable[..., Any]
    largest: int = 1  # parameters of the largest model that was called
    recipes: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, Recipe]] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def __call__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs; a module inside another, or one that is not on a GPU, is called as it is."""
        if self.node.depth:
            return self.call(module, *args, **kwargs)
        first = next(module.parameters(), None)
        if first is None or not first.is_cuda or getattr(module, "perdure_wrapper", False):
            return self.call(module, *args, **kwargs)
        asked_at = self.node.clock.now
        with self.node.clock.outside():
            self.node.depth += 1
            try:
                return self._outermost(module, args, kwargs, asked_at)
            finally:
                self.node.depth -= 1

    def _outermost(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], asked_at: float
    ) -> Any:
        parameters = list(module.parameters())
        count = sum(each.numel() for each in parameters)
        self.largest = max(self.largest, count)
        share = count / self.largest
        among = self.node.among
        batch = -(-(_batch(args, kwargs) or self.node.batch) // max(1, len(among)))
        self.node.batch = batch
        gpus = self._gpus(parameters) if not among else tuple((self.node.gpus[each], 1.0) for each in among)
        work = ModelWork(batch, share, gpus, not among, self.node.after_backward.get(module))
        inputs = tuple(tensors_of((args, kwargs)))
        self._forward(work, asked_at, sum(each.numel() * each.element_size() for each in inputs) / MIB)
        known, key = self.recipes.setdefault(module, {}), self._key(module, args, kwargs, parameters)
        if key in known:
            return self._again(known[key], parameters, work)
        found = self.call(module, *args, **kwargs)
        tensors: list[torch.Tensor] = []
        try:
            layout = _apart(found, tensors)
        except NotPlain:
            key = None
        asking = next((each for each in tensors if each.requires_grad), None)
        if asking is not None:
            asking.register_hook(lambda _: self._backward(work))
        if key is not None:
            shapes = [(tuple(each.shape), each.dtype, each.requires_grad) for each in tensors]
            known[key] = layout, shapes, self._places(tensors)
        return found

    def _gpus(self, parameters: Sequence[torch.Tensor]) -> tuple[tuple[EmulatedGpu, float], ...]:
        """The GPUs that parameters are on, in their order, with each one's share of them."""
        if len(self.node.gpus) == 1:
            return ((self.node.gpu, 1.0),)
        sizes: dict[int, int] = {}
        for each in parameters:
            sizes[index_of(each)] = sizes.get(index_of(each), 0) + each.numel()
        return tuple((self.node.gpus[index], size / sum(sizes.values())) for index, size in sizes.items())

    def _key(
        self, module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], parameters: list[torch.nn.Parameter]
    ) -> Any:
        """What tells calls of a model apart; None where it is to be gone through each time, as where it has hooks."""
        if any(vars(each)[name] for each in module.modules() for name in _HOOKS):
            return None
        try:
            given = _signature((args, dict(kwargs)))
        except NotPlain:
            return None
        asked = sum(each.requires_grad for each in parameters)
        cast = torch.get_autocast_dtype("cuda") if is_on() else None
        places = self._places([*parameters, *(each for each in tensors_of((args, kwargs)) if each.is_cuda)])
        return module.training, torch.is_grad_enabled(), given, asked, parameters[0].dtype, cast, places

    def _places(self, tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The GPUs of tensors; nothing where there is one GPU alone."""
        return tuple(map(index_of, tensors)) if len(self.node.gpus) > 1 else ()

    def _again(self, recipe: Recipe, parameters: list[torch.nn.Parameter], work: ModelWork) -> Any:
        layout, shapes, places = recipe
        if torch.is_grad_enabled() and any(asks for _, _, asks in shapes):
            asked = [each for each in parameters if each.requires_grad]
            out = _Passes.apply(lambda: self._backward(work), shapes, *asked)
        else:
            out = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype, _ in shapes]
        for each, index in zip(out, places, strict=False):
            place(each, index)
        return _together(layout, iter(out))

    def _forward(self, work: ModelWork, asked_at: float, inputs_mib: float) -> None:
        profile, trains = self.node.profile(work.batch), torch.is_grad_enabled()
        waited = work.first.begin_step(trains)
        for gpu, part in work.gpus:
            if gpu is not work.first:
                gpu.begun += trains
            if trains and (said := gpu.hold(_part(profile, part), inputs_mib)):
                raise torch.OutOfMemoryError(said)
        with_errors(lambda: work.run(profile.forward_s, work.gpus, max(asked_at, waited)))

    def _backward(self, work: ModelWork) -> None:
        profile = self.node.profile(work.batch)
        with_errors(lambda: work.run(profile.backward_s, work.gpus[::-1], self.node.clock.now))
        if (send := work.after_backward) is not None:
            with_errors(lambda: send(profile, work.share))
        work.first.end_step()

    def optimised(self, optimiser: torch.optim.Optimizer) -> None:
        """The optimiser has been asked for a step."""
        profile = self.node.profile(self.node.batch)
        for gpu, part in self._gpus([each for group in optimiser.param_groups for each in group["params"]]):
            with_errors(partial(gpu.run, profile.optimiser_s * part))


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _part(profile: GpuStep, part: float) -> GpuStep:
    """What a GPU holds that has so much of a model."""
    if part == 1:
        return profile
    return replace(profile, peak_mib=profile.peak_mib * part, persistent_mib=profile.persistent_mib * part)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Tensors in lists and mappings, as models take them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_of(each)


def device_at(node: EmulatedNode, index: int) -> EmulatedGpu:
    """A GPU by its number; raises the framework's error if there is no such GPU."""
    if not 0 <= index < len(node.gpus):
        with_errors(node.gpu.check)
        raise DEVICE_ERROR(
            "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other "
            "API call, so the stacktrace below might be incorrect.\nFor debugging consider passing "
            "CUDA_LAUNCH_BLOCKING=1"
        )
    return node.gpus[index]


def with_errors(act: Callable[[], Any]) -> Any:
    """What a broken device answers is raised as the framework's error."""
    try:
        return act()
    except DeviceError as err:
        raise DEVICE_ERROR(str(err)) from None
    except DeviceFull as err:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate more than is free: {err}.") from None


def linked(found: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor:
    """A tensor of the same shape through which gradients go to `inputs`."""
    shapes = [(tuple(found.shape), found.dtype, True)]
    return _Passes.apply(lambda: None, shapes, *inputs)[0]


def moved(copy: Callable[[], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """A copy to or from a GPU, through which gradients go back to where `tensor` is."""
    return _Moved.apply(copy, tensor) if tensor.requires_grad and torch.is_grad_enabled() else copy()


class _Moved(torch.autograd.Function):  # type: ignore[misc]  # the framework is untyped here
    @staticmethod
    def forward(ctx: Any, copy: Callable[[], torch.Tensor], tensor: torch.Tensor) -> Any:
        ctx.place = tensor.device
        return copy()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, torch.zeros(gradient.shape, dtype=gradient.dtype, device=ctx.place)


class _Passes(torch.autograd.Function):  # type: ignore[misc]  # the framework is untyped here
    """A forward and a backward pass that give tensors of the right shapes."""

    @staticmethod
    def forward(ctx: Any, began: Callable[[], None], shapes: Any, *parameters: torch.Tensor) -> Any:
        ctx.began, ctx.parameters = began, parameters
        out = tuple(torch.empty(shape, dtype=dtype, device="meta") for shape, dtype, _ in shapes)
        ctx.mark_non_differentiable(*(each for each, (_, _, asks) in zip(out, shapes, strict=True) if not asks))
        return out

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        ctx.began()
        return (None, None, *(torch.empty_like(each) for each in ctx.parameters))


def _batch(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The first length of the first tensor, also of one in a list or a mapping."""
    return next((int(each.shape[0]) for each in tensors_of((args, kwargs)) if each.dim() and each.shape[0]), 0)


def _signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise NotPlain
        return tuple(value.shape), value.dtype, value.is_cuda
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return type(value), tuple(_signature(each) for each in value)
    if type(value) is dict:
        return tuple((name, _signature(each)) for name, each in value.items())
    raise NotPlain


def _apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TENSOR
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return type(value)(_apart(each, tensors) for each in value)
    if isinstance(value, dict):
        return type(value), {name: _apart(each, tensors) for name, each in value.items()}
    raise NotPlain


def _together(layout: Any, tensors: Any) -> Any:
    if layout is _TENSOR:
        return next(tensors)
    if isinstance(layout, tuple) and len(layout) == 2 and isinstance(layout[0], type):
        return layout[0](**{name: _together(each, tensors) for name, each in layout[1].items()})
    if type(layout) in (list, tuple):
        return type(layout)(_together(each, tensors) for each in layout)
    return layout


_TENSOR = object()
