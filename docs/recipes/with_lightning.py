"""Lightning, whatever starts its ranks: ``... with_lightning.py STEPS SECONDS``.

The callback takes the place of Lightning's own handlers: that of TERM saves nothing, that of USR1 puts the job back
itself, and only under Slurm.
"""

import signal
import sys
import time
from pathlib import Path

import lightning
import torch

from perdure.job import leave

steps, step_s = int(sys.argv[1]), float(sys.argv[2])
latest = Path("latest.ckpt")


class GoOn(lightning.Callback):
    """Saves and leaves once any rank was told that the walltime is near."""

    def __init__(self):
        self.told = []

    def on_train_start(self, trainer, module):  # Lightning has set its own by now
        for signum in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, lambda *_: self.told.append(True))

    def on_train_batch_end(self, trainer, module, *batch):
        if trainer.is_global_zero:
            with open("steps.txt", "a") as done:
                print(trainer.global_step, file=done)
            print(f"step {trainer.global_step}", flush=True)
        ending = trainer.strategy.reduce_boolean_decision(bool(self.told), all=False)
        if ending:
            trainer.save_checkpoint(latest, weights_only=False)
            trainer.strategy.barrier()
            leave(75, f"saved step {trainer.global_step}: run me again")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        time.sleep(step_s)
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = torch.utils.data.DataLoader(torch.ones(100_000, 4), batch_size=2, num_workers=1)
trainer = lightning.Trainer(
    max_steps=steps, callbacks=[GoOn()], accelerator="cpu", devices=int(sys.argv[3]), strategy=sys.argv[4],
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Model(), data, ckpt_path=latest if latest.exists() else None, weights_only=False)
if trainer.global_step < steps:  # it was told before the first step, and Lightning's own handler has ended the fit
    leave(75, f"still at step {trainer.global_step}: run me again")
