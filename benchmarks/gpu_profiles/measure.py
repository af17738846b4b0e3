"""Measure training steps of nine models on this GPU: measure.py OUT SECONDS [MODEL...]."""

import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

OUT, SECONDS = sys.argv[1], float(sys.argv[2])
START = time.time()
FROM = json.loads(os.environ.get("START_BATCH", "{}"))  # where a run goes on that an earlier one had no time for
CUDA = torch.cuda.is_available()
DEV = "cuda" if CUDA else "cpu"
os.makedirs(OUT, exist_ok=True)


class Mark:
    """A CUDA event; on a CPU, where only the script is tried, a clock."""

    def __init__(self):
        if CUDA:
            self.event = torch.cuda.Event(enable_timing=True)
            self.event.record()
        else:
            self.event = time.perf_counter()

    def until(self, other):
        return self.event.elapsed_time(other.event) if CUDA else (other.event - self.event) * 1000


def sync():
    if CUDA:
        torch.cuda.synchronize()


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(True),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(3, 64), block(64, 128), block(128, 256)])
        self.mid = block(256, 512)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(512, 256, 2, 2), nn.ConvTranspose2d(256, 128, 2, 2), nn.ConvTranspose2d(128, 64, 2, 2)]
        )
        self.join = nn.ModuleList([block(512, 256), block(256, 128), block(128, 64)])
        self.out = nn.Conv2d(64, 21, 1)

    def forward(self, x):
        kept = []
        for d in self.down:
            x = d(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for u, j in zip(self.up, self.join, strict=True):
            x = j(torch.cat([u(x), kept.pop()], 1))
        return self.out(x)


class LstmLm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(33278, 650)
        self.lstm = nn.LSTM(650, 650, 2, batch_first=True)
        self.head = nn.Linear(650, 33278)

    def forward(self, x):
        return self.head(self.lstm(self.table(x))[0])


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(100_000, 64, mode="sum") for _ in range(26)])
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()
        )
        self.top = nn.Sequential(nn.Linear(64 + 351, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, dense, sparse):
        d = self.bottom(dense)
        t = torch.stack([d] + [e(sparse[:, i]) for i, e in enumerate(self.tables)], 1)
        z = t @ t.transpose(1, 2)
        return self.top(torch.cat([d, z[:, self.pairs[0], self.pairs[1]]], 1)).squeeze(1)


def images(side, classes):
    return lambda b: (torch.randn(b, 3, side, side, device=DEV), torch.randint(0, classes, (b,), device=DEV))


def of_images(net, data):
    x, y = data
    return F.cross_entropy(net(x), y)


def models():
    def tv(name):
        import torchvision.models

        return getattr(torchvision.models, name)()

    def lm_data(vocab, length):
        return lambda b: torch.randint(0, vocab, (b, length), device=DEV)

    def lm_loss(net, ids):
        return net(input_ids=ids, labels=ids).loss

    def gpt2(**size):
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(n_positions=512, **size))

    def bert():
        from transformers import BertConfig, BertForMaskedLM

        return BertForMaskedLM(BertConfig())

    def adam(parameters):
        return torch.optim.AdamW(parameters, 1e-4)

    def sgd(parameters):
        return torch.optim.SGD(parameters, 1e-3, momentum=0.9)

    return {
        "dlrm": (
            Dlrm,
            lambda b: (
                torch.randn(b, 13, device=DEV),
                torch.randint(0, 100_000, (b, 26, 1), device=DEV),
                torch.rand(b, device=DEV),
            ),
            lambda net, d: F.binary_cross_entropy_with_logits(net(d[0], d[1]).float(), d[2]),
            lambda p: torch.optim.SGD(p, 1e-2),
            "26 tables of 100000 x 64; SGD",
        ),
        "resnet18": (
            lambda: tv("resnet18"),
            images(224, 1000),
            of_images,
            sgd,
            "torchvision, 224 x 224; SGD with momentum",
        ),
        "lstm-lm": (
            LstmLm,
            lm_data(33278, 70),
            lambda net, x: F.cross_entropy(net(x).flatten(0, 1).float(), x.flatten()),
            sgd,
            "2 x 650, vocabulary 33278, 70 tokens; SGD with momentum",
        ),
        "bert-base": (bert, lm_data(30000, 128), lm_loss, adam, "transformers BertForMaskedLM, 128 tokens; AdamW"),
        "gpt2-small": (
            lambda: gpt2(),
            lm_data(50257, 512),
            lm_loss,
            adam,
            "transformers GPT2LMHeadModel 12 x 768, 512 tokens; AdamW",
        ),
        "resnet50": (
            lambda: tv("resnet50"),
            images(224, 1000),
            of_images,
            sgd,
            "torchvision, 224 x 224; SGD with momentum",
        ),
        "unet": (
            UNet,
            lambda b: (torch.randn(b, 3, 256, 256, device=DEV), torch.randint(0, 21, (b, 256, 256), device=DEV)),
            of_images,
            adam,
            "own, 64-512 channels, 256 x 256; AdamW",
        ),
        "vit-b16": (lambda: tv("vit_b_16"), images(224, 1000), of_images, adam, "torchvision, 224 x 224; AdamW"),
        "gpt2-medium": (
            lambda: gpt2(n_embd=1024, n_layer=24, n_head=16),
            lm_data(50257, 512),
            lm_loss,
            adam,
            "transformers GPT2LMHeadModel 24 x 1024, 512 tokens; AdamW",
        ),
    }


