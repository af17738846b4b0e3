"""What one image takes of a CPU: as a JPEG file for itself, and decoded in one file (``emulate study ffcv``).

    python benchmarks/image_decoding.py

Images are made, as large as those of ImageNet about are. Needs Pillow.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

MEAN, SPREAD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
WIDTH, HEIGHT, SIDE, IMAGES = 500, 375, 224, 40
RNG = np.random.default_rng(0)


def picture() -> Image.Image:
    coarse = Image.fromarray(RNG.integers(0, 255, (47, 63, 3), dtype=np.uint8)).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    grain = RNG.normal(0, 11, (HEIGHT, WIDTH, 3))
    return Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8))


def cut() -> tuple[int, int, int, int]:
    """A random part of 8 to 100 % of the image, as is usual in training."""
    area, ratio = WIDTH * HEIGHT * RNG.uniform(0.08, 1), np.exp(RNG.uniform(np.log(3 / 4), np.log(4 / 3)))
    width, height = min(WIDTH, round(float((area * ratio) ** 0.5))), min(HEIGHT, round(float((area / ratio) ** 0.5)))
    left, top = int(RNG.integers(0, WIDTH - width + 1)), int(RNG.integers(0, HEIGHT - height + 1))
    return left, top, left + width, top + height


def from_jpeg(content: bytes) -> Any:
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=cut())
    return np.ascontiguousarray(((np.asarray(image, np.float32) / 255 - MEAN) / SPREAD).transpose(2, 0, 1))


def from_decoded(pixels: Any) -> Any:
    left, top, right, bottom = cut()
    return np.asarray(Image.fromarray(pixels[top:bottom, left:right]).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def seconds_of(read: Callable[[Any], Any], images: Sequence[Any]) -> float:
    """CPU seconds of an image, median of five rounds."""
    rounds = []
    for _ in range(5):
        begin = time.thread_time()
        for each in images:
            read(each)
        rounds.append((time.thread_time() - begin) / len(images))
    return float(np.median(rounds))


def main() -> None:
    pictures = [picture() for _ in range(IMAGES)]
    files = []
    for each in pictures:
        file = io.BytesIO()
        each.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    print(f"{np.mean([len(each) for each in files]) / 1e3:.0f} kB an image")
    decoded = seconds_of(from_decoded, [np.asarray(each) for each in pictures])
    print(f"JPEG {1e3 * seconds_of(from_jpeg, files):.2f} ms, decoded {1e3 * decoded:.2f} ms")


if __name__ == "__main__":
    main()
