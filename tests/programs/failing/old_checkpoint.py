"""A checkpoint that holds an object of a program is loaded by a torch that takes data alone."""
#: cause = ["ckpt"]
#: verdict = "stop"
#: launch = "python"

import pathlib

import torch

torch.save({"model": {}, "arguments": pathlib.PurePosixPath("x")}, "last.pt")
torch.load("last.pt")
