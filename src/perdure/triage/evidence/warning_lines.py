"""Warnings before an error: PyTorch and the tools of a script warn of what they then get over.

The workers of a gang often ask for the master before it listens, and c10d warns of each refused connection. Where the
program raises an error later, whichever task raises it, that is what ended it; where nothing else follows, the warning
is still the best that is known. That CUDA did not start explains but an assertion that there are GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from perdure.triage.evidence.frames import raised, raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.text.clean import NO_GPU
from perdure.triage.text.patterns import compiled
from perdure.triage.verdict import CauseRole

_TOOL = r"^(?:cp|mv|rm|ls|ln|cat|mkdir|rmdir|stat|touch|chmod|chown|du|df|find): "
"""A tool of a script, which goes on after it unless told otherwise."""

_OF_OWN_CODE = frozenset({"syntax", "api", "index", "shape"})
"""Categories of errors that no file which a tool could not handle brings about."""

_ASKS_FOR_GPUS = r"torch\.cuda\.(?:is_available|device_count)\(\)"
"""In the line of an assertion: the program needs GPUs."""

_EVEN_P = 0.5
_OF_RENDEZVOUS, _TRACEBACK = "rdzv_store", "traceback"


def without_overruled(hits: Sequence[Hit]) -> list[Hit]:
    """The hits; a warning that an error of the program follows confirms at most.

    A failed rendezvous is no such error: what c10d warned of before it is why.
    """
    hits = _with_what_a_program_needs(hits)
    if not any(_may_yield(hit) for hit in hits):
        return hits
    lines = {(id(hit.block.window), hit.line) for hit in hits}
    errors = [hit for hit in hits if not hit.warns and _ends_a_program(hit, lines)]
    return [_confirming(hit) if any(_overrules(error, hit) for error in errors) else hit for hit in hits]


def _with_what_a_program_needs(hits: Sequence[Hit]) -> list[Hit]:
    """Without the warnings that CUDA did not start; where the program asserts that there are GPUs, they are why."""
    warned = [hit for hit in hits if NO_GPU in hit.text]
    if not warned:
        return list(hits)
    asserted = [h for h in hits if h not in warned and compiled(_ASKS_FOR_GPUS).search(raising_line(h))]
    left_out = asserted or warned
    return [hit for hit in hits if hit not in left_out]


def _may_yield(hit: Hit) -> bool:
    """Whether it warns by its level, or a tool reports trouble that passes; a full disk explains what follows."""
    passes = hit.cause.p_transient > _EVEN_P
    return hit.warns or (passes and compiled(_TOOL).search(hit.text.encode()) is not None)


def _ends_a_program(hit: Hit, lines: Set[tuple[int, int]]) -> bool:
    """Whether it is an error's own line, or a traceback whose message no rule knows."""
    if hit.cause.name == _TRACEBACK:
        message = raised(hit)
        return message is not None and (id(hit.block.window), message.line) not in lines
    if hit.cause.role is CauseRole.CASCADE:
        return hit.cause.wider != _OF_RENDEZVOUS
    return hit.cause.role is CauseRole.ROOT and hit.cause.force is not Force.FAINT


def _overrules(error: Hit, warning: Hit) -> bool:
    if error.order <= warning.order and error.block.window.source is warning.block.window.source:
        return False
    return warning.warns or (_may_yield(warning) and error.cause.wider in _OF_OWN_CODE)


def _confirming(hit: Hit) -> Hit:
    return replace(hit, cause=replace(hit.cause, role=CauseRole.CONFIRMATION, force=Force.FAINT, hard=False))
