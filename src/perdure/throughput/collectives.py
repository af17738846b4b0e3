"""How long GPUs take to add up their gradients: rings, trees, hierarchies and parameter servers over links.

Each algorithm takes a number of hops of latency and sends a share of the bytes over the slowest link:

    ring            2 (N - 1) alpha + 2 (N - 1) / N  s / B
    double tree     2 log2(N) alpha + 2 s / B
    hierarchical    a ring within each node, on all bytes, and one across nodes for each GPU, on its share
    servers         2 alpha + 2 max(1, W / P) s / B for W workers and P servers; 2 (N - 1) / N s / B for N of both
                    on the same nodes

Source: R. Rabenseifner, ICCS 2004; P. Sanders et al., Parallel Computing 2009 (two trees); Y. Jiang et al., "BytePS",
OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from perdure.throughput.measured_links import MEASURED_LINKS
from perdure.throughput.size_ranges import RangedLink
from perdure.throughput.speed import Floats, Numbers

GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class GpuLink:
    """What a message takes between two GPUs: seconds until its first byte, and bytes a second after it."""

    latency_s: float
    bytes_per_s: float

    def all_reduce_s(self, size: Numbers, members: int) -> Floats:
        """An all-reduce among members that this link connects: by a ring or by two trees, whichever is quicker."""
        return np.minimum(ring_s(size, members, self), tree_s(size, members, self))


class Transport(StrEnum):
    """What carries messages between nodes."""

    TCP = "tcp"
    RDMA = "rdma"


TCP_MOST = 30 * GBIT
"""A node's training gets no more over the kernel's TCP from any link."""

_LATENCY_S = {Transport.TCP: 30e-6, Transport.RDMA: 5e-6}
_SHARE = {Transport.TCP: 0.75, Transport.RDMA: 0.92}


def network(rate_gbit: float, transport: Transport, slowed: float = 1.0) -> GpuLink:
    """A link between nodes as it is bought, and what of it a transport gets; values to start with, to be calibrated.

    Where uplinks are short, each node has its link `slowed` by a factor of 1 or more.

    >>> network(100, Transport.TCP).bytes_per_s * 8 / 1e9, network(100, Transport.RDMA).bytes_per_s * 8 / 1e9
    (30.0, 92.0)
    """
    bytes_per_s = rate_gbit * GBIT * _SHARE[transport] / slowed
    return GpuLink(_LATENCY_S[transport], min(bytes_per_s, TCP_MOST) if transport is Transport.TCP else bytes_per_s)


INSIDE: Mapping[str, GpuLink] = MappingProxyType(
    {"pcie": GpuLink(8e-6, 10e9), "nvlink": GpuLink(4e-6, 120e9), "nvswitch": GpuLink(4e-6, 230e9)}
)
"""Links within a node, by what connects its GPUs: bytes a second that a ring gets."""


def link_inside(name: str, gpu: str) -> GpuLink | RangedLink:
    """What connects a node's GPUs: as it was measured with this GPU, or else the usual link of `INSIDE`."""
    return MEASURED_LINKS.get((name, gpu), INSIDE[name])


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """GPUs that train together: so many nodes, each with as many of them."""

    nodes: int
    gpus_per_node: int = 1
    racks: int = 1

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


RACK_HOP_S = 2e-6  # two more switches and longer cables


def slowed_by_racks(layout: GpuLayout, oversubscription: float, all_to_all: bool = False) -> float:
    """By how many times links between nodes are slower in racks whose uplinks hold 1 / `oversubscription` of them.

    Nodes are numbered rack by rack, as by name: a ring leaves a rack once, so its hops there have all of the uplinks
    and are slowed only where one node's link is more than these. Where all send to all, as with parameter servers, a
    share of 1 - 1 / racks of the bytes goes up.

    >>> slowed_by_racks(GpuLayout(8, racks=2), 8.0)
    2.0
    """
    if layout.racks == 1:
        return 1.0
    sending = layout.nodes / layout.racks * (1 - 1 / layout.racks) if all_to_all else 1.0
    uplinks = layout.nodes / layout.racks / oversubscription  # in links of one node
    return max(1.0, sending / uplinks)


