"""Page-locked memory: taken for real, and used again."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from perdure.emulation.pinned import PinnedMemory  # noqa: E402


def locked_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])


def test_what_is_pinned_is_locked_and_what_is_free_again_is_used_again() -> None:
    pinned, tensor, before = PinnedMemory(), torch.arange(1 << 18), locked_kib()
    found = pinned.pin(tensor)
    assert torch.equal(found, tensor)
    assert pinned.is_pinned(found)
    assert not pinned.is_pinned(tensor)
    assert pinned.pin(found) is found
    assert pinned.locked + pinned.refused == 2 << 20
    assert locked_kib() - before == pinned.locked // 1024
    del found
    gc.collect()
    again = pinned.pin(tensor)
    assert pinned.locked + pinned.refused == 2 << 20
    assert torch.equal(again, tensor)
