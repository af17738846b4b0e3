"""Lightning starts the ranks itself, and a batch of another width reaches the layer on rank 1 only."""
#: cause = ["shape"]
#: rank = "1"
#: verdict = "stop"
#: message = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
#: frame = "in training_step"
#: launch = "env -u RANK -u LOCAL_RANK -u WORLD_SIZE python"
#: environment = { SLURM_JOB_NAME = "interactive" }  # lets Lightning start ranks itself in a job
#: needs = "lightning"

from fitting import Model, fit


class Widths(Model):
    def training_step(self, batch, index):
        return self.layer(batch[:, 1:] if self.global_rank == 1 and index == 6 else batch).sum()


fit(Widths())
