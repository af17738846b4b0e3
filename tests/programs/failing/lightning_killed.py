"""Lightning starts the ranks itself, and rank 1 is killed from outside: the log tells only of its peer's lost connection."""
#: cause = ["killed"]
#: verdict = "probe"
#: launch = "env -u RANK -u LOCAL_RANK -u WORLD_SIZE python"
#: environment = { SLURM_JOB_NAME = "interactive" }  # lets Lightning start ranks itself in a job
#: needs = "lightning"

import os
import signal

from fitting import Model, fit


class Killed(Model):
    def training_step(self, batch, index):
        if self.global_rank == 1 and index == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch).sum()


fit(Killed())
