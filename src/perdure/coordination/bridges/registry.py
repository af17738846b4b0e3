"""The formats that are understood, by name, and the one door to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.coordination.bridges import flux, kubernetes, nvsentinel, pmix, slurm, torchelastic
from perdure.coordination.bridges.bridged import BridgeContext, Bridged, Reader, gather
from perdure.errors import InputError

MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BridgeFormat:
    """One format: what it holds in a few words, and who reads it."""

    says: str
    reader: Reader


FORMATS: Mapping[str, BridgeFormat] = {
    "torchelastic": BridgeFormat("error files, events and summaries of torchrun", torchelastic.read),
    "flux": BridgeFormat("job eventlogs and the job manager's journal of Flux", flux.read),
    "pmix": BridgeFormat("PMIx event notifications as JSON", pmix.read),
    "nvsentinel": BridgeFormat("HealthEvents of NVSentinel as JSON", nvsentinel.read),
    "kubernetes": BridgeFormat("Nodes, Pods and Events as JSON", kubernetes.read),
    "slurm": BridgeFormat("what Slurm's hooks dropped, and lines of scontrol and squeue", slurm.read),
}


def read(name: str, data: bytes | str, cluster: str, now: float, job_id: str = "", incarnation: int = 0) -> Bridged:
    """Read `data` as the format `name`.

    `cluster` is where it happened, `now` the present in seconds since the epoch; `job_id` and `incarnation` say which
    job it is about where the text itself does not. The same text gives the same ids, whenever and how often it is read.
    Raises `InputError` for an unknown format, for more than `MAX_BYTES`, and for what is not that format at all.
    """
    if name not in FORMATS:
        raise InputError(name[:80], "is not a known format", f"Use one of: {', '.join(FORMATS)}")
    if len(data) > MAX_BYTES:
        raise InputError(name, f"has {len(data)} bytes", f"Send it in parts of at most {MAX_BYTES}")
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.strip():
        raise InputError(name, "is empty", f"Give it {FORMATS[name].says}")
    context = BridgeContext(name, cluster, now, job_id, incarnation)
    return gather(FORMATS[name].reader(text.removeprefix("\ufeff"), context), name)
