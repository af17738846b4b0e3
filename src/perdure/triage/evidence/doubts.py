"""What the rest of a log says against the usual meaning of a line, so that neither a stop nor a plain retry is due.

The cause stays the line's; its verdict is *unsure*, and the job gets one probing retry, which for each of these costs
little next to a wrong stop, or proves within its first minutes that no retry helps.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

import re2
from msgspec.structs import replace

from perdure.triage.evidence.answered import tells_answer
from perdure.triage.evidence.context import Context, TrainingProgress, progress_of
from perdure.triage.evidence.frames import raising_line
from perdure.triage.evidence.host_memory import LITTLE_BYTES, refused_bytes
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.text.clean import decode, scrub
from perdure.triage.text.logtext import LogText
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.verdict import Bound

WORKED_STEPS = 20
"""A job that came so far had read from the folders that it names at its start."""

NAMED_BYTES = 256 * 1024
"""The folders of a log's settings are looked for in this much of its beginning."""

BUFFER_BYTES = 4096
"""What writes a file through a buffer leaves a multiple of it until it closes the file."""

NEAR_PORT = 4
"""So many lines around the one that is believed may tell which port it is."""

STALL_LINES = 200
"""Storage that does not answer is looked for in so many lines before the end of the walltime."""

SMALL_BYTES = 2 << 30
"""Every GPU that a job is given has this much memory, and so have most slices of one."""

_NO_WAY_OUT = (
    r"(?i)name resolution|could not resolve|failed to resolve|unable to resolve|NameResolutionError|EAI_AGAIN"
    r"|network is unreachable|\[Errno -3\]"
)
_MISSING = r"(?:No such file or directory|cannot (?:open|find|access)[^:]*): ['\"]?(/[^'\"\n]{2,400}?)['\"]?\s*$"
_WRITES = r"(?i)sav(?:e|ing)|writ|dump|mkdir|makedirs|to_(?:csv|json|parquet)|['\"][wax]b?\+?['\"]"
_CUT_JSON = r"JSONDecodeError: (?:Expecting|Unterminated|Extra|Invalid)[^\n]*\(char ([1-9]\d{0,11})\)"
_ONE_RANK = r"(?i)\bnranks[ =:]+1\b|\bworld[_ ]?size\b['\"]?\s*[:=]\s*1\b"
_ASKED = r"(?i)(?:alloc\w*|requested)\D{1,20}?([\d,]{1,20}) ?bytes\b"
_OWN = r"allocated so far: ([\d,]{1,20}) bytes"
_OF_PYTORCH = "Tried to allocate"
_CREATED_DEVICE = r"Created (?:TensorFlow )?device \S*GPU:\d+ with (\d{1,9}) MB memory"
_OF_FULL_CARD = frozenset({"cublas-failed", "cudnn-failed", "cuda-oom", "cuda-library-status"})


_LIMIT = "time_limit"
_STALLED = (
    r"blocked for more than \d+ seconds|Lustre: .{0,200}Connection to \S+ \(at \S+\) was lost"
    r"|nfs: server \S+ not responding|beegfs: .{0,200}(?:Connect failed|Unable to communicate)"
    r"|mmfsd?: .{0,200}not responding"
)
"""What the kernel, Lustre, NFS, BeeGFS and GPFS say of storage that makes its users wait."""

_GOES_ON = r"(?i)nfs: server \S+ OK|connection restored to|reconnected to"
_MOUNT_FAILED = (
    r"(?:(?:mount failure \S+ on|failed to mount|mount\.nfs4?: \S+ for|check_fs_mount[^\n/]{0,20}) (/[^\s:,]+)"
    r"|(/[^\s:,]+) (?:is )?not (?:mounted|in /proc/(?:self/)?mounts)\b)"
)
"""What the kernel, mount, and health checks (NHC's check_fs_mount) say of a file system that is not there."""

