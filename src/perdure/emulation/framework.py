"""PyTorch for CPUs, as a program meets it on a node with GPUs.

A tensor on an emulated GPU is a tensor on PyTorch's `meta` device: it has a shape and no data. A mode for functions
(`torch.overrides.TorchFunctionMode`) turns the device ``cuda`` of every call into that, and tells programs the former;
what they read back is zero. Models are called by `passes`, and the functions of ``torch.cuda`` are those of
`cuda_calls`. Nothing installed is changed. Where there are several GPUs, `placement` knows which a tensor is on.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from perdure.emulation import precision
from perdure.emulation.cuda_calls import replaced
from perdure.emulation.data_parallel import parallel_changes
from perdure.emulation.node import EmulatedNode
from perdure.emulation.passes import PassEmulator, device_at, linked, moved, tensors_of, with_errors
from perdure.emulation.placement import check_same, index_of, place, place_results
from perdure.emulation.profiles import MIB
from perdure.emulation.saving import saving_changes
from perdure.emulation.tensor_types import type_of, typed_tensors

SMALL_MIB = 1.0
"""Tensors below this are not counted: there may be many, and they are in the profile's margin."""

CURRENT = -1
"""The number of a GPU where none is named."""

_FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
    "method"
)
"""What PyTorch says where a process uses a GPU that its parent has used."""

READS: dict[Any, Callable[[Tensor], Any]] = {
    Tensor.item: lambda host: host.item(),
    Tensor.tolist: lambda host: host.tolist(),
    Tensor.__float__: float,
    Tensor.__int__: int,
    Tensor.__bool__: bool,
    Tensor.__index__: lambda host: host.__index__(),
    Tensor.cpu: lambda host: host,
    Tensor.__contains__: lambda _: False,
}
"""What waits for the GPU and gives its result to the program; a tensor of zeros on the host takes its place."""


