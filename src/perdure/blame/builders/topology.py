"""Switches above nodes, as Slurm's ``topology.conf`` has them: what attempts on several nodes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perdure.blame.builders.named import Component
from perdure.errors import InputError
from perdure.slurm_words.hostlist import expand

TIERS = ("leaf", "spine", "core")
"""By height above the nodes."""
MOST_HEIGHT = len(TIERS)
_KEYS = ("switchname", "nodes", "switches", "linkspeed")


@dataclass(frozen=True, slots=True)
class Topology:
    """A tree of switches; `above` maps each node and switch to the switch right above it. Roots are keys of nothing."""

    above: Mapping[Component, Component] = field(default_factory=dict)

    def crossed(self, nodes: Iterable[str]) -> tuple[Component, ...]:
        """The switches between these nodes, up to the one where all meet; of a single node, the switch right above it.

        Climbs all nodes at once, tier by tier, and stops at the first tier with one switch. Nodes that the tree does
        not know are left out; nodes whose trees never meet give all switches above them. The order is that of tier and
        name.

        >>> lines = "SwitchName=l1 Nodes=n[1-2]", "SwitchName=l2 Nodes=n3", "SwitchName=s Switches=l[1-2]"
        >>> found = read_topology(lines)
        >>> found.crossed(["n1", "n2"]), found.crossed(["n1", "n3"])
        ((('leaf', 'l1'),), (('leaf', 'l1'), ('leaf', 'l2'), ('spine', 's')))
        """
        level = {self.above[node] for node in (("node", name) for name in nodes) if node in self.above}
        found: set[Component] = set()
        while level:
            found |= level
            if len(level) == 1:
                break
            level = {self.above[switch] for switch in level if switch in self.above}
        return tuple(sorted(found))


NO_SWITCHES = Topology()


def read_topology(lines: Iterable[str], source: str = "<topology>") -> Topology:
    """Read ``SwitchName=leaf1 Nodes=gpu[01-16]`` and ``SwitchName=spine Switches=leaf[1-4]``, a switch a line.

    Keys are read in any case, ``LinkSpeed`` is allowed and means nothing here, ``#`` begins a comment. A switch names
    either nodes or switches.

    Raises `InputError`, naming the line: for what is neither, for a node or switch below two others, and for switches
    that are not a tree of at most three tiers.
    """
    nodes: dict[str, tuple[str, ...]] = {}
    switches: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        at = f"{source}, line {number}"
        given = _entries(line.partition("#")[0], at)
        if not given:
            continue
        name = given.get("switchname", "")
        if not name or name in nodes | switches or ("nodes" in given) == ("switches" in given):
            fix = "Write SwitchName=NAME Nodes=LIST or SwitchName=NAME Switches=LIST, each name once"
            raise InputError(at, f"{line.strip()[:80]!r} is not a switch", fix)
        below = nodes if "nodes" in given else switches
        below[name] = expand(given["nodes" if "nodes" in given else "switches"])
    return Topology(_above(nodes, switches, source))


def _entries(line: str, at: str) -> dict[str, str]:
    """The KEY=VALUE words of a line, keys in lower case; empty for a blank line."""
    found = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in _KEYS:
            raise InputError(at, f"{word[:80]!r} is not known", f"Use {', '.join(_KEYS)}")
        found[key.lower()] = value
    return found


def _above(
    nodes: Mapping[str, tuple[str, ...]], switches: Mapping[str, tuple[str, ...]], source: str
) -> dict[Component, Component]:
    """Number the switches by their height above the nodes, bottom up, and point every node and switch at its parent.

    A switch gets its height once all that is below it has one; a round that places none has met a cycle or a name that
    no line defines.
    """
    height = dict.fromkeys(nodes, 0)
    while missing := [name for name in switches if name not in height]:
        known = [name for name in missing if all(below in height for below in switches[name])]
        if not known:
            raise InputError(source, f"switch {missing[0]} is above nothing that leads to nodes", "Fix the tree")
        height |= {name: 1 + max((height[below] for below in switches[name]), default=0) for name in known}
    if max(height.values(), default=0) >= MOST_HEIGHT:
        raise InputError(source, f"more than {MOST_HEIGHT} tiers of switches", "Leave the uppermost out")
    found: dict[Component, Component] = {}
    for name, below in (*nodes.items(), *switches.items()):
        for one in below:
            lower = ("node", one) if name in nodes else (TIERS[height[one]], one)
            if lower in found:
                raise InputError(source, f"{lower[0]} {one} is below two switches", "Put it below one of them")
            found[lower] = (TIERS[height[name]], name)
    return found
