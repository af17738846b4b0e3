"""The process that makes forecasts and fits, seen from the service: started, bounded in time, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TypeVar

import msgspec

from perdure.errors import ForecastFailed
from perdure.service.store import codec
from perdure.service.waits.order import ForecastOrder, Forecasts
from perdure.waits.hindcast import Fit

LIMIT_S = 120.0
FIT_LIMIT_S = 900.0  # besides the processor time that the process allows itself
_COMMAND = (sys.executable, "-P", "-m", "perdure.service.waits.worker")
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_Found = TypeVar("_Found")


def forecasts_of(order: ForecastOrder, limit_s: float = LIMIT_S) -> Forecasts:
    """Have waiting jobs forecast. Raises `ForecastFailed` where that takes too long, or goes wrong."""
    return _carried_out(order, (), Forecasts, "forecasts of waiting jobs", limit_s)


def fit_of(order: ForecastOrder, limit_s: float = FIT_LIMIT_S) -> Fit:
    """Have answers about the past held against what came. Raises `ForecastFailed` as `forecasts_of` does."""
    return _carried_out(order, ("fit",), Fit, "the fit of forecasts to past starts", limit_s)


def _carried_out(
    order: ForecastOrder, words: tuple[str, ...], found: type[_Found], where: str, limit_s: float
) -> _Found:
    fix = "It is tried again later; set waits.every_s = 0 to do without"
    try:
        done = subprocess.run(
            (*_COMMAND, *words),
            input=codec.encode(order).encode(),
            capture_output=True,
            timeout=limit_s,
            env={**os.environ, **_THREADS},
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=found)
    except subprocess.TimeoutExpired as err:
        raise ForecastFailed(where, f"took longer than {limit_s:.0f} seconds", fix) from err
    except subprocess.CalledProcessError as err:
        raise ForecastFailed(where, f"failed: {_complaint(err)}", fix) from err
    except (OSError, msgspec.MsgspecError) as err:
        raise ForecastFailed(where, f"failed: {err}", fix) from err


def _complaint(err: subprocess.CalledProcessError) -> str:
    if err.returncode == -signal.SIGXCPU:
        return "it used up the processor time that it may take"
    lines = err.stderr.decode("utf-8", "replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), f"exit code {err.returncode}")
