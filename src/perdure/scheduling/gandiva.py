"""Gandiva: jobs have homes that may be over-subscribed; they take turns there, share GPUs, move, grow and shrink.

Source: W. Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018, sections 3 and 4. It
is for one GPU type; of several, each is a pool, and they count as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan, Share, types_for

Counts = NDArray[np.int64]
TRIED_NODES = 4  # with most idle GPUs, to be cleared for a job


class Home(NamedTuple):
    """GPUs of one type: (node, its GPU), in order."""

    gpu_type: int
    gpus: tuple[tuple[int, int], ...]

    @property
    def spreads(self) -> bool:
        """Whether it is on several nodes."""
        return self.gpus[0][0] != self.gpus[-1][0]

    def nodes(self) -> set[int]:
        return {node for node, _ in self.gpus}

    def share(self, shared_with: int | None = None) -> Share:
        counted = tuple((node, sum(at == node for at, _ in self.gpus)) for node in sorted(self.nodes()))
        return Share(self.gpu_type, len(counted), len(self.gpus), counted, shared_with)


@dataclass(slots=True)
class Homes:
    """Where each job lives, and how many live on each GPU: `load`, of each type (n_nodes, gpus_per_node)."""

    types: Sequence[GpuType]
    of: dict[int, Home] = field(default_factory=dict)
    load: list[Counts] = field(init=False)

    def __post_init__(self) -> None:
        self.load = [np.zeros((kind.nodes, kind.gpus_per_node), np.int64) for kind in self.types]

    def settle(self, row: int, home: Home) -> None:
        """Move a job in; if it lived elsewhere, from there."""
        self.leave(row)
        self.of[row] = home
        self._add(home, 1)

    def leave(self, row: int) -> None:
        """Move a job out, if it lived anywhere."""
        if row in self.of:
            self._add(self.of.pop(row), -1)

    def _add(self, home: Home, count: int) -> None:
        for node, gpu in home.gpus:
            self.load[home.gpu_type][node, gpu] += count

    def crowd(self, home: Home) -> int:
        """Of a home's GPUs the most that live on one."""
        return max(int(self.load[home.gpu_type][node, gpu]) for node, gpu in home.gpus)

    def idle(self, kinds: Iterable[int]) -> int:
        """GPUs of these types on which nobody lives."""
        return sum(int((self.load[kind] == 0).sum()) for kind in kinds)

    def on(self, gpu_type: int, node: int) -> list[int]:
        """Jobs that live on a node, even in part."""
        return [row for row, home in self.of.items() if home.gpu_type == gpu_type and node in home.nodes()]

    def find(self, gpus: int, kinds: Iterable[int], *, without: tuple[int, int] | None = None) -> Home | None:
        """The best home for a job: on GPUs where fewest live, then on few nodes, then beside jobs of its size.

        Of equal ones the node with fewest idle GPUs. `without` is a type and a node to leave alone. None: none is wide
        enough.
        """
        found = [
            choice
            for turn, kind in enumerate(kinds)
            for choice in self._choices(gpus, kind, turn, without[1] if without and without[0] == kind else None)
        ]
        return min(found)[1] if found else None

    def _choices(self, gpus: int, kind: int, turn: int, without: int | None) -> list[tuple[tuple[int, ...], Home]]:
        """Homes on one node, or on as few as hold it, and on several nodes for one that finds no idle node."""
        load, size = self.load[kind], self.types[kind].gpus_per_node
        nodes = [node for node in range(len(load)) if node != without]
        order = np.argsort(load, axis=1, kind="stable")
        ranked = np.take_along_axis(load, order, axis=1)
        found = list[tuple[tuple[int, ...], Home]]()
        if gpus <= size:
            sizes = self._sizes(kind)
            for node in nodes:
                crowd, idle = int(ranked[node, gpus - 1]), int((load[node] == 0).sum())
                same = 0 if sizes.get(node) == {gpus} else 1 if node not in sizes else 2
                home = Home(kind, tuple((node, gpu) for gpu in sorted(order[node, :gpus].tolist())))
                found.append(((crowd, 0, turn, same, idle, node), home))
        if not any(key[0] == 0 for key, _ in found) and gpus <= len(nodes) * size:
            by_room = sorted(nodes, key=lambda node: (int((load[node] > 0).sum()), int(load[node].sum()), node))
            taken = [
                (int(ranked[node, at]), place, node, int(order[node, at]))
                for place, node in enumerate(by_room)
                for at in range(size)
            ]
            taken = sorted(taken)[:gpus]
            home = Home(kind, tuple(sorted((node, gpu) for *_, node, gpu in taken)))
            found.append(((taken[-1][0], len(home.nodes()), turn, 0, 0, 0), home))
        return found

    def _sizes(self, kind: int) -> dict[int, set[int]]:
        """By node, the numbers of GPUs that jobs there have."""
        found: dict[int, set[int]] = {}
        for home in self.of.values():
            if home.gpu_type == kind:
                for node in home.nodes():
                    found.setdefault(node, set()).add(len(home.gpus))
        return found


