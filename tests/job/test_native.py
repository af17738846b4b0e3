"""Whose code a process waits in: told from return addresses, and seen of real processes."""

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.hangs.rank_state import PYTHON, Life
from perdure.job.inspection import look_at
from perdure.job.native import Area, areas_of, code_of, waits_in
from tests.job.launching import on_linux, wait_until
from tests.job.test_inspection import HERE, running

LIBC = Area(100, 200, "/usr/lib/x86_64-linux-gnu/libc.so.6")
STDCPP = Area(200, 300, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30")
TORCH = Area(300, 400, "/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so")
PYTHON_ITSELF = Area(400, 500, "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0")
ZMQ = Area(500, 600, "/v/lib/python3.11/site-packages/zmq/backend/cython/_zmq.so")
AREAS = [LIBC, STDCPP, TORCH, PYTHON_ITSELF, ZMQ]


@pytest.mark.parametrize(
    ("stack", "code"),
    [
        ((0, 110, 210, 310, 320, 410, 420, 430), "libtorch_cpu.so"),
        ((0, 110, 410, 420, 430, 310), PYTHON),
        ((110, 410, 310, 420), PYTHON),  # one of torch's is left from before
        ((310, 410, 320, 420), "libtorch_cpu.so"),
        ((410, 310, 320, 430), "libtorch_cpu.so"),
        ((510, 520, 410, 420), ""),
        ((110, 210), ""),
        ((99, 600, 2**63), ""),
        ((), ""),
    ],
)
def test_the_innermost_return_addresses_decide(stack: tuple[int, ...], code: str) -> None:
    assert code_of(stack, AREAS) == code


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/opt/conda/bin/python3.10", PYTHON),
        ("/usr/lib/python3.11/lib-dynload/select.cpython-311-x86_64-linux-gnu.so", PYTHON),
        ("/v/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.535.54", "libcuda.so.535.54"),
        ("/opt/ompi/lib/libmpi.so.40", "libmpi.so.40"),
        ("/v/lib/python3.11/site-packages/mpi4py/MPI.cpython-311.so", "MPI.cpython-311.so"),
        ("/home/torch/lib/libfoo.so", ""),
        ("/home/torch/v/lib/python3.11/site-packages/numpy/core/_multiarray.so", ""),
    ],
)
def test_libraries_are_known_by_their_names(path: str, code: str) -> None:
    assert code_of((1, 1, 1), [Area(0, 9, path)]) == code


def test_areas_of_code_are_read() -> None:
    maps = "7f00-7f10 r--p 0 08:01 3   /a b.so\n7f10-7f20 r-xp 0 08:01 3   /a b.so\n7f30-7f40 rwxp 0 0:0 0 \n"
    assert areas_of(maps) == [Area(0x7F10, 0x7F20, "/a b.so")]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.lists(st.integers(0, 700), max_size=50))
def test_any_stack_can_be_read(noise: list[Any], words: list[Any]) -> None:
    assert code_of([*noise, *words], AREAS) in ("", PYTHON, "libtorch_cpu.so")


@on_linux
@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "waits for a lock, in Python"),
        ("import queue; queue.Queue().get()", "waits for a lock, in Python"),
        (
            "import os, select; select.select([os.pipe()[0]], [], [])",
            "waits for one of several files or connections, in Python",
        ),
        (
            "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.accept()",
            "waits for somebody to connect, in Python",
        ),
        ("import socket; one, other = socket.socketpair(); one.recv(1)", "waits for data from a connection, in Python"),
    ],
)
def test_one_that_waits_in_python_stands_still_there(code: str, where: str) -> None:
    with running(code) as process:
        told = Life.ELSEWHERE, where
        wait_until(lambda: [(sight.life, sight.where) for sight in look_at([process.pid], HERE)] == [told])


@on_linux
def test_a_program_that_python_waits_for_is_named() -> None:
    code = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    with running(code) as process:
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        (child,) = wait_until(lambda: [int(pid) for pid in open(children).read().split()])  # noqa: SIM115
        wait_until(lambda: look_at([process.pid, child], HERE)[0].where == f"its process {child} (sleep): sleeps")
        subprocess.run(["kill", str(child)], check=True)


@on_linux
def test_a_forked_copy_that_sleeps_is_named() -> None:
    code = "import os, select, time; r, w = os.pipe(); os.fork() or time.sleep(60); select.select([r], [], [])"
    with running(code) as process:
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        (child,) = wait_until(lambda: [int(pid) for pid in open(children).read().split()])  # noqa: SIM115
        end = f"; its process {child} sleeps"
        wait_until(lambda: look_at([process.pid, child], HERE)[0].where.endswith(end))
        subprocess.run(["kill", str(child)], check=True)


@on_linux
def test_of_one_that_is_gone_nothing_is_told() -> None:
    with running("pass") as process:
        process.wait()
        assert waits_in(process.pid) == ""
