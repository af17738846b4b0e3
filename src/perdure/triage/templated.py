"""A log as Sibylla reads it: each line replaced by its template, runs of one template by one.

Lines such as ``Loading train is finished`` and ``Loading test is finished`` become ``Loading * is finished``.

Source: the templates are from the talk on "Sibylla: To Retry or Not To Retry on Deep Learning Job Failure", USENIX
ATC 2022, and not from its text; that they are found by Drain is ours.
"""

from __future__ import annotations

from itertools import groupby

from perdure.triage.text.clean import decode, is_advice, scrub, tidy
from perdure.triage.text.distinct import distinct_lines
from perdure.triage.text.logtext import LogText
from perdure.triage.text.masking import mask
from perdure.triage.text.templates import WILDCARD, TemplateTree

MAX_TEMPLATES = 160
RAW_END_BYTES, RAW_END_LINES = 64 * 1024, 600


def templated(text: LogText) -> str:
    """The templates of a log's last lines, one a line, at most `MAX_TEMPLATES`; learnt from the whole of it."""
    if not text.windows:
        return ""
    tree = TemplateTree()
    for line in distinct_lines(text):
        tree.learn(decode(mask(line.text)))
    raw = scrub(text.windows[-1].data[-RAW_END_BYTES:]).split(b"\n")[-RAW_END_LINES:]
    masked = [decode(mask(line)) for line in map(tidy, raw) if line.strip() and not is_advice(line)]
    last = [str(tree.match(line) or line) for line in masked]
    runs = [template.replace(WILDCARD, "*") for template, _ in groupby(last)]
    return "\n".join(runs[-MAX_TEMPLATES:])
