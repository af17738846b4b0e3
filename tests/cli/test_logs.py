"""Standard input is read in bounded memory, and lines keep their numbers."""

import io

from hypothesis import given
from hypothesis import strategies as st

from perdure.cli import logs
from perdure.triage.logtext import Limits, LogText, windows_of


class Pipe(io.BytesIO):
    """A stream that is no file, and gives what it has in pieces."""

    def __init__(self, data):
        super().__init__(data)

    def fileno(self):
        raise OSError


@given(st.binary(max_size=400), st.integers(1, 50), st.integers(1, 50), st.integers(1, 40))
def test_a_pipe_keeps_the_head_and_at_least_the_tail(data, head_bytes, tail_bytes, block_bytes):
    limits = Limits(head_bytes, tail_bytes)
    before = logs.BLOCK_BYTES
    logs.BLOCK_BYTES = block_bytes
    try:
        text = logs.read_stream(Pipe(data), limits)
    finally:
        logs.BLOCK_BYTES = before
    held = sum(len(window.data) for window in text.windows)
    assert held + text.skipped_bytes == len(data)
    if not data:
        assert text.windows == ()
        return
    assert data.startswith(text.windows[0].data)
    assert data.endswith(text.windows[-1].data)
    assert len(text.windows[-1].data) >= min(tail_bytes, len(data) - len(text.windows[0].data))
    assert held <= head_bytes + tail_bytes + block_bytes
    last = text.windows[-1]
    assert last.first_line == 1 + data[: len(data) - len(last.data)].count(b"\n")


def test_a_file_on_standard_input_is_read_like_a_file(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n" * 100)
    limits = Limits(10, 10)
    with path.open("rb") as stream:
        assert logs.read_stream(stream, limits) == windows_of(io.BytesIO(b"x\n" * 100), limits)
    with path.open("rb") as stream:
        assert logs.read_stream(stream) == LogText.of(b"x\n" * 100)
