"""What-if questions on the command line: figures, files of schedules, and bad input in one line."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import __version__
from perdure.cli import workers
from perdure.installation import install_command
from perdure.simulation.failures import FAILURE_WORDS
from perdure.studies import delay as study_delay
from perdure.studies import retry as study_retry
from perdure.traces import columns
from perdure.traces.read import read
from tests.cli.conftest import Ran
from tests.conftest import require

pytestmark = pytest.mark.usefixtures("says_nothing_of_compiling")

CASES = [("60_job", 8), ("60_job", 16), ("syn40b", 16), ("syn200", 32), ("syn480", 60)]
SPREADS = ["mean", "p50", "p90", "p95", "p99"]
KEYS = [
    "policy", "retry", "seed", "jobs", "finished", "jct_s", "wait_s", "makespan_s", "utilisation", "goodput",
    "wasted_gpu_h", "success_rate", "events", "sim_seconds",
]  # fmt: skip
HEADER = "job_id,submit_s,gpus,duration_s\n"


@pytest.fixture
def trace(home: Path) -> str:
    """Two jobs want the only GPU; under FIFO the long one, which came first, goes first."""
    (home / "jobs.csv").write_text(HEADER + "long,0,1,100\nshort,10,1,5\n")
    return "jobs.csv"


@pytest.fixture(scope="module")
def golden(data_dir: Path | None) -> Path:
    where = require("data", data_dir, "no golden schedules here")
    require("data", (where / "golden-schedulers").is_dir(), "no golden schedules here")
    return where / "golden-schedulers" / "tiresias"


def rows_of(path: Path) -> list[Any]:
    with gzip.open(path, "rt") if path.name.endswith(".gz") else path.open() as lines:
        return sorted(lines.read().splitlines())


@pytest.mark.parametrize(("name", "gpus"), CASES)
def test_schedules_of_tiresias_come_out_the_same_line_for_line(
    perdure: Callable[..., Ran], home: Path, golden: Path, name: str, gpus: int
) -> None:
    expected = rows_of(golden / f"{name}@{gpus}gpu.expected.csv.gz")
    policies = {row.partition(",")[0] for row in expected} - {"policy"}
    ran = perdure(
        "whatif", str(golden / f"{name}.csv.gz"), "--cluster", f"1x{gpus}", "--policy", ",".join(policies),
        "--compat", "tiresias", "--queue-limits", "3250,7200",
        "--gittins-samples", str(golden / "yarn-gput1000.csv"), "--jobs-out", "out.csv",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert rows_of(home / "out.csv") == expected


def test_the_figures_as_json(perdure: Callable[..., Ran], trace: str) -> None:
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,srtf", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(ran.json) == ["comparison", "details", "foresight", "manifest", "runs", "schema", "warnings"]
    fifo, srtf = ran.json["runs"]
    assert list(fifo) == list(srtf) == KEYS
    assert list(fifo["jct_s"]) == list(fifo["wait_s"]) == SPREADS
    assert fifo["jct_s"] == {"mean": 97.5, "p50": 95.0, "p90": 100.0, "p95": 100.0, "p99": 100.0}
    assert srtf["jct_s"]["mean"] == (112 + 5) / 2  # the long job restarts for 7 s
    assert (fifo["makespan_s"], fifo["utilisation"], fifo["finished"]) == (105, 1.0, 2)
    of_fifo, of_srtf = ran.json["details"]
    assert (of_fifo["wasted_gpu_h_by_cause"], of_fifo["groups"][""]["wait_s"]["mean"]) == ({}, 45.0)
    assert of_fifo["rho"]["mean"] > of_srtf["rho"]["mean"]


def test_the_figures_as_a_table(perdure: Callable[..., Ran], trace: str) -> None:
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,dlas-gpu")
    assert (ran.code, ran.err) == (0, "")
    head, fifo, las, *_ = ran.out.split("\n\n")[1].splitlines()
    assert head.split()[:3] == ["POLICY", "JOBS", "JCT"]
    assert "SEED" not in head
    assert fifo.split()[:4] == ["fifo", "2", "1.6", "min"]
    assert las.split()[0] == "dlas-gpu"


def test_three_sentences_say_which_policy_how_sure_that_is_and_who_loses(
    perdure: Callable[..., Ran], trace: str
) -> None:
    which, sure, loses, *_ = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,srtf").out.splitlines()
    assert which == (
        "Stay with fifo: none of the others that can be run is better in the mean. "
        "Bounds, which know what no scheduler knows: "
        "srtf -40%."
    )
    assert sure == "How certain this is cannot be said: jobs came on 1 day, and 7 are needed."
    assert loses == "Nobody loses, since nothing changes."
    assert perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo").out.startswith(
        "POLICY"
    )  # nothing to compare
    told = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,srtf", "--json").json["comparison"]
    assert told[0]["says"] == [which, sure, loses]
    assert [each["mark"] for each in told[0]["standings"]] == ["best", "bound"]


@pytest.fixture
def reported(perdure: Callable[..., Ran], home: Path) -> Path:
    """A comparison that depends on chance, with its report in `first`."""
    pytest.importorskip("matplotlib")
    perdure("trace", "generate", "--jobs", "120", "--cluster", "2x8", "--load", "2", "--out", "jobs.csv")
    words = "--policy", "fifo,srtf", "--failures", "nodes", "--seeds", "2", "--vc-quota", "vc01=4"
    assert perdure("whatif", "jobs.csv", "--cluster", "2x8", *words, "--out", "first").code == 0
    return home / "first"


def test_the_same_figures_come_again_byte_for_byte_from_the_manifest(
    perdure: Callable[..., Ran], home: Path, reported: Path
) -> None:
    assert perdure("whatif", "--again", "first/figures.json", "--out", "again").code == 0
    names = {path.name for path in reported.iterdir()}
    assert names >= {"figures.csv", "figures.json", "index.html"}
    assert {path.name for path in (home / "again").iterdir()} == names
    for name in names:
        assert (home / "again" / name).read_bytes() == (reported / name).read_bytes(), name


def test_the_manifest_names_what_the_figures_depend_on(perdure: Callable[..., Ran], home: Path, reported: Path) -> None:
    found = json.loads((reported / "figures.json").read_text())["manifest"]
    assert found["version"] == __version__
    assert found["options"]["policy"] == "fifo,srtf"
    assert (found["seeds"], found["cluster"]) == ([0, 1], {"gpus": 16, "nodes": {"8": 2}})
    digest = hashlib.sha256((home / "jobs.csv").read_bytes()).hexdigest()
    assert [(each["path"], each["sha256"]) for each in found["inputs"]] == [("jobs.csv", digest)]
    ran = perdure(*shlex.split(found["command"])[1:], "--out", "by-hand")
    assert ran.code == 0
    assert (home / "by-hand" / "figures.json").read_bytes() == (reported / "figures.json").read_bytes()


def test_gittins_learns_from_the_first_part_and_is_judged_by_the_rest(perdure: Callable[..., Ran], home: Path) -> None:
    """Half of 200 s: job a has ended (its GPU-seconds are 60), b runs on; c and d come later."""
    early, late = "a,0,2,30\nb,10,1,500\n", "c,110,1,100\nd,120,1,40\ne,200,1,9\n"
    (home / "all.csv").write_text(HEADER + early + late)
    (home / "late.csv").write_text(HEADER + late)
    (home / "past.txt").write_text("60\n")
    words = "--cluster", "1x2", "--policy", "fifo,gittins-2d"
    ran = perdure("whatif", "all.csv", *words, "--gittins-split", "0.5", "--json")
    by_hand = perdure("whatif", "late.csv", *words, "--gittins-samples", "past.txt", "--json")
    for name in ("jobs", "jct_s", "wait_s"):
        assert [run[name] for run in ran.json["runs"]] == [run[name] for run in by_hand.json["runs"]]
    assert ran.json["runs"][0]["jobs"] == 3
    assert "foresight" not in ran.json
    told = (
        "gittins-2d learned from the 1 jobs that had ended in the first 50% of the time; "
        "the 3 that came later are compared, on a cluster that is empty when the first of them comes"
    )
    assert told in ran.json["warnings"]
    assert ran.json["manifest"]["options"]["gittins_split"] == 0.5


def test_a_split_that_no_policy_learns_from_is_refused(perdure: Callable[..., Ran], trace: str) -> None:
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,las", "--gittins-split", "0.5")
    assert (ran.code, "--gittins-split: none of the policies is gittins-2d" in ran.err) == (2, True)
    named = perdure("whatif", trace, "--cluster", "1x1", "--policy", "dlas-gpu-gittins", "--gittins-split", "0.00001")
    assert "--gittins-split: no job has ended in that part of the trace" in named.err


def test_each_replay_against_the_record_is_named_by_what_it_differs_in(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "was.csv").write_text(HEADER.strip() + ",start_s\na,0,1,9,0\nb,1,1,9,9\n")
    ran = perdure("whatif", "was.csv", "--cluster", "1x1", "--policy", "fifo", "--retry", "never,always:1")
    rows = ran.out.split("WAITS OFF BY")[1].splitlines()[1:3]
    assert [" ".join(row.split()[:2]) for row in rows] == ["fifo, never", "fifo, always:1"]
    (home / "too.csv").write_text((home / "was.csv").read_text())
    ran = perdure("whatif", "was.csv", "too.csv", "--cluster", "1x1", "--policy", "fifo")
    rows = ran.out.split("WAITS OFF BY")[1].splitlines()[1:3]
    assert [" ".join(row.split()[:2]) for row in rows] == ["was.csv: fifo", "too.csv: fifo"]


def test_every_file_that_is_read_beside_the_ones_named_is_an_input(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "slurm.conf").write_text("NodeName=n[1-2] Gres=gpu:4\nInclude more.conf\n")
    (home / "more.conf").write_text("PartitionName=main Nodes=ALL Default=YES\n")
    (home / "jobs.csv").write_text(HEADER + "a,0,1,9\n")
    ran = perdure("whatif", "jobs.csv", "--slurm-conf", "slurm.conf", "--policy", "slurm", "--json")
    paths = [each["path"] for each in ran.json["manifest"]["inputs"]]
    assert paths == ["jobs.csv", "slurm.conf", "more.conf"]
    (home / "g.trace").write_text("A\tpython3 main.py\t-step\t1\t100\t0\t1\n")
    (home / "g.trace.rates.csv").write_text("job,scale_factor,steps_per_s\nA,1,4\n")
    ran = perdure("whatif", "g.trace", "--cluster", "1x1", "--policy", "fifo", "--format", "gavel", "--json")
    assert [each["path"] for each in ran.json["manifest"]["inputs"]] == ["g.trace", "g.trace.rates.csv"]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("seeds", "x", "manifest.options.seeds: 'x' is not a whole number from 1 to 10000"),
        ("seeds", 10**9, "manifest.options.seeds: 1000000000 is out of range"),
        ("policy", 3, "manifest.options.policy: 3 is not a text"),
        ("policy", None, "manifest.options.policy: None is not a text"),
        ("gittins_split", "half", "manifest.options.gittins_split: 'half' is not a number"),
        ("load", [1], "manifest.options.load: [1] is not a text"),
        ("traces", "jobs.csv", "manifest.options.traces: 'jobs.csv' is not a list"),
        ("skip_bad", "no", "manifest.options.skip_bad: 'no' is not true or false"),
        ("out", "/", "manifest.options.out: is not known"),
    ],
)
def test_a_manifest_whose_options_are_not_such_is_refused_in_one_line(
    perdure: Callable[..., Ran], home: Path, trace: str, name: str, value: Any, complaint: str
) -> None:
    told = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo", "--json").json
    told["manifest"]["options"][name] = value
    (home / "figures.json").write_text(json.dumps(told))
    ran = perdure("whatif", "again", "figures.json")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert f"figures.json: {complaint}" in ran.err


def test_every_file_that_the_figures_depend_on_is_an_input(perdure: Callable[..., Ran], home: Path) -> None:
    for name, text in {
        "jobs.csv": HEADER.strip() + ",vc\na,0,1,9,x\n", "machines.csv": "gpus\n4\n", "past.txt": "5\n",
        "quotas.csv": "vc,gpus\nx,4\n",
    }.items():  # fmt: skip
        (home / name).write_text(text)
    words = "--cluster", "machines.csv", "--gittins-samples", "past.txt", "--vc-quota", "quotas.csv"
    ran = perdure("whatif", "jobs.csv", *words, "--policy", "gittins-2d,philly", "--json")
    paths = {each["path"] for each in ran.json["manifest"]["inputs"]}
    assert paths == {"jobs.csv", "machines.csv", "past.txt", "quotas.csv"}


def test_figures_do_not_come_again_from_other_inputs_or_another_version(
    perdure: Callable[..., Ran], home: Path, reported: Path
) -> None:
    told = reported / "figures.json"
    told.write_text(told.read_text().replace(f'"version": "{__version__}"', '"version": "0.0.1"'))
    assert "its figures are of Perdure 0.0.1" in perdure("whatif", "--again", "first/figures.json").err
    told.write_text(told.read_text().replace('"version": "0.0.1"', f'"version": "{__version__}"'))
    with (home / "jobs.csv").open("a") as file:
        file.write("\n")
    ran = perdure("whatif", "--again", "first/figures.json")
    assert (ran.code, "jobs.csv: it has changed" in ran.err) == (2, True)
    (home / "empty.json").write_text("{}")
    assert "it holds no manifest" in perdure("whatif", "--again", "empty.json").err
    assert "No such option: --policy" in perdure("whatif", "again", "first/figures.json", "--policy", "fifo").err


def test_a_manifest_runs_nobodys_code(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    (home / "mine.py").write_text("raise SystemExit(7)\n")
    empty = hashlib.sha256((home / "jobs.csv").read_bytes()).hexdigest()
    inputs = [{"path": "jobs.csv", "bytes": 1, "sha256": empty}]
    words = {"placement": "count", "retry": "recorded", "failures": "recorded", "skip_bad": False}
    options = {**words, "traces": ["jobs.csv"], "policy": "mine.py:Mine"}
    manifest = {"version": __version__, "options": options, "inputs": inputs}
    (home / "figures.json").write_text(json.dumps({"manifest": manifest}))
    ran = perdure("whatif", "--again", "figures.json")
    assert (ran.code, "mine.py" in ran.err) == (2, True)


def test_all_figures_are_a_table_too(reported: Path) -> None:
    with (reported / "figures.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    told = json.loads((reported / "figures.json").read_text())
    every = [row for row in rows if row["of"] == "all jobs"]
    assert [float(row["jct_s_mean"]) for row in every] == [run["jct_s"]["mean"] for run in told["runs"]]
    assert {row["of"] for row in rows} == {"all jobs", "virtual cluster", "user", "GPUs", "day"}
    fifo = [row for row in rows if (row["policy"], row["seed"]) == ("fifo", "0")]
    assert sum(int(row["jobs"]) for row in fifo if row["of"] == "user") == 120
    assert [float(row["used"]) for row in fifo if row["of"] == "day"] == [
        each["used"] for each in told["details"][0]["use_by_day"]
    ]


def test_a_preemption_costs_what_is_said(perdure: Callable[..., Ran], trace: str) -> None:
    def ends(*words: str) -> tuple[Any, Any]:
        ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "srtf", *words, "--json")
        return ran.json["runs"][0]["makespan_s"], ran.json["details"][0]["restart_gpu_h"] * 3600

    assert ends() == ends("--preemption-cost", "1:7,8:30,60") == (112, 7)
    assert ends("--preemption-cost", "30") == (135, pytest.approx(30))
    assert ends("--preemption-cost", "0") == ends("--compat", "tiresias") == (105, 0)
    words = "whatif", trace, "--cluster", "1x1", "--policy", "srtf"
    said = perdure(*words).out.splitlines()[-1]
    assert said == "Restarts took up to 0.0 GPU h (srtf); one job was preempted 1 time."
    assert "is not a cost" in perdure(*words, "--preemption-cost", "x").err


def test_what_differs_between_runs_is_told(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    (home / "more.csv").write_text(HEADER + "j,0,1,7\n")
    words = "whatif", trace, "more.csv", "--cluster", "1x1", "--policy", "fifo", "--seeds", "2"
    ran = perdure(*words, "--jobs-out", "out.csv")
    assert ran.out.split()[:3] == ["POLICY", "TRACE", "JOBS"]
    with (home / "out.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["trace", "seed", "policy", "job_id", "start", "end", "preempt", "promote"]
    assert [row["job_id"] for row in rows] == ["long", "short", "long", "short", "j", "j"]
    runs = perdure(*words, "--json").json["runs"]
    assert [(run["trace"], run["seed"]) for run in runs] == [(name, n) for name in (trace, "more.csv") for n in (0, 1)]


def test_seeds_are_shown_together_with_their_interval(perdure: Callable[..., Ran], home: Path) -> None:
    perdure("trace", "generate", "--jobs", "200", "--cluster", "2x8", "--load", "2", "--out", "jobs.csv")
    ran = perdure("whatif", "jobs.csv", "--cluster", "2x8", "--policy", "fifo", "--failures", "nodes", "--seeds", "3")
    head, row, says, *_ = ran.out.splitlines()
    assert head.split()[:2] == ["POLICY", "JOBS"]
    assert " to " in row
    same = perdure("whatif", "jobs.csv", "--cluster", "2x8", "--policy", "fifo", "--failures", "none", "--seeds", "3")
    assert " to " not in same.out.splitlines()[1]  # nothing in it depends on chance
    assert same.out.splitlines()[2] == "Means over 3 seeds, which all gave the same."
    assert says == "Means over 3 seeds; in brackets the interval at 95%, by bootstrap."


def test_a_trace_with_starts_is_shown_as_it_was_and_says_how_far_to_believe_the_rest(
    perdure: Callable[..., Ran], home: Path
) -> None:
    (home / "jobs.csv").write_text(
        HEADER.strip() + ",start_s\nfirst,0,1,100,0\nlong,10,1,9000,100\nshort,20,1,600,9100\nnever,30,1,9,\n"
    )
    words = "whatif", "jobs.csv", "--cluster", "1x1", "--policy", "srtf,fifo"
    ran = perdure(*words)
    assert (ran.code, ran.err) == (0, "")
    head, was, *replays = ran.out.split("\n\n")[1].splitlines()
    assert was.startswith("as it was  3 ")
    assert [row.split()[0] for row in replays] == ["srtf", "fifo", "Jobs", "The", "srtf:", "Restarts"]
    assert ["bound" in replays[0], "best" in replays[1], "best" in was] == [True, True, False]
    head, _, fifo, says = ran.out.split("\n\n")[2].splitlines()
    assert head.split("  ")[0] == "POLICY"
    assert fifo.split() == ["fifo", "3", "0", "s", "100%", "1.00", "0.0%"]
    assert says.startswith("fifo is nearest to what was recorded. The replay is close to what was recorded: 100%")
    told = perdure(*words, "--json").json
    assert [row["policy"] for row in told["as_it_was"]] == ["as it was"]
    assert [error["all"]["within_2x"] < 1 for error in told["replay_error"]] == [True, False]
    assert "as it was" not in perdure(*words, "--load", "0.5").out  # recorded starts mean nothing then


def test_how_far_to_believe_the_rest_is_said_of_what_can_be_run(perdure: Callable[..., Ran], home: Path) -> None:
    rows = "first,0,1,100,0\nlong,10,1,9000,700\nshort,20,1,600,100\n"  # as srtf has it
    (home / "jobs.csv").write_text(f"{HEADER.strip()},start_s\n{rows}")
    words = "whatif", "jobs.csv", "--cluster", "1x1", "--policy"
    assert "\nfifo is nearest to what was recorded. The replay is " in perdure(*words, "srtf,fifo").out
    assert "\nsrtf is nearest to what was recorded. The replay is close" in perdure(*words, "srtf").out


def test_schedules_as_parquet(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    assert perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo", "--jobs-out", "out.parquet").code == 0
    with duckdb.connect() as db:
        rows = db.execute("SELECT * FROM read_parquet('out.parquet')").fetchall()
    assert rows == [("fifo", "long", 0, 100, 0, 0), ("fifo", "short", 100, 105, 0, 0)]


def test_retries_are_compared_on_the_failures_of_a_model(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text(HEADER.strip() + ",attempts\nheals,0,1,10,4- 6+\nnever,0,1,6,3- 3-\n")
    words = "whatif", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--json"
    runs = perdure(*words, "--retry", "recorded,never,always:1,oracle,predicted:1,0").json["runs"]
    assert [run["retry"] for run in runs] == ["recorded", "never", "always:1", "oracle", "predicted:1,0"]
    assert [run["success_rate"] for run in runs] == [0.5, 0, 0.5, 0.5, 0.5]
    assert [run["wasted_gpu_h"] * 3600 for run in runs] == pytest.approx([4 + 6, 4 + 3, 4 + 6, 4 + 3, 4 + 3])
    none = perdure(*words, "--failures", "none").json["runs"][0]
    assert none["success_rate"] == 1


def test_help_names_every_failure_model(perdure: Callable[..., Ran]) -> None:
    said = " ".join(perdure("whatif", "compare", "--help").out.split())
    for name in FAILURE_WORDS:
        assert re.search(rf"What fails: [^.]*{re.escape(name)}\b", said)


def test_a_page_with_pictures(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    pytest.importorskip("matplotlib")
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo,srtf", "--out", "report")
    assert (ran.code, ran.err) == (0, "")
    assert {path.name for path in (home / "report").iterdir()} == {
        "index.html", "completion.png", "gantt.png", "rho.png", "use.png", "waits.png", "figures.csv", "figures.json",
    }  # fmt: skip


def test_without_matplotlib_the_page_says_what_to_install(
    perdure: Callable[..., Ran], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo", "--out", "report")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint == f"whatif --out: Matplotlib is not installed. Install it: {install_command('sim')}."


def test_without_duckdb_a_csv_trace_says_what_to_install(
    perdure: Callable[..., Ran], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo").code == 0  # a small one needs none
    monkeypatch.setattr(columns, "_SMALL_BYTES", 0)
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.endswith(f"Install it: {install_command('sim')}.")


def test_numba_is_not_needed(perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    (home / "jobs.csv").write_text(HEADER + "".join(f"j{n},{n},1,5\n" for n in range(1500)))
    run = perdure("whatif", "jobs.csv", "--cluster", "1x8", "--policy", "srtf", "--json").json["runs"][0]
    assert run["jct_s"]["mean"] == 5


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both studies with few jobs, in this process unless told otherwise."""
    monkeypatch.setattr(workers, "processes_at_hand", lambda: 1)
    for module, name in ((study_retry, "retry"), (study_delay, "delay")):
        monkeypatch.setattr(module, name, functools.partial(getattr(module, name), n_jobs=60))


