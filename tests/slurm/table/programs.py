"""Shell text of programs that fail: the messages are those of PyTorch, NCCL and Python."""

SHAPE = """
echo 'step 1 loss 0.5'
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""
LOST_PEER = """
echo 'step 700 loss 0.5'
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
OUT_OF_MEMORY = """
echo 'step 1 loss 0.5'
echo 'torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total)' >&2
exit 1
"""
ECC = """
echo 'step 40 loss 0.5'
echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2
echo '[  812.1] NVRM: Xid (PCI:0000:4e:00): 79, pid=4242, GPU has fallen off the bus.' >&2
exit 1
"""
DISK_FULL = "echo \"OSError: [Errno 28] No space left on device: '/tmp/x.pt'\" >&2; exit 1"
PASSED_CHECK_AND_KEY_ERROR = """
echo '[taskprolog] GPU health: checking dmesg for Xid 79 (GPU has fallen off the bus) ... none'
echo '[taskprolog] volatile uncorrectable ECC error count: 0 ... ok'
echo 'Traceback (most recent call last):'
echo "KeyError: 'lr'" >&2
exit 1
"""


def fails_with(program: str) -> str:
    """The program on one line, to stand inside another's ``if`` and within single quotes."""
    return "; ".join(line for line in program.replace("'", '"').splitlines() if line)