@dataclass(slots=True)
class Gandiva:
    """Each round is a time slice: who has waited longest of those that live on the same GPUs has its turn.

    A new job gets idle GPUs if there are any, those of jobs that have grown too, or else the home where fewest live.
    Then it looks at what it has seen: two that take turns are tried on the same GPUs at once, and stay together where
    the speeds that both keep add up to more than 1; a job moves to idle GPUs, and onto fewer nodes; small jobs make
    room on a node for a larger one; what is idle for long goes to a job on the same node, as long as that is faster.
    """

    name: str = "gandiva"
    round_s: float = 60.0
    adaptive: bool = False
    resume_s: float = 1.0
    idle_s: float = 300.0  # that GPUs stay idle before a job grows into them, and jobs before small ones make room
    gain: float = 1.05  # that growing or sharing must bring, as a factor
    _homes: Homes | None = None
    _last_ran_s: dict[int, float] = field(default_factory=dict)
    _pairs: dict[int, int] = field(default_factory=dict)  # each names the other
    _alone: dict[int, tuple[Home, float]] = field(default_factory=dict)  # steps a second, seen alone at a home
    _together: dict[tuple[str, ...], float] = field(default_factory=dict)  # by kinds: what pairs keep, added up
    _small: dict[int, tuple[Home, float]] = field(default_factory=dict)  # of those that grew: home and speed before
    _full: set[int] = field(default_factory=set)  # that did not gain from growing
    _quiet_s: float = 0.0  # since when nobody has come, gone or moved, or it was last seen to
    _planned: Plan = field(default_factory=dict)

    def plan(self, view: ElasticView) -> Plan:
        homes = self._homes = self._homes or Homes(view.types)
        for row in [row for row in homes.of if row not in view.jobs]:
            self._forget(row)
            self._quiet_s = view.now_s
        self._look(view, homes)
        self._house(view, homes)
        self._spread_out(view, homes)
        if view.now_s - self._quiet_s >= self.idle_s:
            self._quiet_s = view.now_s
            if not self._make_room(view, homes):
                self._grow(view, homes)
        self._pair(view, homes)
        self._planned = self._slice(view, homes)
        return self._planned

    def _forget(self, row: int) -> None:
        assert self._homes is not None
        self._homes.leave(row)
        self._part(row)
        for kept in (self._last_ran_s, self._alone, self._small):
            kept.pop(row, None)
        self._full.discard(row)

    def _part(self, row: int) -> None:
        """Let a job share no longer."""
        other = self._pairs.pop(row, None)
        if other is not None:
            del self._pairs[other]

    def _look(self, view: ElasticView, homes: Homes) -> None:
        """Note the speeds of the slice that is over; part pairs, and shrink jobs, that gain nothing."""
        ran = {
            row: job.steps_per_s
            for row, job in view.jobs.items()
            if row in self._planned and job.share == self._planned[row] and not job.restarting
        }
        for row, per_s in ran.items():
            if self._planned[row].shared_with is None:
                self._alone[row] = homes.of[row], per_s
        for row, other in list(self._pairs.items()):
            if row < other and row in ran and other in ran and self._planned[row].shared_with == other:
                kept = sum(ran[each] / self._alone[each][1] for each in (row, other))
                self._together[self._kinds(view, row, other)] = kept
                if kept < self.gain:
                    self._part(row)
        for row, (_, before) in list(self._small.items()):
            if row in ran and self._planned[row].shared_with is None and ran[row] < self.gain * before:
                self._shrink(row)
                self._full.add(row)

    def _kinds(self, view: ElasticView, row: int, other: int) -> tuple[str, ...]:
        """What is remembered of two jobs: the kinds of both, and where."""
        assert self._homes is not None
        home = self._homes.of[row]
        first, second = sorted((view.jobs[row].application, view.jobs[other].application))
        return first, second, view.types[home.gpu_type].name, str(len(home.gpus))

    def _shrink(self, row: int) -> None:
        assert self._homes is not None
        self._homes.settle(row, self._small.pop(row)[0])

    def _house(self, view: ElasticView, homes: Homes) -> None:
        """Find homes for those that have none, the oldest first."""
        new = sorted((job.submit_s, row) for row, job in view.jobs.items() if row not in homes.of)
        for _, row in new:
            job = view.jobs[row]
            home = homes.find(job.asked_gpus, types_for(view, job))
            if home is not None and homes.crowd(home) and self._small:
                for grown in list(self._small):
                    self._shrink(grown)
                home = homes.find(job.asked_gpus, types_for(view, job))
            if home is not None:
                homes.settle(row, home)
                self._quiet_s = view.now_s

    def _spread_out(self, view: ElasticView, homes: Homes) -> None:
        """Move jobs from crowded GPUs to idle ones, and jobs on several nodes onto one."""
        for row in sorted(homes.of, key=lambda row: self._last_ran_s.get(row, -1.0)):
            home, kinds = homes.of[row], types_for(view, view.jobs[row])
            crowded = homes.crowd(home) > 1
            if not (crowded or home.spreads) or not homes.idle(kinds):
                continue
            homes.leave(row)  # its own GPUs may be a part of the better home
            better = homes.find(len(home.gpus), kinds)
            idle = better is not None and homes.crowd(better) == 0
            homes.settle(row, home)
            if better is not None and idle and (crowded or len(better.nodes()) < len(home.nodes())):
                self._move(row, better, view.now_s)

    def _move(self, row: int, home: Home, now_s: float) -> None:
        assert self._homes is not None
        self._part(row)
        self._small.pop(row, None)
        self._homes.settle(row, home)
        self._quiet_s = now_s

    def _make_room(self, view: ElasticView, homes: Homes) -> bool:
        """Move smaller jobs off a node for one that takes turns or is on several nodes; whether one was helped."""
        for row, home in list(homes.of.items()):
            gpus = len(home.gpus)
            if gpus == 1 or (homes.crowd(home) == 1 and not home.spreads):
                continue
            for kind in types_for(view, view.jobs[row]):
                if gpus > view.types[kind].gpus_per_node or not (homes.idle([kind]) or home.spreads):
                    continue
                by_idle = np.argsort(-(homes.load[kind] == 0).sum(axis=1), kind="stable").tolist()
                if any(self._clear(view, homes, row, kind, node) for node in by_idle[:TRIED_NODES]):
                    return True
        return False

    def _clear(self, view: ElasticView, homes: Homes, row: int, kind: int, node: int) -> bool:
        """Move jobs smaller than that of `row` from a node to idle GPUs until it fits; all back if it does not."""
        before, moved = homes.of[row], dict[int, Home]()
        gpus = len(before.gpus)
        homes.leave(row)  # its own GPUs may be a part of what it gets
        smaller = [each for each in homes.on(kind, node) if len(homes.of[each].gpus) < gpus]
        for each in sorted(smaller, key=lambda each: len(homes.of[each].gpus)):
            if int((homes.load[kind][node] == 0).sum()) >= gpus:
                break
            there = homes.find(len(homes.of[each].gpus), types_for(view, view.jobs[each]), without=(kind, node))
            if there is not None and homes.crowd(there) == 0 and not there.spreads:
                moved[each] = homes.of[each]
                homes.settle(each, there)
        idle = np.flatnonzero(homes.load[kind][node] == 0)
        homes.settle(row, before)
        if len(idle) < gpus:
            for each, home in moved.items():
                homes.settle(each, home)
            return False
        for each in moved:
            self._move(each, homes.of[each], view.now_s)
        self._move(row, Home(kind, tuple((node, gpu) for gpu in idle[:gpus].tolist())), view.now_s)
        return True

    def _grow(self, view: ElasticView, homes: Homes) -> None:
        """Let jobs that can use more GPUs have idle ones of their node, at most as many again."""
        if any(homes.crowd(home) > 1 for home in homes.of.values()):
            return
        for row, home in list(homes.of.items()):
            job = view.jobs[row]
            if job.rigid or row in self._full or row in self._small or row not in self._alone or home.spreads:
                continue
            node = home.gpus[0][0]
            idle = np.flatnonzero(homes.load[home.gpu_type][node] == 0).tolist()
            more = min(len(idle), len(home.gpus), _most_gpus(job) - len(home.gpus))
            while more > 0 and not _is_measured(job, home.gpu_type, len(home.gpus) + more):
                more -= 1
            if more > 0:
                self._small[row] = self._alone[row]
                homes.settle(
                    row, Home(home.gpu_type, tuple(sorted((*home.gpus, *((node, gpu) for gpu in idle[:more])))))
                )

    def _pair(self, view: ElasticView, homes: Homes) -> None:
        """Let jobs that take turns on the same GPUs share them: the best pairs first, those not tried before others."""
        for row in list(self._pairs):
            if row in self._pairs and homes.crowd(homes.of[row]) == 1:
                self._part(row)
        alone: dict[Home, list[int]] = {}
        for row, home in homes.of.items():
            if row not in self._pairs and self._alone.get(row, (None, 0.0))[0] == home and homes.crowd(home) > 1:
                alone.setdefault(home, []).append(row)
        for home, rows in alone.items():
            kind, choices = view.types[home.gpu_type].name, list[tuple[float, int, int]]()
            for place, row in enumerate(rows):
                for other in rows[place + 1 :]:
                    names = view.jobs[row].application, view.jobs[other].application
                    kept = self._together.get(self._kinds(view, row, other), 2.0)
                    if kept >= self.gain and view.pairs.fits(kind, len(home.gpus), len(home.nodes()), *names):
                        choices.append((-kept, row, other))
            for _, row, other in sorted(choices):
                if row not in self._pairs and other not in self._pairs:
                    self._pairs[row], self._pairs[other] = other, row

    def _slice(self, view: ElasticView, homes: Homes) -> Plan:
        """Whose turn it is: who has waited longest first, as far as GPUs go."""
        taken = [np.zeros(load.shape, bool) for load in homes.load]
        plan: dict[int, Share] = {}
        for row in sorted(homes.of, key=lambda row: (self._last_ran_s.get(row, -1.0), view.jobs[row].submit_s, row)):
            home, other = homes.of[row], self._pairs.get(row)
            if row in plan or any(taken[home.gpu_type][node, gpu] for node, gpu in home.gpus):
                continue
            for node, gpu in home.gpus:
                taken[home.gpu_type][node, gpu] = True
            plan[row] = home.share(other)
            if other is not None:
                plan[other] = home.share(row)
        for row in plan:
            self._last_ran_s[row] = view.now_s
        return plan


def _most_gpus(job: ElasticJob) -> int:
    return job.most_gpus if job.oracle is None else min(job.most_gpus, job.oracle.most_gpus())


def _is_measured(job: ElasticJob, gpu_type: int, gpus: int) -> bool:
    """Whether it is known that its batch can be spread over so many."""
    return job.oracle is None or job.oracle.step_s(gpu_type, gpus) > 0
