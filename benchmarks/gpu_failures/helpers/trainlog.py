"""Progress lines in the styles that people use, and the small training loop most of these programs share."""

import json
import logging
import os
import sys
import time


def device():
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def banner(style="plain", **settings):
    import platform

    if style == "none":
        return
    try:
        import torch

        cuda = torch.version.cuda
        print(f"PyTorch {torch.__version__} | CUDA {cuda} | Python {platform.python_version()} | {platform.platform()}")
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            print(f"GPU 0: {torch.cuda.get_device_name(0)} ({total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free)")
    except ImportError:
        pass
    if settings:
        print("=" * 78)
        for key, value in settings.items():
            print(f"{key:>28} : {value}")
        print("=" * 78)
    sys.stdout.flush()


class Progress:
    def __init__(self, style="print", total=0, name="train"):
        self.style, self.total, self.name, self.start = style, total, name, time.time()
        if style == "logging":
            logging.basicConfig(
                level=logging.INFO,
                stream=sys.stdout,
                force=True,
                format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
            )
            self.log = logging.getLogger(name)
        if style == "tqdm":
            from tqdm import tqdm

            self.bar = tqdm(total=total, desc=name, mininterval=0, file=sys.stderr)

    def step(self, step, loss, lr=3e-4, **more):
        loss = float(loss)
        took = time.time() - self.start
        if self.style == "print":
            extra = "".join(f" | {k} {v}" for k, v in more.items())
            print(
                f"step {step:6d}/{self.total} | loss {loss:.4f} | lr {lr:.2e} "
                f"| {took / max(step, 1) * 1000:.1f} ms/step{extra}",
                flush=True,
            )
        elif self.style == "logging":
            self.log.info(
                "epoch=%d iter=%d loss=%.5f lr=%.6f eta=%ds",
                step // 100,
                step,
                loss,
                lr,
                max(self.total - step, 0) * took / max(step, 1),
            )
        elif self.style == "tqdm":
            self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            self.bar.update(1)
            self.bar.refresh()
        elif self.style == "json":
            print(
                json.dumps({"step": step, "train_loss": round(loss, 5), "lr": lr, "elapsed": round(took, 2), **more}),
                flush=True,
            )
        elif self.style == "loguru":
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            print(
                f"{now}.{int(time.time() * 1000) % 1000:03d} | INFO     | __main__:train:{88} "
                f"- [{step}/{self.total}] loss: {loss:.4f}",
                file=sys.stderr,
                flush=True,
            )
        elif self.style == "absl":
            now = time.strftime("%m%d %H:%M:%S")
            print(
                f"I{now}.{int(time.time() * 1e6) % 1000000:06d} {os.getpid()} train.py:141] "
                f"step={step} loss={loss:.4f} steps_per_sec={step / max(took, 1e-6):.2f}",
                file=sys.stderr,
                flush=True,
            )


def steps(count, style="print", name="train", start=1, pause=0.01, dim=64, total=None, batch=32):
    """Train a small perceptron for a while; returns (model, optimiser, progress)."""
    import torch

    place = device()
    model = torch.nn.Sequential(torch.nn.Linear(dim, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).to(place)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    progress = Progress(style, total or count * 10, name)
    for step in range(start, start + count):
        x, y = torch.randn(batch, dim, device=place), torch.randint(0, 10, (batch,), device=place)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        progress.step(step, loss)
        if pause:
            time.sleep(pause)
    return model, optimiser, progress
