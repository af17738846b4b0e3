"""What is to be said of reading an attempt's output: what is missing, what may be another's, and that it is empty."""

from __future__ import annotations

from perdure.model.output import IS_NOT_THERE, Absent, Output, Why

MOST_REMARKS = 3


def remarks_on(output: Output) -> tuple[str, ...]:
    """Half sentences for a person, the weightiest first; none where all was read and is the attempt's own."""
    said = [_of_absent(absent) for absent in output.absent]
    said += [f"{file.path} {file.doubt}: whose lines these are cannot be told" for file in output.files if file.doubt]
    own = [file for file in output.files if not file.doubt]
    if own and not said and not any(file.text for file in own):
        said.append("this attempt wrote nothing to its logs")
    if output.left_out:
        said.append(f"{output.left_out} more files of its ranks were not read")
    more = len(said) - MOST_REMARKS
    return (*said[:MOST_REMARKS], *([f"and {more} more files like these"] if more > 0 else []))


def _of_absent(absent: Absent) -> str:
    if not absent.path or absent.why is Why.UNKNOWN:
        return absent.says
    if absent.why is Why.MISSING:
        return f"its log {absent.path} is not there" + ("" if absent.says == IS_NOT_THERE else f": {absent.says}")
    return f"its log {absent.path} cannot be read: {absent.says}"
