"""Workers are spawned, and what the data set holds cannot be sent to them."""
#: cause = ["api", "config", "data"]
#: verdict = "stop"
#: launch = "python"
#: message = "Can't pickle local object"

from torch.utils.data import DataLoader


def main():
    def collate(batch):
        return batch

    next(iter(DataLoader(range(8), num_workers=1, collate_fn=collate, multiprocessing_context="spawn")))


if __name__ == "__main__":
    main()
