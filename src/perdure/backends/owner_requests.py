"""What a job's owner asks of Perdure in one line with the job, as Slurm's comment: ``perdure:KEY=VALUE``, or as JSON.

    perdure:retry=never      (no, off)  leave the job alone; so does ``perdure:never``
    perdure:nodes=3-4        fewest and most nodes of a restart
    perdure:timeout=requeue  it saves checkpoints: put it back when its walltime is over
    perdure:policy           the scheduling policy in force may change its place in the queue
    perdure:preempt          that, and put it back while it runs: it goes on from its last checkpoint
    perdure:gpus=2,4,8       a policy in force that chooses sizes may start it on any of these numbers of GPUs

Upper and lower case are the same, and blanks may be around the signs. What is said to Perdure and not understood is
kept, to be answered. The line that Perdure itself left there says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import re2

from perdure.model.job_comment import mark_of
from perdure.model.jobs import PolicyConsent, RetryPreference

MAX_MISREAD = 60  # characters of what was not understood
MAX_TEXT = 4096  # characters that are read, where it is not JSON

_NAME = re2.compile(r"(?i)perdure")
_FIRST = re2.compile(r"([^\s,=:]{1,40})\s?=\s?([^\s,]*)")
_KNOWN = re2.compile(r"(?:^|[\s,])(retry|nodes|timeout|policy|preempt)\s?[=:]\s?([^\s,]*)")
_SIZES = re2.compile(r"(?:^|[\s,])gpus\s?[=:]\s?(\d{1,6}(?:,\d{1,6}){0,31})(?:$|[\s,])")
_BARE = re2.compile(r"(policy|preempt)(?:$|[\s,])")
_RANGE = re2.compile(r"(\d{1,6})-(\d{1,6})")
_AROUND = " \t\"'()."
_RETRY = dict.fromkeys(("never", "no", "off", "false"), RetryPreference.NEVER)
_RETRY |= dict.fromkeys(("auto", "yes", "on", "true"), RetryPreference.AUTO)
_TIMEOUT = {"requeue": True, "stop": False}
_YES = dict.fromkeys(("yes", "on", "true"), True) | dict.fromkeys(("no", "off", "false", "never"), False)
_CONSENT = {"policy": PolicyConsent.ORDER, "preempt": PolicyConsent.PREEMPT}


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """What a comment asks for."""

    retry: RetryPreference = RetryPreference.AUTO
    nodes: tuple[int, int] | None = None
    requeue_at_timeout: bool = False
    consent: PolicyConsent = PolicyConsent.NONE
    sizes: tuple[int, ...] = ()  # numbers of GPUs, rising
    misread: str = ""  # the first words for us that mean nothing, on one line


def owner_requests(comment: str) -> OwnerRequests:
    """Read a job's comment.

    >>> owner_requests("mine; Perdure: retry=Off").retry, owner_requests('{"perdure": {"nodes": "2-3"}}').nodes
    (<RetryPreference.NEVER: 'never'>, (2, 3))
    >>> owner_requests("perdure:retry=nevr").misread, owner_requests("perdure: please do not retry").misread
    ('perdure:retry=nevr', 'perdure: please do not retry')
    """
    if "perdure" not in comment.lower() or mark_of(comment):
        return OwnerRequests()
    retry, nodes, at_timeout, misread = RetryPreference.AUTO, None, False, ""
    consents: dict[str, bool] = {}
    sizes: tuple[int, ...] = ()
    for key, value in _in_json(comment) if comment.lstrip().startswith("{") else _in_text(comment[:MAX_TEXT]):
        found: object = None
        match key:
            case "retry" if value in _RETRY:
                found, retry = True, max(retry, _RETRY[value], key=(RetryPreference.AUTO, RetryPreference.NEVER).index)
            case "nodes":
                found = nodes = _range(value) or nodes
            case "gpus":
                found = sizes = _numbers(value) or sizes
            case "timeout" if value in _TIMEOUT:
                found, at_timeout = True, _TIMEOUT[value]
            case "policy" | "preempt" if value in _YES:
                found, consents[key] = True, _YES[value] and consents.get(key, True)
        misread = misread or ("" if found else _on_one_line(f"perdure:{key}={value}" if key else value))
    return OwnerRequests(retry, nodes, at_timeout, _consent(consents), sizes, misread)


def _consent(said: Mapping[str, bool]) -> PolicyConsent:
    """A no to the policy is a no to all of it."""
    if said.get("policy") is False:
        return PolicyConsent.NONE
    return max(
        (_CONSENT[key] for key, yes in said.items() if yes), key=list(PolicyConsent).index, default=PolicyConsent.NONE
    )


def _in_text(comment: str) -> Iterator[tuple[str, str]]:
    """Keys and values, in lower case; of words for us without a key, "" and the words."""
    begins = [found.start() for found in _NAME.finditer(comment) if _is_addressed(comment, found.start())]
    for begin, end in pairwise([*begins, len(comment)]):
        words = comment[begin:end].partition(";")[0].partition("\n")[0].rstrip(_AROUND + ",")
        said = words[len("perdure") :].lstrip(_AROUND + ":=,").lower()
        known = [(each[1], each[2].strip(_AROUND)) for each in _KNOWN.finditer(said)]
        known += [("gpus", each[1]) for each in _SIZES.finditer(said)]
        yield from known
        first = _FIRST.match(said)
        if first is not None and first[1] not in {key for key, _ in known}:
            yield first[1], first[2]
        elif said in _RETRY:
            yield "retry", said
        elif (bare := _BARE.match(said)) is not None:
            yield bare[1], "yes"
        elif not known:
            yield "", words


def _is_addressed(comment: str, at: int) -> bool:
    """Whether the word there is said to Perdure: before a colon anywhere, else where a sentence begins."""
    before, after = comment[:at], comment[at + len("perdure") :]
    if before and before[-1] not in f"{_AROUND}\n;,":
        return False
    begins = before.rstrip(_AROUND)[-1:] in ("", ";", "\n")
    return after.lstrip()[:1] in (":", "=") or (begins and after[:1] in ("", " ", "\t", "\n", ",", ";"))


def _in_json(comment: str) -> Iterator[tuple[str, str]]:
    """The same of what is under "perdure"."""
    try:
        said = json.loads(comment)
    except (ValueError, RecursionError):
        said = {"perdure": {"": comment}} if '"perdure"' in comment.lower() else {}
    for name, ours in said.items() if isinstance(said, dict) else ():
        if name.lower() == "perdure":
            pairs = ours if isinstance(ours, Mapping) else {"retry": ours}
            yield from ((str(key).lower(), str(value).lower()) for key, value in pairs.items())


def _on_one_line(words: str) -> str:
    plain = "".join(char if char.isprintable() and char != ";" else " " for char in words[: 2 * MAX_MISREAD])
    return " ".join(plain.split())[:MAX_MISREAD]


def _numbers(text: str) -> tuple[int, ...]:
    """Those of ``2,4,8`` or ``[2, 4, 8]``, rising; () for what is no such list."""
    parts = [part.strip() for part in text.strip("[]").split(",")]
    found = {int(part) for part in parts if part.isdecimal() and len(part) <= 6}
    return tuple(sorted(found)) if len(parts) <= 32 and all(part.isdecimal() for part in parts) and min(found) else ()


def _range(text: str) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(text)
    fewest, most = (int(found[1]), int(found[2])) if found else (0, 0)
    return (fewest, most) if 1 <= fewest <= most else None
