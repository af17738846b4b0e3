"""What NCCL's RAS subsystem says of a hang: ``ncclras -f json`` (NCCL 2.28.7 and newer).

It numbers ranks within each communicator; the largest communicator is taken for the whole program, and the others are
read by host and process. Source: NCCL user guide, "RAS", section "JSON Output".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

Process = tuple[str, int, int]


class RasFinding(Struct, frozen=True):
    """Ranks that RAS cannot reach, and ranks that have called fewer collectives than others of their communicator."""

    unreachable: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    hosts: Mapping[int, str] = {}  # of each rank

    @property
    def ranks(self) -> tuple[int, ...]:
        """Whom it accuses."""
        return self.unreachable or self.behind


def read_ras(value: object) -> RasFinding | None:
    """Read a decoded answer of RAS; None for any other value."""
    communicators = value.get("communicators") if isinstance(value, dict) else None
    if not isinstance(communicators, list):
        return None
    known = sorted((each for each in communicators if isinstance(each, dict)), key=_size, reverse=True)
    ranks = {_process(each): each["rank"] for each in _members(known[0])} if known else {}
    unreachable, behind = set(), set()
    for communicator in known:
        unreachable |= {_process(each) for each in _members(communicator, "missing_ranks") if _is_lost(each)}
        behind |= set(_behind(communicator))
    return RasFinding(
        tuple(sorted(ranks[each] for each in unreachable & set(ranks))),
        tuple(sorted(ranks[each] for each in behind & set(ranks))),
        {rank: host for (host, _, _), rank in sorted(ranks.items(), key=lambda pair: pair[1]) if host},
    )


def _behind(communicator: Mapping[str, Any]) -> Iterator[Process]:
    """Those that have called some collective less often than another rank, where not all differ by chance of timing."""
    members = list(_members(communicator, "ranks"))
    totals = {_process(each): _calls(each) for each in members}
    if totals and min(totals.values()) < max(totals.values()):
        least = min(totals.values())
        yield from (process for process, calls in totals.items() if calls == least)


def _calls(member: Mapping[str, Any]) -> int:
    counts = member.get("collective_counts")
    return sum(each for each in counts.values() if isinstance(each, int)) if isinstance(counts, dict) else 0


def _members(communicator: Mapping[str, Any], *keys: str) -> Iterator[Mapping[str, Any]]:
    for key in keys or ("ranks", "missing_ranks"):
        listed = communicator.get(key)
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and isinstance(each.get("rank"), int):
                yield each


def _process(member: Mapping[str, Any]) -> Process:
    host, pid, device = member.get("host"), member.get("pid"), member.get("cuda_dev")
    return (
        host[:255] if isinstance(host, str) else "",
        pid if isinstance(pid, int) else -1,
        device if isinstance(device, int) else -1,
    )


def _is_lost(member: Mapping[str, Any]) -> bool:
    status = member.get("status")
    status = status if isinstance(status, dict) else member
    return status.get("unresponsive") is True or status.get("considered_dead") is True


def _size(communicator: Mapping[str, Any]) -> int:
    size = communicator.get("size")
    return size if isinstance(size, int) else sum(1 for _ in _members(communicator))
