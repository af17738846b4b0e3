"""Reading a site's slurm.conf from disk, with the files that it includes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perdure.errors import InputError
from perdure.scheduling.slurm.conf import SlurmSite, read_conf, site_of

MAX_BYTES = 16 << 20  # of one file


def site_in(path: Path) -> SlurmSite:
    """What the slurm.conf at `path` says of scheduling. Raises `InputError`."""

    def include(name: str, where: str) -> Iterator[tuple[str, str]]:
        return _lines(path.parent / name.strip("\"'"), where)  # an absolute name stays as it is

    return site_of(read_conf(_lines(path, ""), include))


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
