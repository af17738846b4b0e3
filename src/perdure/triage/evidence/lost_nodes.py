"""The nodes that Slurm's own line calls lost.

Only what srun and salloc print of other nodes counts: ``*** JOB 17 ON n1 CANCELLED ... DUE TO NODE FAILURE ***`` names
the node of the slurmstepd that says so, which is one that survived.
"""

from __future__ import annotations

from perdure.triage.text.patterns import capturing

_NAMES = r"([A-Za-z0-9][\w.,\[\]-]{0,255})"  # one node, or a list as Slurm writes it: gpu[01-03]
_SAYS = rf"(?:srun|salloc): error: (?:Node failure on {_NAMES}|Task launch for \S{{1,80}} failed on node {_NAMES}: )"


def lost_nodes(line: str) -> str:
    """The nodes that a line names, as Slurm takes them; "" where it names none.

    >>> lost_nodes("srun: error: Node failure on gpu[01-03]")
    'gpu[01-03]'
    >>> lost_nodes("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE ***")
    ''
    """
    found = capturing(_SAYS).search(line.encode("utf-8", "replace"))
    return next(((name or b"").decode().rstrip(".,") for name in found.groups() if name), "") if found else ""
