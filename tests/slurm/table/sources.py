"""Which sources a row ran with: ``python -m tests.slurm.table.sources`` prints the mark of those that are here."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "src" / "perdure"
KINDS = (".py", ".toml", ".json", ".npz", ".gz")


@cache
def mark() -> str:
    """The same for the same files of the package, pages of the service left out."""
    found = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in KINDS):
        found.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


if __name__ == "__main__":
    sys.stdout.write(f"{mark()}\n")
