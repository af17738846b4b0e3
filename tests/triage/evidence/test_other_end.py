"""A connection of MPI that a crash cut does not hide the crash."""

from __future__ import annotations

from perdure.triage.judge import judge

CRASH = """[n1:41] *** Process received signal ***
[n1:41] Signal: Segmentation fault (11)
[n1:41] *** End of error message ***
"""
CUT = "[n2][[1,0],0][btl_tcp.c:559:mca_btl_tcp_recv_blocking] recv(46) failed: Connection reset by peer (104)\n"


def test_a_crash_explains_the_connections_that_it_cut() -> None:
    for log in (CRASH + CUT, CUT + CRASH):
        assert judge(log.encode()).category == "native_crash"


def test_without_a_crash_the_transport_is_the_cause() -> None:
    assert judge(CUT.encode()).category == "net"


def test_a_crash_of_another_run_explains_nothing() -> None:
    work = "".join(f"step {step} loss 0.1\n" for step in range(2000))
    assert judge((CRASH + work + CUT).encode()).category == "net"
