"""The newest checkpoint was cut when the job before it was killed while saving."""
#: cause = ["ckpt"]
#: verdict = "stop"
#: message = "failed finding central directory"
#: frame = "truncated_checkpoint.py\", line"
#: launch = "python"

from pathlib import Path

import torch
from training import train

model = train(steps=3)
torch.save({**model.state_dict(), "table": torch.zeros(1 << 20)}, "last.pt")
whole = Path("last.pt").read_bytes()
Path("last.pt").write_bytes(whole[: len(whole) // 2])

model.load_state_dict(torch.load("last.pt"))
