"""Reading what ``scontrol show node`` prints: one node a line, in which operators alone write text."""

from __future__ import annotations

import re2
from msgspec import Struct

from perdure.backends.slurm.records import instant, number_or, pairs
from perdure.model.nodes import Node, NodeState
from perdure.slurm_words.reasons import is_slurms_own
from perdure.slurm_words.states import is_reserved, node_state
from perdure.slurm_words.tres import gpus

_REASON = re2.compile(r"(?s)(.*?)(?: \[([^\[\]]*)@(\d{1,12})~?[0-9a-z]*\])?")
OUR_REASON = "[perdure "  # begins the mark that what we do to a node leaves in its reason


class NodeRecord(Struct, frozen=True):
    """One node, and when its machine and its daemon started."""

    node: Node
    boot_s: int | None
    daemon_start_s: int | None
    host: str = ""  # of its machine
    cpus: int = 0


def read_nodes(text: bytes, mark: str) -> tuple[NodeRecord, ...]:
    """Read the answer to ``show node``. Only operators write text here (reasons, comments); it stays on its line."""
    lines = text.decode("utf-8", "replace").split("\n")
    records = (_node(line.removeprefix("scontrol: "), mark) for line in lines)
    return tuple(record for record in records if record is not None)


def _node(line: str, mark: str) -> NodeRecord | None:
    if not line.startswith("NodeName=") or " State=" not in line:
        return None
    body, _, reason_text = line.partition(" Reason=")
    fields = dict(pairs(body))
    state = node_state(fields.get("State", ""))
    if state is None:
        return None
    reason = _REASON.fullmatch(reason_text.partition(" Comment=")[0].rstrip())
    why = reason[1] if reason else ""
    return NodeRecord(
        Node(
            name=fields["NodeName"],
            state=state,
            reason=why,
            gpus=gpus(fields.get("Gres", "")) or gpus(fields.get("CfgTRES", "")) or 0,
            gpus_used=gpus(fields.get("AllocTRES", "")) or 0,
            by=(reason[2] or "") if reason else "",
            since_s=float(reason[3]) if reason and reason[3] else None,
            is_reserved=is_reserved(fields.get("State", "")),
            is_set_down=state is NodeState.DOWN and OUR_REASON not in why and not is_slurms_own(why),
            partitions=tuple(name for name in fields.get("Partitions", "").split(",") if name and name != "(null)"),
        ),
        boot_s=instant(fields.get("BootTime", ""), mark),
        daemon_start_s=instant(fields.get("SlurmdStartTime", ""), mark),
        host=fields.get("NodeHostName", ""),
        cpus=number_or(fields.get("CPUTot", ""), 0),
    )
