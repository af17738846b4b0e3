"""Reading a site's slurm.conf from disk, with the files that it includes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

from perdure.cli.text import plain
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.slurm.conf import SlurmSite, on_gpu_nodes, read_conf, site_of

MAX_BYTES = 16 << 20  # of one file
MOST_NAMES = 10
MAX_TOLD = 4000  # characters of names that the file or the trace made up


def site_in(path: Path) -> tuple[SlurmSite, list[Path]]:
    """What the slurm.conf at `path` says of scheduling, and the files that it includes. Raises `InputError`."""
    included: list[Path] = []

    def include(name: str, where: str) -> Iterator[tuple[str, str]]:
        included.append(path.parent / name.strip("\"'"))  # an absolute name stays as it is
        return _lines(included[-1], where)

    return site_of(read_conf(_lines(path, ""), include)), included


def cluster_in(path: Path, site: SlurmSite) -> tuple[Cluster, SlurmSite]:
    """The cluster of the nodes with GPUs, and the site with these alone. Raises `InputError` where there are none."""
    with_gpus = on_gpu_nodes(site)
    if not with_gpus.node_gpus:
        what = "it has no node with GPUs (Gres=gpu:N)"
        raise InputError(
            str(path), what, "Name the nodes with --cluster, processors for GPUs where a trace counts those"
        )
    return Cluster(np.array(with_gpus.node_gpus, np.int64)), with_gpus


def tell_of_site(path: Path, site: SlurmSite) -> None:
    """Say on stderr which keys of the file are left out of account."""
    if site.unmodelled:
        keys = plain(", ".join(site.unmodelled), MAX_TOLD)
        typer.echo(f"{path}: not modelled, though they may change starts: {keys}", err=True)
    if site.ignored:
        keys = plain(", ".join(site.ignored), MAX_TOLD)
        typer.echo(f"{path}: ignored, without effect on starts or unknown: {keys}", err=True)


def tell_of_partitions(path: Path, site: SlurmSite, trace: Path, table: JobTable) -> None:
    """Say on stderr which partitions of a trace the file does not have: their jobs are taken for the default one's."""
    partitions = site.settings.partitions
    if not partitions:
        return
    known = {each.name for each in partitions}
    names, jobs = np.unique(table.partition, return_counts=True)
    strange = {name: count for name, count in zip(names.tolist(), jobs.tolist(), strict=True)
               if name and not known & set(name.split(","))}  # fmt: skip
    if strange:
        default = next((each.name for each in partitions if each.is_default), partitions[0].name)
        shown = ", ".join(list(strange)[:MOST_NAMES]) + (", ..." if len(strange) > MOST_NAMES else "")
        what = f"{sum(strange.values())} jobs are of partitions that {path} does not have ({shown})"
        typer.echo(plain(f"{trace}: {what}: they are taken for jobs of {default}", MAX_TOLD), err=True)


def _lines(path: Path, included_at: str) -> Iterator[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as err:
        where = f"{included_at}: {path}" if included_at else str(path)
        raise InputError(where, err.strerror or str(err), "Name a slurm.conf that you may read") from err
    if len(text) > MAX_BYTES:
        raise InputError(str(path), f"it is larger than {MAX_BYTES >> 20} MiB", "Name a slurm.conf")
    yield from ((f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1))
