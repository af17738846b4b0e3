"""What keeps commands quick: a small what-if loads neither numba nor DuckDB, and reads the same without."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.cli.main import main
from perdure.cli.progress import tell_of_compiling_queue
from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import POLICIES, policy_named
from perdure.simulation import warm
from perdure.simulation.compiled import cache
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.simulate import simulate, worth_compiling
from perdure.simulation.warm import must_compile
from perdure.simulation.workload import Workload
from perdure.traces import columns
from perdure.traces.generate import generate
from perdure.traces.own import write
from perdure.traces.read import read
from perdure.traces.source import TraceSource

SLOW = {"numba", "duckdb", "matplotlib", "scipy", "rich", "concurrent.futures.process"}


@pytest.fixture
def trace(home: Path) -> Path:
    table = generate(300, Cluster.parse("4x8"), 0.9, np.random.default_rng(1))
    write(table, home / "t.csv")
    return home / "t.csv"


def test_a_small_what_if_loads_nothing_slow(trace: Path) -> None:
    code = "import sys; from perdure.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    words = ["whatif", str(trace), "--cluster", "4x8", "--policy", "fifo,srtf,las-2d"]
    env = {**os.environ, "PYTHONPATH": str(Path(perdure.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, env=env)
    assert "las-2d" in ran.stdout
    assert not SLOW & set(ran.stderr.split())


@pytest.mark.parametrize(
    ("jobs", "policy", "worth"),
    [
        (1000, "fifo", False),
        (1000, "las-2d", False),
        (1100, "fifo srtf las-2d", True),
        (1000, "fifo srtf las-2d", False),
        (2000, "gittins-2d", True),
        (20_000, "fifo", False),
        (20_000, "srtf", True),
        (100_000, "fifo", True),
        (100_000, "mine", True),
    ],
)
def test_the_loop_is_chosen_by_what_the_plain_one_would_take(
    jobs: int, policy: str, worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "perdure.simulation.compiled.run", raising=False)
    assert worth_compiling(jobs, policy.split(), None) is worth


def test_what_is_loaded_is_used_and_places_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "perdure.simulation.compiled.run", raising=False)
    assert worth_compiling(15_000, ["fifo"], placement_named("first-fit"))
    assert not worth_compiling(15_000, ["fifo"], None)
    monkeypatch.setitem(sys.modules, "perdure.simulation.compiled.run", sys)
    assert worth_compiling(1, ["fifo"], None)


def test_repeats_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 jobs are not worth it, 300 jobs a hundred times are; the schedule is the same."""
    table = generate(300, Cluster.parse("4x8"), 0.9, np.random.default_rng(1))
    once, often = (simulate(table, Cluster.parse("4x8"), "srtf", repeats=n) for n in (1, 100))
    assert (once.end_s == often.end_s).all()


def test_both_readers_read_the_same(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read(trace, None, skip_bad=False).table
    monkeypatch.setattr(columns, "_SMALL_BYTES", -1)
    other = read(trace, None, skip_bad=False).table
    for name in ("job_id", "submit_s", "gpus", "duration_s", "user", "vc", "gpu_type", "walltime_s", "ending"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(other, name), err_msg=name)


def test_the_header_of_a_small_file_is_not_read_for_each_row(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    known = vars(TraceSource)["header"]

    def header(source: str) -> Any:
        asked.append(source)
        return known.fget(source)

    monkeypatch.setattr(TraceSource, "header", property(header))
    assert len(read(trace, None, skip_bad=False).table) == 300
    assert len(asked) < 50


CELLS = st.text(alphabet="ab07.-+e_ \",;'\t\u00e9", max_size=6) | st.sampled_from(["1", "2.5", "nan", "inf", "0x1", ""])


def outcome(path: Path) -> list[Any] | None:
    try:
        table = read(path, "perdure", skip_bad=False).table
    except InputError:
        return None
    return [list(getattr(table, name)) for name in ("job_id", "submit_s", "gpus", "duration_s", "user")]


def loop_of(policy: str) -> Any:
    """The module of the compiled loop that a policy has; None where it has none."""
    drive = pytest.importorskip("perdure.simulation.compiled.run")
    table = generate(5, Cluster.parse("1x8"), 0.9, np.random.default_rng(1))
    loop = drive.compiled(Workload.of(table), Cluster.parse("1x8"), policy_named(policy), None)
    return loop and loop.advance.py_func.__module__.rpartition(".")[2]


def test_each_policy_is_known_by_the_loop_that_replays_it() -> None:
    known = {name: COMPILED.get(type(policy_named(name))) for name in POLICIES}
    assert {name: loop_of(name) for name in POLICIES} == known


def test_it_is_known_whether_a_replay_compiles_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "code_folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "installed_folder", lambda: None)
    monkeypatch.setattr(warm, "worth_compiling", lambda jobs, policies, placement: jobs > 100 and len(policies) > 0)
    assert must_compile(1000, ["fifo"], "count")
    assert not must_compile(10, ["fifo"], "count")
    assert not must_compile(1000, ["mine.py:Mine"], "count")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "nonpreemptive.advance-66.py311.nbi").touch()
    assert not must_compile(1000, ["fifo", "sjf:oracle"], "count")
    assert must_compile(1000, ["fifo", "dlas-gpu-8"], "count")


def test_a_replay_that_compiles_first_says_so(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "worth_compiling", lambda *_: True)
    monkeypatch.setattr(cache, "code_folder", lambda: None)
    monkeypatch.setattr(cache, "installed_folder", lambda: None)
    assert main(["whatif", str(trace), "--cluster", "4x8", "--policy", "fifo"]) == 0
    assert capsys.readouterr().err == "perdure: compiling the simulator, once on this machine: 5 to 20 s.\n"


@pytest.mark.parametrize(("jobs", "kept", "said"), [(81, False, True), (80, False, False), (81, True, False)])
def test_a_long_queue_that_compiles_first_says_so(
    jobs: int,
    kept: bool,
    said: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cache, "code_folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "installed_folder", lambda: None)
    if kept:
        (tmp_path / "live._resume_on_nodes-160.py311.nbi").touch()
    tell_of_compiling_queue(jobs)
    assert capsys.readouterr().err == "perdure: compiling the simulator, once on this machine: 5 to 20 s.\n" * said


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=3))
def test_both_readers_agree_on_hostile_rows(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("rows") / "t.csv"
    good = ("j", "5", "1", "60", "ada")
    lines = ["job_id,submit_s,gpus,duration_s,user", ",".join(good), *(",".join(row) for row in rows)]
    path.write_bytes("\n".join(lines).encode() + b"\n")
    plain = outcome(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_SMALL_BYTES", -1)
        assert outcome(path) == plain


def test_one_long_run_says_nothing_where_nobody_looks(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(trace), "--cluster", "4x8", "--policy", "fifo"]) == 0
    assert capsys.readouterr().err == ""
