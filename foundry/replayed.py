"""Write what triage reads of the foundry's programs, so that a training round need not read their logs again.

    python -m foundry.replayed [--out src/perdure/triage/data/replayed.jsonl.gz]

Made anew after changes of rules; what is older than the rules still teaches the same programs' truths.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from perdure.triage.labelled import read_logs

DATA = Path(__file__).resolve().parents[1] / "src" / "perdure" / "triage" / "data"


def lines(logs: Path) -> list[str]:
    """One line a program: its group, its truth, the excerpt, and the names of the rules that matched."""
    found = []
    for each in read_logs(logs):
        example = each.example
        names = [cause.name for cause in example.reading.causes]
        told = {"id": each.id, "group": each.group, "transient": each.transient}
        found.append(json.dumps({**told, "excerpt": example.reading.excerpt, "causes": names}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA / "replayed.jsonl.gz")
    out = parser.parse_args().out
    text = "".join(f"{line}\n" for line in lines(DATA / "foundry.jsonl.gz"))
    out.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
