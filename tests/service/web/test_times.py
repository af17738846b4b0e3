"""Instants as pages write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from perdure.service.web.pages import labels


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def at(told: str) -> float:
    return datetime.fromisoformat(told).timestamp()


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ("2026-11-24T12:30", "2026-11-24T23:59", "12:30"),
        ("2026-11-24T00:00", "2026-11-24T23:59", "00:00"),
        ("2026-11-24T23:59", "2026-11-25T00:00", "Nov 24 23:59"),
        ("2026-11-24T12:30", "2026-12-24T12:30", "Nov 24 12:30"),
        ("2026-12-24T12:30", "2026-11-24T12:30", "Dec 24 12:30"),
        ("2025-11-24T12:30", "2026-11-24T12:30", "Nov 24 12:30"),
    ],
)
def test_the_day_of_an_instant_is_told_where_it_is_another_than_nows(then: str, now: str, told: str) -> None:
    assert labels.about(at(then), at(now)) == told
