"""A worker of rank 1's data loader opens a file that never opens: a named pipe into which nobody writes."""
#: cause = ["hang"]
#: rank = "1"
#: verdict = "retry"
#: message = "opens a file"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 -- torchrun --standalone --nproc-per-node 2"

import os

import torch
from torch.utils.data import DataLoader, Dataset
from training import FEATURES, rank, train

PIPE = f"part-{os.getpid()}"


class Parts(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        if rank == 1 and index == 96:
            with open(PIPE) as part:
                part.read()
        features = torch.randn(FEATURES)
        return features, features.sum(0, keepdim=True)


os.mkfifo(PIPE)
train(data=DataLoader(Parts(), batch_size=16, num_workers=1), steps=32, timeout_s=3600)
