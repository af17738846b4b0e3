"""Programs that share a GPU: whose turn it is, what fits together, and the manager behind its socket."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.emulation.clocks import MOST_LATE_S
from perdure.emulation.device_manager import MOST_DENIED, MOST_OF_ONE_USER, MOST_PROGRAMS, SharedDevice, serve
from perdure.emulation.device_users import may_use
from perdure.emulation.faults import DeviceError, read_fault
from perdure.emulation.shared_gpu import SharedGpu
from perdure.emulation.sharing import ORDERS, Order, SharingProgram, fits_beside
from perdure.errors import InputError, StateError


def test_each_order_names_another() -> None:
    first = SharingProgram("first", served_s=9.0, off_gpu_s=1.0, asked_at=1.0)
    least = SharingProgram("least", served_s=1.0, off_gpu_s=2.0, asked_at=2.0)
    longest = SharingProgram("longest", served_s=5.0, off_gpu_s=8.0, asked_at=3.0)
    found = {name: order([longest, least, first]).name for name, order in ORDERS.items()}
    assert found == {"fifo": "first", "salus": "least", "muri": "longest"}


def test_programs_fit_if_what_all_hold_and_what_one_needs_more_do() -> None:
    two = [SharingProgram("a", 4000, 9000), SharingProgram("b", 3000, 10000)]
    assert fits_beside(two, 14000)
    assert not fits_beside(two, 13999)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    return tmp_path / "gpu.sock"


def test_two_programs_take_turns_and_together_as_long_as_one_after_the_other(device: Path) -> None:
    stop, served = threading.Event(), dict[str, float]()
    shared = SharedDevice(device, 16000, ORDERS["salus"])
    manager = threading.Thread(target=lambda: served.update(serve(shared, stop.is_set)))
    manager.start()
    begin = time.perf_counter()

    def program() -> None:
        gpu = SharedGpu(str(device))
        assert gpu.claim(1000, 5000) == ""
        for _ in range(10):
            gpu.wait(gpu.put(0.01))

    programs = [threading.Thread(target=program) for _ in range(2)]
    for each in programs:
        each.start()
    for each in programs:
        each.join()
    taken = time.perf_counter() - begin
    refused = SharedGpu(str(device)).claim(1000, 17000)
    stop.set()
    manager.join()
    assert taken >= 0.2
    assert sorted(served.values()) == pytest.approx([0.1, 0.1])
    assert "do not fit" in refused
    assert not device.exists()


def test_nonsense_ends_a_connection_and_nothing_else(device: Path) -> None:
    with manager_of(device):
        good = SharedGpu(str(device))
        for sent in (b"{}\n", b'{"number": 1, "seconds": -1}\n', b"x" * 5000, b'{"number": 1, "seconds": 1e9}\n'):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(str(device))
                link.sendall(sent)
                assert link.recv(100) == b""
        good.wait(good.put(0.001))


def test_without_a_manager_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no manager of a GPU answers there"):
        SharedGpu(str(tmp_path / "none.sock"), wait_s=0.0)


@contextmanager
def manager_of(device: Path, order: Order = ORDERS["fifo"], **more: Any) -> Iterator[None]:
    stop = threading.Event()
    manager = threading.Thread(target=serve, args=(SharedDevice(device, 16000, order, **more), stop.is_set))
    manager.start()
    try:
        SharedGpu(str(device))  # so that it is there
        yield
    finally:
        stop.set()
        manager.join()


def test_a_refused_program_holds_nothing_more_and_others_are_served(device: Path) -> None:
    with manager_of(device):
        large, small = SharedGpu(str(device)), SharedGpu(str(device))
        assert "do not fit" in large.claim(15000, 17000)
        assert small.claim(9000, 16000) == ""  # beside one that was refused
        assert "do not fit" in large.claim(1000, 1000)
        large.wait(large.put(0.001))


def test_nobody_else_reaches_the_socket(device: Path) -> None:
    with manager_of(device):
        assert device.stat().st_mode & 0o777 == 0o600


def test_muri_counts_from_the_end_of_a_programs_work_to_its_next_request(device: Path) -> None:
    seen: list[float] = []

    def order(waiting: Sequence[SharingProgram]) -> SharingProgram:
        seen.extend(each.off_gpu_s for each in waiting)
        return waiting[0]

    with manager_of(device, order):
        gpu = SharedGpu(str(device))
        gpu.wait(gpu.put(0.001))
        begin = time.perf_counter()
        time.sleep(0.1)
        gpu.wait(gpu.put(0.001))
        passed = time.perf_counter() - begin
    assert seen[0] == 0.0
    assert 0.0 < seen[1] <= passed + MOST_LATE_S


def test_muri_counts_no_time_off_the_gpu_where_the_next_request_is_there_already(device: Path) -> None:
    seen: list[float] = []

    def order(waiting: Sequence[SharingProgram]) -> SharingProgram:
        seen.extend(each.off_gpu_s for each in waiting)
        return waiting[0]

    with manager_of(device, order):
        gpu = SharedGpu(str(device))
        gpu.wait(gpu.put(0.001))
        time.sleep(0.05)
        gpu.put(0.05)
        gpu.wait(gpu.put(0.001))
    assert seen[1] > 0.0 == seen[2]


def asking(device: Path, request: bytes) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(device))
    link.sendall(request)
    return link


def test_work_of_a_program_that_has_left_ends(device: Path) -> None:
    with manager_of(device):
        asking(device, b'{"number": 1, "seconds": 80000}\n').close()
        gpu = SharedGpu(str(device))
        gpu.wait(gpu.put(0.001))


def test_a_manager_ends_in_the_middle_of_long_work(device: Path) -> None:
    with manager_of(device):
        link = asking(device, b'{"number": 1, "seconds": 80000}\n')
        time.sleep(0.5)
    assert not device.exists()
    link.close()


def test_more_programs_than_a_manager_takes_are_turned_away_and_others_stay(device: Path) -> None:
    with manager_of(device):
        first = SharedGpu(str(device))
        assert first.claim(0.0, 0.0) == ""
        links = []
        for _ in range(MOST_PROGRAMS):
            links.append(asking(device, b""))
        last = SharedGpu(str(device))
        with pytest.raises(StateError, match=f"{MOST_PROGRAMS} programs share this GPU already"):
            last.claim(0.0, 0.0)
        assert first.claim(0.0, 0.0) == ""
        for link in links:
            link.close()


def test_a_program_whose_manager_has_ended_is_told_so(device: Path) -> None:
    with manager_of(device):
        gpu = SharedGpu(str(device))
    with pytest.raises(StateError, match="the manager of this GPU has ended"):
        gpu.put(0.001)


def test_a_broken_device_breaks_each_program_that_has_it_and_its_driver_says_so_once(
    device: Path, tmp_path: Path
) -> None:
    faults = tuple(map(read_fault, ("xid79@0s#3", "ecc@0s#2")))
    with manager_of(device, number=3, faults=faults, kernel_log=tmp_path / "kernel.log"):
        for _ in range(2):
            with pytest.raises(DeviceError, match="CUDA error: unknown error"):
                SharedGpu(str(device)).claim(0.0, 0.0)
    assert (tmp_path / "kernel.log").read_text().startswith(f"NVRM: Xid (PCI:0000:1b:00): 79, pid={os.getpid()}, GPU")
    assert (tmp_path / "kernel.log").read_text().count("\n") == 1


def test_work_that_runs_when_the_device_breaks_is_not_done(device: Path) -> None:
    with manager_of(device, faults=(read_fault("ecc@0.5s"),)):
        gpu = SharedGpu(str(device))
        work = gpu.put(2.0)
        with pytest.raises(DeviceError, match="uncorrectable ECC error"):
            gpu.wait(work)


def test_a_slow_device_takes_longer_for_all_and_a_slow_link_for_copies(device: Path) -> None:
    served: dict[str, float] = {}
    stop = threading.Event()
    faults = tuple(map(read_fault, ("slow2@0s", "link4@0s", "hang0.05@0s")))
    shared = SharedDevice(device, 16000, ORDERS["fifo"], faults=faults)
    manager = threading.Thread(target=lambda: served.update(serve(shared, stop.is_set)))
    manager.start()
    for _ in range(2):  # the first one hangs
        gpu = SharedGpu(str(device))
        gpu.wait(gpu.put(0.01))
        assert gpu.copy_s(0.001) == pytest.approx(0.008)  # beside what others compute
    stop.set()
    manager.join()
    assert list(served.values()) == pytest.approx([0.02 + 0.05, 0.02])


def test_who_has_a_gpu_by_the_resource_manager_may_use_it_and_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "2.4711").write_text("65534\n")
    (tmp_path / "12.4712").write_text("1\n")
    assert may_use(tmp_path, 2, 65534)
    assert not may_use(tmp_path, 2, 1)
    assert not may_use(tmp_path, 1, 65534)
    assert not may_use(tmp_path, 1, 1)  # whose is GPU 12
    assert may_use(tmp_path, 1, os.geteuid())
    (tmp_path / "2.4711").unlink()
    assert not may_use(tmp_path, 2, 65534)


def test_a_program_that_does_not_read_is_left_and_nobody_waits_for_it(device: Path) -> None:
    with manager_of(device), socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(device))
        deaf.settimeout(60.0)
        asked = b'{"number": 1, "seconds": 0}\n' * 1_000_000
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            deaf.sendall(asked)
        assert SharedGpu(str(device)).claim(1.0, 1.0) == ""


def test_the_socket_of_a_killed_manager_is_taken_over_and_that_of_a_living_one_is_not(device: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(device))
    with manager_of(device):
        assert SharedGpu(str(device)).claim(1.0, 1.0) == ""
        with pytest.raises(StateError, match="Address already in use"):
            serve(SharedDevice(device, 16000, ORDERS["fifo"]), lambda: True)
        assert SharedGpu(str(device)).claim(1.0, 1.0) == ""


def test_a_file_or_a_link_at_the_sockets_place_stays(device: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other"))
    device.symlink_to(tmp_path / "other")
    (tmp_path / "file").write_text("kept")
    for path in (device, tmp_path / "file"):
        with pytest.raises(StateError, match="Address already in use"):
            serve(SharedDevice(path, 16000, ORDERS["fifo"]), lambda: True)
    assert device.is_symlink()
    assert (tmp_path / "file").read_text() == "kept"


IDLE = """
import os, socket, sys
os.setuid(65534)
links = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[1]))]
for each in links:
    each.settimeout(10.0)
    each.connect("gpu.sock")
