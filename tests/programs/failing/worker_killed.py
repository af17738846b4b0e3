"""A data-loading worker of rank 1 is killed from outside, as the kernel does when memory runs out."""
#: cause = ["host_oom", "killed"]
#: anywhere = true
#: rank = "1"
#: verdict = "probe"

import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset
from training import FEATURES, rank, train


class Examples(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        if rank == 1 and index == 70:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(FEATURES), torch.ones(1)


if __name__ == "__main__":
    train(data=DataLoader(Examples(), batch_size=8, num_workers=1), steps=12)
