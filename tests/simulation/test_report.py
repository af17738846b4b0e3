"""The page of a sweep: whole in itself, safe, and true to the schedules."""

from __future__ import annotations

import csv
import json
import struct
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.simulation.charts import LIGHT, Shown, crowded_jobs, draw, waits_by_size
from perdure.simulation.charts import PICTURES as DRAWN
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.groups import SIZES
from perdure.simulation.report import write_report
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import Run, Setting, as_it_was, cases, sweep, verdicts
from perdure.simulation.use import use_over_time
from perdure.traces.generate import generate
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("4x8")
PICTURES = ("changes", "completion", "gantt", "rho", "use", "waits")
HOSTILE = "<script>alert(1)</script>\"'&{{ 1 }}"


class Page(HTMLParser):
    """The words of a page, and all that it would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.tags, self.fetched = "", set(), []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "srcset", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page, list[Run]]:
    """A report on two traces, one of them with a hostile name."""
    tables = [generate(60, CLUSTER, 2.0, np.random.default_rng(seed)) for seed in (1, 2)]
    wanted = cases(2, ["fifo", "las-2d"], ["recorded", "never"], seeds=2)
    runs = sweep(tables, Setting(CLUSTER, failures="philly", keep=True, spans=True), wanted)
    folder = tmp_path_factory.mktemp("report") / "made" / "here"
    page = write_report(folder, PolicyComparison(["a.csv", HOSTILE], tables, runs, facts={"cluster": HOSTILE}))
    return folder, Page(page.read_text()), runs


def test_the_page_needs_nothing_else_and_runs_nothing(written: tuple[Path, Page, list[Run]]) -> None:
    _, page, _ = written
    assert len(page.fetched) == 2 * 2 * len(PICTURES)
    assert all(each.startswith("data:image/png;base64,") for each in page.fetched)
    assert "script" not in page.tags


def test_what_a_user_named_is_shown_as_it_is(written: tuple[Path, Page, list[Run]]) -> None:
    _, page, _ = written
    assert page.words.count(HOSTILE) >= 2 + 8  # the cluster, the section, and a row for each run


def test_the_page_holds_the_figures_of_each_run(written: tuple[Path, Page, list[Run]]) -> None:
    _, page, runs = written
    for run in runs:
        assert f"{run.metrics.jct_s.mean / 3600:.2f}" in page.words
    assert "las-2d, never" in page.words


def test_the_page_begins_with_what_to_decide_by(written: tuple[Path, Page, list[Run]]) -> None:
    folder, page, _ = written
    said = page.words.index("Best of 4 is fifo, never: against fifo, recorded jobs end")
    assert said < page.words.index("Against the first policy") < page.words.index("Figures")
    assert "How certain this is cannot be said: jobs came on 1 day" in page.words
    told = json.loads((folder / "figures.json").read_text())
    assert [each["trace"] for each in told["comparison"]] == ["a.csv", HOSTILE]
    assert "sim_seconds" not in told["runs"][0]
    with (folder / "figures.csv").open() as lines:
        assert {row["trace"] for row in csv.DictReader(lines)} == {"a.csv", HOSTILE}


def test_pictures_are_files_too(written: tuple[Path, Page, list[Run]]) -> None:
    folder, _, _ = written
    names = {f"{name}-{place}.png" for name in PICTURES for place in (1, 2)}
    assert {path.name for path in folder.iterdir()} == names | {"index.html", "figures.csv", "figures.json"}
    for name in names:
        data = (folder / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", data[16:24])
        assert (width, height) == (880, 462)


def test_the_page_says_whose_jobs_it_is_about_and_when_they_came() -> None:
    known = replace(jobs((1, 0, 10), (1, 5 * 86_400, 10)), began_s=1_767_225_600.0)
    tables = [known, replace(known, began_s=0.0)]
    runs = sweep(tables, Setting(CLUSTER), cases(2, ["fifo"]))
    assert PolicyComparison(["x/a.csv", "b.csv"], tables, runs).about() == [
        "a.csv: 2 jobs, submitted from 2026-01-01 to 2026-01-06",
        "b.csv: 2 jobs, submitted within 5.0 d",
    ]
    moved = PolicyComparison(["a.csv"], tables[:1], runs[:1], facts={"load": "0.8"})
    assert moved.about() == ["a.csv: 2 jobs, submitted within 5.0 d"]
    known_load = PolicyComparison(["a.csv"], tables[:1], runs[:1], facts={"load": "as recorded"})
    assert known_load.about()[0].endswith("from 2026-01-01 to 2026-01-06")


def test_the_pictures_of_a_trace_are_of_its_own_runs_in_their_order(written: tuple[Path, Page, list[Run]]) -> None:
    folder, _, runs = written
    for place in (0, 1):
        table = generate(60, CLUSTER, 2.0, np.random.default_rng(place + 1))
        mine = [run for run in runs if run.case.trace == place and run.case.seed == 0]
        again = [Shown(f"{run.case.policy}, {run.case.retry}", table, run.result) for run in mine if run.result]
        for name, png in draw(again, LIGHT, verdicts(runs)[place].best).items():
            assert (folder / f"{name}-{place + 1}.png").read_bytes() == png, name


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    table = jobs((1, 0, 5))
    runs = sweep([table], Setting(CLUSTER, keep=True), cases(1, ["fifo"]))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_report(tmp_path / "file", PolicyComparison(["a"], [table], runs))


def test_what_rounding_leaves_is_no_wait_and_said_in_words() -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    table = jobs((1, 0, 10), (4, 1, 10))
    result = simulate(table, CLUSTER, "fifo")
    result = replace(result, start_s=table.submit_s + 0.0001)
    figure = figure_module.Figure()
    DRAWN["waits"](figure, [Shown("fifo", table, result)], LIGHT)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["No job waited: each started when it was submitted."]
    assert not axes.axison


def test_waits_by_size() -> None:
    table = jobs((32, 0, 100), (1, 10, 5), (4, 20, 5), (2, 40, 5))
    waits = waits_by_size(table, simulate(table, CLUSTER, "fifo"))
    assert SIZES[:2] == ((1, 1), (2, 4))
    assert waits[:2] == [90, (80 + 60) / 2]
    assert np.isnan(waits[2])
    assert waits[3] == 0


@pytest.mark.parametrize("spans", [True, False])
def test_use_over_time(spans: bool) -> None:
    table = jobs((32, 0, 10), (16, 0, 10))
    result = simulate(table, CLUSTER, "fifo", spans=spans)
    assert use_over_time(table, result, np.array([0.0, 5.0, 10.0, 15.0, 20.0, 30.0])).tolist() == [1, 1, 0.5, 0.5, 0]


def test_use_over_time_adds_up_to_what_was_used() -> None:
    table = generate(60, CLUSTER, 2.0, np.random.default_rng(3))
    result = simulate(table, CLUSTER, "las-2d", spans=True)
    edges = np.linspace(table.submit_s[0], result.end_s.max(), 100)
    assert use_over_time(table, result, edges).mean() == pytest.approx(result.utilisation)


def test_crowded_jobs_are_those_that_waited_and_held_most() -> None:
    quiet, crowd = [(1, i, 1) for i in range(300)], [(32, 1000, 50 + i) for i in range(200)]
    table = jobs(*quiet, *crowd)
    rows = crowded_jobs(table, simulate(table, CLUSTER, "fifo"))
    assert rows.tolist() == list(range(460, 500))


def test_the_page_shows_what_was_recorded_and_how_far_each_replay_is_from_it(tmp_path: Path) -> None:
    table = jobs((8, 0, 100), (8, 10, 100), start_s=np.array([0.0, 3700.0]))
    runs = sweep([table], Setting(Cluster.parse("1x8"), keep=True), cases(1, ["fifo"]))
    found = PolicyComparison(["a.csv"], [table], runs, was=as_it_was([table], Cluster.parse("1x8")))
    words = Page(write_report(tmp_path / "page", found).read_text()).words
    assert words.index("Do not decide by it.") < words.index("Each replay against what was recorded")
    assert "fifo230.0 min50%" in words.replace("\n", "")
    assert words.index("as it was") < words.index("fifo", words.index("Figures"))
    assert "fifoFirst come, first served; nothing overtakes" in words


@pytest.mark.parametrize(("gpus", "said"), [(8, True), (16, False)])
def test_a_record_that_the_cluster_has_no_room_for_is_named(gpus: int, said: bool) -> None:
    """Two jobs on all 8 GPUs each ran together from 10 on, and the last submit is at 20."""
    cluster = Cluster.parse(f"1x{gpus}")
    table = jobs((8, 0, 100), (8, 10, 100), (8, 20, 5), start_s=np.array([0.0, 10.0, 500.0]))
    runs = sweep([table], Setting(cluster), cases(1, ["fifo"]))
    told = " ".join(PolicyComparison(["a"], [table], runs, was=as_it_was([table], cluster)).remarks())
    assert ("As it was, jobs held 200% of the GPUs given: the cluster was larger" in told) is said
