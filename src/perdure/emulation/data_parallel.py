"""Data parallelism of emulated GPUs: processes meet through gloo, and links take the time of the communication model.

The processes are real, and so is their meeting; gradients are not sent. How long the GPUs wait for them is what
`throughput/overlap` says of the buckets that are sent while the backward pass goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.fsdp

from perdure.emulation.clocks import VirtualClock
from perdure.emulation.gpu import EmulatedGpu
from perdure.emulation.node import EmulatedNode
from perdure.emulation.passes import with_errors
from perdure.emulation.placement import index_of
from perdure.emulation.profiles import GpuStep, known_name
from perdure.errors import InputError
from perdure.throughput.collectives import GpuLayout, GpuNetwork, Transport
from perdure.throughput.compute import GPUS, PassTimes, passes_on
from perdure.throughput.layers import KNOWN_MODELS, Layers, layers_of
from perdure.throughput.overlap import step_of
from perdure.throughput.speed import Floats

Change = tuple[Any, str, Any]
COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all_single", "all_to_all", "gather", "scatter",
)  # fmt: skip


_PEER_GONE = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process exited or there was "
    "a network error, NCCL version 2.27.5\nncclRemoteError: A call failed possibly due to a network error or a remote "
    "process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer"
)
"""What a process is told whose peer has ended."""


class ProcessMeeting:
    """Where the processes of a job meet, and what their links take."""

    def __init__(self, node: EmulatedNode) -> None:
        self.node = node
        self.reduce = dist.all_reduce
        self._exposed: dict[int, float] = {}
        self.among(int(os.environ.get("WORLD_SIZE", "1")))

    def among(self, world: int) -> None:
        """So many processes meet; torchrun says how many of them are on this node, and otherwise all are."""
        settings = self.node.settings
        self._local = min(world, max(1, int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))))
        self.layout = GpuLayout(max(1, world // self._local), self._local)
        self._network = GpuNetwork(
            settings.link_gbit, Transport(settings.transport), settings.inside, _link_name(settings.gpu)
        )
        self._exposed.clear()

    def send_s(self, size: Floats, group: Any = None) -> Floats:
        """How long an all-reduce of `size` bytes takes, among all or in a group of them."""
        if group is None:
            return self._network.all_reduce_s(size, self.layout)
        ranks = dist.get_process_group_ranks(group)
        nodes = len({each // self._local for each in ranks})
        return self._network.all_reduce_s(size, GpuLayout(nodes, -(-len(ranks) // nodes)))

    def meet(self, seconds: float, gpu: EmulatedGpu, group: Any = None) -> None:
        """Wait for the processes of all, or of a group, whose GPUs then send for so long."""
        clock = self.node.clock
        with clock.outside():
            gpu.check()
            if gpu.shared is not None:
                gpu.synchronise()
            own = 0.0 if isinstance(clock, VirtualClock) else clock.passed  # virtual time stands still meanwhile
            left = torch.tensor([max(gpu.busy_until, clock.passed) - own], dtype=torch.float64)
            try:
                self.reduce(left, op=dist.ReduceOp.MAX, group=group)
            except RuntimeError:
                raise dist.DistBackendError(_PEER_GONE) from None
            start = float(left[0]) + (0.0 if isinstance(clock, VirtualClock) else clock.passed)
            gpu.busy_until = max(gpu.busy_until, start)
            gpu.run(seconds, link=True)

    def gradients(self, model: torch.nn.Module, profile: GpuStep, share: float = 1.0) -> None:
        """The end of a backward pass of a model that has such a share of the largest one's parameters."""
        if self.layout.gpus == 1 or not dist.is_initialized():
            return
        if profile.batch not in self._exposed:
            self._exposed[profile.batch] = self.exposed_s(model, profile)
        self.meet(share * self._exposed[profile.batch], self.node.gpus[index_of(next(model.parameters()))])

    def exposed_s(self, model: torch.nn.Module, profile: GpuStep) -> float:
        """How long the GPUs wait for gradients after a backward pass."""
        name = self.node.settings.model.removesuffix("-bf16")
        gpu = known_name(profile.gpu)
        if name in KNOWN_MODELS and gpu in GPUS:
            layers = layers_of(name)
            passes = passes_on(layers, GPUS[gpu], profile.batch).calibrated(profile.forward_s + profile.backward_s)
        else:
            sizes = np.array([each.numel() for each in model.parameters()], float)
            layers = Layers(name, sizes, np.ones_like(sizes), np.ones_like(sizes))
            share = np.ones_like(sizes) / len(sizes)
            passes = PassTimes(share * profile.forward_s, share * profile.backward_s)
        return step_of(layers, passes, self.send_s).exposed_s


