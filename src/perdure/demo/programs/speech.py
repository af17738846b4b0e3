"""The manifest that the run is told to read was never written."""

import json
import sys

from mini import SHARED, hello, pause, say

manifest = SHARED / "speech" / "train-clean-100.jsonl"
hello("speech recogniser")
say(f"reading the manifest {manifest}")
pause(0.4)
with open(manifest) as lines:
    clips = [json.loads(line) for line in lines]
say(f"{len(clips)} clips")
sys.exit(not clips)
