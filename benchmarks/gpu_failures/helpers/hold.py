"""Another tenant's program: holds all of the card's memory but some MiB: hold.py LEAVE_MIB SECONDS READYFILE."""

import sys
import time
from pathlib import Path

import torch

leave, seconds, ready = int(sys.argv[1]) * 2**20, float(sys.argv[2]), sys.argv[3]

torch.cuda.init()
torch.empty(1, device="cuda")
free, total = torch.cuda.mem_get_info()
blocks = []
step = 2**30
while step >= 2**21:
    free, _ = torch.cuda.mem_get_info()
    if free - step < leave:
        step //= 2
        continue
    try:
        blocks.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        step //= 2
Path(ready).write_text(f"{torch.cuda.mem_get_info()[0] >> 20} MiB free")
time.sleep(seconds)
