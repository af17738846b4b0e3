"""``python -m perdure.backends.local --state DIR``: be the embedded cluster's daemon."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perdure.backends.local.daemon import Setup
from perdure.backends.local.records import Timing
from perdure.backends.local.server import serve
from perdure.errors import PerdureError


def main() -> int:
    """Serve; 0 after a stop, 2 where it could not begin."""
    timing = Timing()
    parser = argparse.ArgumentParser(prog="perdure.backends.local", description="The embedded cluster's daemon.")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cluster", default="local")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=8, help="of each node")
    parser.add_argument("--slots", type=int, default=16, help="tasks that one node runs at most")
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument("--detect-s", type=float, default=timing.detect_s)
    parser.add_argument("--kill-wait-s", type=float, default=timing.kill_wait_s)
    parser.add_argument("--thaw-s", type=float, default=timing.thaw_s)
    parser.add_argument("--requeue-delay-s", type=float, default=timing.requeue_delay_s)
    given = parser.parse_args()
    setup = Setup(
        state_dir=given.state.resolve(),
        cluster=given.cluster,
        nodes=given.nodes,
        gpus=given.gpus,
        slots=given.slots,
        nice=given.nice,
        timing=Timing(given.detect_s, given.kill_wait_s, given.thaw_s, given.requeue_delay_s),
    )
    try:
        serve(setup)
    except PerdureError as err:
        sys.stderr.write(f"{err}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
