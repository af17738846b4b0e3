"""Switches as topology.conf has them."""

import pytest

from perdure.blame.builders.topology import Topology, read_topology
from perdure.errors import InputError

TREE = """
# two leaves below one spine, and one alone
SwitchName=l1 Nodes=n[1-4] LinkSpeed=100
SwitchName=l2 Nodes=n[5-8]
SwitchName=l3 Nodes=n9
SwitchName=s1 Switches=l[1-2]
SwitchName=s2 Switches=l3
SwitchName=c Switches=s[1-2]
""".splitlines()


@pytest.mark.parametrize(
    ("nodes", "crossed"),
    [
        (["n1"], ["l1"]),
        (["n1", "n4"], ["l1"]),
        (["n1", "n5"], ["l1", "l2", "s1"]),
        (["n1", "n9"], ["c", "l1", "l3", "s1", "s2"]),
        (["elsewhere"], []),
        ([], []),
    ],
)
def test_an_attempt_crosses_switches_up_to_where_its_nodes_meet(nodes: list[str], crossed: list[str]) -> None:
    assert sorted(name for _, name in read_topology(TREE).crossed(nodes)) == crossed


def test_tiers_go_by_height() -> None:
    found = read_topology(TREE).crossed(["n1", "n9"])
    assert {name: tier for tier, name in found} == {
        "l1": "leaf", "l3": "leaf", "s1": "spine", "s2": "spine", "c": "core",
    }  # fmt: skip


def test_without_a_file_nothing_is_crossed() -> None:
    assert Topology().crossed(["n1"]) == ()
    assert read_topology([]).crossed(["n1"]) == ()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["SwitchName=a"], "line 1: 'SwitchName=a' is not a switch"),
        (["SwitchName=a Nodes=n1 Switches=b"], "is not a switch"),
        (["SwitchName=a Nodes=n1", "SwitchName=a Nodes=n2"], "line 2"),
        (["Switch=a Nodes=n1"], "'Switch=a' is not known"),
        (["SwitchName=a Nodes=n1", "SwitchName=b Nodes=n1"], "node n1 is below two switches"),
        (["SwitchName=a Switches=b"], "switch a is above nothing"),
        (["SwitchName=a Switches=b", "SwitchName=b Switches=a"], "is above nothing"),
        (
            ["SwitchName=a Nodes=n", "SwitchName=b Switches=a", "SwitchName=c Switches=b", "SwitchName=d Switches=c"],
            "more than 3 tiers",
        ),
        (["SwitchName=a Nodes=n[1-9999999]"], "node"),
    ],
)
def test_what_is_no_tree_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        read_topology(lines)
