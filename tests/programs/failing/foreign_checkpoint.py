"""A checkpoint of another, wider model is loaded, by each rank."""
#: cause = ["ckpt"]
#: rank = "any"
#: verdict = "stop"

import torch
from torch import nn
from training import Net

wide = Net()
wide.layers[0] = nn.Linear(64, 64)
model = Net()
model.load_state_dict({name: torch.clone(value) for name, value in wide.state_dict().items()})
