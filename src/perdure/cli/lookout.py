"""Looks at all jobs of this user for their chains: one ``squeue`` a minute, however many chains and processes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import msgspec

from perdure.backends.slurm.links import look_at_links
from perdure.backends.slurm.tools import Tools
from perdure.cli.kept import KeptFolder
from perdure.errors import ClusterBusy, ClusterError
from perdure.slurm_words.link_job import LinkJob

LOOK_S = 60.0  # between two looks at Slurm
_LOOK = "look.json"


@dataclass(frozen=True, slots=True)
class Look:
    """What Slurm said of all jobs of this user, and when it was asked."""

    jobs: tuple[LinkJob, ...] | None = None
    at_s: float = 0.0


class Lookout:
    """Asks Slurm at most once a minute, together with every other process of this user."""

    def __init__(self, tools: Tools, uid: int) -> None:
        self._tools, self._uid = tools, uid
        conf = hashlib.sha256(os.environ.get("SLURM_CONF", "").encode()).hexdigest()[:16]
        self._kept = KeptFolder.below("keep", conf)
        self._look, self._tried_s = Look(), 0.0

    def look(self, now: float) -> Look:
        """The newest look; the one before, where Slurm does not answer."""
        if now - self._look.at_s < LOOK_S or now - self._tried_s < LOOK_S:
            return self._look
        kept = self._kept.read(_LOOK)
        if kept is not None and kept[1] < LOOK_S and (found := _decoded(kept[0])) and found.at_s > self._look.at_s:
            self._look = found
            return found
        with self._kept.alone(_LOOK) as alone:
            if not alone:  # another process asks just now
                return self._look
            self._tried_s = now
            try:
                self._look = Look(look_at_links(self._tools, self._uid), now)
            except (ClusterBusy, ClusterError):
                return self._look
            self._kept.write(_LOOK, msgspec.json.encode((self._look.jobs, now)))
        return self._look


def _decoded(data: bytes) -> Look | None:
    try:
        return Look(*msgspec.json.decode(data, type=tuple[tuple[LinkJob, ...], float]))
    except msgspec.MsgspecError:  # another version kept it
        return None
