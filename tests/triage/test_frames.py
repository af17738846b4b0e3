"""The message of an exception is shown, not the source line above it, and beside it the place in the job's own code."""

from perdure.triage.judge import FRAME, judge
from perdure.triage.verdict import CauseRole

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
