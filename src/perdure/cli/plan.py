"""``perdure plan``: one round of a planning policy, decided and shown: to learn it, or to check it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from perdure.cli.options import AsJson
from perdure.cli.output import print_json, print_line
from perdure.cli.plan_gavel import GAVEL, State, counts
from perdure.errors import InputError

MAX_STATE_BYTES = 64 << 20
MOST_NODES = 10_000  # of a search; and GPUs of a node
MOST_VALUE = 1e15  # of a model's parameter
MOST_PLACES = 1_000_000  # jobs times nodes, of which a search keeps a hundred states


def plan(
    states: Annotated[
        Path,
        typer.Argument(
            metavar="STATE.json", help="A state, or JSON Lines of many; - is standard input.", allow_dash=True
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="sia, themis, pollux, goodput, or gavel- and las, las-packed, water, ftf, makespan, fifo, cost.",
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Decide one round of a planning policy for each state, and print what it decides.

    A state is what one round of the policy looks at. sia: goodput_matrix (a row for each job, null where it does not
    run), configs_nodes_gpus_type, capacity (GPUs by type), lambda_, p, and if some jobs are pipelines stages (of each
    job the GPUs of a replica by type, null for those that are none). gavel-las and gavel-water: throughputs, workers,
    and if not 1 scale_factors and weights; the other policies of Gavel as well, and steps_left for gavel-makespan;
    steps_left, spent_s and alone_s for gavel-ftf; prices (of the types) for gavel-cost; for gavel-fifo the oldest job
    comes first. gavel-las-packed: pairs (two jobs each, from 0) and pair_throughputs (for each pair those of the first
    and of the second by GPU type, 0 where they do not run together). themis: valuation_1_over_rho_by_gpus, for each app
    the value of no GPU, one, two and so on. pollux: nodes, gpus_per_node, speed_up_inside and speed_up_across (for each
    job that of no GPU, one and so on, on one node and on several), and if told current (GPUs of each node, for each
    job), kept (of the time of a job that restarts) and seed. goodput: alpha_c, beta_c, alpha_n, beta_n, alpha_r,
    beta_r, gamma, m, accum, nodes, gpus, phi, M0.

    Exit codes: 0 decided, 2 usage, or a state that cannot be read.
    """
    if policy not in POLICIES:
        raise InputError("--policy", f"{policy!r} is not a planning policy", f"Give one of {', '.join(POLICIES)}")
    for where, state in _states(states):
        try:
            answer = POLICIES[policy](state)
        except KeyError as err:
            raise InputError(where, f"the state has no {err}", "See perdure plan -h for what a state holds") from err
        except InputError as err:
            raise InputError(f"{where}, {err.where}", err.what, err.fix) from err
        except (TypeError, ValueError, IndexError, ArithmeticError) as err:
            fix = "See perdure plan -h for what a state holds"
            said = "its rows differ in length" if "inhomogeneous" in str(err) else str(err).splitlines()[0]
            raise InputError(where, f"the state does not fit {policy}: {said}", fix) from err
        for job in answer.get("cannot_run", ()):
            sys.stderr.write(f"perdure: {where}: job {job} fits in no configuration: it is left out\n")
        if as_json:
            print_json("plan", 1, policy=policy, **answer)
        else:
            for name, value in answer.items():
                print_line(f"{name}: {json.dumps(value)}")
    return 0


def _states(path: Path) -> Iterator[tuple[str, State]]:
    """Each state, with where it stands: a whole file is one, or else each line."""
    try:
        text = _read(path)
    except OSError as err:
        raise InputError(str(path), f"it cannot be read ({err.strerror})", "Give a file of states") from err
    except UnicodeDecodeError as err:
        raise InputError(str(path), "it is not text in UTF-8", "Give states as JSON") from err
    if len(text) > MAX_STATE_BYTES:
        raise InputError(str(path), f"it is longer than {MAX_STATE_BYTES >> 20} MiB", "Give states in several files")
    if not text.strip():
        raise InputError(str(path), "it holds no state", "Give one state, or one on each line")
    try:
        yield str(path), _object(json.loads(text), str(path))
        return
    except (ValueError, RecursionError) as err:
        if isinstance(err, InputError):
            raise
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as err:
                raise InputError(where, f"it is not JSON ({err})", "Give one state, or one on each line") from err
            yield where, _object(found, where)


