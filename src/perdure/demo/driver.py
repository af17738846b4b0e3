"""Submits the demonstration workload: what is due is decided purely, one small loop hands it to the cluster."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.random import Generator

from perdure.backends.local.spec import JobSpec
from perdure.demo.workload import Arrival, PlannedFault, Timed, a_round
from perdure.demo.workspace import Workspace
from perdure.errors import PerdureError

log = logging.getLogger("perdure")

Submit = Callable[[JobSpec], str]
NodeFault = Callable[[str, Literal["fail", "freeze", "thaw", "return"]], None]

FENCE = (sys.executable, "-m", "perdure", "exec", "--")
LATE_S = 5.0
"""After a pause longer than this (a suspended laptop, a slow cluster) all that follows is put off as well."""

UNDOES: dict[str, Literal["thaw", "return"]] = {"fail": "return", "freeze": "thaw"}


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster as the workload sees it, and how fast its time runs: 0.5 is twice as fast."""

    nodes: tuple[str, ...]
    gpus_per_node: int
    pace: float = 1.0


def due(ahead: Sequence[Timed], now_s: float) -> tuple[tuple[Timed, ...], tuple[Timed, ...]]:
    """Split steps, ordered by time, into those due at `now_s` and those still ahead."""
    count = sum(timed.at_s <= now_s for timed in ahead)
    return tuple(ahead[:count]), tuple(ahead[count:])


def job_spec(arrival: Arrival, key: str, site: Site, workspace: Workspace) -> JobSpec | None:
    """The job as it is submitted on `site`; None where the site has too few nodes for it."""
    if max(arrival.node_count, arrival.least_nodes) > len(site.nodes):
        return None
    program = str(workspace.programs / arrival.program)
    args = (arg.replace("{key}", key) for arg in arrival.args)
    return JobSpec(
        argv=(*(FENCE if arrival.fenced else ()), sys.executable, program, *args),
        name=arrival.name,
        user=arrival.user,
        gpus_per_node=math.ceil(arrival.gpu_quarters * site.gpus_per_node / 4),
        node_count=arrival.node_count,
        walltime_s=arrival.walltime_s * site.pace,
        env={"SHARED": str(workspace.shared), "PACE": f"{site.pace:g}"},
        workdir=str(workspace.home(arrival.user)),
        memory_mib=arrival.memory_mib,
        file_size_mib=arrival.file_size_mib,
        may_requeue=arrival.may_requeue,
        requeue_on_node_fail=arrival.requeue_on_node_fail,
        wish=arrival.wish,
        priority=arrival.priority,
        preemptible=arrival.preemptible,
        require=() if arrival.pin is None else (_node(site, arrival.pin),),
        signal="USR1" if arrival.early_signal_s else "",
        signal_before_s=arrival.early_signal_s * site.pace,
    )


def drive(
    submit: Submit,
    fault: NodeFault,
    site: Site,
    workspace: Workspace,
    rng: Generator,
    stop: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Submit jobs and cause faults, round after round, until `stop` is set; then undo the open faults.

    A step that the cluster refuses is logged and left out. Faults that somebody else caused are not touched.
    """
    stage = _Stage(submit, fault, site, workspace)
    start_s, number = clock(), 0
    ahead: tuple[Timed, ...] = ()
    try:
        while not stop.is_set():
            if not ahead:
                workspace.tidy(time.time())
                ahead, number = a_round(number, rng), number + 1
            now_s = (clock() - start_s) / site.pace
            if (late_s := now_s - ahead[0].at_s) > LATE_S:
                start_s += late_s * site.pace
                continue
            ready, ahead = due(ahead, now_s)
            for timed in ready:
                stage.play(timed)
            if ahead:
                stop.wait(min(1.0, max(0.0, start_s + ahead[0].at_s * site.pace - clock())))
    finally:
        stage.clear()


class _Stage:
    """Hands steps to the cluster, and remembers which nodes it has broken."""

    def __init__(self, submit: Submit, fault: NodeFault, site: Site, workspace: Workspace) -> None:
        self._submit, self._fault, self._site, self._workspace = submit, fault, site, workspace
        self._broken: dict[str, Literal["thaw", "return"]] = {}  # node -> what fixes it

    def play(self, timed: Timed) -> None:
        """Submit a job or break or fix a node."""
        try:
            if isinstance(timed.step, PlannedFault):
                self._touch(_node(self._site, timed.step.node), timed.step.what)
            elif spec := job_spec(timed.step, timed.key, self._site, self._workspace):
                self._submit(spec)
        except PerdureError as err:
            log.warning("the demonstration goes on without one step: %s", err)

    def _touch(self, node: str, what: Literal["fail", "freeze", "thaw", "return"]) -> None:
        if what in UNDOES:
            self._fault(node, what)
            self._broken[node] = UNDOES[what]
        elif self._broken.pop(node, None):
            self._fault(node, what)

    def clear(self) -> None:
        """Repair every node that is still broken."""
        for node, fixes in self._broken.items():
            try:
                self._fault(node, fixes)
            except PerdureError as err:
                log.info("node %s stays as it is: %s", node, err)


def _node(site: Site, position: int) -> str:
    return site.nodes[position % len(site.nodes)]