_ON_THIS_NODE = r"(?i)(?:\blocalhost\b|\b127\.0\.0\.1\b|\[?::1\]?\b)"
_BY_DEFAULT = r"(?i)(?:not set|unset|not given|missing|default\w*)\b[^\n]{0,80}(?:\blocalhost\b|127\.0\.0\.1)"
_CUT_SHORT = frozenset({"checkpoint-corrupt", "archive-damaged", "json-damaged"})
_BAR = (
    r"(?:\.(?:pt|pth|bin|safetensors|ckpt|tar|zip|gz|json|onnx|npz?)\b[^\n|]{0,20}|(?i:download|fetch)[^\n|]{0,60}?)"
    r"[: ] *(\d{1,3})%\|"
)
"""A progress bar of a file that is fetched, and how far it is."""

_BEING_WRITTEN = (
    r"(?i)\b(?:sav|writ|download|fetch|copy|extract|unpack|convert|dump)ing\b[^\n]{0,80}?([\w.@+-]+\.\w{1,12})\b"
)
_WRITTEN = (
    r"(?i)\b(?:saved|written|(?:download|fetch|copi|extract|unpack|convert|complet|finish)ed|done|complete)\b|100%"
)
"""What a rank says as it begins to make a file, and once it is whole."""

_WORKING_NAME = (
    r"(?:No such file or directory|cannot (?:open|find|access|stat)[^:]*): ['\"]?[^'\"\n]*?"
    r"(?:\.(?:tmp|part|partial|incomplete|crdownload)(?:[._-][\w.-]{0,40})?|/tmp[a-z0-9_]{8}/?|/\.nfs[0-9a-f]{8,32})"
    r"['\"]?(?: ->|\s*$)"
)
"""A path under the name that a writer, or NFS for a file that is still open, gives it for a while."""

_REFUSED = "connection-refused"
_TAKEN, _PORT = r"(?i)address already in use|already in use", r"(?::|\b[Pp]ort[ :=]+)(\d{4,5})\b"
_SERVES = (
    r"(?im)^[^\n]*\b(?:listening|serving|serves|running|launch(?:es|ing|ed)|started|ready|bound)\b[^\n]{{0,80}}"
    r"(?::|\bport )\s?{}\b"
)


