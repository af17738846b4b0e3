"""Optional parts: which distributions they bring, and the word to a user who lacks one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from perdure.errors import MissingExtra
from perdure.installation import to_install

EXTRAS: Mapping[str, tuple[str, ...]] = {  # extra -> the modules by which it is known to be there
    "sim": ("numba", "duckdb", "matplotlib"),
    "ml": ("sklearn", "lightgbm"),
    "rnn": ("torch", "onnxruntime"),
    "rl": ("torch", "onnxruntime", "gymnasium", "stable_baselines3"),
    "k8s": ("lightkube",),
    "postgres": ("psycopg",),
    "dask": ("dask", "distributed", "dask_jobqueue"),
}


def need(extra: str, command: str) -> None:
    """Raise `MissingExtra`, saying what to install, unless the extra's modules can be found. Imports none of them."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        what = f"needs the optional part {extra!r} ({', '.join(missing)} not installed)"
        raise MissingExtra(command, what, to_install(extra))
