"""``perdure plan``: the hand cases through the command line, and one line for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.cli import plan
from perdure.cli.main import main

CASES = [
    ("sia-ilp-p1.0", "sia"),
    ("sia-ilp-p-0.5", "sia"),
    ("gavel-las-lp", "gavel-las"),
    ("gavel-las-lp", "gavel-water"),
    ("themis-partial-allocation", "themis"),
    ("goodput", "goodput"),
]


# Of two equal names in JSON the last one counts.
SIA = '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1}, %s}'
POLLUX = '{"nodes": 1, "gpus_per_node": 1, "speed_up_inside": [[0, 1]], "speed_up_across": [[0, 1]], %s}'
GOODPUT = """{"alpha_c": 0.1, "beta_c": 0.1, "alpha_n": 0.1, "beta_n": 0.1, "alpha_r": 0.1, "beta_r": 0.1, "gamma": 2,
 "m": 8, "nodes": 1, "gpus": 2, "phi": 100, "M0": 8, %s}"""


def decided(capsys: pytest.CaptureFixture[str], *arguments: Path | str) -> list[Any]:
    assert main(["plan", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(("case", "policy"), CASES)
def test_a_round_by_hand(
    hand_cases: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, policy: str
) -> None:
    found = hand_cases[case]
    (tmp_path / "state.json").write_text(json.dumps(found["input"]))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", policy)
    wanted = {"apps": found["expected"]} if policy == "themis" else found["expected"]
    for name, value in wanted.items():
        assert answer[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)


def test_many_states_are_answered_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = [{"throughputs": [[speed]], "workers": [1]} for speed in (1.0, 2.0, 3.0)]
    (tmp_path / "states.jsonl").write_text("\n".join(map(json.dumps, states)))
    answers = decided(capsys, tmp_path / "states.jsonl", "--policy", "gavel-las")
    assert [answer["norm"] for answer in answers] == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("more", "shares"),
    [({}, [[0.5], [0.5]]), ({"weights": [1, 3]}, [[0.25], [0.75]]), ({"weights": None}, [[0.5], [0.5]])],
)
@pytest.mark.parametrize("policy", ["gavel-las", "gavel-water"])
def test_a_job_of_more_weight_has_more_of_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], shares: list[list[float]], policy: str
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"throughputs": [[1.0], [1.0]], "workers": [1], **more}))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", policy)
    assert np.array(answer["allocation"]) == pytest.approx(np.array(shares))


def test_pollux_gives_a_node_to_who_scales_and_leaves_who_restarts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linear, flat = [0, 0.25, 0.5, 0.75, 1.0], [0, 0.25, 0.25, 0.25, 0.25]
    state = {"nodes": 2, "gpus_per_node": 4, "speed_up_inside": [linear, flat], "speed_up_across": [linear, flat]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", "pollux")
    assert sum(answer["allocation"][0]) == 4
    state |= {"current": [[1, 0], [0, 1]], "kept": [0.1, 0.1]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", "pollux")
    assert answer["allocation"] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("policy", "state", "said"),
    [
        ("gandalf", "{}", "is not a planning policy"),
        ("sia", "{}", "the state has no 'configs_nodes_gpus_type'"),
        ("sia", "[]", "not a JSON object"),
        ("sia", "{\nnot", ":1: it is not JSON"),
        (
            "sia",
            '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "B"]], "capacity": {"A": 1}}',
            "GPU type 'B'",
        ),
        ("gavel-las", '{"throughputs": [[1], [NaN]], "workers": [1]}', "job 1: its throughput on GPU type 0 is nan"),
        ("gavel-las-packed", '{"throughputs": [[1], [1]], "workers": [1]}', "the state has no 'pairs'"),
        (
            "gavel-las-packed",
            '{"throughputs": [[1], [1]], "workers": [1], "pairs": [[0, 2]], "pair_throughputs": [[[1], [1]]]}',
            "pair 0: jobs 0 and 2 are not two of 2",
        ),
        ("gavel-las", '{"throughputs": [[1], [0]], "workers": [1]}', "job 1: it runs on no GPU type"),
        ("themis", '{"valuation_1_over_rho_by_gpus": [[0, 2, 1]]}', "bid of app 0"),
        ("pollux", '{"speed_up_inside": [[0, 1]], "speed_up_across": [[0]]}', "are not of the same jobs and GPUs"),
        ("themis", '{"valuation_1_over_rho_by_gpus": [[0, 1], [0, 1, 2]]}', "its rows differ in length"),
        ("sia", "[" * 100_000, ":1: it is not JSON"),
        ("gavel-las", '{"throughputs": [[1]], "workers": [1, 1]}', "state.json, throughputs: not 2 of each job"),
        ("gavel-las", '{"throughputs": [[1]], "workers": [-1]}', "GPU type 0: it has -1 GPUs"),
        ("gavel-las", '{"throughputs": [[1]], "workers": [1], "scale_factors": [0]}', "job 0: its GPUs: 0"),
        ("gavel-las", '{"throughputs": [[1]], "workers": [1], "weights": [-1]}', "job 0: its weight: -1"),
        ("gavel-water", '{"throughputs": [[1]], "workers": [1], "weights": [1, 1]}', "weight: not one for each of 1"),
        (
            "sia",
            '{"goodput_matrix": [[1, 2]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1}}',
            "cannot reshape array of size 2",
        ),
        (
            "sia",
            '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1}, "p": 0}',
            "p not 0",
        ),
        (
            "pollux",
            '{"nodes": 1, "gpus_per_node": 1, "speed_up_inside": [[0, NaN]], "speed_up_across": [[0, 1]]}',
            "a speed-up is no number from 0 on",
        ),
        (
            "pollux",
            '{"nodes": 0, "gpus_per_node": 1, "speed_up_inside": [[0, 1]], "speed_up_across": [[0, 1]]}',
            "0 nodes of 1 GPUs are no cluster",
        ),
        ("pollux", POLLUX % '"current": [[2]]', "current has more than the 1 GPUs of a node"),
        ("pollux", POLLUX % '"kept": [1, 1]', "kept is not a part of 1 for each of 1 jobs"),
        ("goodput", GOODPUT % '"gamma": 0', "gamma is 0, which is no number from 1 to"),
        ("goodput", GOODPUT % '"phi": NaN', "phi is nan, which is no number from 0 to"),
        ("goodput", GOODPUT % '"gpus": 1.5', "gpus is 1.5, which is no whole number from 0 on"),
        ("goodput", GOODPUT % '"nodes": 3', "2 GPUs on 3 nodes are none, or too few"),
        (
            "sia",
            '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1}, "stages": []}',
            "stages has 0 jobs, and goodput_matrix 1",
        ),
        (
            "sia",
            '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1},'
            ' "stages": [{"A": 1.5}]}',
            "A is 1.5, which is no whole number",
        ),
        (
            "sia",
            '{"goodput_matrix": [[1]], "configs_nodes_gpus_type": [[1, 1, "A"]], "capacity": {"A": 1},'
            ' "stages": [{"B": 2}]}',
            "stages name the GPU type 'B', which capacity does not have",
        ),
        ("gavel-makespan", '{"throughputs": [[1]], "workers": [1], "steps_left": [0]}', "no number above 0"),
        (
            "gavel-makespan",
            '{"throughputs": [[1]], "workers": [1], "steps_left": [1, 2]}',
            "steps_left has not 1 numbers",
        ),
        ("gavel-makespan", '{"throughputs": [[1]], "workers": [1]}', "the state has no 'steps_left'"),
        (
            "gavel-ftf",
            '{"throughputs": [[1]], "workers": [1], "steps_left": [1], "alone_s": [1], "spent_s": [-1]}',
            "spent_s has a value that is no number from 0 on",
        ),
        (
            "gavel-cost",
            '{"throughputs": [[1]], "workers": [1], "prices": [NaN]}',
            "prices has a value that is no number",
        ),
        ("themis", '{"gpus": 4, "valuation_1_over_rho_by_gpus": [[0, 1]]}', "need bids of 5 values"),
        ("sia", SIA % '"capacity": {"A": 1.5}', "capacity has 1.5, which is no whole number from 0"),
        ("sia", SIA % '"capacity": {"A": -1}', "capacity has -1, which is no whole number from 0"),
        ("sia", SIA % '"capacity": {"A": 1e30}', "capacity has 1e+30, which is no whole number from 0"),
        ("sia", SIA % '"configs_nodes_gpus_type": [[1, 0, "A"]]', "has 0, which is no whole number from 1"),
        ("sia", SIA % '"configs_nodes_gpus_type": [[1, 1.5, "A"]]', "has 1.5, which is no whole number from 1"),
        ("sia", SIA % '"configs_nodes_gpus_type": [[-1, 1, "A"]]', "has -1, which is no whole number from 1"),
        ("sia", SIA % '"configs_nodes_gpus_type": []', "has no configuration"),
        ("sia", SIA % '"goodput_matrix": [[Infinity]]', "goodput_matrix has a value that is infinite"),
        ("sia", "", "it holds no state"),
        ("sia", " \n", "it holds no state"),
        (
            "gavel-makespan",
            '{"throughputs": [[1]], "workers": [1], "steps_left": [1e30]}',
            "does not fit gavel-makespan",
        ),
        (
            "gavel-las-packed",
            '{"throughputs": [[1], [1]], "workers": [1], "pairs": [[0, 1.5]], "pair_throughputs": [[[1], [1]]]}',
            "pairs has 1.5, which is no whole number from 0",
        ),
        ("themis", '{"valuation_1_over_rho_by_gpus": []}', "has not a list of values for each app"),
        ("themis", '{"valuation_1_over_rho_by_gpus": [0, 1]}', "has not a list of values for each app"),
        ("themis", '{"valuation_1_over_rho_by_gpus": [[0, Infinity, Infinity]]}', "bid of app 0: it says inf for 1"),
        ("pollux", POLLUX % '"kept": [1.5]', "kept is not a part of 1 for each of 1 jobs"),
        ("pollux", POLLUX % '"kept": [-0.5]', "kept is not a part of 1 for each of 1 jobs"),
        ("gavel-las", '{"throughputs": [[1, 0]], "workers": [0, 1]}', "job 0: it runs on no GPU type that there is"),
        ("pollux", POLLUX % '"nodes": 1.5', "nodes is 1.5, which is no whole number"),
        ("pollux", POLLUX % '"current": [[0.5]]', "current has 0.5, which is no whole number"),
        ("pollux", POLLUX % '"current": [[65536]]', "current has more than the 1 GPUs of a node"),
        ("pollux", POLLUX % '"speed_up_inside": [[]], "speed_up_across": [[]]', "are not of the same jobs and GPUs"),
        (
            "pollux",
            json.dumps(
                {"nodes": 10_000, "gpus_per_node": 1, "speed_up_inside": [[0]] * 101, "speed_up_across": [[0]] * 101}
            ),
            "too many for 101 jobs",
        ),
        ("goodput", GOODPUT % '"alpha_c": 0, "beta_c": 0', "a step takes no time"),
        ("goodput", GOODPUT % '"m": 1e308', "m is 1e+308, which is no number from 1 to 1e+15"),
    ],
)
def test_what_cannot_be_decided_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, state: str, said: str
) -> None:
    (tmp_path / "state.json").write_text(state)
    assert main(["plan", str(tmp_path / "state.json"), "--policy", policy]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1


def test_what_is_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state.json").write_bytes(b"\xff\xfe{}")
    assert main(["plan", str(tmp_path / "state.json"), "--policy", "sia"]) == 2
    assert "it is not text in UTF-8" in capsys.readouterr().err


def test_a_state_may_begin_with_a_byte_order_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state.json").write_text('\ufeff{"throughputs": [[2]], "workers": [1]}', "utf-8")
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", "gavel-las")
    assert answer["norm"] == [2.0]


def test_a_file_that_is_too_long_is_refused_and_not_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_STATE_BYTES", 1 << 20)
    (tmp_path / "states.jsonl").write_text('{"throughputs": [[2]], "workers": [1]}\n' + " " * (1 << 20))
    assert main(["plan", str(tmp_path / "states.jsonl"), "--policy", "gavel-las"]) == 2
    told = capsys.readouterr()
    assert (told.out, "states.jsonl: it is longer than 1 MiB" in told.err) == ("", True)


@pytest.mark.parametrize(("row", "capacity"), [([None, None], 2), ([None, 2.0], 1)])
def test_a_job_that_fits_in_no_configuration_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: list[float | None], capacity: int
) -> None:
    state = {"goodput_matrix": [[1.0, 1.5], row], "configs_nodes_gpus_type": [[1, 1, "A"], [1, 2, "A"]]}
    (tmp_path / "state.json").write_text(json.dumps({**state, "capacity": {"A": capacity}}))
    assert main(["plan", str(tmp_path / "state.json"), "--policy", "sia", "--json"]) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    assert (answer["choice"][1], answer["cannot_run"]) == (None, [1])
    assert told.err.endswith("state.json: job 1 fits in no configuration: it is left out\n")


def test_a_pair_on_one_gpu_shares_it_where_that_is_better_than_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"throughputs": [[4], [2]], "workers": [1], "pairs": [[0, 1]], "pair_throughputs": [[[3.2], [1.8]]]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", "gavel-las-packed")
    # Together they keep .8 and .9; the first is alone for as long as makes both equal: .8 x + (1 - x) = .9 x.
    assert answer["opt_min_normalised"] == pytest.approx(9 / 11)
    assert answer["norm"] == [4.0, 2.0]
    assert answer["pair_allocation"][0] == pytest.approx([10 / 11])


@pytest.mark.parametrize(
    ("stages", "choice"),
    [
        (None, [[1, 1, "A"], [1, 2, "A"]]),
        ([{"A": 2}, None], [[1, 2, "A"], [1, 1, "A"]]),
        ([{"A": 2, "B": 4}, {"A": 1}], [[1, 4, "B"], [1, 2, "A"]]),
        ([{"B": 4}, None], [[1, 4, "B"], [1, 2, "A"]]),
        ([{"B": 8}, None], [None, [1, 2, "A"]]),
    ],
)
def test_a_pipeline_has_whole_replicas_or_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stages: object, choice: list[object]
) -> None:
    """One of three GPUs is worth most to the first job, but a replica takes two of A, or four of B."""
    state = {
        "goodput_matrix": [[9.0, 9.5, 8.0], [1.0, 4.0, None]],
        "configs_nodes_gpus_type": [[1, 1, "A"], [1, 2, "A"], [1, 4, "B"]],
        "capacity": {"A": 3, "B": 4},
        "stages": stages,
        "p": 1,
    }
    (tmp_path / "state.json").write_text(json.dumps(state))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", "sia")
    assert answer["choice"] == choice
    assert answer["cannot_run"] == ([0] if choice[0] is None else [])


@pytest.mark.parametrize(
    ("policy", "more", "name", "value", "allocation"),
    [
        # Two jobs of 100 and 300 steps take turns on one GPU.
        ("gavel-makespan", {"steps_left": [100, 300]}, "makespan_s", 400.0, [[0.25], [0.75]]),
        # After 100 s that alone would have been 50, with as much again to do: 100 s more for both at once.
        (
            "gavel-ftf",
            {"steps_left": [50, 50], "spent_s": [0, 0], "alone_s": [100, 100]},
            "max_rho",
            1.0,
            [[0.5], [0.5]],
        ),
        ("gavel-fifo", {}, "objective", 2.0, [[1.0], [0.0]]),
        ("gavel-cost", {"throughputs": [[1.0], [3.0]], "prices": [2.0]}, "objective", 1.5, [[0.0], [1.0]]),
    ],
)
def test_the_other_objectives_of_gavel(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    more: dict[str, Any],
    name: str,
    value: float,
    allocation: list[list[float]],
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"throughputs": [[1.0], [1.0]], "workers": [1], **more}))
    (answer,) = decided(capsys, tmp_path / "state.json", "--policy", policy)
    assert answer[name] == pytest.approx(value, rel=1e-6)
    assert np.array(answer["allocation"]) == pytest.approx(np.array(allocation), abs=1e-6)