def doubted(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Hit:
    """`primary`, with a cause that is open where the rest of `text` speaks against what its line usually means."""
    for doubt in _DOUBTS:
        if (cause := doubt(primary, progress, around, text)) is not None:
            return replace(primary, cause=replace(cause, unproven=True))
    return primary


def _never_connected(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:
    """A way out of which the log shows no use before: most compute nodes have no way out, and name services fail at
    times.

    Steps show nothing of it: programs compute, and first go out to fetch weights for their evaluation.
    """
    cause = primary.cause
    if cause.wider != "net" or progress.is_far or not compiled(_NO_WAY_OUT).search(primary.text.encode()):
        return None
    return None if around.answered or any(tells_answer(window.data) for window in text.windows) else cause


def _lone_rank(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A collective of one rank waits for nobody: what the rank itself had begun before it does not end."""
    cause = primary.cause
    alone = around.gpus == 1 or any(compiled(_ONE_RANK).search(window.data) for window in text.windows)
    if cause.category != "nccl_timeout" or not alone:
        return None
    return replace(
        cause,
        p_transient=0.3,
        says="a collective of one rank alone timed out: work that it had begun on its GPU before did not end",
        advice="Look for a kernel that never ends: take a stack dump, or run it once with CUDA_LAUNCH_BLOCKING=1.",
    )


def _gone_since(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A file to read that is missing in a folder which the job had named at its start, and worked with for steps.

    Somebody removed it, its file system went away, or a list names a file that never was.
    """
    cause, line = primary.cause, primary.text.encode()
    if cause.category != "missing_file" or (progress.steps or 0) < WORKED_STEPS:
        return None
    found = capturing(_MISSING).search(line)
    if found is None or compiled(_WRITES).search(raising_line(primary)):
        return None
    folder = posixpath.dirname(found[1])
    named = rf"(?m)^[^\n]*[ ='\":]{re2.escape(folder.decode('utf-8', 'replace'))}/?(?:['\"\s,]|$)"
    at = compiled(named).search(scrub(text.windows[0].data[:NAMED_BYTES])) if folder.count(b"/") > 1 else None
    if at is None:
        return None
    return replace(
        cause,
        p_transient=0.45,
        says="a file is missing from a folder that the job had worked with: removed since, or its file system is gone",
        advice="See whether the folder is there; if only this file is missing, the job's own list is wrong.",
    )


def _cut_at_buffer(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """JSON that ends where a buffer ends was read before its writer had closed it, or its writer died."""
    found = capturing(_CUT_JSON).search(primary.text.encode())
    if primary.cause.category != "data" or found is None or int(found[1]) % BUFFER_BYTES:
        return None
    return replace(
        primary.cause,
        p_transient=0.4,
        says="a file ends in the middle, where a buffer ends: it was read while it was written, or its writer died",
        advice="Write to another name and rename it once it is whole; let other ranks wait for that (a barrier).",
    )


def _full_from_the_start(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A GPU that has not even little memory left before any step: PyTorch alone tells who holds how much of it."""
    cause, line = primary.cause, primary.text.encode()
    if cause.name != "cuda-oom" or progress.steps or _OF_PYTORCH.encode() in line:
        return None
    sizes = [found[1] for pattern in (_ASKED, _OWN) if (found := capturing(pattern).search(line)) is not None]
    if not sizes or sum(int(size.replace(b",", b"") or b"0") for size in sizes) > SMALL_BYTES:
        return None
    return replace(
        cause,
        category="gpu_busy",
        part_of="",
        p_transient=0.4,
        says="the GPU had not even little memory left before any step, and the message does not say who holds it",
        advice="Look with nvidia-smi whether another process holds the card; if not, the model does not fit.",
    )


def _little_given(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A GPU of which TensorFlow could take next to nothing as it started: its libraries then have no room to start."""
    cause = primary.cause
    if cause.name not in _OF_FULL_CARD and cause.category not in ("gpu_oom", "cuda_env"):
        return None
    found = (capturing(_CREATED_DEVICE).search(scrub(window.data[:NAMED_BYTES])) for window in text.windows)
    if not any(int(each[1]) << 20 < SMALL_BYTES for each in found if each):
        return None
    return replace(
        cause,
        category="gpu_busy",
        part_of="",
        bound=Bound.NODE,
        p_transient=0.45,
        says="the GPU was nearly full before the program began",
        advice="Look with nvidia-smi whether another process holds the card; if not, it is given too small a share.",
    )


def _little_refused(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """Little memory of the host that was refused: the node's own is gone, or the program leaked what it had."""
    cause = primary.cause
    refused = refused_bytes(primary.text.encode()) if cause.category == "host_oom" else None
    if refused is None or refused > LITTLE_BYTES or cause.force is Force.DECISIVE:
        return None
    return replace(
        cause,
        p_transient=0.4,
        says="not even little memory was left on the node, and the message does not say who holds it",
        advice="See what else runs there; if the job alone does, look for what grows in it (sacct, MaxRSS).",
    )


def _stalled_until_limit(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A walltime that was spent waiting for storage: after its last step the log tells of nothing but that."""
    cause = primary.cause
    if cause.category != _LIMIT:
        return None
    window = primary.block.window
    lines = scrub(window.data[: primary.block.end]).split(b"\n")[-STALL_LINES:]
    at = [index for index, line in enumerate(lines) if compiled(_STALLED).search(line)]
    if not at or any(_works(line) for line in lines[at[0] + 1 :]):
        return None
    return replace(
        cause,
        category="fs",
        part_of="",
        bound=Bound.NODE,
        p_transient=0.45,
        force=Force.PLAIN,
        says="the walltime was reached while the job waited for storage that did not answer",
        advice="Ask whether that file system had an outage; if it had not, ask for more time.",
    )


def _works(line: bytes) -> bool:
    told = progress_of(decode(line))
    return told.steps is not None or told.epochs is not None or compiled(_GOES_ON).search(line) is not None


def _never_mounted(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A file that is missing where the node failed to mount what should hold it."""
    cause = primary.cause
    found = capturing(_MISSING).search(primary.text.encode()) if cause.category == "missing_file" else None
    if found is None:
        return None
    told = (
        each[1] or each[2] for window in text.windows for each in capturing(_MOUNT_FAILED).finditer(scrub(window.data))
    )
    if not any(found[1].startswith(place.rstrip(b"/") + b"/") for place in told):
        return None
    return replace(
        cause,
        category="fs",
        part_of="",
        bound=Bound.NODE,
        p_transient=0.5,
        says="a file is missing on a file system that the node could not mount",
        advice="Retry on another node; tell the operators which one could not mount what.",
    )


def _default_host(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """Its own node refused a connection, to which the job came by a default: the host that it means was not named."""
    cause, line = primary.cause, primary.text.encode()
    if cause.name != _REFUSED or around.answered or not compiled(_ON_THIS_NODE).search(line):
        return None
    if not any(compiled(_BY_DEFAULT).search(scrub(window.data[:NAMED_BYTES])) for window in text.windows):
        return None
    return replace(
        cause,
        category="config",
        part_of="",
        bound=Bound.NOTHING,
        p_transient=0.12,
        says="nothing listens on the job's own node, which it asks by default: the host that it means is not set",
        advice="Name the host in the settings or the environment of the job, as the line before says.",
    )


def _own_port(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A port that the job itself had taken, by a line before: started twice with one number, it fails each time."""
    cause = primary.cause
    if cause.category != "port_busy":
        return None
    window = primary.block.window
    lines, at = scrub(window.data[: primary.block.end]).split(b"\n"), primary.line - window.first_line
    told = [line for line in lines[max(0, at - NEAR_PORT) : at + NEAR_PORT] if compiled(_TAKEN).search(line)]
    found = next((each for line in told if (each := capturing(_PORT).search(line))), None)
    if found is None or not compiled(_SERVES.format(port := found[1].decode())).search(b"\n".join(lines[:at])):
        return None
    return replace(
        cause,
        p_transient=0.4,
        says=f"port {port} was taken, and the job's own log tells that it had taken it",
        advice="Give each of its servers a port of its own, or let the system choose one (port 0).",
    )


def _still_made(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A file that is cut short while another rank still fetches or writes one: it was read before it was whole."""
    cause = primary.cause
    if cause.name not in _CUT_SHORT:
        return None
    window = primary.block.window
    before = scrub(window.data[: primary.block.end]).split(b"\n")[: primary.line - window.first_line][-STALL_LINES:]
    if not (_fetched_by_another(before, primary.rank) or _written_by_another(before, primary.rank)):
        return None
    return replace(
        cause,
        p_transient=0.5,
        says="a file was read while another rank was still making one",
        advice="Let one rank make it first and the others wait (a barrier), or fetch it before the job.",
    )


def _fetched_by_another(lines: Sequence[bytes], rank: str) -> bool:
    """Whether the last progress bar of a file is another rank's, and not full."""
    bars = [(rank_of(line), found) for line in lines if (found := capturing(_BAR).search(line))]
    return bool(bars) and bars[-1][0] != rank and int(bars[-1][1][1]) != 100


def _written_by_another(lines: Sequence[bytes], rank: str) -> bool:
    """Whether another rank says that it makes a file, and no later line that this is whole."""
    told = [(at, found[1]) for at, line in enumerate(lines) if (found := capturing(_BEING_WRITTEN).search(line))]
    at, name = next(((at, name) for at, name in reversed(told) if rank_of(lines[at]) not in ("", rank)), (-1, b""))
    return at >= 0 and not any(name in line and compiled(_WRITTEN).search(line) for line in lines[at:])


def _taken_away(primary: Hit, progress: TrainingProgress, around: Context, text: LogText) -> Cause | None:  # noqa: ARG001
    """A file missing under the name that it has while it is made: another process renamed or removed it meanwhile."""
    cause = primary.cause
    if cause.category != "missing_file" or not compiled(_WORKING_NAME).search(primary.text.encode()):
        return None
    return replace(
        cause,
        p_transient=0.45,
        says="a temporary file is gone: mostly another process of the job made, renamed or removed it meanwhile",
        advice="Let one rank write the file, or give each process a temporary name of its own.",
    )


_DOUBTS: tuple[Callable[[Hit, TrainingProgress, Context, LogText], Cause | None], ...] = (
    _never_connected,
    _lone_rank,
    _gone_since,
    _cut_at_buffer,
    _full_from_the_start,
    _little_given,
    _little_refused,
    _stalled_until_limit,
    _never_mounted,
    _default_host,
    _own_port,
    _still_made,
    _taken_away,
)
