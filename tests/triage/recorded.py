"""Where the recorded logs stand that come with Perdure."""

from pathlib import Path

RECORDED = Path(__file__).resolve().parents[2] / "src" / "perdure" / "triage" / "data" / "foundry.jsonl.gz"