class EmulatedDevice(TorchFunctionMode):  # type: ignore[misc]  # the framework is untyped here
    """Stands between a program and PyTorch, in one thread.

    In a backward pass it also sees what PyTorch's own code does, of whose tensors nobody has noted the GPU.
    """

    def __init__(self, node: EmulatedNode, in_backward: bool = False) -> None:
        super().__init__()
        self.node, self._in_backward = node, in_backward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self.node.clock.outside():
            kwargs = kwargs or {}
            if len(self.node.gpus) == 1 or self._in_backward:
                return self._called(func, args, kwargs)
            given = _emulated((args, kwargs))
            if func not in _PROPERTIES:
                check_same(func, given)
            found = self._called(func, args, kwargs)
            place_results(_emulated(found), given, self.node.current)
            return found

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _OF_DEVICES:
            return func(*args, **kwargs)
        first = args[0] if args else None
        emulated = isinstance(first, Tensor) and first.is_meta
        if (tell := _PROPERTIES.get(func)) is not None and isinstance(first, Tensor):
            return tell(self, first) if emulated else func(*args, **kwargs)
        if emulated and func in READS:
            if func is Tensor.__float__ and self.node.depth:
                return 1.0  # a model divides by it, as by how many batches it has seen
            return READS[func](self._on_host(first))
        if func is Tensor.type and (named := type_of(args[1] if len(args) > 1 else kwargs.get("dtype"))):
            return self._up(first, CURRENT, non_blocking=False).to(named)
        if func is Tensor.to:
            return self._to(first, args[1:], kwargs)
        if func is Tensor.cuda:
            device = args[1] if len(args) > 1 else kwargs.get("device")
            return self._up(first, _cuda(device, CURRENT) or 0, bool(kwargs.get("non_blocking")))
        if func is Tensor.copy_ and "other" in kwargs:
            args, kwargs = (first, kwargs["other"]), {name: each for name, each in kwargs.items() if name != "other"}
        if func is Tensor.copy_ and emulated != args[1].is_meta:
            return self._copy(first, args[1], emulated, args, kwargs)
        if func is Tensor.module_load and emulated != args[1].is_meta and not kwargs.get("assign"):
            return self._copy(first, args[1], emulated, (), {}).detach()
        if emulated and (special := _SPECIAL.get(func)) is not None:
            return special(self, *args, **kwargs)
        return self._computed(func, args, kwargs)

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _BACKWARD:
            return func(*args, **kwargs)  # errors are of the GPU, or of another process
        index: int | None = None
        if "device" in kwargs and (device := _cuda(kwargs["device"])) is not None:
            index = self._at(device)
            kwargs = {**kwargs, "device": "meta"}
            kwargs.pop("generator", None)
        elif kwargs.get("pin_memory") and not any(isinstance(each, Tensor) for each in args):
            return func(*args, **{**kwargs, "pin_memory": False}).pin_memory()
        elif any(_cuda(each) is not None for each in args if isinstance(each, (str, torch.device))):
            args = tuple(
                "meta" if isinstance(each, (str, torch.device)) and _cuda(each) is not None else each for each in args
            )
        autocast = precision.is_on() and not self._in_backward
        if autocast:
            args, kwargs = precision.cast(func, args), precision.cast(func, kwargs)
        try:
            found = func(*args, **kwargs)
        except NotImplementedError:
            found = self._of_zeros(func, args, kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError) as err:
            if "cannot be called on meta tensors" in str(err):  # it reads data on its way
                return self._of_zeros(func, args, kwargs)
            if autocast and "dtype" in str(err):
                return func(*precision.lowered(args), **precision.lowered(kwargs))
            raise self._told(func, args, kwargs, err) from None
        if index is not None and isinstance(found, Tensor) and not found.is_sparse:
            place(found, index)
            if not self.node.depth:  # a model's own are in its profile
                self._room(found)
        return found

    def _of_zeros(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What depends on data: that of zeros, with a gradient of zeros where one is asked for."""
        for each in _emulated((args, kwargs))[:1]:
            with_errors(self.node.gpus[index_of(each)].synchronise)
        with torch.no_grad():
            found = _map(func(*_map(args, _zeros), **_map(kwargs, _zeros)), lambda each: each.to("meta"))
        asked = [each for each in tensors_of((args, kwargs)) if each.is_meta and each.requires_grad]
        if isinstance(found, Tensor) and found.is_floating_point() and asked and torch.is_grad_enabled():
            return linked(found, asked)
        return found

    def _told(self, func: Any, args: Any, kwargs: Any, err: Exception) -> Exception:
        """The error in the words that PyTorch has for tensors with data, where it tells the same of such."""
        if "is not on the expected device" in str(err):
            return RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{self._named(*_emulated((args, kwargs))[:1])} and cpu!"
            )
        try:
            func(*_map(args, _zeros), **_map(kwargs, _zeros))
        except type(err) as real:
            return type(real)(*real.args)
        except Exception:
            return err
        return type(err)(str(err).replace("meta", self._named(*_emulated((args, kwargs))[:1])))

    def _room(self, tensor: Tensor) -> None:
        """Take the memory of a program's tensor until nothing refers to it; refuse it where there is too little."""
        gpu, storage = self.node.gpus[index_of(tensor)], tensor.untyped_storage()
        size = storage.nbytes() / MIB
        if gpu.used_mib + size > gpu.allowed_mib:
            raise torch.OutOfMemoryError(gpu.out_of_memory(size, gpu.used_mib))
        if size >= SMALL_MIB:
            gpu.keep(size)
            weakref.finalize(storage, gpu.keep, -size).atexit = False

    def _on_host(self, tensor: Tensor) -> Tensor:
        gpu = self.node.gpus[index_of(tensor)]
        self.node.copied(tensor.numel() * tensor.element_size(), gpu)
        with_errors(gpu.synchronise)
        return moved(lambda: _zeros(tensor), tensor)

    def _to(self, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        other = kwargs.get("other", args[0] if args else None)
        if isinstance(other, Tensor):
            args = (torch.device("cuda", index_of(other)) if other.is_meta else other.device, other.dtype, *args[1:])
            kwargs = {name: each for name, each in kwargs.items() if name != "other"}
        asked = kwargs.get("device", args[0] if args else None)
        if (index := _cuda(asked)) is not None:
            rest = dict(zip(("dtype", "non_blocking", "copy"), args if "device" in kwargs else args[1:], strict=False))
            rest |= {name: each for name, each in kwargs.items() if name != "device"}
            found = self._up(tensor, index, bool(rest.get("non_blocking")))
            return place(found.to(**rest), index_of(found))
        if tensor.is_meta and isinstance(asked, (str, torch.device)) and torch.device(asked).type == "cpu":
            return self._on_host(tensor).to(*args, **kwargs)
        return tensor.to(*args, **kwargs)

    def _up(self, tensor: Tensor, index: int, non_blocking: bool) -> Tensor:
        index = self._at(index)
        gpu, size = self.node.gpus[index], tensor.numel() * tensor.element_size()
        if tensor.is_meta:
            if index == index_of(tensor):
                return tensor
            source = self.node.gpus[index_of(tensor)]
            gpu.busy_until = max(gpu.busy_until, source.busy_until)
        elif tensor.dim():
            self.node.batch = int(tensor.shape[0]) if not isinstance(tensor, torch.nn.Parameter) else self.node.batch
        found = place(moved(lambda: torch.empty_like(tensor, device="meta", requires_grad=False), tensor), index)
        if not isinstance(tensor, torch.nn.Parameter):  # those are in the profile
            self._room(found)
        with_errors(lambda: self.node.copied(size, gpu))
        if not non_blocking:
            with_errors(gpu.synchronise)
        return found

    def _copy(self, to: Tensor, source: Tensor, up: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if up:
            size, gpu = source.numel() * source.element_size(), self.node.gpus[index_of(to)]
            with_errors(lambda: self.node.copied(size, gpu))
            return to.copy_(source.to("meta"), *args[2:], **kwargs)
        return to.copy_(self._on_host(source), *args[2:], **kwargs)

    def _at(self, index: int) -> int:
        """The number of the GPU that is meant. Raises PyTorch's error if there is no such GPU."""
        if self.node.process not in (None, os.getpid()):
            raise RuntimeError(_FORKED)
        self.node.process = os.getpid()
        return device_at(self.node, self.node.current if index == CURRENT else index).index

    def device_of(self, tensor: Tensor) -> torch.device:
        return torch.device("cuda", index_of(tensor))

    def _named(self, *tensors: Tensor) -> str:
        return f"cuda:{index_of(tensors[0]) if tensors else self.node.current}"

    def shown(self, tensor: Tensor, **_: Any) -> str:
        with_errors(self.node.gpus[index_of(tensor)].synchronise)
        return f"tensor(..., device='{self._named(tensor)}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"

    def typed(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return torch.empty(0, dtype=tensor.dtype).type().replace("torch.", "torch.cuda.")
        return tensor.type(*args, **kwargs)

    def formatted(self, tensor: Tensor, spec: str) -> str:
        return format(self._on_host(tensor).item(), spec) if tensor.dim() == 0 else self.shown(tensor)

    def as_numpy(self, tensor: Tensor, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"can't convert {self._named(tensor)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )


_PROPERTIES: dict[Any, Callable[[EmulatedDevice, Tensor], Any]] = {
    Tensor.device.__get__: EmulatedDevice.device_of,
    Tensor.is_cuda.__get__: lambda *_: True,
    Tensor.is_meta.__get__: lambda *_: False,
    Tensor.get_device: lambda _, tensor: index_of(tensor),
}
_OF_DEVICES = (torch.device, torch._C._nn._parse_to)  # noqa: SLF001 - of Module.to, which moves by Tensor.to then
_BACKWARD = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_SPECIAL: dict[Any, Callable[..., Any]] = {
    Tensor.__repr__: EmulatedDevice.shown,
    Tensor.__format__: EmulatedDevice.formatted,
    Tensor.type: EmulatedDevice.typed,
    Tensor.numpy: EmulatedDevice.as_numpy,
    Tensor.__array__: EmulatedDevice.as_numpy,
}


def _cuda(device: Any, unnamed: int | None = None) -> int | None:
    """The number of the GPU that is meant; `CURRENT` for "cuda", None for another device, `unnamed` for None."""
    if isinstance(device, bool) or device is None:
        return unnamed
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        if not device.startswith("cuda"):
            return None
        device = torch.device(device)
    if not isinstance(device, torch.device) or device.type != "cuda":
        return None
    return CURRENT if device.index is None else device.index


def _emulated(value: Any) -> list[Tensor]:
    """The tensors on GPUs among arguments or results."""
    return [each for each in tensors_of(value) if each.is_meta]


def _zeros(tensor: Any) -> Any:
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor.is_meta else tensor


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _map(each, change) for name, each in value.items()}
    return type(value)(_map(each, change) for each in value) if type(value) in (list, tuple) else value


def _within(node: EmulatedNode, run: Callable[..., Any]) -> Callable[..., Any]:
    """What a backward pass calls of a program, as where it goes through part of a model again, is on emulated GPUs."""

    def backward(*args: Any, **kwargs: Any) -> Any:
        node.depth += 1
        try:
            with EmulatedDevice(node, in_backward=True):
                return run(*args, **kwargs)
        finally:
            node.depth -= 1

    return backward


_RUNNING: list[EmulatedNode] = []


def running_node() -> EmulatedNode | None:
    """The GPUs that this process has now."""
    return _RUNNING[-1] if _RUNNING else None


@contextmanager
def emulated(node: EmulatedNode) -> Iterator[None]:
    """Inside the block, in all threads that are started there, PyTorch has emulated GPUs."""
    passes = PassEmulator(node, torch.nn.Module.__call__)
    start = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with EmulatedDevice(node):
            start(thread)

    def called(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return passes(module, *args, **kwargs)

    handle = register_optimizer_step_post_hook(lambda optimiser, *_: passes.optimised(optimiser))
    torch.distributions.Distribution.set_default_validate_args(False)  # zeros are what most parameters may not be
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # so that parameters stay the same objects on the GPU
    changes = [(torch.nn.Module, "__call__", called), (threading.Thread, "run", run), *saving_changes(node)]
    changes += [*replaced(node), *typed_tensors(), *parallel_changes(node)]
    run_backward = torch.autograd._engine_run_backward  # noqa: SLF001 - no public function is called without the mode
    changes += [(torch.autograd, "_engine_run_backward", _within(node, run_backward))]
    before = [(owner, name, getattr(owner, name, None)) for owner, name, _ in changes]
    for owner, name, function in changes:
        setattr(owner, name, function)
    try:
        _RUNNING.append(node)
        with EmulatedDevice(node):
            yield
    finally:
        _RUNNING.remove(node)
        for owner, name, function in before:
            setattr(owner, name, function)
        torch.__future__.set_swap_module_params_on_conversion(swaps)
        torch.distributions.Distribution.set_default_validate_args(__debug__)
        handle.remove()