def _read(path: Path) -> str:
    """The text, or a little more than is allowed of it."""
    if str(path) == "-":
        return sys.stdin.read(MAX_STATE_BYTES + 1)
    file: TextIO
    with path.open(encoding="utf-8-sig") as file:
        return file.read(MAX_STATE_BYTES + 1)


def _object(found: object, where: str) -> State:
    if not isinstance(found, dict):
        raise InputError(where, "it is not a JSON object", "Give one state, or one on each line")
    return found


def _sia(state: State) -> dict[str, Any]:
    import numpy as np

    from perdure.scheduling.sia import NOT_RUN, Configurations, choose
    from perdure.throughput.learned import whole_replicas

    rows, types = state["configs_nodes_gpus_type"], list(state["capacity"])
    unknown = next((kind for _, _, kind in rows if kind not in types), None)
    if unknown is not None:
        raise ValueError(f"capacity does not have the GPU type {unknown!r}")
    columns = [[nodes for nodes, _, _ in rows], [gpus for _, gpus, _ in rows]]
    if not rows:
        raise ValueError("configs_nodes_gpus_type has no configuration")
    nodes, gpus = (counts("configs_nodes_gpus_type", column, 1) for column in columns)
    configs = Configurations(nodes, gpus, np.array([types.index(kind) for _, _, kind in rows], np.int64))
    capacity = counts("capacity", [state["capacity"][kind] for kind in types])
    goodput = np.array(state["goodput_matrix"], float).reshape(len(state["goodput_matrix"]), len(rows))
    if np.isinf(goodput).any():
        raise ValueError("goodput_matrix has a value that is infinite")
    lambda_, p = float(state.get("lambda_", 1.1)), float(state.get("p", -0.5))
    if state.get("stages") is not None:
        told = [dict.fromkeys(types, 1) if each is None else each for each in state["stages"]]
        if len(told) != len(goodput):
            raise ValueError(f"stages has {len(told)} jobs, and goodput_matrix {len(goodput)}")
        elsewhere = next((kind for each in told for kind in each if kind not in types), None)
        if elsewhere is not None:
            raise ValueError(f"stages name the GPU type {elsewhere!r}, which capacity does not have")
        stages = np.array([[_count(each, kind) if kind in each else 0 for kind in types] for each in told], np.int64)
        goodput[whole_replicas(configs.gpus, configs.gpu_type, stages) == 0] = np.nan
    if p == 0 or not np.isfinite([lambda_, p]).all():
        raise ValueError(f"p {p:g} and lambda_ {lambda_:g} are to be numbers, and p not 0")
    found = choose(goodput, configs, capacity, lambda_, p)
    choice = [None if config == NOT_RUN else rows[config] for config in found.config.tolist()]
    cannot = np.flatnonzero(~((goodput > 0) & (configs.gpus <= capacity[configs.gpu_type])).any(axis=1)).tolist()
    gap = None if np.isinf(found.gap) else found.gap
    return {"objective": found.objective, "choice": choice, "gap": gap, "cannot_run": cannot}


def _themis(state: State) -> dict[str, Any]:
    import numpy as np

    from perdure.scheduling.themis import partial_allocation

    bids = np.array(state["valuation_1_over_rho_by_gpus"], float)
    if bids.ndim != 2 or not bids.size:
        raise ValueError("valuation_1_over_rho_by_gpus has not a list of values for each app")
    if "gpus" in state and (gpus := int(counts("gpus", state["gpus"]))) != bids.shape[1] - 1:
        raise ValueError(f"{gpus} GPUs need bids of {gpus + 1} values, not {bids.shape[1]}")
    award = partial_allocation(bids)
    columns = (award.fair.tolist(), award.keeps.tolist(), award.gpus.tolist())
    return {"apps": [{"pf": fair, "c": keeps, "floor_alloc": gpus} for fair, keeps, gpus in zip(*columns, strict=True)]}


