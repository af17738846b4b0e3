"""``perdure speed``: the answer as a table and as JSON, what a measured step changes, and one line for bad input."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from perdure.cli.main import main


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["speed", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_large_model_with_a_small_batch_gains_by_rdma_and_a_small_one_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = asked(capsys, "--model", "vgg19", "--gpu", "v100", "--batch", "8", "--nodes", "16")
    small = asked(capsys, "--model", "resnet50", "--gpu", "v100", "--batch", "128", "--nodes", "16")
    assert large["settings"][0]["tcp_over_rdma"] > 2
    assert large["settings"][0]["bottleneck"].startswith("the network: GPUs wait")
    assert large["batch_without_gain"] > 32
    assert small["settings"][0]["tcp_over_rdma"] < 1.1
    assert small["settings"][0]["bottleneck"].startswith("computing")


def test_one_row_for_each_combination_and_one_for_a_node_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "resnet50", "--gpu", "v100,a100", "--batch", "16,32", "--nodes", "1,4", "--link", "25G,100Gb/s")
    found = asked(capsys, *words)
    rows = [(row["gpu"], row["nodes"], row["batch"], row["link_gbit"], row["transport"]) for row in found["settings"]]
    assert len(rows) == len(set(rows)) == 2 * 2 * (1 + 4)
    assert found["schema"] == "perdure.speed/1"


def test_a_measured_step_takes_the_place_of_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "resnet50", "--gpu", "v100", "--batch", "64", "--nodes", "1", "--step-ms", "250")
    (row,) = asked(capsys, *words)["settings"]
    assert row["compute_s"] == pytest.approx(0.25)
    assert row["measured"]
    low, high = row["step_s_80_percent"]
    assert low < row["step_s"] < high < 1.1 * low


def test_gpus_of_a_node_share_its_link(capsys: pytest.CaptureFixture[str]) -> None:
    def sent(each: str) -> float:
        words = ("--model", "vgg16", "--gpu", "v100", "--nodes", "4", "--gpus-per-node", each, "--transport", "rdma")
        seconds: float = asked(capsys, *words, "--inside", "nvswitch")["settings"][0]["communication_s"]
        return seconds

    assert sent("8") > sent(
        "1"
    )  # each GPU sends an eighth of the bytes over an eighth of the link, and within the node


def test_what_it_prints_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed", "--model", "resnet50", "--gpu", "v100", "--nodes", "16"]) == 0
    said = capsys.readouterr().out
    assert "RDMA makes steps more than 10% quicker up to a batch of " in said
    assert "scales to 95 % at a batch of 32 from a link of " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "resnet5"), "--model: 'resnet5' is not known. Use one of: resnet50"),
        (("--gpu", "v10"), "--gpu: 'v10' is not known. Use one of: v100"),
        (("--gpu", ","), "--gpu: it is empty."),
        (("--link", "3"), "--link: '3' is no rate of 1G to 6400G."),
        (("--link", "0G"), "--link: '0G' is no rate of 1G to 6400G."),
        (("--batch", "0"), "--batch: '0' is no number of 1 to 1,048,576."),
        (("--nodes", "2,-1"), "--nodes: '-1' is no number of 1 to 65,536."),
        (("--transport", "udp"), "--transport: 'udp' is not known. Use one of: tcp"),
        (("--inside", "isa"), "--inside: 'isa' is not known. Use one of: pcie"),
        (("--step-ms", "nan"), "--step-ms: nan is no time of a step."),
        (("--step-ms", "9", "--batch", "8,16"), "--step-ms: it was measured on one GPU with one batch."),
        (("--batch", ",".join(map(str, range(1, 5002)))), "the options: they make 35,007 settings."),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    usual = {"--model": "resnet50", "--gpu": "v100"} | dict(zip(words[::2], words[1::2], strict=True))
    assert main(["speed", *(word for pair in usual.items() for word in pair)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perdure: {said}")


def test_many_nodes_that_send_to_few_servers_are_slower_and_their_incast_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--model", "vgg19", "--gpu", "v100", "--nodes", "16", "--transport", "rdma")
    ring, many, few = (asked(capsys, *words, "--servers", count) for count in ("0", "16", "2"))
    steps = [found["settings"][0]["step_s"] for found in (ring, many, few)]
    assert steps[0] == pytest.approx(steps[1], rel=0.2)
    assert steps[2] > 2.5 * steps[1]
    assert ring["incast"] is None
    assert few["incast"]["senders"] == 16
    assert few["incast"]["queue_bytes"] > 0
    assert main(["speed", *words, "--servers", "2"]) == 0
    assert "Incast with RDMA: 16 nodes send to a server at once" in capsys.readouterr().out


def test_racks_with_short_uplinks_slow_servers_more_than_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "vgg19", "--gpu", "v100", "--nodes", "16", "--transport", "rdma", "--racks", "4")

    def sent(*more: str) -> float:
        seconds: float = asked(capsys, *words, *more)["settings"][0]["communication_s"]
        return seconds

    assert sent("--oversubscription", "4") == pytest.approx(sent(), rel=0.01)
    assert sent("--oversubscription", "4", "--servers", "16") > 2 * sent("--servers", "16")


def test_names_are_known_in_large_letters_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "ResNet50", "--gpu", "V100", "--nodes", "2", "--transport", "RDMA", "--inside", "NVLink")
    assert asked(capsys, *words)["settings"][0]["transport"] == "rdma"


def test_it_says_of_which_setting_the_break_evens_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "--model", "vgg19", "--gpu", "v100", "--nodes", "16,4", "--servers", "2")
    setting = found["settings"][found["of_setting"]]
    assert (setting["nodes"], setting["transport"]) == (16, "tcp")
    assert found["incast"]["senders"] == 16  # of RDMA, which was asked for too
    assert asked(capsys, "--model", "vgg19", "--gpu", "v100", "--servers", "2", "--transport", "tcp")["incast"] is None


def test_numbers_have_digits_and_no_powers_of_ten(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "resnet18", "--gpu", "h100", "--batch", "1,100000", "--nodes", "1", "--wide")
    assert main(["speed", *words]) == 0
    assert not re.search(r"e[-+]\d|\b0\.0 ms", capsys.readouterr().out)
