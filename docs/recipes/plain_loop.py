"""A plain loop: ``srun perdure exec --signal-before 120 -- python plain_loop.py STEPS SECONDS``."""

import json
import signal
import sys
import time
from pathlib import Path

from perdure.job import checkpointed, leave

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
latest, told = Path("latest.json"), []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))

state = json.loads(latest.read_text()) if latest.exists() else {"step": 0}
while state["step"] < steps:
    time.sleep(step_s)  # one step of training
    state["step"] += 1
    with open("steps.txt", "a") as done:
        print(state["step"], file=done)
    print(f"step {state['step']}", flush=True)
    if told or state["step"] % 100 == 0:
        with checkpointed(latest) as draft:
            draft.write_text(json.dumps(state))
    if told:
        leave(75, f"saved step {state['step']}: run me again")
