"""Kernels of the compiled simulator as plain Python, so that a test may call one: compiled, they have no wrapper."""

from __future__ import annotations

from importlib import import_module
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numba", reason="numba is not installed")

_PACKAGE = "perdure.simulation.compiled"
_MADE: dict[str, dict[str, Any]] = {}


def in_python(module: str) -> SimpleNamespace:
    """All that a module has, its kernels and what they call being plain functions: nothing is compiled."""
    return SimpleNamespace(**_plain(f"{_PACKAGE}.{module}"))


def _plain(name: str) -> dict[str, Any]:
    if name in _MADE:
        return _MADE[name]
    names = _MADE[name] = dict(vars(import_module(name)))
    for key, value in list(names.items()):
        function = getattr(value, "py_func", None)  # none with the compiler off
        if function is not None and function.__module__ == name:
            names[key] = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        elif function is not None:
            names[key] = _plain(function.__module__)[function.__name__]
    return names