def _pollux(state: State) -> dict[str, Any]:
    import numpy as np

    from perdure.scheduling.pollux import GpuLimits, Worth, greedy, search

    inside, across = (np.array(state[f"speed_up_{where}"], float) for where in ("inside", "across"))
    if inside.ndim != 2 or not inside.size or inside.shape != across.shape:
        raise ValueError(f"speed-ups of shapes {inside.shape} and {across.shape} are not of the same jobs and GPUs")
    speed_up = np.stack([inside, across], axis=1)
    if not (np.isfinite(speed_up) & (speed_up >= 0)).all():
        raise ValueError("a speed-up is no number from 0 on")
    jobs, nodes, size = len(inside), _count(state, "nodes"), _count(state, "gpus_per_node")
    if not (0 < nodes <= MOST_NODES and 0 < size <= MOST_NODES and jobs * nodes <= MOST_PLACES):
        raise ValueError(f"{nodes} nodes of {size} GPUs are no cluster, or too many for {jobs} jobs")
    base = counts("current", state.get("current") or np.zeros((jobs, nodes))).reshape(jobs, nodes)
    if (base.sum(axis=0) > size).any():
        raise ValueError(f"current has more than the {size} GPUs of a node")
    kept = np.array(state.get("kept") or np.ones(jobs), float)
    if kept.shape != (jobs,) or not ((kept >= 0) & (kept <= 1)).all():
        raise ValueError(f"kept is not a part of 1 for each of {jobs} jobs")
    worth = Worth(base.astype(np.int16), speed_up, kept)
    limits = GpuLimits(size, np.full(jobs, inside.shape[1] - 1))
    begin = np.stack([worth.base, greedy(worth, limits)])
    found = search(worth, limits, begin, np.random.default_rng(int(state.get("seed", 0))), 100, 100)
    return {"fitness": float(worth(found[:1])[0]), "allocation": found[0].tolist()}


def _goodput(state: State) -> dict[str, Any]:
    from perdure.throughput.goodput import StatisticalEfficiency
    from perdure.throughput.speed import PARAMETERS, SpeedModel

    nodes, gpus, accumulated = (_count(state, name) for name in ("nodes", "gpus", "accum"))
    if not 1 <= nodes <= gpus:
        raise ValueError(f"{gpus} GPUs on {nodes} nodes are none, or too few")
    speed = SpeedModel(*(_number(state, name, 1.0 if name == "gamma" else 0.0) for name in PARAMETERS))
    local_batch, worth = (
        _number(state, "m", 1.0),
        StatisticalEfficiency(_number(state, "phi"), _number(state, "M0", 1.0)),
    )
    if not speed.gradient_s(local_batch) > 0:
        raise ValueError("alpha_c and beta_c are 0: a step takes no time")
    throughput = float(speed.throughput(nodes, gpus, local_batch, accumulated))
    efficiency = float(worth.efficiency(gpus * local_batch * (accumulated + 1)))
    return {
        "T_iter": float(speed.step_s(nodes, gpus, local_batch, accumulated)),
        "throughput": throughput,
        "efficiency": efficiency,
        "goodput": throughput * efficiency,
    }


def _number(state: State, name: str, least: float = 0.0) -> float:
    value = float(state[name])
    if not least <= value <= MOST_VALUE:
        raise ValueError(f"{name} is {value:g}, which is no number from {least:g} to {MOST_VALUE:g}")
    return value


def _count(state: State, name: str) -> int:
    value = state.get(name, 0) if name == "accum" else state[name]
    if int(value) != value or value < 0:
        raise ValueError(f"{name} is {value}, which is no whole number from 0 on")
    return int(value)


POLICIES: Mapping[str, Callable[[State], dict[str, Any]]] = {
    "sia": _sia,
    **GAVEL,
    "themis": _themis,
    "pollux": _pollux,
    "goodput": _goodput,
}
