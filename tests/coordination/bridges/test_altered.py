"""What is read of samples with a part left out, doubled, emptied or renumbered is what it was.

``python -m tests.coordination.bridges.test_altered`` writes it down anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.coordination.bridges import registry
from perdure.errors import InputError
from tests.coordination.bridges.samples import NOW, SAMPLES
from tests.recorded.altered import altered
from tests.recorded.drawn import in_words

DATA = Path(__file__).parent / "data"
MANY = 120  # of each sample
TEXTS = {
    **{(name, name): text for name, text in SAMPLES.items()},
    **{(path.name.partition("-")[0], path.name): path.read_text()[:4000] for path in sorted(DATA.glob("*-*"))},
}


def answers(name: str, sample: str) -> Iterator[str]:
    for number, text in enumerate(altered(TEXTS[name, sample], MANY)):
        try:
            told = in_words(registry.read(name, text, "c", NOW, "7" if number % 2 else "", number % 3))
        except InputError as err:
            told = str(err)
        yield f"{sample} {number}: {told[:100]} {hashlib.sha256(told.encode()).hexdigest()[:12]}".replace("\n", " ")


def recorded() -> Path:
    return DATA / "altered.txt"


@pytest.mark.parametrize(("name", "sample"), TEXTS)
def test_what_is_read_is_what_it_was(name: str, sample: str) -> None:
    before = [line for line in recorded().read_text().splitlines() if line.split()[0] == sample]
    for was, now in zip(before, answers(name, sample), strict=True):
        assert was == now


if __name__ == "__main__":
    recorded().write_text("".join(f"{line}\n" for each in TEXTS for line in answers(*each)))
