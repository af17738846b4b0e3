"""A data-loading worker of rank 1 meets a damaged example."""
#: cause = ["data", "api", "unknown"]
#: rank = "1"
#: verdict = "stop"
#: message = "ValueError: could not convert string to float"
#: frame = "worker_exception.py\", line 18, in __getitem__"

import torch
from torch.utils.data import DataLoader, Dataset
from training import FEATURES, rank, train


class Examples(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        label = float("n/a" if rank == 1 and index == 70 else "1.5")
        return torch.randn(FEATURES), torch.tensor([label])


if __name__ == "__main__":
    train(data=DataLoader(Examples(), batch_size=8, num_workers=1), steps=12)
