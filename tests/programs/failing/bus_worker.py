"""/dev/shm is too small for the batches that data-loading workers hand over through it."""
#: cause = ["env_limit"]
#: verdict = "stop"
#: sizes_mib = { "/dev/shm" = 2 }
#: launch = "python"

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(1 << 20)


if __name__ == "__main__":
    for _ in DataLoader(Images(), batch_size=4, num_workers=1):
        pass