def table(name, header):
    f = open(f"{OUT}/{name}.csv", "w", newline="")  # noqa: SIM115, written to until the end
    w = csv.writer(f)
    w.writerow(header)

    def add(*row):
        w.writerow(row)
        f.flush()

    return add


def out_of_memory(error):
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def left():
    return SECONDS - (time.time() - START)


def measure(name, build, data, loss_of, optimiser_of, precision, budget, add):
    began = time.time()
    torch.manual_seed(0)
    net = build().to(DEV).train()
    opt = optimiser_of(net.parameters())
    parameters = sum(p.numel() for p in net.parameters())

    def autocast():
        return torch.autocast(DEV, torch.bfloat16, enabled=precision == "bf16")

    batch, last = int(FROM.get(f"{name}/{precision}", 1)), None
    while batch <= 512:
        warm, count = 3, 12
        if last is not None and last / 1000 * 2 * (warm + count) > budget - (time.time() - began):
            add(name, precision, batch, parameters, "", "", "", "", "", "", "", "", "", "not measured: time")
            return
        try:
            batch_data = data(batch)
            rows = []
            if CUDA:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            for i in range(warm + count):
                opt.zero_grad(set_to_none=True)
                if i == warm:
                    sync()
                    wall = time.perf_counter()
                a = Mark()
                with autocast():
                    loss = loss_of(net, batch_data)
                b = Mark()
                loss.backward()
                c = Mark()
                opt.step()
                d = Mark()
                if i >= warm:
                    rows.append((a, b, c, d))
            sync()
            wall = (time.perf_counter() - wall) * 1000 / count

            def median(time_of, rows=rows):
                return statistics.median(time_of(row) for row in rows)

            steps = sorted(r[0].until(r[3]) for r in rows)
            last = median(lambda r: r[0].until(r[3]))
            opt.zero_grad(set_to_none=True)
            del loss
            persistent, peak, reserved = (
                (
                    torch.cuda.memory_allocated()
                    - sum(
                        t.numel() * t.element_size()
                        for t in (batch_data if isinstance(batch_data, tuple) else (batch_data,))
                    ),
                    torch.cuda.max_memory_allocated(),
                    torch.cuda.max_memory_reserved(),
                )
                if CUDA
                else (0, 0, 0)
            )
            add(
                name,
                precision,
                batch,
                parameters,
                count,
                f"{last:.4f}",
                f"{median(lambda r: r[0].until(r[1])):.4f}",
                f"{median(lambda r: r[1].until(r[2])):.4f}",
                f"{median(lambda r: r[2].until(r[3])):.4f}",
                f"{steps[1]:.4f}",
                f"{steps[-2]:.4f}",
                f"{wall:.4f}",
                f"{persistent}/{peak}/{reserved}",
                "ok",
            )
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            add(name, precision, batch, parameters, "", "", "", "", "", "", "", "", "", "out of memory")
            return
        batch *= 2
    return


