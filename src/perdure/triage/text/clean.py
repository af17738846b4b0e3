"""Raw bytes of a log to lines that can be matched, shown and learnt from, in bounded memory.

Two levels. `scrub` works on megabytes at a time and keeps every newline, so line numbers stay true: escape
sequences and control characters go, a carriage return starts a new piece. `tidy` works on the few lines that
matter: progress bars, rank and time prefixes, over-long lines; `decode` makes them safe to show.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perdure.triage.text.escapes import without_escapes
from perdure.triage.text.patterns import compiled

MAX_LINE_BYTES = 4096
"""Longer lines are matched and kept in pieces of at most this size."""

PIECE = b"\x0b"
"""Stands for a carriage return after `scrub`: the line goes on, its picture starts over."""

_SMALL = 4096  # bytes: looking for what is to be taken out would not be faster than taking it out
_TAB, _NEWLINE, _SPACE = 9, 10, 32
_CONTROLS = bytes(c for c in range(32) if c not in (9, 10)) + b"\x7f"  # all but tab and newline


def scrub(block: bytes) -> bytes:
    """Take escape sequences and control characters out; newlines stay, each carriage return becomes `PIECE`.

    >>> scrub(b"\\x1b[31mred\\x1b[0m\\r\\nnext")
    b'red\\nnext'
    """
    block = without_escapes(block)
    if b"\r" not in block:
        return block if len(block) > _SMALL and _is_plain(block) else block.translate(None, _CONTROLS)
    pieces = block.replace(b"\r\n", b"\n").translate(None, _CONTROLS.replace(b"\r", b""))
    return pieces.replace(b"\r", PIECE)


def _is_plain(block: bytes) -> bool:
    """True where there is no control character but tab and newline, at half the price of taking them out."""
    codes = np.frombuffer(block, dtype=np.uint8)
    kept = np.count_nonzero(codes == _NEWLINE) + np.count_nonzero(codes == _TAB)
    return np.count_nonzero(codes < _SPACE) == kept and b"\x7f" not in block


_RANK = (
    r"\[(?:rank|Rank|RANK|default|GPU|worker)[ _-]?\d+\]:?"
    r"|\[\d+,\d+\]<(?:std)?(?:err|out)[^>]*>:?"
    r"|\[\d+\](?::|<?(?:std)?(?:err|out)>?:)"
    r"|\[pod/[\w.-]+/[\w.-]+\]"
    r"|\d{1,6}: "
    r"|[A-Za-z][\w.-]{0,62}: \[(?:rank|Rank|RANK)[ _-]?\d+\]:?"  # of its node, by pdsh or mpirun
    r"|\(\w+(?:\([^)]*\))? pid=\d+(?:, ip=[^)]*)?\)"
    r"|\w[\w.-]*[:-]\d+:\d+ \[\d+\]"
    r"|\[[\w.-]+:\d+(?::\d+)*\]"
)
_TIME = (
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[,:;]?"
    r"|\[?\d\d[:/]\d\d[:/]\d\d(?:[.,]\d+)?(?: \d\d:\d\d:\d\d)?\]?"
    r"|[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+ +(?:\d+ )?[\w./-]+:\d+\]"
    r"|[\d.]+s: "
)
_PREFIX = rf"(?:[ \t|]*(?:{_RANK}|{_TIME})[ \t|]*)+"
"""What launchers, runtimes and loggers put before a line: ranks, workers, times."""


ADVICE = (
    r"(?i)CUDA kernel errors might be asynchronously reported"
    r"|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with `?TORCH_USE_CUDA_DSA"
    r"|Search for `\w+' in https?://"
    r"|Set the environment variable HYDRA_FULL_ERROR"
    r"|To enable traceback please see"
    r"|See https?://\S+ for (?:details|more)"
    r"|Set MCA parameter \"orte_base_help_aggregate\""
    r"|more process(?:es)? ha(?:s|ve) sent help message"
    r"|You can (?:avoid|suppress) this (?:message|warning)"
    r"|To avoid data inconsistency, we are taking the entire process down"
    r"|may be due to an? .* or .*"
    r"|libibverbs: Warning: couldn't load driver"
    r"|NOTE: invoking MPI_ABORT causes"
    r"|^npm (?:error|ERR!) {3,}"  # its help
    r"|srun: Job \S+ step creation \w+ disabled, retrying"  # it waits for the steps before it
    r"|\b\w*Warning: (?:[^RC]|R[^e]|Re[^t]|C[^U]|CUDA [^i]|$)"  # but for pip's "WARNING: Retrying", and `NO_GPU`
)
"""Lines that advise or warn, and say nothing of the cause of this failure."""

SURVIVED = (
    r"(?i)\b(?:re-?trying(?: \(Retry\(total=[1-9]| \([^R]| [^(]|[^ ]|$)"  # the last of urllib3's retries is spent
    r"|(?:will (?:be )?|(?:is|was|are|were) (?:being )?)re-?(?:try|tried)|re-?connecting|retry (?:\d+|in|after)"
    r"|attempt \d+ ?(?:/|of) ?\d+"
    r"|falling back|fall back|entering retry loop|ignor(?:ed|ing)|skipp(?:ed|ing)|continuing|running offline"
    r"|logging (?:locally|offline)|using (?:the |its )?(?:\w+ )?(?:default|cache|local|fallback|loopback)"
    r"|trying (?:the )?(?:next|another|other|again|smaller|half|(?:(?:micro|mini)?[ _-]?batch[ _-]?size|with|only) \w)"
    r"|halving|caught,? and (?:ignored|handled)|backing off|using tcp instead"
    r"|non-fatal|not fatal|asked again|harmless|recovered|resum(?:ed|ing)|dropped (?:streaming )?(?:file )?chunk)"
    r"|-> ?ok(?:ay)?\s*$"
)
"""Words of a line that reports a failure which the program dealt with."""

_CLEAN = r"\[?\s*(?:none|nothing|ok(?:ay)?|pass(?:ed)?|clean|clear|good|healthy|success(?:ful)?|0|no|n/a)\b[\s\]|.!]*$"
_ZERO = r"(?:0|none|n/a)(?:[^\w.]|$)"
_HARDWARE = r"(?:s?xids?|ecc|[cu]e|[ds]be|nvlinks?|mces?|machine[- ]checks?|uncorr\w*|fallen off)"
_SEEN = r"(?:found|detected|seen|present|reported|logged)"
CLEARED = (
    rf"(?i)(?:\.{{2,}}|…) *{_CLEAN}"
    rf"|\b(?:(?:health[- ]?)?check(?:s|ed|ing)?|health|diag\w*|scan(?:s|ned|ning)?)\b.*[:=>-]\s*{_CLEAN}"
    r"|\|\s*(?:pass|healthy|skip)\b[\w\s-]*\|?\s*$"  # dcgmi
    # a test's name and result: pytest, googletest, go
    r"|\b(?-i:PASSED|XPASS|XFAIL|SKIPPED)(?: \([^)]*\))?\s*(?:\[ *\d+%\])?\s*$"
    r"|^\s*\S+\.py::[^\s\[]+\[.*\](?: (?-i:[A-Z]{5,7}))?\s*(?:\[ *\d+%\])?\s*$"
    r"|^\s*(?:\[ +(?:OK|RUN|PASSED|SKIPPED) +\]|--- (?:PASS|SKIP):|=== RUN )"
    # counts
    rf"|\berrors(?: ?\([^)]{{1,40}}\))?\s*(?:[:=|]|is|are|was|were)?\s*{_ZERO}"
    rf"|\berror(?:s| counts?| counters?) (?:on|for|in|of|since) [^:=|]{{1,40}}[:=|]\s*{_ZERO}"
    rf"|\b(?:error|ecc|xid|failure|event|fault)s?[ _](?:count|total|counter)s?\s*(?:[:=|]|is|was)?\s*{_ZERO}"
    rf"|\b(?:(?:un)?corr(?:ect\w*)?|(?:single|double)[- ]bit)\.?(?: (?:ecc|errors?|memory))*\s*[:=|]\s*{_ZERO}"
    r"|(?:^|[\]:=,;(|]\s*|\b(?:found|with|has|had|have|reports?|saw|are|is|were|was|total|got|info|notice) )"
    rf"(?:0|zero) (?:[\w-]+ ){{0,4}}?(?:errors|failures|faults|events|{_HARDWARE})\b"
    r"|\b(?:pending|failures?|failed|occurred|required|requires \w+|recommended|lost|detected|present|found)\s*"
    r"[:=|?]\s*(?:no|none|false|0)[\s|.,;)]*$"
    # negations
    rf"|\b(?:no|without|not any|never an?|free of) (?:[\w-]+ ){{0,4}}?{_HARDWARE}\b"
    rf"|\b{_HARDWARE}\b.*\b(?:not|none|nothing|never)(?: was| were| been)? {_SEEN}\b"
    rf"|\bno (?:[\w-]+ ){{0,3}}(?:errors?|faults?|failures?|problems?|issues?)(?: was| were)? {_SEEN}\b"
    # what is going to be looked for
    r"|^\s*(?:(?:\[[^\]]{1,40}\]:?|(?-i:[a-z][a-z\d. -]{0,30}(?:\[\d+\])?|[A-Z]+(?: \d+)?):|info|debug|notice)[\s-]+)*"
    r"(?:checking|looking|scanning|searching|testing|verifying)\b[^:]*\b(?:for|if|whether|that)\b[^:]*:?\s*$"
)
"""Words of a check that found nothing, or that says what it looks for."""

TESTED = r"^\s*(?:FAILED|ERROR) \S+\.py::[^\s\[]+\["
"""The summary of a failed test, which begins with its name: that may hold any words."""

QUOTED = (
    r"^\s*(?:#|//|\++ |[\"'][^\"']*[\"'][,)]*\s*$"
    r"|(?:echo|printf|e?grep|awk|sed)\b[^:\w].*[\"'()=:;]"  # with a colon they report an error
    r"|(?:if|elif|while|case|assert|raise|except|print|log\w*\.\w+|\w+ = )\b.*[\"'()=:;]"
    r"|(?i:e\.g\.|for example|example|such as|if you see)\b)"
)
"""A line of a program or a comment, quoted by a shell that echoes, by a traceback or by a person."""

MENTIONED = (
    r"^\s*(?:\++ [^\sE+]|\++ E[^x]"  # a shell's trace; Python prints "+ Exception Group Traceback"
    r"|> [^\s]|>\s+(?:File \"|raise\b|at )"  # a reply or a sample that quotes another text
    r"|(?:Previous )?HEAD (?:position was|is now at) |commit [\da-f]{40}|Subject: \[PATCH|\[\S+ [\da-f]{7,40}\] "
    r"|(?:[*|] )?[\da-f]{7,40} (?:\([^)]{1,80}\) )?"
    r"(?i:fix|add|avoid|catch|handle|improve|merge|remove|revert|update|use)"
    r"|(?:[-*•+]|\d{1,3}[.)])\s+(?:\[[^\]]{1,20}\]\s*)?"
    r"(?i:(?:bug ?)?fix(?:e[sd])?|add(?:s|ed)?|avoid(?:s|ed)?|change[sd]?"
    r"|handle[sd]?|improve[sd]?|remove[sd]?|support(?:s|ed)?|known issue|to-?do)\b"
    r"|(?i:hints?|tips?|to-?do|fix-?me|faq) ?:"
    r"|(?:\S{1,20}: )?(?i:(?:if|when|in case|whenever) (?:you|it|this|the job|a job)\b)"
    r"|-{1,2}[A-Za-z][\w-]*(?:[ =,]\S+){0,4}\s{2,}\S"  # an option, in a help text
    r"|[a-z][a-z -]{2,40} +\((?:[\w ]+, )?-[a-z]\) +(?:unlimited|\d+)\s*$"  # what ulimit -a lists
    r"|(?:export |declare -x |setenv )?(?:[A-Z][A-Z\d]*_[A-Z\d_]*)=)"
)
"""A line that mentions an error and states none: a command, a change, a hint, a setting, a limit, a quotation."""

_VALUE = r"(?:\{.*\}|\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\([^()]*(?:\([^()]*\)[^()]*)*\)|'[^']*'|\"[^\"]*\")"
PRINTED = rf"^[^'\"{{\[(]{{0,80}}[:=] ?{_VALUE}[\s,.;]*$|^\s*{_VALUE}[\s,.;]*$"
"""A value that a program printed, with its name: a setting, a sample of the data."""

TOLD = (
    r"(?i)^[^'\"{\[(]*(?:err|fail|exce|fatal|crit|abort|exit|interrupt|panic|warn|kill|reason|cause|msg|message)"
    r"|[\"'](?:level|levelname|severity|lvl|err\w*|exc\w*|message|msg|log|reason|cause|status)[\"'] *:"
)
"""What makes of such a value a message: its name, or a field of a logger's record."""

