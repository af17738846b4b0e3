"""Reads the layers of a PyTorch model: run by ``perdure speed --model-file`` in a process of its own, as

    python -m perdure.cli.model_layers FILE CLASS INPUT OUT

The model is made and run once for one example on PyTorch's device without memory ("meta"), so that nothing is computed
and any size fits; where it cannot run there, on the CPU. OUT gets JSON: a row (parameters, flops, elements written) for
each module that has parameters of its own, in the order in which they run; of parameters, those that are trained. What
normalises counts to the one before, as in `throughput/layers`.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

MEMORY = 16 << 30  # bytes that a program may take
WORDS, PIXELS = 128, 224  # of an example, where INPUT is empty


def main(path: str, name: str, shape: str, out: str) -> None:
    """Write the layers, or why there are none."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if most < 0 else min(MEMORY, most), most))
    try:
        found: dict[str, Any] = {"layers": _layers(path, name, shape)}
    except Exception as err:  # whatever a user's program raises is told in one line
        found = {"error": f"{type(err).__name__}: {err}".splitlines()[0][:300]}
    Path(out).write_text(json.dumps(found))


def _layers(path: str, name: str, shape: str) -> list[tuple[int, float, float]]:
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("perdure_model", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["perdure_model"] = module
    spec.loader.exec_module(module)
    maker = getattr(module, name)
    try:
        return _run(maker, shape, "meta")
    except (NotImplementedError, RuntimeError):
        return _run(maker, shape, "cpu")


def _run(maker: Any, shape: str, device: str) -> list[tuple[int, float, float]]:
    with torch.device(device), torch.no_grad():
        model = maker()
        own = [
            (name, each) for name, each in model.named_modules() if any(True for _ in each.parameters(recurse=False))
        ]
        if not own:
            raise ValueError("the model has no parameters")
        written, order = dict[str, float](), list[str]()
        for name, each in own:
            each.register_forward_hook(lambda _module, _given, result, name=name: _count(name, result, written, order))
        with FlopCounterMode(display=False) as counter:
            model.eval()(_example(own[0][1], shape))
    counts = counter.get_flop_counts()
    root = type(model).__name__
    flops = {name: float(sum(counts.get(f"{root}.{name}" if name else root, {}).values())) for name, _ in own}
    total, told = float(counter.get_total_flops()), sum(flops.values())
    rest = total / told if told else 1.0  # attention between projections is no module of its own
    seen, rows, begins = set[int](), dict[str, tuple[int, float, float]](), set[str]()
    for name, each in own:
        mine = [value for value in each.parameters(recurse=False) if value.requires_grad and id(value) not in seen]
        seen |= {id(value) for value in mine}
        if flops[name] or isinstance(each, torch.nn.Embedding):
            begins.add(name)
        size = written.get(name, 0.0) * (2.0 if name in begins else 1.0)  # with an activation that follows
        rows[name] = sum(value.numel() for value in mine), flops[name] * rest, size
    return _joined([*(name for name, _ in own if name not in written), *order], rows, begins)


def _joined(
    order: list[str], rows: dict[str, tuple[int, float, float]], begins: set[str]
) -> list[tuple[int, float, float]]:
    """Each row with those behind it that begin no layer."""
    found = list[tuple[int, float, float]]()
    for name in order:
        parameters, flops, written = rows[name]
        if found and name not in begins:
            before = found.pop()
            parameters, flops, written = before[0] + parameters, before[1] + flops, before[2] + written
        found.append((parameters, flops, written))
    return found


def _count(name: str, result: Any, written: dict[str, float], order: list[str]) -> None:
    if name not in written:
        order.append(name)
    results = result if isinstance(result, tuple) else (result,)
    size = sum(value.numel() for value in results if isinstance(value, torch.Tensor))
    written[name] = written.get(name, 0.0) + size


def _example(first: torch.nn.Module, shape: str) -> torch.Tensor:
    """One example: as INPUT says (``3,224,224``, or ``int:128`` for words), or as the first layer asks for."""
    if shape:
        words = shape.startswith("int:")
        sizes = [1, *(int(size) for size in shape.removeprefix("int:").split(","))]
        return torch.zeros(sizes, dtype=torch.long) if words else torch.zeros(sizes)
    if isinstance(first, torch.nn.Embedding):
        return torch.zeros((1, WORDS), dtype=torch.long)
    if isinstance(first, torch.nn.Linear):
        return torch.zeros((1, first.in_features))
    if isinstance(first, torch.nn.Conv2d):
        return torch.zeros((1, first.in_channels, PIXELS, PIXELS))
    raise ValueError(f"its first layer is {type(first).__name__}: say what an example is with --input")


if __name__ == "__main__":
    main(*sys.argv[1:])