for each in links[int(sys.argv[2]):]:
    assert b"not given to any job of yours" in each.recv(4096)
    assert each.recv(1) == b""
print("idle", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_users_without_a_job_there_keep_nobody_out(device: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    tmp_path.chmod(0o755)
    with manager_of(device, jobs=jobs):
        SharedGpu(str(device))
        command = [sys.executable, "-c", IDLE, str(MOST_PROGRAMS), str(MOST_DENIED)]
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idle:
            assert idle.stdout is not None
            assert idle.stdout.readline() == "idle\n"
            assert SharedGpu(str(device)).claim(1.0, 1.0) == ""


def test_one_user_s_programs_do_not_take_all_places_of_a_gpu_of_several(device: Path, tmp_path: Path) -> None:
    with manager_of(device, jobs=tmp_path):
        first = SharedGpu(str(device))
        kept = [SharedGpu(str(device)) for _ in range(MOST_OF_ONE_USER)]
        with pytest.raises(StateError, match=f"{MOST_OF_ONE_USER} programs of yours share this GPU already"):
            kept[-1].claim(0.0, 0.0)
        assert first.claim(0.0, 0.0) == ""


MANY = """
import os, socket, sys
os.setuid(65534)
links = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[1]))]
for each in links:
    each.connect("gpu.sock")
    each.sendall(b'{"number": 1, "seconds": 0}\\n')
    assert b'"done":true' in each.recv(4096)
print("there", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_as_many_programs_of_another_user_as_one_may_have_take_none_of_mine(device: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "0.4711").write_text("65534\n")
    tmp_path.chmod(0o755)
    with manager_of(device, jobs=jobs):
        command = [sys.executable, "-c", MANY, str(MOST_OF_ONE_USER)]
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as many:
            assert many.stdout is not None
            assert many.stdout.readline() == "there\n"
            assert SharedGpu(str(device)).claim(1.0, 1.0) == ""


def test_a_manager_that_may_open_no_more_files_serves_on(device: Path) -> None:
    with manager_of(device):
        first = SharedGpu(str(device))
        assert first.claim(0.0, 0.0) == ""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        late = socket.socket(socket.AF_UNIX)
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
        try:
            late.connect(str(device))
            assert first.claim(0.0, 0.0) == ""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with late:
            late.sendall(b'{"number": 1, "seconds": 0}\n')
            assert b'"done":true' in late.recv(4096)
