"""The model is moved to a GPU by a torch that was built without CUDA; each rank does."""
#: cause = ["cuda_env"]
#: rank = "any"
#: verdict = "stop"
#: message = "Torch not compiled with CUDA enabled"
#: says_also = "CPU-only"

from training import Net

Net().to("cuda")