INFORMED = r"^(?:\S+ ){0,4}NCCL INFO "
"""The level at which NCCL tells what it does: a lasting failure in it was dealt with. Of others see `log_levels`."""

NO_GPU = r"Warning: CUDA initialization: "
"""What PyTorch warns of where it finds no GPU that works; a program that can do without goes on."""

WARNED = r"(?i:\bwarn(?:ing)?\b|\blevel=debug\b)|(?:^|[\[ |(])DEBUG[\]:) |]"
"""Words of a line that only warns, or that nobody reads; some programs have no other word for their errors."""

LEVEL_OF_WARNING = r"^\s*(?:WARN|WARNING|Warning): "
"""The level of a warning, where a line begins with it; Python puts a class before what its libraries warn of."""

WARNS = r"(?:^|[\s:\]])\[?W(?:\d{3,4} (?:\d\d:\d\d:\d\d\.\d+ +)?(?:\d+ )?| )[\w./-]+\.(?:cpp|cc|cu|h|hpp|py):\d+\]"
"""The level and the place of a warning, as glog and loggers of PyTorch put them before a line."""


_BAR = (
    r"[^\x0b]*?\d+%\|[^|]*\|[^\[]*\[[^\]]*\](?:\s*\x1b?\[?A)?"
    r"|[^\x0b]*\d+it \[[^\]]*\]"
    r"|^\s*\d+/\d+ \[[=>.\s-]+\].*"
    r"|^.*(?:━|█|╸|─){4,}.*"
    r"|^\s*\d+%\s*\[[=>\s#-]*\].*"
)
"""A progress bar as tqdm, rich, Keras, wget or pip draw it."""

