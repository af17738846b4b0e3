"""Read any known form of trace: the form is told by the content, unless it is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.errors import InputError
from perdure.traces import (
    acme,
    drac,
    eagle,
    gavel,
    helios,
    openb,
    own,
    pai,
    philly_csv,
    philly_json,
    sacct,
    supercloud,
    swf,
    tiresias,
)
from perdure.traces.columns import look
from perdure.traces.source import TraceSource
from perdure.traces.trace import Format, Trace

_ALL = (
    own.FORMAT,
    philly_json.FORMAT,
    philly_csv.FORMAT,
    tiresias.FORMAT,
    tiresias.MURI,
    tiresias.CHRONUS,
    swf.FORMAT,
    sacct.FORMAT,
    helios.FORMAT,
    acme.FORMAT,
    openb.FORMAT,
    pai.FORMAT,
    drac.FORMAT,
    drac.CODED,
    eagle.FORMAT,
    supercloud.FORMAT,
    gavel.FORMAT,
)
_WITHOUT_DURATIONS = {"name", "time", "application", "num_replicas", "batch_size"}
_BY_HAND = "a CSV of job_id,submit_s,gpus,duration_s"
FORMATS: Mapping[str, Format] = {form.name: form for form in _ALL}


def read(
    path: Path | str, format: str | None = None, *, skip_bad: bool = False, most_bytes: int | None = None
) -> Trace:
    """Read a trace, packed by gzip, zstd, xz or bzip2, or not.

    Parameters
    ----------
    format : a name of `FORMATS`; None tells it by the first bytes of the file.
    skip_bad : leave rows out that break the form, and count them, instead of refusing the file at the first.
    most_bytes : refuse a file that unpacks to more; None reads whatever comes.

    Raises `InputError`, naming the file, the line and how to fix it, and `MissingExtra` without DuckDB.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format {format!r}", "no such form of trace", f"Use one of: {', '.join(sorted(FORMATS))}")
    source = look(path, most_bytes)
    form = _sniffed(source) if format is None else FORMATS[format]
    return form.read(source, skip_bad)


def _sniffed(source: TraceSource) -> Format:
    for form in FORMATS.values():
        if form.sniff(source.head, source.path.name):
            return form
    if set(source.header) >= _WITHOUT_DURATIONS:
        what = "a workload of Sia or Pollux has no durations: they depend on the GPUs that a job is given"
        raise InputError(str(source.path), what, f"Use perdure whatif elastic; or decide on them, and write {_BY_HAND}")
    fix = f"Name it by --format, one of: {', '.join(sorted(FORMATS))}; or write {_BY_HAND}"
    raise InputError(str(source.path), "the form of this trace is not known", fix)
