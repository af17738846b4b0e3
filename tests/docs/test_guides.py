"""What the guides tell people to type does no harm and can be done."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), DOCS.parent / "README.md"]


def blocks(page: Path, language: str) -> list[Any]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", page.read_text())


def test_a_backup_is_as_closed_as_what_it_is_a_copy_of() -> None:
    copying = [b for b in blocks(DOCS / "backup.md", "text") if "/backup/" in b]
    assert len(copying) == 3
    for block in copying:
        assert block.find("umask 077") in range(block.index("/backup/")), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_a_package_that_is_not_published(page: Path) -> None:
    assert not re.search(r"pip install [^\n]*['\"]?perdure(\[|['\"]?\s)", page.read_text())
