"""One rank of an all-reduce over gloo: python -m tests.throughput.gloo_all_reduce RANK WORLD RENDEZVOUS OUT SIZE..."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

REPEATS = 5


def main(rank: int, world: int, rendezvous: str, out: str, sizes: list[int]) -> None:
    """Rank 0 writes the median of REPEATS all-reduces of each size, seconds."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.set_num_threads(1)
    found = []
    for size in sizes:
        data, times = torch.ones(size // 4), []
        for _ in range(REPEATS):
            dist.barrier()
            begun = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - begun)
            data.fill_(1.0)
        found.append(statistics.median(times))
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], [int(size) for size in sys.argv[5:]])