_BIDI = dict.fromkeys(
    [*range(0x80, 0xA0), 0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
)


def decode(piece: bytes) -> str:
    """Text of a scrubbed piece that is safe to show: valid, without direction marks, cut at `MAX_LINE_BYTES`."""
    text = piece[:MAX_LINE_BYTES].decode("utf-8", "replace")
    return text if text.isascii() else text.translate(_BIDI)


@lru_cache(maxsize=512)
def tidy(piece: bytes) -> bytes:
    """A scrubbed piece as its program wrote it: without progress bars and without prefixes.

    The end of a log is read several times over, so its lines are remembered.
    """
    return without_prefix(without_bars(piece))


def without_bars(line: bytes) -> bytes:
    """The last picture of a line that carriage returns redrew, without progress bars.

    >>> without_bars(b" 10%|#    | 1/10 [00:01<00:09]" + PIECE + b" 20%|##   | 2/10 [00:02<00:08]Error: x")
    b'Error: x'
    """
    last = line
    if PIECE in line:
        last = next((piece for piece in reversed(line.split(PIECE)) if piece.strip()), b"")
    return bytes(compiled(_BAR).sub(b"", last)) if _may_hold_bar(last) else last


def _may_hold_bar(line: bytes) -> bool:
    """False for nearly all lines, at a tenth of the price of the pattern."""
    if b"%" in line and (b"%|" in line or b"[" in line):
        return True
    return b"it [" in line or (b"/" in line and b" [" in line) or _HEAVY in line or _FULL in line or _LIGHT in line


_HEAVY, _FULL, _LIGHT = "━".encode(), "█".encode(), "─".encode()


def without_prefix(line: bytes) -> bytes:
    """The line without what launchers and loggers put before it.

    >>> without_prefix(b"[rank3]: [2025-01-01 00:00:00,123] ERROR - ValueError: x")
    b'ERROR - ValueError: x'
    """
    line = line[:MAX_LINE_BYTES]
    if line[:1].isalpha() and b"]" not in line[:80]:
        return line
    found = compiled(_PREFIX).match(line)
    return line[found.end() :] if found else line


def indent(line: bytes) -> int:
    """Where the text of a line begins, what launchers put before it counted."""
    return len(line) - len(tidy(line).lstrip())


def is_advice(line: bytes) -> bool:
    """Whether a line is advice; of a stretch, False where none of its lines is."""
    return compiled(ADVICE).search(line) is not None
