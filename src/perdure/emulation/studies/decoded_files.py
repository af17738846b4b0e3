"""Images that lie decoded in one file, against one JPEG file each (G. Leclerc et al., "FFCV", CVPR 2023).

A JPEG is decoded, cut, scaled, turned to numbers and normalised by CPUs, for each epoch again. Decoded images in one
file that is mapped into memory are cut and scaled; the rest is the GPU's. An epoch takes the longer of what CPUs and
the GPU take. Seconds are those of one core of a virtual machine (``benchmarks/image_decoding.py``).
"""

from __future__ import annotations

from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.result import StudyTable, steps_of

JPEG_S, DECODED_S = 3.48e-3, 0.96e-3
"""What one image takes of a CPU: 500 x 375, 93 kB, cut and scaled to 224 x 224 with bilinear interpolation."""

IMAGES, BATCH = 1_281_167, 256


def ffcv(table: ProfileTable | None, rng: Generator) -> StudyTable:  # noqa: ARG001 - nothing is random
    """Seconds of an epoch of ResNet-18 on one A100 from files of each kind, by the CPUs that it has."""
    step = steps_of("a100", ("resnet18",), BATCH, table)["resnet18"]
    gpu_s = IMAGES / BATCH * step.step_s
    rows = []
    for cpus in (3, 6, 12, 24):
        files, decoded = (max(gpu_s, IMAGES * each / cpus) for each in (JPEG_S, DECODED_S))
        rows.append((float(cpus), files, decoded, files / decoded, gpu_s / files, gpu_s / decoded))
    return StudyTable(
        ("CPUs", "epoch, JPEG", "epoch, decoded", "speed-up", "GPU busy, JPEG", "GPU busy, decoded"), tuple(rows),
        f"ImageNet-1k in memory, an image takes {1e3 * JPEG_S:.2f} ms of a CPU as JPEG and {1e3 * DECODED_S:.2f} ms "
        f"decoded; times of the A100 are {step.origin}",
    )  # fmt: skip
