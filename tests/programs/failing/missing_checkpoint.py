"""The path of the checkpoint to start from is misspelt; each rank meets it."""
#: cause = ["missing_file", "ckpt"]
#: rank = "any"
#: verdict = "stop"
#: message = "No such file or directory: 'checkpoints/lats.pt'"
#: frame = "missing_checkpoint.py\", line"

import torch

state = torch.load("checkpoints/lats.pt")
