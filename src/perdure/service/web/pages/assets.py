"""What stands still: scripts, styles and icons, read once and named by their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    name: str
    body: bytes
    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All of them; bounded, since they come with the package."""

    by_name: dict[str, Asset]

    def url(self, name: str) -> str:
        """An address that changes with the content, so that a browser may keep what it leads to for good."""
        asset = self.by_name[name]
        return f"/static/{asset.name}?v={asset.digest[:12]}"


@cache
def assets() -> Assets:
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in TYPES:
            body, name = path.read_bytes(), path.relative_to(STATIC).as_posix()
            found[name] = Asset(name, body, TYPES[path.suffix], hashlib.sha256(body).hexdigest())
    return Assets(found)
