"""The learning rate is far too high: the loss overflows, and torch's anomaly detection stops the run."""
#: cause = ["numeric"]
#: verdict = "stop"
#: message = "returned nan values"
#: launch = "python"

import torch
from training import train

torch.autograd.set_detect_anomaly(True)
train(lr=1e12, steps=40)