def between_nodes(
    rate_gbit: float, transport: Transport, layout: GpuLayout, oversubscription: float, all_to_all: bool = False
) -> GpuLink:
    """The link of one node to the others of its layout."""
    link = network(rate_gbit, transport, slowed_by_racks(layout, oversubscription, all_to_all))
    return replace(link, latency_s=link.latency_s + RACK_HOP_S) if layout.racks > 1 else link


def between_gpus(rate_gbit: float, transport: Transport, layout: GpuLayout, oversubscription: float = 1.0) -> GpuLink:
    """What one GPU gets of its node's link to other nodes: all GPUs of a node send at once.

    >>> between_gpus(100, Transport.TCP, GpuLayout(2, 4)).bytes_per_s * 8 / 1e9
    7.5
    """
    link = between_nodes(rate_gbit, transport, layout, oversubscription)
    return replace(link, bytes_per_s=link.bytes_per_s / layout.gpus_per_node)


def ring_s(size: Numbers, members: int, link: GpuLink) -> Floats:
    """An all-reduce of `size` bytes in a ring.

    >>> float(ring_s(1e9, 2, GpuLink(0.0, 1e9)))
    1.0
    """
    sent = np.multiply(size, 2 * (members - 1) / members) / link.bytes_per_s
    return np.asarray(2 * (members - 1) * link.latency_s + sent, float)


def tree_s(size: Numbers, members: int, link: GpuLink) -> Floats:
    """An all-reduce of `size` bytes along two binary trees, each of which carries half of them both ways."""
    if members == 1:
        return np.zeros_like(np.asarray(size, float))
    hops = 2 * float(np.ceil(np.log2(members)))
    return np.asarray(hops * link.latency_s + np.multiply(2.0, size) / link.bytes_per_s, float)


def servers_s(
    size: Numbers, workers: int, servers: int, link: GpuLink, shared: bool = False, partitioned: bool = False
) -> Floats:
    """Workers send `size` bytes to servers, and have them back; `shared`: each node holds a worker and a server.

    Where gradients are `partitioned` into small pieces, as BytePS does, some come back while others are sent: links
    carry both ways at once.
    """
    share = (workers - 1) / workers if shared else max(1.0, workers / servers)
    ways = 1 if partitioned else 2
    return np.asarray(2 * link.latency_s + np.multiply(size, ways * share) / link.bytes_per_s, float)


def all_reduce_s(size: Numbers, layout: GpuLayout, inside: GpuLink | RangedLink, between: GpuLink) -> Floats:
    """An all-reduce as libraries choose it: the quickest of what the layout allows.

    `between` is what one GPU gets of its node's link where all send: pass the node's own divided by its GPUs, or a link
    of its own.
    """
    if layout.nodes == 1:
        return inside.all_reduce_s(size, layout.gpus)
    share = np.divide(size, layout.gpus_per_node)
    return inside.all_reduce_s(size, layout.gpus_per_node) + between.all_reduce_s(share, layout.nodes)


@dataclass(frozen=True, slots=True)
class GpuNetwork:
    """What connects the GPUs of a job: `rate_gbit` is the link of one node, `inside` a name of `INSIDE`."""

    rate_gbit: float
    transport: Transport
    inside: str = "pcie"
    gpu: str = ""  # links within nodes may have been measured with it
    oversubscription: float = 1.0  # of racks: rates of their nodes' links over the rate of their uplinks

    def all_reduce_s(self, size: Numbers, layout: GpuLayout) -> Floats:
        """Seconds of adding up gradients of these sizes on a layout."""
        between = between_gpus(self.rate_gbit, self.transport, layout, self.oversubscription)
        return all_reduce_s(size, layout, link_inside(self.inside, self.gpu), between)
