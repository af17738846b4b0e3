"""How long steps took, read from a training log: what the usual frameworks print, or the times of numbered steps.

Forms are tried on every line; of those that were found, the one that says most directly how long a step takes is used
(`_FORMS` is in that order). Memory is bounded: of many steps, evenly spaced ones are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from perdure.errors import PerdureError
from perdure.throughput.speed import Floats
from perdure.triage.text.clean import MAX_LINE_BYTES
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.when import DAY_S, Form, Stamp, stamp_of

MOST_KEPT = 4096  # of each form
WARM_UP = 0.1  # of the steps at the beginning are left out
LEAST_STEP_S = 2e-4  # a GPU starts a few kernels in it: what is quicker is no step of training
_FEW = 5  # from so many on


class StepLogError(PerdureError, ValueError):
    """A log that does not say how long steps took."""


_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?(?:[eE][-+]?\d{1,2})?)"
_UNIT = r"(ms|us|s|sec|seconds)"
_TO_SECONDS = {"ms": 1e-3, "us": 1e-6, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_SECONDS, _RATE, _EXAMPLES = "seconds a step", "steps a second", "examples a second"

_FORMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {  # name: what the number is, pattern; a second group is its unit
        "Megatron": (_SECONDS, rf"(?i)elapsed time per iteration \((ms)\): *{_NUMBER}"),
        "step time": (
            _SECONDS,
            rf"(?i)\b(?:(?:step|iter|iteration|batch)[_ ]?time|time(?:[_/]|[_ /]per[_ ])(?:step|iter|iteration|batch))"
            rf"(?: \((ms|us|s|sec)\))?[\"']? *[:=]? *{_NUMBER} ?{_UNIT}?\b",
        ),
        "PyTorch's example": (_SECONDS, rf"\bTime +{_NUMBER} \( *\d"),
        "OpenMMLab": (_SECONDS, rf"\btime: {_NUMBER}, +(?:data_time|memory|eta)|\beta: [^,]*, +time: {_NUMBER}"),
        "Keras": (_SECONDS, rf"{_NUMBER}(ms|us|s)/(?:step|batch)\b"),
        "nanoGPT": (_SECONDS, rf"\b(?:iter|step) \d+:.{{0,200}}\btime:? {_NUMBER} ?(ms|s)\b"),
        "seconds a step": (
            _SECONDS,
            rf"\b{_NUMBER} (ms|s|sec|seconds)/(?:step|iter|iteration|batch)\b|\b(ms|s)/(?:batch|step) +{_NUMBER}",
        ),
        "steps a second": (
            _RATE,
            rf"(?i)(?:^|[^_a-z])(?:train_|global_)?steps?(?:/|_per_)s(?:ec(?:ond)?)?[\"']? *[:=] *{_NUMBER}"
            rf"|\b{_NUMBER} +(?:steps|iterations|iters|batches)(?:/s|/sec| per second| per sec)\b",
        ),
        "progress bar": (_RATE, rf"\| *\d+/\d+ \[[^\]]{{1,60}}, +{_NUMBER}(it/s|s/it|batch/s|s/batch|step/s|s/step)\b"),
        "DeepSpeed": (_EXAMPLES, rf"\b(?:CurrSamplesPerSec|SamplesPerSec) *= *{_NUMBER}"),
        "examples a second": (
            _EXAMPLES,
            rf"(?i){_NUMBER} *(?:examples|samples|images|imgs?|sequences|seqs?)"
            r"(?:/s|/sec| per second| per sec)(?:$|[^\]a-z])"
            r"|(?:^|[^_a-z])(?:train_)?(?:examples|samples|images|sequences)"
            rf"[/_ ](?:per[_ ])?s(?:ec(?:ond)?)?[\"']? *[:=] *{_NUMBER}",
        ),
    }
)
_ANY = "|".join(f"(?:{pattern.removeprefix('(?i)')})" for _, pattern in _FORMS.values())
_OTHER_BAR = (  # a bar of something else than training
    r"(?i)\b(?:val|valid|validation|validating|eval|evaluating|test|testing|map|padding|tokeni[sz]\w*|download\w*"
    r"|load\w*|generat\w*|predict\w*|sanity)\b[^|]{0,60}\|"
)
_NAMED_BAR = r"(?i)[a-z] ?:? {0,9}\d{1,3}%\|"  # a word stands before it
_TRAINING_BAR = r"(?i)(?:train|epoch|step|iter|batch|loss|\blr\b|\bep\b)[^|]{0,100}\d%\|"
_STEP_NUMBER = r"(?i)\b(?:global[_ ]?step|step|iter|iteration|batch)[\"']?[ :=#\[/]{1,3}(\d{1,12})\b"

_SHAPE: Mapping[str, str] = MappingProxyType(
    {
        "gpus": (
            r"(?i)\b(?:world[_ -]?size|num[_ ]gpus)[\"']?[ :=.]{1,60}(\d{1,6})\b|Starting with (\d{1,6}) processes"
        ),
        "nodes": r"(?i)\b(?:n[_ ]?nodes|num[_ -]nodes|SLURM_(?:J\w+_)?N(?:UM_)?NODES)[\"']?[ :=.]{1,60}(\d{1,5})\b",
        "batch": (
            r"(?i)\b(?:micro[_ -]batch[_ -]size|train_micro_batch_size_per_gpu|per_device_train_batch_size"
            r"|batch size per device|local[_ -]batch[_ -]size)[\"']?[ :=.]{1,60}(\d{1,8})\b"
        ),
        "global_batch": (
            r"(?i)\b(?:global[_ -]batch[_ -]size|total train batch size[^=:]{0,60})[\"']?[ :=.]{1,60}(\d{1,9})\b"
        ),
        "any_batch": r"(?i)\bbatch[_ -]?size[\"']?[ :=.]{1,60}(\d{1,8})\b",
    }
)
_MAY_SAY_SHAPE = r"(?i)world.?size|processes|num.gpus|nodes|batch"


@dataclass(frozen=True, slots=True)
class StepLog:
    """What one log says: seconds of a step (or examples a second of all GPUs), and of the run what it names."""

    form: str
    values: Floats  # (n_kept,), in the log's order, without the warm-up
    count: int  # steps or reports that were found
    per_second: bool  # values are examples a second
    gpus: int | None
    nodes: int | None
    batch: int | None  # of one GPU
    global_batch: int | None

    def step_s(self, gpus: int, batch: int) -> Floats:
        """Seconds of each step that was kept."""
        return gpus * batch / self.values if self.per_second else self.values


@dataclass(slots=True)
class _Kept:
    """Evenly spaced values of a stream, at most `MOST_KEPT`."""

    values: list[float] = field(default_factory=list)
    stride: int = 1
    count: int = 0

    def add(self, value: float) -> None:
        if self.count % self.stride == 0:
            self.values.append(value)
            if len(self.values) > MOST_KEPT:
                self.values, self.stride = self.values[::2], 2 * self.stride
        self.count += 1


@dataclass(slots=True)
class _StepClock:
    """Seconds of a step by the times of lines that number steps."""

    step: int = -1
    stamp: Stamp | None = None

    def ticked(self, step: int, stamp: Stamp) -> float | None:
        """Seconds a step since the line before; None where it does not follow that one."""
        before, at = self.step, self.stamp
        if at is not None and step == before:
            return None  # the first line of a step counts
        if at is not None and step > before and stamp == at:
            return None  # clocks of whole seconds: the next step that has another time tells of all since then
        self.step, self.stamp = step, stamp
        if at is None or step < before or at.form is not stamp.form:
            return None
        passed = stamp.seconds - at.seconds
        if passed < 0 and stamp.form is Form.TIME_OF_DAY:
            passed += DAY_S
        found = passed / (step - before)
        return found if found >= LEAST_STEP_S else None


def read_step_log(pieces: Iterable[bytes], source: str) -> StepLog:
    """Read a log given in pieces of any size. Raises `StepLogError` where no line says how long a step took."""
    found = {name: _Kept() for name in (*_FORMS, "times of numbered steps")}
    shape, clock = dict[str, int](), _StepClock()
    for line in _lines(pieces):
        _read_line(line, found, clock)
        if len(shape) < len(_SHAPE) and compiled(_MAY_SAY_SHAPE).search(line):
            _read_shape(line, shape)
    form = next((name for name, kept in found.items() if kept.values), None)
    if form is None:
        what = "no line says how long a step takes, and none that numbers steps says when it was"
        raise StepLogError(source, what, "Log the time of a step, its rate, or numbered steps with times")
    kept = found[form]
    batch = shape.get("batch", None if "global_batch" in shape else shape.get("any_batch"))
    skipped = int(np.ceil(WARM_UP * len(kept.values))) if len(kept.values) >= _FEW else 0
    return StepLog(
        form, np.array(kept.values[skipped:]), kept.count, _FORMS.get(form, ("", ""))[0] == _EXAMPLES,
        shape.get("gpus"), shape.get("nodes"), batch, shape.get("global_batch"),
    )  # fmt: skip


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines, and what progress bars wrote over each other; of longer ones the beginning."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
        yield from (line[:MAX_LINE_BYTES] for line in whole)
        rest = rest[:MAX_LINE_BYTES]
    if rest:
        yield rest


def _read_line(line: bytes, found: Mapping[str, _Kept], clock: _StepClock) -> None:
    if compiled(f"(?i){_ANY}").search(line) and not _is_other_bar(line):
        for name, (kind, pattern) in _FORMS.items():
            if (match := capturing(pattern).search(line)) is None:
                continue
            value = _value(kind, [group.decode() for group in match.groups() if group])
            if value is not None:
                found[name].add(value)
    if (numbered := capturing(_STEP_NUMBER).search(line)) and (stamp := stamp_of(line)):
        passed = clock.ticked(int(numbered[1]), stamp)
        if passed is not None:
            found["times of numbered steps"].add(passed)


def _is_other_bar(line: bytes) -> bool:
    """Whether a progress bar says that it is of something else than training."""
    if compiled(_OTHER_BAR).search(line):
        return True
    return bool(compiled(_NAMED_BAR).search(line)) and not compiled(_TRAINING_BAR).search(line)


def _value(kind: str, said: list[str]) -> float | None:
    """Seconds of a step, or examples a second; None for what is no time."""
    number = next(float(word) for word in said if word[0].isdigit())
    unit = next((word for word in said if not word[0].isdigit()), "s")
    if not 0 < number < 1e9:
        return None
    if kind == _EXAMPLES:
        return number
    rate = kind == _RATE and not unit.startswith("s/")
    seconds = 1 / number if rate else number * _TO_SECONDS.get(unit.lower(), 1.0)
    return seconds if seconds >= LEAST_STEP_S else None


def _read_shape(line: bytes, shape: dict[str, int]) -> None:
    """The first value that the log names of each."""
    for name, pattern in _SHAPE.items():
        if name not in shape and (match := capturing(pattern).search(line)):
            value = int(next(group for group in match.groups() if group))
            if value > 0:
                shape[name] = value
