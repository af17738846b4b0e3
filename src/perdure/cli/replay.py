"""``perdure events replay``: what another playbook would have done about the exceptions of the past."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from perdure.cli.output import print_json, print_line
from perdure.errors import InputError

MAX_FILE_BYTES = 256 * 1024 * 1024


def compare(file: Path, playbook: Path | None, *, as_json: bool) -> int:
    """Replay under Perdure's own playbook and under the given one; 1 where they part. Raises `InputError`."""
    from perdure.coordination.playbook import own_playbook
    from perdure.coordination.replay import MAX_RECORDS, differences
    from perdure.coordination.wire import decode
    from perdure.service.runtime.assembly import read_playbook

    new = read_playbook(playbook) if playbook else own_playbook()
    given = _records(file)
    if len(given) > MAX_RECORDS:
        raise InputError(str(file), f"holds {len(given)} exceptions", f"Give at most {MAX_RECORDS}")
    records = []
    for n, value in enumerate(given, 1):
        try:
            records.append(decode(value))
        except InputError as err:
            raise InputError(f"{file}: exception {n}: {err.where}", err.what, err.fix) from err
    found = differences(sorted(records, key=lambda record: record.time_s), own_playbook(), new)
    if as_json:
        print_json("replay", 1, exceptions=len(records), differences=[asdict(one) for one in found])
    else:
        for one in found:
            print_line(f"{one.id}  {one.type}")
            print_line(f"  was    {one.old}")
            print_line(f"  would  {one.new}")
        print_line(f"{len(records)} exceptions replayed, {len(found)} would have gone otherwise")
    return 1 if found else 0


def _records(file: Path) -> list[object]:
    """What ``perdure events --json`` printed, or one record a line."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1).decode()
    except OSError as err:
        raise InputError(str(file), f"cannot be read: {err.strerror}", "Name a file that can be") from err
    except UnicodeDecodeError as err:
        raise InputError(str(file), "is not UTF-8", "Give what `perdure events --json` printed") from err
    try:
        whole = json.loads(text)
        if isinstance(whole, dict) and isinstance(whole.get("exceptions"), list):
            return [_as_recorded(each) for each in whole["exceptions"]]
        return [_as_recorded(each) for each in whole] if isinstance(whole, list) else [_as_recorded(whole)]
    except (ValueError, RecursionError):
        return [_as_recorded(_line(line, n, file)) for n, line in enumerate(text.splitlines(), 1) if line.strip()]


def _as_recorded(value: object) -> object:
    """A record as it is raised: lists have its outcome as its state, and say next to it where its chain ended."""
    if not isinstance(value, dict) or "chain_state" not in value:
        return value
    own = {name: each for name, each in value.items() if name != "chain_state"}
    return {**own, "state": value["chain_state"]}


def _line(line: str, number: int, file: Path) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as err:
        raise InputError(
            f"{file}:{number}", f"is not JSON: {err}", "Give what `perdure events --json` printed"
        ) from err
