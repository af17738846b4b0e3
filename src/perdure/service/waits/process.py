"""The process that makes forecasts, seen from the service: started, bounded in time, and ended."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from perdure.errors import ForecastFailed
from perdure.service.store import codec
from perdure.service.waits.order import ForecastOrder, Forecasts

LIMIT_S = 120.0
_COMMAND = (sys.executable, "-P", "-m", "perdure.service.waits.worker")
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def forecasts_of(order: ForecastOrder, limit_s: float = LIMIT_S) -> Forecasts:
    """Have an order carried out. Raises `ForecastFailed` where that takes too long, or goes wrong."""
    where, fix = "forecasts of waiting jobs", "They are tried again; set waits.every_s = 0 to do without"
    try:
        done = subprocess.run(
            _COMMAND,
            input=codec.encode(order).encode(),
            capture_output=True,
            timeout=limit_s,
            env={**os.environ, **_THREADS},
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Forecasts)
    except subprocess.TimeoutExpired as err:
        raise ForecastFailed(where, f"took longer than {limit_s:.0f} seconds", fix) from err
    except subprocess.CalledProcessError as err:
        lines = err.stderr.decode("utf-8", "replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), f"exit code {err.returncode}")
        raise ForecastFailed(where, f"failed: {said.strip()[:300]}", fix) from err
    except (OSError, msgspec.MsgspecError) as err:
        raise ForecastFailed(where, f"failed: {err}", fix) from err
