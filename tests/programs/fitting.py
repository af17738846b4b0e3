"""What the failing programs of Lightning share: a small model, fitted by two ranks on gloo."""

from __future__ import annotations

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(model: Model, ranks: int = 2, steps: int = 12, **options: object) -> lightning.Trainer:
    """Train for so many steps."""
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(400, 32), batch_size=4), **options)
    return trainer
