"""torchrun waits for two nodes, and one of them never comes."""
#: cause = ["rdzv_store", "launcher"]
#: verdict = "retry"
#: launch = "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-conf timeout=4,join_timeout=4"

from training import train

train()
