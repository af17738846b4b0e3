"""The generated pages say what the code says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == PAGES[name](), "run: python docs/generate.py"


def test_every_page_of_the_folder_but_its_index_is_generated() -> None:
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} - {"README.md"} == set(PAGES)
