"""The functions of ``torch.cuda`` and ``torch.accelerator`` as a program with emulated GPUs calls them."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.node import EmulatedNode
from perdure.emulation.passes import device_at, with_errors
from perdure.emulation.pinned import PinnedMemory
from perdure.emulation.profiles import MIB

Change = tuple[Any, str, Any]

_CAPABILITY = {
    "k80": (3, 7), "m40": (5, 2), "p100": (6, 0), "v100": (7, 0), "t4": (7, 5), "rtx": (7, 5), "a100": (8, 0),
    "a10": (8, 6), "l4": (8, 9), "h100": (9, 0), "h200": (9, 0),
}  # fmt: skip

_MULTIPROCESSORS = {
    (3, 7): 13, (5, 2): 24, (6, 0): 56, (7, 0): 80, (7, 5): 40, (8, 0): 108, (8, 6): 72, (8, 9): 58, (9, 0): 132,
}  # fmt: skip
"""Of the GPUs that have a capability, the one for data centres; of a K80 one of its two."""


def replaced(node: EmulatedNode) -> Iterator[Change]:
    """Where a program finds what, and what it finds there."""
    calls = _CudaCalls(node)
    for name in dir(calls):
        if not name.startswith("_"):
            yield torch.cuda, name, getattr(calls, name)
    for name in ("is_available", "device_count", "synchronize"):
        yield torch.accelerator, name, getattr(calls, name)
    for name in ("current_stream", "set_stream"):
        yield torch.accelerator, name, getattr(calls, name)
    yield torch.accelerator, "current_device_index", calls.current_device
    yield torch.accelerator, "set_device_index", calls.set_device
    yield torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda")  # noqa: ARG005
    for name, kind in _CLASSES.items():
        yield torch.cuda, name, _bound(kind, node)
    yield torch, "Stream", _bound(EmulatedStream, node)
    yield torch, "Event", _bound(DeviceEvent, node)
    yield torch.version, "cuda", "12.8"
    yield torch.backends.cudnn, "version", lambda: 91002
    yield torch.backends.cudnn, "is_acceptable", lambda _: False
    pinned = PinnedMemory()
    yield torch.Tensor, "pin_memory", lambda tensor, *_: pinned.pin(tensor)
    yield torch.Tensor, "is_pinned", lambda tensor, *_: pinned.is_pinned(tensor)
    yield torch.Tensor, "record_stream", lambda *_: None
    yield torch, "compile", _uncompiled
    yield torch.utils.checkpoint, "checkpoint", _called_once
    yield torch.jit, "script", lambda found, *_, **__: found
    yield torch.jit, "trace", lambda found, *_, **__: found
    yield torch.cuda.nccl, "version", lambda: (2, 27, 5)
    yield torch.autograd.profiler.profile, "__init__", _of_host(torch.autograd.profiler.profile.__init__)
    for name in ("range_push", "range_pop", "mark"):
        yield torch.cuda.nvtx, name, lambda *_: 0
    yield torch.nn, "DataParallel", _split(node)
    yield torch, "Generator", _Generator
    yield torch, "set_default_device", _default_device(torch.set_default_device)
    yield torch.utils.data.DataLoader, "__iter__", _timed(node, torch.utils.data.DataLoader.__iter__)


class _CudaCalls:
    """One method for each function of ``torch.cuda`` that is replaced, under its name."""

    def __init__(self, node: EmulatedNode) -> None:
        self._node = node

    def _gpu(self, device: Any = None) -> EmulatedGpu:
        if device is None:
            return self._node.gpu
        index = device if isinstance(device, int) else torch.device(device).index
        return device_at(self._node, self._node.current if index is None else index)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None:
        with_errors(self._node.gpu.check)

    def device_count(self) -> int:
        return len(self._node.gpus)

    def current_device(self) -> int:
        return self._node.current

    def set_device(self, device: Any) -> None:
        self._node.current = self._gpu(device).index

    def synchronize(self, device: Any = None) -> None:
        with_errors(self._gpu(device).synchronise)

    def get_device_name(self, device: Any = None) -> str:
        return self._gpu(device).name

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        name = self._gpu(device).name.lower()
        return next((found for word, found in _CAPABILITY.items() if word in name), (8, 0))

    def get_device_properties(self, device: Any = None) -> Any:
        gpu, (major, minor) = self._gpu(device), self.get_device_capability(device)
        return _Properties(
            gpu.name, major, minor, int(gpu.capacity_mib * MIB), _MULTIPROCESSORS.get((major, minor), 80)
        )

    def get_arch_list(self) -> list[str]:
        return ["sm_{}{}".format(*self.get_device_capability())]

    def can_device_access_peer(self, *_: Any) -> bool:
        return True

    def is_bf16_supported(self, *_: Any, **__: Any) -> bool:
        return self.get_device_capability() >= (8, 0)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        gpu = self._gpu(device)
        return int((gpu.capacity_mib - gpu.used_mib) * MIB), int(gpu.capacity_mib * MIB)

    def memory_allocated(self, device: Any = None) -> int:
        return int(self._gpu(device).used_mib * MIB)

    def max_memory_allocated(self, device: Any = None) -> int:
        return int(self._gpu(device).peak_mib * MIB)

    def memory_reserved(self, device: Any = None) -> int:
        return int(self._gpu(device).peak_mib * MIB)

    def max_memory_reserved(self, device: Any = None) -> int:
        return int(self._gpu(device).peak_mib * MIB)

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        gpu = self._gpu(device)
        used, peak = int(gpu.used_mib * MIB), int(gpu.peak_mib * MIB)
        found = {f"{what}.{pool}.{each}": 0 for what in _COUNTED for pool in _POOLS for each in _COUNTS}
        for what in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
            for pool in ("all", "large_pool"):
                found[f"{what}.{pool}.current"] = peak if what == "reserved_bytes" else used
                found[f"{what}.{pool}.peak"] = peak
        return {**found, "num_ooms": 0, "num_alloc_retries": 0}

    def memory_snapshot(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def list_gpu_processes(self, device: Any = None) -> str:
        gpu = self._gpu(device)
        return f"GPU:{gpu.index}\nprocess {os.getpid():>10} uses {gpu.used_mib:>12.3f} MB GPU memory"

    def memory_summary(self, device: Any = None, abbreviated: bool = False) -> str:  # noqa: ARG002
        gpu = self._gpu(device)
        return f"{gpu.name}: {gpu.used_mib:.0f} MiB held, {gpu.peak_mib:.0f} at most, of {gpu.capacity_mib:.0f}"

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        gpu = self._gpu(device)
        gpu.peak_mib = gpu.used_mib

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        self._gpu(device).fraction = fraction

    def reset_max_memory_allocated(self, device: Any = None) -> None:
        self.reset_peak_memory_stats(device)

    def empty_cache(self) -> None:
        with_errors(self._node.gpu.check)

    def ipc_collect(self) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_rng_state(self, device: Any = "cuda") -> torch.Tensor:  # noqa: ARG002
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, state: Any, device: Any = "cuda") -> None:
        pass

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state() for _ in self._node.gpus]

    def set_rng_state_all(self, states: Any) -> None:
        pass

    def current_stream(self, device: Any = None) -> Any:
        return EmulatedStream(self._node, device)

    def default_stream(self, device: Any = None) -> Any:
        return EmulatedStream(self._node, device)

    def stream(self, stream: Any) -> Any:
        return stream if stream is not None else EmulatedStream(self._node)

    def set_stream(self, stream: Any) -> None:
        pass

    def graph_pool_handle(self) -> tuple[int, int]:
        return 0, 0

    def make_graphed_callables(self, callables: Any, *_: Any, **__: Any) -> Any:
        return callables

    def is_current_stream_capturing(self) -> bool:
        return False

    def utilization(self, device: Any = None) -> int:
        gpu = self._gpu(device)
        return round(100 * min(1.0, gpu.busy_s / max(1e-9, gpu.clock.now)))


_COUNTED = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "requested_bytes", "inactive_split_bytes",
)  # fmt: skip
_POOLS, _COUNTS = ("all", "large_pool", "small_pool"), ("current", "peak", "allocated", "freed")

_Properties = namedtuple("_Properties", "name major minor total_memory multi_processor_count")


class EmulatedStream:
    """A stream of work; all streams of a device are one here."""

    def __init__(self, node: EmulatedNode, device: Any = None, priority: int = 0, **_: Any) -> None:
        index = device if isinstance(device, int) else device and torch.device(device).index
        self._node, self.priority, self.cuda_stream, self._before = node, priority, 0, node.current
        self.gpu = device_at(node, node.current if index is None else index)
        self.device = torch.device("cuda", self.gpu.index)

    def synchronize(self) -> None:
        with_errors(self.gpu.synchronise)

    def query(self) -> bool:
        return self.gpu.is_idle

    def is_capturing(self) -> bool:
        return False

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event if event is not None else EmulatedEvent(self._node)
        event.record(self)
        return event

    def __enter__(self) -> EmulatedStream:
        self._before, self._node.current = self._node.current, self.device.index
        return self

    def __exit__(self, *_: object) -> None:
        self._node.current = self._before


class EmulatedEvent:
    """An instant of a device's queue."""

    def __init__(self, node: EmulatedNode, enable_timing: bool = False, **_: Any) -> None:
        self._node, self._mark = node, node.gpu.mark()
        self.enable_timing = enable_timing

    def record(self, stream: EmulatedStream | None = None) -> None:
        self._mark = (self._node.gpu if stream is None else stream.gpu).mark()

    def synchronize(self) -> None:
        with_errors(self._mark.reach)

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return self._mark.is_reached

    def elapsed_time(self, end: EmulatedEvent) -> float:
        """Milliseconds from this one to another."""
        return (end._mark.instant - self._mark.instant) * 1e3  # of its own class


