"""A batch in double precision meets a model in single precision, on each rank."""
#: cause = ["dtype"]
#: rank = "any"
#: verdict = "stop"
#: message = "must have the same dtype"

import torch
from training import FEATURES, train

train(data=[(torch.randn(16, FEATURES, dtype=torch.float64), torch.randn(16, 1))])
