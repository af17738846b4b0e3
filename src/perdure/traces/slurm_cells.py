"""Columns of Slurm's words as numbers: instants, durations, counts, GPUs, and how jobs ended."""

from __future__ import annotations

import warnings
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.slurm_words.durations import UNLIMITED, elapsed_s
from perdure.slurm_words.states import FAILURES, whole_word
from perdure.slurm_words.tres import cpus_and_mem_mib, gpus_and_types
from perdure.traces.cells import Bytes
from perdure.traces.texts import coded, mapped

_INSTANT = len("2021-01-06T14:09:15")
_MAX_DIGITS = 11  # of a plain number
_ENDINGS = {
    "COMPLETED": TableEnding.PASSED,
    **dict.fromkeys(
        ("CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED", "PREEMPTED", "REQUEUED", "RESIZING"), TableEnding.KILLED
    ),
    **dict.fromkeys(FAILURES, TableEnding.FAILED),
}


def instants(cells: Bytes) -> NDArray[np.float64]:
    """Seconds since the epoch of ``2021-01-06T14:09:15``, with an offset (``+01:00``, ``Z``) or read as UTC, and of
    plain seconds; NaN where unknown or no time.
    """
    letters = _letters(cells)
    seconds = np.full(len(cells), np.nan)
    dated = np.zeros(len(cells), bool)
    if letters.shape[1] >= _INSTANT:
        dated = (letters[:, 10] == ord("T")) & (letters[:, 18] > 0) & (letters[:, _INSTANT:] == 0).all(axis=1)
        times = _times(cells[dated])
        seconds[dated] = np.where(np.isnat(times), np.nan, times.astype(np.int64))
    others = np.flatnonzero(~dated)
    plain = others[_plain(letters[others])]
    seconds[plain] = cells[plain].astype(np.float64)
    offset = np.setdiff1d(others, plain)
    seconds[offset] = mapped(cells[offset], _with_offset)
    return seconds


def seconds(cells: Bytes, unit_s: int) -> NDArray[np.float64]:
    """Durations in words, or plain numbers of units; NaN where there is none."""
    try:
        return cells.astype(np.float64) * unit_s
    except ValueError:  # some are words
        return mapped(cells, lambda cell: _duration_s(cell.decode("utf-8", "replace"), unit_s))


def counts(cells: Bytes) -> NDArray[np.int64]:
    """Whole numbers, 0 where there is none."""
    plain = _plain(_letters(cells))
    numbers = np.zeros(len(cells), np.int64)
    numbers[plain] = cells[plain].astype(np.int64)
    return numbers


def gpus_held(tres: Bytes) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """How many GPUs each list of resources names, and of which kind ("" where the list does not say)."""
    distinct, codes = coded(tres)
    found = [gpus_and_types(text.decode("utf-8", "replace")) for text in distinct] or [(0, "")]
    return np.array([count for count, _ in found], np.float64)[codes], np.array([kind for _, kind in found])[codes]


def cpus_and_mem_held(tres: Bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many CPUs and MiB each list of resources names."""
    distinct, codes = coded(tres)
    found = [cpus_and_mem_mib(text.decode("utf-8", "replace")) for text in distinct] or [(0, 0)]
    cpus, mem_mib = np.array(found, np.int64).T
    return cpus[codes], mem_mib[codes]


def slurm_ending(word: str) -> TableEnding:
    """Read a state: ``CANCELLED by 1000`` and the cut-off ``OUT_OF_ME+`` are the states that they begin with.

    A limit that ran out and a cancelled job were killed; a state that is not an ending is UNKNOWN.
    """
    return _ENDINGS.get(whole_word(word, _ENDINGS), TableEnding.UNKNOWN)


def were_preempted(words: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which states say that the job's GPUs went to another one."""
    return mapped(words, lambda word: whole_word(word, _ENDINGS) == "PREEMPTED", np.bool_)


def slurm_endings(words: NDArray[np.str_]) -> NDArray[np.int8]:
    return mapped(words, slurm_ending, np.int8)


def _letters(cells: Bytes) -> NDArray[np.uint8]:
    return cells.view(np.uint8).reshape(len(cells), cells.itemsize)


def _plain(letters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for a cell of few digits and nothing else."""
    digit = (letters >= ord("0")) & (letters <= ord("9"))
    digits: NDArray[np.bool_] = (digit | (letters == 0)).all(axis=1) & digit[:, 0]
    return digits & ~digit[:, _MAX_DIGITS:].any(axis=1)


def _with_offset(cell: bytes) -> float:
    """Seconds since the epoch of a time that tells its offset; NaN of what does not."""
    try:
        time = datetime.fromisoformat(cell.decode("ascii", "replace"))
    except ValueError:
        return np.nan
    return np.nan if time.tzinfo is None else time.timestamp()


def _times(cells: Bytes) -> NDArray[np.datetime64]:
    try:
        return _parsed(cells)
    except ValueError:  # some are not times: each is read by itself
        return np.array([_time(cell) for cell in cells.tolist()], "M8[s]")


def _time(cell: bytes) -> np.datetime64:
    try:
        return np.datetime64(_parsed(np.array([cell]))[0])
    except ValueError:
        return np.datetime64("NaT", "s")


def _parsed(cells: Bytes) -> NDArray[np.datetime64]:
    """Times as NumPy reads them. Raises `ValueError`, for a time with a zone too: NumPy would only warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return cells.astype("M8[s]")
        except UserWarning as err:
            raise ValueError(str(err)) from err


def _duration_s(text: str, unit_s: int) -> float:
    if text in UNLIMITED:
        return np.nan
    try:
        return elapsed_s(text) if ":" in text else float(text) * unit_s
    except ValueError:
        return np.nan
