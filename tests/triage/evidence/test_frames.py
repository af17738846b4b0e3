"""The message of an exception is shown, not the source line above it, and beside it the place in the job's own code."""

import pytest

from perdure.triage.judge import FRAME, judge
from perdure.triage.verdict import CauseRole, Label

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/home/ada/train.py", line 90, in <module>
    main()
  File "/home/ada/model.py", line 42, in forward
    raise RuntimeError("CUDA out of memory") if self.broken else ValueError(self.layers(batch))
  File "{TORCH}/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)  # RuntimeError: mat1 and mat2 shapes cannot be multiplied
           ^^^^^^^^
RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x31 and 32x64)
"""


def evidence(text: str) -> list[tuple[int, str, str]]:
    return [(line.line, line.text, line.rule) for line in judge(text.encode()).evidence]


def test_a_source_line_that_a_traceback_quotes_is_no_sign() -> None:
    verdict = judge(TRACEBACK.encode())
    assert verdict.category == "shape"
    assert [line.line for line in verdict.evidence if line.role is CauseRole.ROOT] == [11]


def test_the_innermost_frame_of_own_code_stands_beside_the_message() -> None:
    shown = evidence(TRACEBACK)
    message = next(at for at, line in enumerate(shown) if line[0] == 11)
    assert shown[message - 1] == (6, 'File "/home/ada/model.py", line 42, in forward', FRAME)


def test_tracebacks_of_two_ranks_that_are_mixed_are_told_apart() -> None:
    other = TRACEBACK.replace("model.py", "other.py").replace("(16x31", "(99x31")
    pairs = zip(other.splitlines(), TRACEBACK.splitlines(), strict=True)
    mixed = "".join(f"[rank0]: {a}\n[rank1]: {b}\n" for a, b in pairs)
    (frame,) = [text for _, text, rule in evidence(mixed) if rule == FRAME]
    assert "other.py" in frame  # rank 0 stands first


def test_a_message_without_a_traceback_has_no_frame() -> None:
    bare = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x31 and 32x64)\n"
    assert [rule for _, _, rule in evidence(bare)] == ["shape"]


def test_a_second_traceback_ends_at_its_own_head() -> None:
    bare = TRACEBACK.replace("/home/ada/model.py", TORCH).replace("/home/ada/train.py", TORCH)
    assert FRAME not in [rule for _, _, rule in evidence('  File "/home/ada/old.py", line 1, in x\n' + bare)]


def test_where_no_source_is_at_hand_the_message_below_a_frame_counts() -> None:
    text = 'Traceback (most recent call last):\n  File "data.py", line 41, in f\nConnectionResetError: [Errno 104] x\n'
    assert judge(text.encode()).category == "net"


def test_a_frame_of_cpp_is_no_sign() -> None:
    text = """\
Exception raised from throwTimeoutError at ../torch/csrc/distributed/c10d/socket.cpp:1015 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f1 in /opt/venv/lib/libc10.so)
frame #1: c10d::TCPStore::TCPStore(std::string, c10d::TCPStoreOptions const&, std::error_code) + 0x10 (0x7f in x.so)

torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (n1, 1).
"""
    assert [line.text.partition(":")[0] for line in judge(text.encode()).evidence] == [
        "torch.distributed.DistNetworkError"
    ]


CUT = 'epoch 1\nTraceback (most recent call last):\n  File "/home/ada/train.py", line 9, in <module>\n    main()\n'


@pytest.mark.parametrize("end", ["", '  File "/home/ada/tra', "srun: job 7 queued\n", "    f()\n"])
def test_a_traceback_that_is_cut_off_says_nothing_of_the_cause(end: str) -> None:
    verdict = judge((CUT + end).encode())
    assert verdict.label is Label.UNSURE
    assert "inside its traceback" in verdict.summary


@pytest.mark.parametrize("message", ["BadShard: shard 7 has no header", "mypkg.io.BadShard", "mylib.error: odd"])
@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_the_last_line_of_a_traceback_is_the_exception_whatever_its_name(message: str, prefix: str) -> None:
    lines = [*CUT.splitlines()[1:], message]
    verdict = judge("".join(f"{prefix}{line}\n" for line in lines).encode())
    assert verdict.summary.startswith("an error whose like was not seen before")
    assert verdict.label is Label.UNSURE
    (root,) = [line for line in verdict.evidence if line.role is CauseRole.ROOT]
    assert (root.line, root.text) == (4, message)
    assert FRAME in [line.rule for line in verdict.evidence]


def test_of_exceptions_that_follow_each_other_the_first_is_the_cause() -> None:
    chain = f"{CUT}BadShard: x\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert [line.text for line in judge(f"{chain}{CUT}Gone: y\n".encode()).evidence if line.role is CauseRole.ROOT] == [
        "BadShard: x"
    ]
    assert judge(f"{chain}{CUT}".encode()).label is Label.UNSURE


def test_the_exception_of_a_group_ends_its_traceback() -> None:
    group = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/ada/train.py", line 9, in <module>
  |     main()
  | Several: two of them (2 sub-exceptions)
"""
    assert "Several: two of them (2 sub-exceptions)" in [line.text for line in judge(group.encode()).evidence]
