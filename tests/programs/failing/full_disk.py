"""The file system that checkpoints are saved to is full."""
#: cause = ["disk_quota"]
#: rank = "0"
#: verdict = "stop"
#: sizes_mib = { "checkpoints" = 1 }

import torch
from training import rank, train


def at_step(step):
    if rank == 0 and step % 3 == 0:
        torch.save({"step": step, "optimizer": torch.zeros(1 << 20)}, f"checkpoints/step-{step}.pt")
        print(f"saved checkpoints/step-{step}.pt", flush=True)


train(at_step)