def test_a_study_as_json(perdure: Callable[..., Ran], small: None) -> None:
    ran = perdure("whatif", "--study", "retry", "--seeds", "2", "--load", "0.7,0.9", "--policy", "sjf", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["study"] == "retry"
    assert {(row["load"], row["policy"]) for row in ran.json["figures"]} == {(0.7, "sjf"), (0.9, "sjf")}
    assert {row["retry"] for row in ran.json["figures"]} == {"never", "recorded", "predicted", "oracle"}
    ran = perdure("study", "delay", "--seeds", "1", "--cluster", "2x2+2x8", "--json")
    assert (ran.json["study"], ran.json["cluster"]) == ("delay", "2x2+2x8")


def test_a_study_finds_the_same_in_several_processes(perdure: Callable[..., Ran], small: None) -> None:
    words = "study", "retry", "--seeds", "2", "--policy", "sjf", "--json"
    alone, spread = perdure(*words, "--workers", "1"), perdure(*words, "--workers", "2")
    assert spread.code == 0
    assert spread.json == alone.json


def test_a_study_stands_beside_what_was_published(perdure: Callable[..., Ran], small: None) -> None:
    ran = perdure("whatif", "--study", "retry", "--seeds", "1")
    (row,) = (line for line in ran.out.splitlines() if line.split()[:3] == ["0.9", "sjf", "predicted"])
    assert "15.4%" in row
    words = "study", "delay", "--seeds", "1", "--load", "1", "--cluster", "4x2+6x8"
    ran = perdure(*words)
    (row,) = (line for line in ran.out.splitlines() if line.startswith(">8 "))
    assert row.endswith("97.9%")
    found = {each["gpus"]: each["fragmentation_tries"]["mean"] for each in perdure(*words, "--json").json["figures"]}
    assert sorted(set(found.values())) == [0, 1]
    shown = {line.split()[0]: line.replace("%", "").split() for line in ran.out.splitlines()[3:7]}
    assert {gpus: float(cells[7]) / 100 for gpus, cells in shown.items()} == found


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("nonsense", "whatif: No such command 'nonsense'. See perdure whatif --help."),
        ("retry --cluster 2x2", "whatif retry: No such option: --cluster. "),
        ("retry --policy nonsense", "policy 'nonsense': no policy has that name. "),
        ("delay --policy fifo", "whatif delay: No such option: --policy. "),
        ("delay --load 1,2", "study delay: 2 loads, and it runs at one. Give one --load."),
        ("delay --load 0", "trace generate: "),
        ("delay --workers slurm", "--workers 'slurm': a study runs in processes of this machine. Write a number, "),
        ("retry --workers 0", "--workers '0': not a number of workers up to 1024. "),
        ("delay --retry never", "whatif delay: No such option: --retry (Possible options: --workers). "),
        ("retry jobs.csv", "whatif retry: Got unexpected extra argument(s) (jobs.csv). "),
    ],
)
def test_a_study_that_cannot_be_made_is_one_line_and_2(
    perdure: Callable[..., Ran], small: None, words: str, complaint: str
) -> None:
    ran = perdure("whatif", "--study", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


def test_a_load_sets_how_fast_jobs_come(perdure: Callable[..., Ran], trace: str) -> None:
    run = perdure("whatif", trace, "--cluster", "1x1", "--policy", "fifo", "--load", "0.5", "--json").json["runs"][0]
    assert run["makespan_s"] == 105 / 0.5 + 5
    assert run["wait_s"]["p99"] == 0


def test_a_list_of_machines_is_a_cluster(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    (home / "machines.csv").write_text("gpus\n1\n1\n")
    ran = perdure("whatif", trace, "--cluster", "machines.csv", "--policy", "fifo", "--json")
    assert ran.json["runs"][0]["wait_s"]["p99"] == 0


def test_quotas_of_virtual_clusters_are_given_in_a_line_or_in_a_file(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text(HEADER.strip() + ",vc\na,0,1,10,lab\nb,0,1,10,lab\nc,1,1,10,ops\n")
    (home / "quotas.csv").write_text("vc,gpus\nlab,1\nops,1\n")
    words = (
        "whatif",
        "jobs.csv",
        "--cluster",
        "1x2",
        "--policy",
        "philly",
        "--preemption-cost",
        "0",
        "--jobs-out",
        "out.csv",
    )

    def starts(*options: str) -> dict[Any, Any]:
        assert perdure(*words, *options).code == 0
        with (home / "out.csv").open() as lines:
            return {row["job_id"]: int(row["end"]) for row in csv.DictReader(lines)}

    assert starts("--vc-quota", "lab=1,ops=1") == starts("--vc-quota", "quotas.csv") == {"a": 10, "b": 19, "c": 11}
    assert starts("--vc-quota", "lab=2,ops=0") == {"a": 10, "b": 10, "c": 20}


@pytest.mark.parametrize(("cluster", "start"), [("2x2", 0), ("2x2/2", 0), ("2x2/1", 900)])
def test_racks_are_named_behind_the_cluster(perdure: Callable[..., Ran], home: Path, cluster: str, start: int) -> None:
    """A gang that no rack holds waits until the ladder lets it stretch over racks."""
    (home / "jobs.csv").write_text(HEADER + "a,0,4,100\n")
    words = "--policy", "fifo", "--placement", "ladder", "--jobs-out", "out.csv"
    assert perdure("whatif", "jobs.csv", "--cluster", cluster, *words).code == 0
    assert (home / "out.csv").read_text().splitlines()[1] == f"fifo,a,{start},{start + 100},0,0"


def test_jobs_without_a_place_are_named_or_counted(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text(HEADER + "a,0,1,5\nb,0,16,5\nc,0,99,5\n")
    words = "whatif", "jobs.csv", "--cluster", "1x8+4x2", "--policy", "fifo", "--placement", "consolidate"
    (home / "some.csv").write_text(HEADER + "a,0,1,5\nb,0,16,5\n")
    assert perdure("whatif", "some.csv", *words[2:]).complaint == (
        "some.csv: job b: it asks for 16 GPUs, and placement consolidate finds no place for them in the empty cluster "
        "of 16. Take a larger cluster or another placement, or pass --skip-bad to leave such jobs out."
    )
    assert perdure(*words[:-2], "--skip-bad").err == "jobs.csv: 1 left out: wider than the cluster\n"
    ran = perdure(*words, "--skip-bad", "--json")
    assert (ran.code, ran.json["runs"][0]["jobs"]) == (0, 1)
    assert ran.err == (
        "jobs.csv: 1 left out: wider than the cluster\njobs.csv: 1 left out: no place for it by placement consolidate\n"
    )


NODES = "[[nodes]]\ncount = 2\ngpus = 1\n"


def test_a_cluster_in_toml(perdure: Callable[..., Ran], home: Path, trace: str) -> None:
    (home / "nodes.toml").write_text(NODES + 'rack = 1\ngpu_type = "v100"\n')
    ran = perdure("whatif", trace, "--cluster", "nodes.toml", "--policy", "fifo", "--placement", "ladder", "--json")
    assert ran.json["runs"][0]["wait_s"]["p99"] == 0


def test_cpus_that_are_scarce_are_waited_for(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "t.csv").write_text("job_id,submit_s,gpus,duration_s,cpus\na,0,1,60,8\nb,0,1,60,8\nc,0,1,60,\n")
    (home / "nodes.toml").write_text("[[nodes]]\ncount = 1\ngpus = 4\ncpus = 8\n")
    waits = {}
    for cluster in ("1x4", "1x4:cpu=8", "nodes.toml"):
        ran = perdure("whatif", "t.csv", "--cluster", cluster, "--policy", "fjf,easy", "--json")
        waits[cluster] = ran.json["runs"][0]["wait_s"]["mean"]
    assert waits == {"1x4": 0, "1x4:cpu=8": 20, "nodes.toml": 20}
    assert ran.err == "t.csv: 1 of 3 jobs do not tell how many CPUs they ask for; they count as asking for none\n"
    assert ran.json["warnings"][-1].startswith("easy: reserves GPUs alone")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", "nodes.toml: cannot be read as TOML ("),
        ("", "nodes.toml: it has no [[nodes]], or one that is not a group of nodes. Write tables [[nodes]] "),
        ("nodes = 5", "nodes.toml: it has no [[nodes]], "),
        ("[[nodes]]\ngpus = 1", "nodes.toml: it has no [[nodes]], "),
        (NODES + "cpus = 0", "nodes.toml: it has no [[nodes]], "),
        (NODES + "cpus = 8\n" + NODES, "cluster 'nodes.toml': some of its nodes tell no cpus"),
        (NODES + "colour = 3", "nodes.toml: it has no [[nodes]], "),
        (NODES.replace("1", "true"), "nodes.toml: it has no [[nodes]], "),
        (NODES.replace("2", "1000000") + NODES, "nodes.toml: more than 1000000 nodes. "),
    ],
)
def test_a_cluster_that_is_none_is_one_line_and_2(
    perdure: Callable[..., Ran], home: Path, trace: str, text: str, complaint: str
) -> None:
    (home / "nodes.toml").write_text(text)
    ran = perdure("whatif", trace, "--cluster", "nodes.toml", "--policy", "fifo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Latest:
    name: str = "latest"
    preemptive: bool = False
    blocks: bool = False

    def ranking(self, view):
        return Ranking(view)

class Ranking:
    def __init__(self, view):
        self.view = view

    def arrive(self, row):
        pass

    def leave(self, row):
        pass

    def order(self):
        return sorted(self.view.waiting, reverse=True)

    def next_change(self):
        return None
"""


def test_a_policy_of_ones_own(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "mine.py").write_text(OWN)
    (home / "jobs.csv").write_text(HEADER + "a,0,1,10\nb,1,1,10\nc,2,1,10\n")
    ran = perdure("whatif", "jobs.csv", "--cluster", "1x1", "--policy", "fifo,mine.py:Latest", "--jobs-out", "out.csv")
    assert (ran.code, ran.err) == (0, "")
    alone = (home / "out.csv").read_text()
    assert "mine.py:Latest,c,10,20,0,0" in alone.splitlines()
    words = "--policy", "fifo,mine.py:Latest", "--jobs-out", "out.csv", "--workers", "2"
    assert perdure("whatif", "jobs.csv", "--cluster", "1x1", *words).code == 0
    assert (home / "out.csv").read_text() == alone


@pytest.mark.parametrize(
    ("change", "policy", "complaint"),
    [
        (("", ""), "mine.py", "policy 'mine.py': it does not say which policy of the file. Write mine.py:MyPolicy."),
        (("", ""), "mine.py:Other", "mine.py: it defines no 'Other'. Name a class or a value of that file."),
        (("", ""), "theirs.py:Latest", "theirs.py: no such file. Name a Python file that you may read."),
        (("    blocks: bool = False\n", ""), "mine.py:Latest", "mine.py: Latest is not a policy: it has no blocks. "),
        (("name: str = ", "name: str# "), "mine.py:Latest", "mine.py: Latest cannot be made: "),
        (("class Ranking:", "class Ranking"), "mine.py:Latest", "mine.py:13: expected ':'. Fix the policy."),
        (("self.view.waiting", "self.waiting"), "mine.py:Latest", "mine.py:24: AttributeError: "),
        (("reverse=True", "key=nothing"), "mine.py:Latest", "mine.py:24: NameError: name 'nothing' is not defined."),
        (("import", "raise"), "mine.py:Latest", "mine.py:2: invalid syntax. Fix the policy."),
    ],
)
def test_what_is_wrong_with_a_policy_of_ones_own_is_told_by_its_line(
    perdure: Callable[..., Ran], home: Path, trace: str, change: tuple[str, str], policy: str, complaint: str
) -> None:
    (home / "mine.py").write_text(OWN.replace(*change) if change[0] else OWN)
    ran = perdure("whatif", trace, "--cluster", "1x1", "--policy", policy)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--policy nonsense", "policy 'nonsense': no policy has that name. Use one of: fifo, "),
        ("--policy fifo,", "--policy: 'fifo,' has an empty name, or one twice. "),
        ("--policy fifo --placement nonsense", "placement 'nonsense': no placement has that name. Use one of: count, "),
        ("--policy fifo --retry nonsense", "retry policy 'nonsense': no retry policy has that name. Use one of: "),
        ("--policy fifo --failures nonsense", "failure model 'nonsense': no failure model has that name. Use one of: "),
        ("--policy fifo --format nonsense", "format 'nonsense': no such form of trace. Use one of: "),
        ("--policy fifo --compat nonsense", "--compat 'nonsense': no simulator of that name is followed. "),
        ("--policy fifo --cluster nonsense", "cluster 'nonsense': 'nonsense' is not NODESxGPUS. Write it like 32x8 "),
        ("--policy fifo --queue-limits 7,3", "--queue-limits: '7,3' is not a list of growing numbers. "),
        ("--policy fifo --queue-limits x", "--queue-limits: 'x' is not a list of growing numbers. "),
        ("--policy fifo --gittins-samples none.csv", "none.csv: cannot be read (No such file or directory). "),
        ("--policy fifo --gittins-samples jobs.csv", "jobs.csv:2: 'long,0,1,100' is not a job's GPU-seconds. "),
        (
            "--policy gittins-2d --gittins-split 1.5",
            "--gittins-split: 1.5 is not a share between 0 and 1. Write a number such",
        ),
        ("--policy gittins-2d --gittins-split 0", "--gittins-split: 0 is not a share between 0 and 1. "),
        (
            "--policy gittins-2d --gittins-split 0.5",
            "--gittins-split: no job has ended in that part of the trace. Write ",
        ),
        (
            "--policy fifo --gittins-split 0.5 --gittins-samples jobs.csv",
            "--gittins-split: it is given with --gittins-samples, ",
        ),
        ("--policy fifo --jobs-out out.xml", "out.xml: not in a format that can be written. End it in .csv or "),
        ("--policy fifo --jobs-out no/out.csv", "no/out.csv: cannot be written (there is no folder no). Name a file "),
        ("--policy fifo --out jobs.csv", "jobs.csv: cannot be written (it is not a folder). Name a folder "),
        ("--policy fifo --workers none", "--workers 'none': not a number of workers up to 1024. Write a number of "),
        ("--policy fifo --workers slurm:0", "--workers 'slurm:0': not a number of workers up to 1024. Write a number "),
        ("--policy fifo --workers dask://host", "--workers 'dask://host': not the address of a Dask scheduler. Write "),
        ("--policy fifo --workers dask://a:b", "--workers 'dask://a:b': not the address of a Dask scheduler. Write "),
        ("--policy fifo --workers dask://a:1/x", "--workers 'dask://a:1/x': not the address of a Dask scheduler. "),
        ("--policy fifo --cluster 1x1/0", "cluster '1x1/0': '0' is not a number of nodes a rack. Write it like "),
        ("--policy fifo --vc-quota lab", "--vc-quota: '=lab' is not of the form NAME=GPUS. Write it like "),
        ("--policy fifo --vc-quota lab=-1", "--vc-quota: 'lab=-1' is not of the form NAME=GPUS. Write it "),
        ("--policy fifo --vc-quota a=1,a=2", "--vc-quota: virtual cluster 'a' comes twice. Write it like lab=64,"),
        ("--policy fifo --vc-quota jobs.csv", "jobs.csv:1: no column vc. Write it like lab=64,ops=32, or name a CSV "),
        ("--policy philly --vc-quota lab=1", "policy philly: no quota for virtual cluster ''. Name GPUs for each."),
        ("--policy fifo --load 0", "--load: 0.0 is not a valid load. Write a number above 0, such as 0.8."),
        ("--policy fifo --load nan", "--load: nan is not a valid load. "),
        ("--policy fifo --seeds 0", "whatif compare: Invalid value for '--seeds': "),
        ("--policy fifo --load much", "--load 'much': not a number. Write it like 0.8."),
        (
            "--policy fifo --load 0.5,0.8",
            "whatif: 2 loads, and at most one --load is taken. See perdure whatif compare -h",
        ),
        (
            "",
            "whatif: give --policy. See perdure whatif compare -h",
        ),
    ],
)
def test_a_word_that_means_nothing_is_one_line_and_2(
    perdure: Callable[..., Ran], trace: str, options: str, complaint: str
) -> None:
    ran = perdure("whatif", trace, "--cluster", "1x1", *options.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "jobs.csv: the file is empty. "),
        ("a,b\n1,2\n", "jobs.csv: the form of this trace is not known. Name it by --format, one of: "),
        (HEADER + "a,0,1,-5\n", "jobs.csv:2: the duration is negative (-5.0). "),
        (HEADER + "a,0,1,nan\n", "jobs.csv:2: the duration is missing or not a number. "),
        (HEADER + "a,0,0,5\n", "jobs.csv:2: the job has 0 GPUs. "),
        (HEADER + "a,0,1,5\na,1,1,5\n", "jobs.csv:3: the job id was used before (a). "),
        (HEADER + "a,0,1,5\nb,1\n", "jobs.csv:3: the row is cut off or has columns too many "),
        (HEADER + "a,0,1,5\nb,0,64,5\n", "jobs.csv: job b: it asks for 64 GPUs, and the cluster has 8. "),
    ],
)
def test_a_broken_trace_is_one_line_and_2(perdure: Callable[..., Ran], home: Path, text: str, complaint: str) -> None:
    (home / "jobs.csv").write_text(text)
    ran = perdure("whatif", "jobs.csv", "--cluster", "1x8", "--policy", "fifo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


def test_a_packed_trace_that_is_cut_off_is_one_line_and_2(perdure: Callable[..., Ran], home: Path) -> None:
    whole = gzip.compress((HEADER + "".join(f"j{n},0,1,{n * n % 97}\n" for n in range(20_000))).encode())
    (home / "jobs.csv.gz").write_bytes(whole[: len(whole) // 2])
    ran = perdure("whatif", "jobs.csv.gz", "--cluster", "1x8", "--policy", "fifo")
    assert ran.code == 2
    assert ran.complaint.startswith("jobs.csv.gz: the file is cut off or damaged ")


def test_bad_rows_that_are_skipped_are_counted_aloud(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text(HEADER + "a,0,1,5\nb,0,64,5\nc,0,1,-5\n")
    ran = perdure("whatif", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--skip-bad", "--json")
    assert ran.code == 0
    assert ran.json["runs"][0]["jobs"] == 1
    assert ran.err.splitlines() == [
        "jobs.csv: 1 left out: the duration is negative",
        "jobs.csv: 1 left out: wider than the cluster",
    ]


def test_a_trace_is_drawn_and_the_seed_decides_it(perdure: Callable[..., Ran], home: Path) -> None:
    words = "trace", "generate", "--jobs", "50", "--cluster", "4x8", "--load", "0.7", "--seed"
    for seed, name in (("3", "a.csv"), ("3", "b.csv"), ("4", "c.csv")):
        assert perdure(*words, seed, "--out", name).out == f"{name}: 50 jobs\n"
    assert (home / "a.csv").read_text() == (home / "b.csv").read_text() != (home / "c.csv").read_text()
    assert perdure("whatif", "a.csv", "--cluster", "4x8", "--policy", "fifo", "--json").json["runs"][0]["jobs"] == 50


def test_a_trace_is_turned_into_our_own_form(perdure: Callable[..., Ran], home: Path) -> None:
    columns = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    (home / "theirs.csv").write_text(columns + "7,2,10,606,vgg19,164,30\n")
    ran = perdure("trace", "convert", "theirs.csv", "ours.csv.gz")
    assert (ran.code, ran.out, ran.err) == (0, "ours.csv.gz: 1 jobs, read as tiresias\n", "")
    assert read(home / "ours.csv.gz").table.duration_s.tolist() == [164]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("generate --jobs 5 --cluster 4x8 --out a.xml", "a.xml: not in a format that can be written. End it in "),
        ("generate --jobs 5 --cluster 4x8 --out no/a.csv", "no/a.csv: "),
        ("generate --jobs 5 --cluster x --out a.csv", "cluster 'x': 'x' is not NODESxGPUS. "),
        ("generate --jobs 5 --cluster 4x8 --load 0 --out a.csv", "trace generate: 5 jobs at load 0.0 on 32 GPUs "),
        ("generate --jobs 0 --cluster 4x8 --out a.csv", "trace generate: Invalid value for '--jobs': "),
        ("convert none.csv a.csv", "none.csv: No such file or directory. "),
    ],
)
def test_a_trace_that_cannot_be_made_is_one_line_and_2(perdure: Callable[..., Ran], words: str, complaint: str) -> None:
    ran = perdure("trace", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)
