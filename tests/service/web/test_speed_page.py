"""The page of `perdure speed`: what the form asks is answered as the command answers it, and bad input is one line."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.service.web.pages.speed import MAP_BATCHES, MAP_MODELS, SpeedQuestion, answer
from perdure.service.web.pages.speed_plot import HEIGHT, WIDTH, SpeedPoint, speed_plot
from perdure.throughput.training_speed import WORTH
from tests.service.web_world import TestClient, site


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    place = site(tmp_path_factory.mktemp("speed"))
    browser = place.client()
    browser.post("/login", data={"token": place.operator})
    return browser


def test_the_page_shows_the_curve_the_table_and_the_map(browser: TestClient) -> None:
    shown = browser.get("/speed", params={"model": "vgg19", "batch": "8", "nodes": "1,4,16"}).text
    assert "Scaling of vgg19 on v100" in shown
    assert shown.count('class="speed-line ') == 2
    assert shown.count('<circle class="speed-mark ') == 6
    assert "RDMA makes steps more than 10 % quicker up to a batch of " in shown
    assert all(f">{name}<" in shown for name in MAP_MODELS)


def test_one_node_has_no_network_to_compare(browser: TestClient) -> None:
    shown = browser.get("/speed", params={"nodes": "1"}).text
    assert "Where RDMA pays" not in shown
    assert ">computing<" in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "resnet5"}, "--model: &#39;resnet5&#39; is not known. Use one of: resnet50"),
        ({"gpu": "<b>"}, "--gpu: &#39;&lt;b&gt;&#39; is not known."),
        ({"batch": "8,16"}, "--batch: it has several values."),
        ({"nodes": ",".join(map(str, range(1, 20)))}, "--nodes: 19 numbers of nodes."),
        ({"link": "fast"}, "--link: &#39;fast&#39; is no rate of 1G to 6400G."),
        ({"inside": "isa"}, "--inside: &#39;isa&#39; is not known."),
    ],
)
def test_bad_input_is_said_beside_the_form(browser: TestClient, asked: dict[str, str], said: str) -> None:
    response = browser.get("/speed", params=asked)
    assert response.status_code == 200
    assert "This cannot be estimated." in response.text
    assert said in response.text


def test_the_map_is_shaded_where_rdma_is_worth_it() -> None:
    cells = [cell for _, row in answer(SpeedQuestion())["map"] for cell in row]
    assert len(cells) == len(MAP_BATCHES) * len(MAP_MODELS)
    assert all((gain >= WORTH) == (shade >= 2) for gain, shade in cells)
    assert {shade for _, shade in cells} >= {1, 5}


def test_the_map_says_of_a_model_and_batch_what_the_table_says_of_them() -> None:
    rows = dict(answer(SpeedQuestion())["map"])
    for model in ("resnet50", "vgg19"):
        table = [answer(SpeedQuestion(model=model, batch=str(batch)))["last"]["gain"] for batch in MAP_BATCHES]
        assert [gain for gain, _ in rows[model]] == pytest.approx(table)
        assert len(set(table)) > 1


def test_a_plot_keeps_all_within_and_its_ideal_is_straight() -> None:
    points = [SpeedPoint(count, 70.0 * count**0.9, 90.0 * count**0.9, 120.0 * count**0.9) for count in (1, 2, 8, 64)]
    plot = speed_plot(95.0, {"TCP": points, "RDMA": points})
    for line in plot.lines:
        places = np.array([place.split(",") for place in (line.line + " " + line.band).split()], float)
        assert (places >= 0).all()
        assert (places <= [WIDTH, HEIGHT]).all()
    assert len(plot.ideal.split()) == 2
    assert [words for _, words in plot.across] == ["1", "2", "8", "64"]


def test_what_is_asked_is_checked_before_anything_is_computed() -> None:
    with pytest.raises(InputError, match="--nodes: '0' is no number"):
        answer(SpeedQuestion(nodes="0"))
