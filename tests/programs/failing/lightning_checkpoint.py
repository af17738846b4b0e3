"""A Lightning checkpoint of another, wider model is given to go on from; each rank meets it."""
#: cause = ["ckpt"]
#: rank = "any"
#: verdict = "stop"
#: message = "Error(s) in loading state_dict"
#: launch = "env -u RANK -u LOCAL_RANK -u WORLD_SIZE python"
#: environment = { SLURM_JOB_NAME = "interactive" }  # lets Lightning start ranks itself in a job
#: needs = "lightning"

import os

import torch
from fitting import Model, fit


class Wide(Model):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)


if "LOCAL_RANK" not in os.environ:  # the process that starts the others
    fit(Model(), ranks=1, steps=2).save_checkpoint("narrow.ckpt", weights_only=False)
fit(Wide(), ckpt_path="narrow.ckpt")
