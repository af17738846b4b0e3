"""A loop with Accelerate, under ``accelerate launch`` or torchrun: ``... with_accelerate.py STEPS SECONDS``.

As with torchrun alone: the ranks agree on the step after which they save.
"""

import signal
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator

from perdure.job import checkpointed, leave

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
latest, told = Path("latest.pt"), []
accelerator = Accelerator(cpu=not torch.cuda.is_available())
signal.signal(signal.SIGTERM, lambda *_: told.append(True))

model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
step = 0
if latest.exists():
    saved = torch.load(latest)
    accelerator.unwrap_model(model).load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while step < steps:
    time.sleep(step_s)
    accelerator.backward(model(torch.ones(2, 4, device=accelerator.device)).sum())
    optimizer.step()
    step += 1
    if accelerator.is_main_process:
        with open("steps.txt", "a") as done:
            print(step, file=done)
        print(f"step {step}", flush=True)
    ending = accelerator.reduce(torch.tensor(len(told), device=accelerator.device))
    if ending or step % 100 == 0:
        if accelerator.is_main_process:
            with checkpointed(latest) as draft:
                weights = accelerator.unwrap_model(model).state_dict()
                torch.save({"model": weights, "optimizer": optimizer.state_dict(), "step": step}, draft)
        accelerator.wait_for_everyone()  # nobody leaves before it is saved
    if ending:
        leave(75, f"saved step {step}: run me again")
accelerator.end_training()
