"""A worker of rank 1's data loader sleeps and does not come back, as one does that tries again to reach a store."""
#: cause = ["hang"]
#: rank = "1"
#: verdict = "retry"
#: message = "sleeps"
#: launch = "perdure exec --hang-after 5 --hang-grace 1 -- torchrun --standalone --nproc-per-node 2"

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import FEATURES, rank, train


class Parts(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        if rank == 1 and index == 96:
            time.sleep(3600)
        features = torch.randn(FEATURES)
        return features, features.sum(0, keepdim=True)


train(data=DataLoader(Parts(), batch_size=16, num_workers=1), steps=32, timeout_s=3600)