def _link_name(gpu: str) -> str:
    """By which links within a node may have been measured; a table of the user's own may have any GPU."""
    try:
        return known_name(gpu)
    except InputError:
        return ""


def parallel_changes(node: EmulatedNode) -> Iterator[Change]:
    """Where a program finds what, and what it finds there."""
    if not dist.is_available():
        return
    meeting = ProcessMeeting(node)
    wrapper = _wrapper(meeting)
    yield torch.nn.parallel, "DistributedDataParallel", wrapper
    yield torch.nn.parallel.distributed, "DistributedDataParallel", wrapper
    yield dist, "init_process_group", _by_gloo(meeting, dist.init_process_group)
    yield dist, "is_nccl_available", lambda: True
    yield torch.distributed.fsdp, "FullyShardedDataParallel", _not_emulated("FullyShardedDataParallel")
    yield torch.distributed.fsdp, "fully_shard", _not_emulated("fully_shard")
    for name in COLLECTIVES:
        yield dist, name, _collective(meeting, getattr(dist, name))


def _not_emulated(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError(name, "it is not emulated", "Use torch.nn.parallel.DistributedDataParallel")

    return refuse


def _by_gloo(meeting: ProcessMeeting, init: Callable[..., Any]) -> Callable[..., Any]:
    def begin(backend: Any = None, *args: Any, device_id: Any = None, **named: Any) -> None:  # noqa: ARG001
        init("gloo" if backend is None or "nccl" in str(backend) else backend, *args, **named)
        meeting.among(dist.get_world_size())

    return begin


def _collective(meeting: ProcessMeeting, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, *args: Any, **named: Any) -> Any:
        sent = [each for each in (first, *args) if isinstance(each, torch.Tensor) and each.is_cuda]
        if isinstance(first, list):
            sent += [each for each in first if each.is_cuda]
        if not sent:
            return real(first, *args, **named)
        size = max(each.numel() * each.element_size() for each in sent)
        group = next((each for each in (*args, *named.values()) if isinstance(each, dist.ProcessGroup)), None)
        gpu = meeting.node.gpus[index_of(sent[0])]
        with_errors(lambda: meeting.meet(float(meeting.send_s(np.array(float(size)), group)), gpu, group))
        return _DoneWork(gpu) if named.get("async_op") else None

    return call


class _DoneWork:
    """What an asynchronous collective is waited for by: the end of the GPU's queue is enough."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        return True

    def is_completed(self) -> bool:
        return self._gpu.is_idle


def _wrapper(meeting: ProcessMeeting) -> type:
    class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]  # untyped here
        """Calls the module that it holds; its backward pass ends with the gradients' all-reduce.

        Programs that keep gradients set `require_backward_grad_sync` themselves, too.
        """

        perdure_wrapper = True

        def __init__(self, module: torch.nn.Module, *_: Any, **__: Any) -> None:
            super().__init__()
            self.module = module
            synchronise = WeakMethod(self._synchronise)  # so that the model does not keep its wrapper
            meeting.node.after_backward[module] = lambda *step: (send := synchronise()) and send(*step)
            self.require_backward_grad_sync = True

        def _synchronise(self, profile: GpuStep, share: float) -> None:
            if self.require_backward_grad_sync:
                meeting.gradients(self.module, profile, share)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

        @contextmanager
        def no_sync(self) -> Iterator[None]:
            """Backward passes in the block keep their gradients."""
            self.require_backward_grad_sync = False
            try:
                yield
            finally:
                self.require_backward_grad_sync = True

    return DistributedDataParallel
