"""A loop under torchrun: ``srun perdure exec --signal-before 120 -- torchrun ... with_torchrun.py STEPS SECONDS``.

The ranks agree on the step after which they save: each may hear of the walltime at another one.
"""

import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from perdure.job import checkpointed, leave

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
latest, told = Path("latest.pt"), []
dist.init_process_group("gloo")
signal.signal(signal.SIGTERM, lambda *_: told.append(True))

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if latest.exists():
    saved = torch.load(latest)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while step < steps:
    time.sleep(step_s)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        with open("steps.txt", "a") as done:
            print(step, file=done)
        print(f"step {step}", flush=True)
    ending = torch.tensor(len(told))
    dist.all_reduce(ending)
    if ending or step % 100 == 0:
        if dist.get_rank() == 0:
            with checkpointed(latest) as draft:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(saved, draft)
        dist.barrier()  # nobody leaves before it is saved: torchrun ends the others at once
    if ending:
        leave(75, f"saved step {step}: run me again")
dist.destroy_process_group()