def layers(name, build, data, loss_of, optimiser_of, precision, batch, add):
    """When in the backward pass each parameter's gradient is ready: median of 7."""
    torch.manual_seed(0)
    net = build().to(DEV).train()
    batch_data = data(batch)
    runs = []
    marks = {}
    for pname, p in net.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, pname=pname: marks.__setitem__(pname, Mark()))
    for i in range(10):
        net.zero_grad(set_to_none=True)
        marks.clear()
        a = Mark()
        with torch.autocast(DEV, torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(net, batch_data)
        b = Mark()
        loss.backward()
        c = Mark()
        sync()
        if i >= 3:
            runs.append(({k: b.until(v) for k, v in marks.items()}, a.until(b), b.until(c)))
    ready = {
        pname: statistics.median(r[0][pname] for r in runs if pname in r[0])
        for pname, _ in net.named_parameters()
        if any(pname in r[0] for r in runs)
    }
    sizes = dict(net.named_parameters())
    for order, (pname, at) in enumerate(sorted(ready.items(), key=lambda kv: kv[1])):
        p = sizes[pname]
        add(
            name,
            precision,
            batch,
            order,
            pname,
            "x".join(map(str, p.shape)),
            p.numel() * p.element_size(),
            f"{at:.4f}",
            f"{statistics.median(r[1] for r in runs):.4f}",
            f"{statistics.median(r[2] for r in runs):.4f}",
        )


def copies():
    add = table("copies", ["direction", "host_memory", "bytes", "median_ms", "min_ms", "gib_per_s", "repeats"])
    for power in range(12, 31, 2):
        n = 2**power
        gpu, gpu2 = torch.empty(n, dtype=torch.uint8, device=DEV), torch.empty(n, dtype=torch.uint8, device=DEV)
        for kind in ("pinned", "pageable", "device"):
            host = None if kind == "device" else torch.ones(n, dtype=torch.uint8, pin_memory=kind == "pinned" and CUDA)
            ways = {"d2d": (gpu2, gpu)} if kind == "device" else {"h2d": (gpu, host), "d2h": (host, gpu)}
            for way, (to, source) in ways.items():
                times = []
                for i in range(13 if n < 2**28 or kind != "pageable" else 5):
                    a = Mark()
                    to.copy_(source, non_blocking=True)
                    b = Mark()
                    sync()
                    if i >= 2:
                        times.append(a.until(b))
                middle = statistics.median(times)
                add(
                    way,
                    kind,
                    n,
                    f"{middle:.5f}",
                    f"{min(times):.5f}",
                    f"{n / 2**30 / max(middle, 1e-6) * 1000:.3f}",
                    len(times),
                )


def preprocessing():
    add = table("preprocess", ["work", "batch", "median_ms", "images_per_s", "repeats"])
    mean, std = (
        torch.tensor([0.485, 0.456, 0.406], device=DEV).view(1, 3, 1, 1),
        torch.tensor([0.229, 0.224, 0.225], device=DEV).view(1, 3, 1, 1),
    )
    for batch in (1, 8, 32, 128, 256, 512):
        raw = torch.randint(0, 256, (batch, 375, 500, 3), dtype=torch.uint8, device=DEV)
        for work in ("normalise", "resize+normalise+flip"):
            times = []
            for i in range(13):
                a = Mark()
                x = raw.permute(0, 3, 1, 2)
                if work == "normalise":
                    x = (x[:, :, 70:294, 120:344].float() / 255 - mean) / std
                else:
                    x = (
                        (
                            F.interpolate(
                                x[:, :, 20:340, 80:400].float(), size=(224, 224), mode="bilinear", antialias=True
                            )
                            / 255
                            - mean
                        )
                        / std
                    ).flip(3)
                b = Mark()
                sync()
                if i >= 3:
                    times.append(a.until(b))
            middle = statistics.median(times)
            add(work, batch, f"{middle:.4f}", f"{batch / middle * 1000:.1f}", len(times))


def about():
    gpu = torch.cuda.get_device_properties(0) if CUDA else None

    def ask(fields):
        try:
            return subprocess.run(
                ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], capture_output=True, text=True, timeout=20
            ).stdout
        except OSError:
            return ""

    facts = {
        "gpu": gpu and gpu.name,
        "multiprocessors": gpu and gpu.multi_processor_count,
        "memory_bytes": gpu and gpu.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": CUDA and torch.backends.cudnn.version(),
        "smi": ask(
            "name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,clocks.sm,clocks.mem,"
            "clocks.max.sm,power.limit,temperature.gpu"
        ),
        "cpus": os.cpu_count(),
        "models": {k: v[4] for k, v in models().items()},
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_conv": torch.backends.cudnn.allow_tf32,
    }
    Path(OUT, "gpu.json").write_text(json.dumps(facts, indent=1))


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    about()
    if not os.environ.get("SKIP_COPIES"):
        copies()
        preprocessing()
    print("copies, preprocess", round(time.time() - START, 1), flush=True)
    steps = table(
        "steps",
        [
            "model",
            "precision",
            "batch",
            "parameters",
            "steps",
            "step_ms",
            "forward_ms",
            "backward_ms",
            "optimiser_ms",
            "low_ms",
            "high_ms",
            "wall_ms",
            "bytes_persistent/peak/reserved",
            "state",
        ],
    )
    lay = table(
        "layers",
        [
            "model",
            "precision",
            "batch",
            "order",
            "parameter",
            "shape",
            "bytes",
            "ready_ms",
            "forward_ms",
            "backward_ms",
        ],
    )
    every = {k: v for k, v in models().items() if not sys.argv[3:] or k in sys.argv[3:]}
    todo = [
        (name, precision)
        for name in every
        for precision in ("tf32", "bf16")
        if not FROM or f"{name}/{precision}" in FROM
    ]
    for done, (name, precision) in enumerate(todo):
        budget = (left() - 4) / (len(todo) - done) - 1.0
        try:
            measure(name, *every[name][:4], precision, budget, steps)
            if CUDA:
                torch.cuda.empty_cache()
            if not FROM:
                layers(name, *every[name][:4], precision, 32 if not name.startswith("gpt2") else 8, lay)
        except Exception as error:
            print(name, precision, "failed:", repr(error)[:300], flush=True)
        if CUDA:
            torch.cuda.empty_cache()
        print(name, precision, round(time.time() - START, 1), flush=True)
    print("end", json.dumps({"seconds": round(time.time() - START, 1)}), flush=True)


main()
