"""The last good run of a job: what its log said, so that only what a failed run says besides is held against it.

Sources: Z. Jiang et al., "L4: Diagnosing Large-scale LLM Training Failures via Automated Log Analysis", FSE 2025
(comparison with a good run of the same job); "LogSage", 2025 (lines whose Drain template a good run has are dropped).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from perdure.errors import InputError
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.text.clean import decode
from perdure.triage.text.distinct import DistinctLine, distinct_lines
from perdure.triage.text.logtext import LogText
from perdure.triage.text.masking import mask
from perdure.triage.text.templates import TemplateTree

MAX_STATE_BYTES = 8 << 20
FIX = "Make it again, from the log of a run that went well"


@dataclass(frozen=True, slots=True)
class GoodRun:
    """The templates of a log of a run that went well; at most `templates.Shape.max_templates`."""

    templates: TemplateTree

    @classmethod
    def of(cls, text: LogText) -> Self:
        """Learn the templates of a log."""
        templates = TemplateTree()
        for line in distinct_lines(text):
            templates.learn(_masked(line.text))
        return cls(templates)

    def knows(self, line: bytes) -> bool:
        """True where the good run had a line of this template."""
        return self.templates.match(_masked(line)) is not None

    def new_lines(self, text: LogText, most: int) -> list[DistinctLine]:
        """The first lines of `text`, one a template, at most `most`, of which the good run had none."""
        own = TemplateTree()
        new: list[DistinctLine] = []
        for line in distinct_lines(text):
            if len(new) >= most:
                break
            masked = _masked(line.text)
            if self.templates.match(masked) is None and own.learn(masked).lines == 1:
                new.append(line)
        return new

    def unfamiliar(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """The hits that the good run had not; all where it had all, since one of them must be the failure.

        The resource manager's own words are never familiar.
        """
        new = [hit for hit in hits if hit.cause.force is Force.DECISIVE or not self.knows(hit.text.encode())]
        return new or hits

    def save(self) -> bytes:
        """The run as bytes, some KiB; equal runs give equal bytes."""
        return zlib.compress(json.dumps(self.templates.state(), separators=(",", ":")).encode(), 9)

    @classmethod
    def load(cls, data: bytes, source: str = "good run") -> Self:
        """Read what `save` wrote. Raises `InputError`, naming `source`, for anything else."""
        try:
            unpacker = zlib.decompressobj()
            state = json.loads(unpacker.decompress(data, MAX_STATE_BYTES))
        except (zlib.error, ValueError, RecursionError) as err:
            raise InputError(source, f"not a good run ({err})", FIX) from err
        return cls(TemplateTree.of_state(state, source))


def _masked(line: bytes) -> str:
    return decode(mask(line))
