"""What an attempt wrote: the logs of its pods, through the API server.

A log is read once from its beginning, of which its first and its last bytes are kept. The kubelet starts a new file at
``containerLogMaxSize`` (10 MiB unless the site says otherwise), so what is read is bounded by the node; a bound of our
own stands behind that.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from perdure.backends.kubernetes.api import ClusterApi, ObjectRefused
from perdure.errors import ClusterBusy, ClusterError, NotFound
from perdure.model.output import Absent, Output, OutputFile, OutputKind, Why, digest_of

MOST_READ_BYTES = 128 << 20
MOST_RANKS = 64  # logs of other pods of the gang
RANK_BYTES = 256 << 10
HEAD_SHARE = 8
_PATH = re.compile(r"/pods/([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})/([a-z0-9-]{1,63})(/previous)?", re.ASCII)


def read_output(api: ClusterApi, path: str, ranks: Iterable[tuple[str, str]], max_bytes: int) -> Output:
    """The log at `path`, and those of other pods of the attempt: each with the name of its rank."""
    main = read_log(api, path, OutputKind.STDOUT, "", max_bytes)
    others = [(rank, other) for rank, other in ranks if other != path]
    read = [
        read_log(api, other, OutputKind.RANK, rank, min(RANK_BYTES, max_bytes)) for rank, other in others[:MOST_RANKS]
    ]
    files = tuple(each for each in (main, *read) if isinstance(each, OutputFile))
    absent = tuple(each for each in (main, *read) if isinstance(each, Absent))
    return Output(files, absent, left_out=max(0, len(others) - MOST_RANKS))


def read_log(api: ClusterApi, path: str, kind: OutputKind, rank: str, max_bytes: int) -> OutputFile | Absent:
    """One log. Raises `ClusterBusy` where the API server itself does not answer."""
    found = _PATH.fullmatch(path)
    if found is None:
        return Absent(path, Why.MISSING if path.startswith("/") else Why.UNKNOWN, "it is no pod's log", kind)
    namespace, pod, container, previous = found.groups()
    query = {"container": container, **({"previous": "true"} if previous else {})}
    try:
        with api.log(namespace, pod, query) as pieces:
            return _bounded(pieces, path, kind, rank, max_bytes)
    except NotFound as err:
        return Absent(path, Why.MISSING, f"its pod is gone: {err.what}", kind)
    except ObjectRefused as err:
        return Absent(path, Why.MISSING, f"it has no log: {err.what}", kind)
    except ClusterBusy as err:
        if "no answer" in err.what:
            raise
        return Absent(path, Why.UNKNOWN, f"its node does not answer: {err.what}", kind)
    except ClusterError as err:
        return Absent(path, Why.REFUSED, err.what, kind)


def _bounded(pieces: Iterable[bytes], path: str, kind: OutputKind, rank: str, max_bytes: int) -> OutputFile:
    head_bytes = max(1, max_bytes // HEAD_SHARE)
    head, size = b"", 0
    last: deque[bytes] = deque()
    held = 0
    for piece in pieces:
        size += len(piece)
        head += piece[: max(0, head_bytes - len(head))]
        last.append(piece)
        held += len(piece)
        while held - len(last[0]) >= max_bytes:
            held -= len(last.popleft())
        if size > MOST_READ_BYTES:
            break
    tail = b"".join(last)[-max_bytes:]
    if size <= max_bytes:
        return OutputFile(path, tail, kind=kind, rank=rank, end=size, digest=digest_of(tail))
    tail = tail[-(max_bytes - len(head)) or len(tail) :]
    skipped = size - len(head) - len(tail)
    return OutputFile(path, tail, head, skipped, kind, rank, end=size, digest=digest_of(tail))