class DeviceEvent(EmulatedEvent):
    """``torch.Event("cuda")``: one of any kind of device."""

    def __init__(self, node: EmulatedNode, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        super().__init__(node, enable_timing)
        self.device = torch.device("cuda" if device is None else device)


class EmulatedGraph:
    """A CUDA graph: replaying it takes as long as what was captured."""

    def __init__(self, node: EmulatedNode, keep_graph: bool = False) -> None:  # noqa: ARG002
        self._node, self._seconds, self._steps = node, 0.0, 0

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self._seconds, self._steps = self._node.gpu.busy_s, self._node.gpu.steps

    def capture_end(self) -> None:
        gpu = self._node.gpu
        self._seconds, self._steps = gpu.busy_s - self._seconds, gpu.steps - self._steps

    def replay(self) -> None:
        gpu = self._node.gpu
        with_errors(lambda: gpu.run(self._seconds))
        gpu.steps += self._steps

    def reset(self) -> None:
        self._seconds, self._steps = 0.0, 0

    def pool(self) -> tuple[int, int]:
        return 0, 0


class GraphCapture:
    """``with torch.cuda.graph(graph)``."""

    def __init__(self, node: EmulatedNode, cuda_graph: EmulatedGraph, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


class DeviceBlock:
    """``with torch.cuda.device(1)``."""

    def __init__(self, node: EmulatedNode, device: Any) -> None:
        self._node, self._before = node, node.current
        self.idx = device if isinstance(device, int) else torch.device(device).index
        if self.idx is not None and self.idx >= 0:
            device_at(node, self.idx)

    def __enter__(self) -> None:
        self._before = self._node.current
        if self.idx is not None and self.idx >= 0:
            self._node.current = self.idx

    def __exit__(self, *_: object) -> None:
        self._node.current = self._before


_CLASSES: dict[str, type] = {
    "Stream": EmulatedStream, "Event": EmulatedEvent, "device": DeviceBlock, "CUDAGraph": EmulatedGraph,
    "graph": GraphCapture,
}  # fmt: skip


def _bound(kind: type, node: EmulatedNode) -> type:
    """A class of the same kind that knows its node: programs derive from it, and ask for instances of it."""
    begin: Any = vars(kind)["__init__"]
    return type(kind.__name__, (kind,), {"__init__": lambda self, *args, **named: begin(self, node, *args, **named)})


class _Generator(torch.Generator):  # type: ignore[misc]  # untyped here
    """A generator of random numbers; one of a GPU is one of the host here, for nothing is drawn there."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls, "cpu" if device is None or torch.device(device).type == "cuda" else device)


def _default_device(set_device: Callable[[Any], None]) -> Callable[[Any], None]:
    def change(device: Any) -> None:
        set_device("meta" if device is not None and torch.device(device).type == "cuda" else device)

    return change


def _split(node: EmulatedNode) -> type:
    class DataParallel(torch.nn.Module):  # type: ignore[misc]  # untyped here
        """One process that splits each batch among GPUs: each has its share of the examples, and the whole model."""

        perdure_wrapper = True

        def __init__(self, module: torch.nn.Module, device_ids: Any = None, *_: Any, **__: Any) -> None:
            super().__init__()
            self.module = module
            indices = device_ids if device_ids else range(len(node.gpus))
            self.device_ids = [each if isinstance(each, int) else torch.device(each).index or 0 for each in indices]
            for each in self.device_ids:
                device_at(node, each)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            before, node.among = node.among, tuple(self.device_ids)
            try:
                return self.module(*args, **kwargs)
            finally:
                node.among = before

    return DataParallel


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """A model is not compiled: what it computes is not computed at all."""
    return model if model is not None else (lambda function: function)


def _called_once(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """A part of a model that would be computed again in the backward pass: nothing is computed, and nothing again."""
    return function(*args, **{name: each for name, each in named.items() if name not in _OF_CHECKPOINT})


_OF_CHECKPOINT = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")


def _of_host(begin: Callable[..., None]) -> Callable[..., None]:
    """A profiler of what the host does: there is no driver to ask what a GPU does."""

    def started(profile: Any, *args: Any, use_cuda: bool = False, use_device: Any = None, **named: Any) -> None:  # noqa: ARG001
        begin(profile, *args, use_device=None if use_device == "cuda" else use_device, **named)

    return started


def _timed(node: EmulatedNode, iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """An iterator over a loader of data that tells the clock when the program waits for the loader's processes."""

    def batches(loader: Any) -> Iterator[Any]:
        if not loader.num_workers:
            return iterate(loader)
        return _Batches(node, iterate(loader))

    return batches


class _Batches:
    """Batches of a loader that has processes of its own."""

    def __init__(self, node: EmulatedNode, batches: Iterator[Any]) -> None:
        self._node, self._batches = node, batches

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        with self._node.clock.waiting():
            return next(self._batches)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]
