"""How the functions of the compiled loops are compiled.

An *entry* is called from Python and kept on disk; a *kernel* is called by entries and other kernels alone, so that no
wrapper is made for it. Both are plain functions where numba's compiler is off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import config, njit, typeof
from numpy.typing import NDArray

from perdure.simulation.compiled.cache import code_folder, installed_folder
from perdure.simulation.compiled.kept_code import KeptCode, code_of

Records = NDArray[np.void]
"""An array of records: what is kept about a job lies together in memory, and arrays to hand around are few."""

OPTIONS = {"_nrt": False, "no_cfunc_wrapper": True}
"""Of all compiled functions. Nothing is allocated there, so that counting references to the arrays that functions hand
to each other, which costs fifty times the work itself, can be left out. numba has that switch for its own use only."""

LONG, SHORT, FLAG = np.int64, np.int32, np.bool_


def records(n: int, **fields: type[np.generic]) -> Records:
    """`n` records whose fields have these types, all zero; each field is an attribute, in Python as in numba.

    Memory is taken by the system as they are first written to, so that what a replay does not use costs nothing.
    ``a[i]`` is a view: to set its fields sets those of the array.

    >>> job = records(2, gpus=SHORT, start=LONG)
    >>> job["start"] = -1
    >>> job[1].gpus = 8
    >>> job.tolist()
    [(0, -1), (8, -1)]
    """
    return np.zeros(n, np.dtype((np.record, list(fields.items()))))  # fields are attributes, for Python as for numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only compiled ones call.

    The machine code has no wrapper for Python: it cannot be called from there but with the compiler off. So kernels are
    tested through entries, or with ``NUMBA_DISABLE_JIT=1``; their docstrings hold no examples that run.
    """
    return _jit(function, no_cpython_wrapper=True)


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, with all that it calls, on its first call, or load what an earlier run compiled.

    The code lies in `code_folder`, a folder for this very source; without one it is compiled in each process.
    """
    folder, settings = code_folder(), cast("Any", config)
    given = settings.CACHE_DIR
    settings.CACHE_DIR = given if folder is None else str(folder)  # numba looks there while it decorates, not later
    try:
        made = _jit(function)
        if folder is not None and not settings.DISABLE_JIT:
            cast("Any", made)._cache = KeptCode(function, installed_folder())  # noqa: SLF001 - numba makes its own from `cache=True`
        return made
    finally:
        settings.CACHE_DIR = given


def code_for(loop: Callable[..., Any], *arguments: object) -> Callable[..., Any]:
    """The code of an entry for arguments like these: to look at their types on every call would take far longer.

    A state has some forty arrays, whose types numba else compares for each batch of questions. With the compiler off it
    is the entry itself.
    """
    if cast("Any", config).DISABLE_JIT:
        return loop
    types = tuple(map(cast("Callable[[object], object]", typeof), arguments))
    return code_of(loop, types)


def _jit(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    """Compile with the options that all functions here share: a kernel compiled otherwise could not be called by the
    others.
    """
    made: Callable[..., Any] = cast("Any", njit)(**OPTIONS, **options)(function)
    return made
