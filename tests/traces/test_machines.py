"""Machine lists as clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.traces.machines import read_nodes


def test_nodes_without_gpus_are_left_out(file: Callable[..., Path]) -> None:
    nodes = read_nodes(file("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\nb,1,1,8,V100M32\nc,1,1,2,T4\n"))
    assert nodes.gpus.tolist() == [8, 2]
    assert nodes.gpu_type.tolist() == ["V100M32", "T4"]


def test_a_list_made_by_hand_may_name_racks(file: Callable[..., Path]) -> None:
    nodes = read_nodes(file("nodes.csv", "gpus,gpu_type,rack\n8,h100,0\n8,h100,1\n"))
    assert (nodes.rack.tolist(), nodes.total_gpus) == ([0, 1], 16)


def test_a_list_made_by_hand_may_name_cpus_and_memory(file: Callable[..., Path]) -> None:
    nodes = read_nodes(file("nodes.csv", "gpus,cpus,mem_mib\n8,96,1024\n0,4,4\n4,48,512\n"))
    assert (nodes.cpus.tolist(), nodes.mem_mib.tolist()) == ([96, 48], [1024, 512])
    with pytest.raises(InputError, match="some of its nodes tell no cpus"):
        read_nodes(file("nodes.csv", "gpus,cpus\n8,96\n8,\n"))


def test_phillys_machines_are_its_cluster(public: Callable[[str], Path]) -> None:
    nodes = read_nodes(public("traces/philly/cluster_machine_list"))
    assert sorted(nodes.gpus) == sorted(Cluster.parse("321x2+231x8").gpus)
    assert np.unique(nodes.gpu_type).tolist() == ["12GB", "24GB"]
    assert len(read_nodes(public("traces/philly/revised_machine_list.csv"))) > 500


def test_openbs_nodes_hold_6212_gpus(public: Callable[[str], Path]) -> None:
    assert read_nodes(public("traces/alibaba/openb_node_list_all_node.csv.gz")).total_gpus == 6_212


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("node,cores\na,8\n", r"nodes.csv:1: no column of GPUs"),
        ("gpus\n-1\n", r"nodes.csv:2: the GPUs are not a count"),
        ("gpus\nx\n", r"nodes.csv:2: gpus is not a number"),
        ("gpus\n0\n", r"nodes.csv: no node has GPUs"),
    ],
)
def test_a_bad_list_is_named(file: Callable[..., Path], text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_nodes(file("nodes.csv", text))
