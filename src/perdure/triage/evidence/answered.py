"""Whether a service that failed had answered the same job before: then its address and the way to it are right."""

from __future__ import annotations

import re2

from perdure.triage.evidence.matching import Hit
from perdure.triage.text.clean import decode, scrub
from perdure.triage.text.patterns import capturing, compiled

OF_SERVICES = frozenset({"net", "obj_store"})
"""Wider categories of what other machines did not do."""

LOOK_BACK_BYTES, MOST_LINES = 512 * 1024, 64
"""So far before a failure, and in this many lines that name its host, an answer is looked for."""

_HOST = r"(?i)\b(?:https?://|host=['\"]|s3://)?((?:[a-z0-9][a-z0-9-]*\.)+[a-z]{2,12}|(?:\d{1,3}\.){3}\d{1,3})(?:[:/'\"\s)]|$)"
_FILE = r"(?i)\.(?:py|pyx|c|cc|cpp|cu|h|hpp|go|java|so|sh|log|txt|json|ya?ml|toml|pth?|bin|nc|error|errors|exceptions)$"
_ADDRESS = r"(?m)^[^\n]*\b(?:https?|s3|gs|wss?)://[^\n]*$"
_ANSWER = (
    r"(?i)\b(?:20[0146]|downloaded|fetched|connected to|logged in|uploaded|synced|success\w*|100%|saved|retrieved"
    r"|pulled|authenticated|listening|view (?:run|project) at)\b"
)
_NO_ANSWER = r"(?i)fail|error|refused|timed? ?out|cannot|could not|unable|retry|\bnot\b|unreachable|exception|warn"


def answered_before(hit: Hit) -> str:
    """The host that a line of failure names, if an earlier line shows its answer; "" where none does."""
    hosts = [found for found in capturing(_HOST).findall(hit.text.encode()) if not compiled(_FILE).search(found)]
    data, at = hit.block.window.data, hit.block.start
    before = data[max(0, at - LOOK_BACK_BYTES) : at] + _block_before(hit)
    for host in dict.fromkeys(hosts):
        named = capturing(rf"(?mi)^.*{re2.escape(host.decode('latin-1'))}.*$").finditer(before)
        for _, line in zip(range(MOST_LINES), named, strict=False):
            text = scrub(line.group())
            if compiled(_ANSWER).search(text) and not compiled(_NO_ANSWER).search(text):
                return decode(host)
    return ""


def tells_answer(data: bytes) -> bool:
    """Whether a line names an address and that it answered, whichever it is; of the first `MOST_LINES` with one."""
    named = capturing(_ADDRESS).finditer(data[:LOOK_BACK_BYTES])
    lines = (scrub(line.group()) for _, line in zip(range(MOST_LINES), named, strict=False))
    return any(compiled(_ANSWER).search(line) and not compiled(_NO_ANSWER).search(line) for line in lines)


def _block_before(hit: Hit) -> bytes:
    """The lines of its block above a hit."""
    lines = hit.block.window.data[hit.block.start : hit.block.end].split(b"\n")
    return b"\n".join(lines[: hit.line - hit.block.first_line]) + b"\n"
