"""``perdure raise --from FORMAT``: exceptions as other programs tell them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from perdure.cli.options import StateDir, service
from perdure.cli.output import print_json, print_line
from perdure.errors import InputError

BATCH = 500


def raise_from(name: str, file: Path | None, job: str, state: StateDir, *, as_json: bool) -> int:
    """Read a file in a format that the bridges know, and raise what it says. Raises `InputError`."""
    from perdure.coordination.bridges.registry import read
    from perdure.coordination.wire import encode
    from perdure.service.exceptions.permissions import NOT_YOURS

    if file is None:
        raise InputError("--from", "needs a file", "Give --file FILE, or --file - for standard input")
    data = _read(file)
    client = service(state)
    cluster = str(client.get("/status")["cluster"])
    bridged = read(name, data, cluster, time.time(), job)
    given = [encode(record) for record in bridged.records]
    for record in given:
        for field in NOT_YOURS:
            record.pop(field)
    answers = []
    for i in range(0, len(given), BATCH):
        answers += client.post("/exceptions/batch", given[i : i + BATCH])
    refused = [answer for answer in answers if "fix" in answer]
    if as_json:
        print_json("raised", 1, raised=answers, skipped=bridged.skipped)
    else:
        for answer in refused[:20]:
            print_line(f"refused: {answer['where']}: {answer['detail']}. {answer['fix']}")
        print_line(f"{len(answers) - len(refused)} raised, {len(refused)} refused, {bridged.skipped} skipped")
    return 0 if not refused else 2


def _read(file: Path) -> bytes:
    from perdure.coordination.bridges.registry import MAX_BYTES

    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as err:
        raise InputError(str(file), f"cannot be read: {err.strerror}", "Name a file that can be") from err
