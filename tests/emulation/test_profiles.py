"""Profiles: rows as they stand, lines between and beyond them, what does not fit, and one line for what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perdure.emulation.known_profiles import models_on, profile_of, read_profiles, shipped
from perdure.emulation.profiles import ProfileOrigin, ProfileTable, capacity_mib, estimated, known_name
from perdure.errors import InputError

ROWS = np.array(
    [
        [0.01, 0.02, 0.001, 0.002, 1000.0, 500.0],
        [0.02, 0.04, 0.001, 0.004, 2000.0, 500.0],
        [0.03, 0.06, 0.001, 0.006, 3000.0, 500.0],
    ]
)


def table(values: np.ndarray = ROWS, batches: tuple[int, ...] = (8, 16, 24)) -> ProfileTable:
    return ProfileTable.of("t", ["Tesla_V100-PCIE-32GB"] * len(batches), ["net"] * len(batches), batches, values)


def test_a_row_is_told_as_it_stands_and_between_two_lies_a_line() -> None:
    at, between = (table().profile("v100", "net", batch) for batch in (16, 20))
    assert (at.forward_s, at.peak_mib, at.origin) == (0.02, 2000.0, ProfileOrigin.MEASURED)
    assert [between.forward_s, between.peak_mib] == pytest.approx([0.025, 2500])
    assert between.origin is ProfileOrigin.INTERPOLATED
    assert at.step_s == pytest.approx(0.061)


@pytest.mark.parametrize("batch", [1, 4, 48])
def test_beyond_the_table_the_line_goes_on_and_that_is_said(batch: int) -> None:
    found = table().profile("v100", "net", batch)
    assert found.origin is ProfileOrigin.EXTRAPOLATED
    assert 0 < found.forward_s == pytest.approx(0.00125 * batch)


def test_a_batch_beyond_memory_does_not_fit() -> None:
    assert table().profile("v100", "net", 256).fits
    assert not table().profile("v100", "net", 264).fits


def test_what_fills_the_memory_to_the_last_byte_fits() -> None:
    found = table().profile("v100", "net", 8)
    assert replace(found, peak_mib=found.capacity_mib).fits
    assert not replace(found, peak_mib=found.capacity_mib + 0.01).fits


def test_a_line_that_falls_below_its_share_of_the_first_row_is_not_followed() -> None:
    steep = np.array([[0.01, 0.02, 0.001, 0.002, 1000.0, 500.0], [0.05, 0.1, 0.001, 0.004, 9000.0, 500.0]])
    found = table(steep, (8, 16)).profile("v100", "net", 1)
    assert [found.forward_s, found.peak_mib] == pytest.approx([0.01 / 8, 1000 / 8])


def test_rows_with_holes_are_left_out_and_counted() -> None:
    values = np.vstack([ROWS, [[np.nan, 0.1, 0, 0.01, 4000, 500]]])
    assert table(values, (8, 16, 24, 32)).holes == 1
    with pytest.raises(InputError, match="no row has all of its numbers"):
        table(np.full((1, 6), np.nan), (8,))


COLUMNS = {"gpu": "T4", "model": "net", "batch_size": "8", "forward_s": "1", "backward_s": "1", "transfer_s": "1"}
COLUMNS |= {"peak_mib": "900", "persistent_mib": "300"}


def written(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join(",".join(row) for row in ([*rows[0]], *([*row.values()] for row in rows))) + "\n")
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_lacks_or_holds_words_is_named(tmp_path: Path, column: str) -> None:
    pytest.importorskip("duckdb")
    path = written(tmp_path, {("other" if name == column else name): value for name, value in COLUMNS.items()})
    with pytest.raises(InputError) as refused:
        read_profiles(path)
    assert str(refused.value).startswith(f"{path}: no column {column}. Give the columns gpu, model,")
    if column not in ("gpu", "model"):
        with pytest.raises(InputError) as refused:
            read_profiles(written(tmp_path, COLUMNS, {**COLUMNS, column: "word"}))
        assert str(refused.value) == f"{path}: column {column} does not hold numbers. Give numbers alone in it."


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("batch_size", value) for value in ("nan", "inf", "-1", "0", "1.5", "1000000000001", "")),
        *((name, value) for name in ("forward_s", "backward_s") for value in ("nan", "inf", "-1", "0", "")),
        *((name, value) for name in ("transfer_s", "peak_mib") for value in ("nan", "inf", "-1", "")),
        *(("persistent_mib", value) for value in ("nan", "inf", "")),
    ],
)
def test_a_row_with_a_value_that_no_step_has_counts_as_a_hole(tmp_path: Path, column: str, value: str) -> None:
    pytest.importorskip("duckdb")
    found = read_profiles(written(tmp_path, COLUMNS, {**COLUMNS, "batch_size": "16", column: value}))
    assert (found.batch.tolist(), found.holes) == ([8], 1)


def test_a_row_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="batch 8 is there twice"):
        table(ROWS, (8, 8, 24))


def test_names_that_are_not_known_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"--model: 'resnet51' is not known. Use one of: resnet50"):
        profile_of("a100", "resnet51", 1)
    with pytest.raises(InputError, match=r"--gpu: 'a101' is not known. Use one of: a10, a100"):
        profile_of("a101", "resnet50", 1)
    with pytest.raises(InputError, match="'a10' is not known"):  # which is no short name of an A100
        ProfileTable.of("t", ["NVIDIA_A100-SXM4-40GB"], ["net"], [8], ROWS[:1]).profile("a10", "net", 8)


@pytest.mark.parametrize(
    ("name", "short", "mib"),
    [
        ("NVIDIA_A100-SXM4-40GB", "a100", 40536),
        ("NVIDIA A100-SXM4-80GB", "a100-80g", 81920),
        ("Quadro_RTX_6000", "rtx6000", 24220),
        ("Tesla_P100-PCIE-16GB", "p100", 16280),
    ],
)
def test_a_gpu_is_known_by_its_long_name(name: str, short: str, mib: int) -> None:
    assert (known_name(name), capacity_mib(name)) == (short, mib)


def test_what_is_shipped_was_measured_on_an_h100() -> None:
    assert shipped().gpus == ["h100"]
    assert profile_of("h100", "resnet50", 32).origin is ProfileOrigin.MEASURED
    assert profile_of("h100", "vgg16", 32).origin is ProfileOrigin.ESTIMATED
    assert {"resnet50", "resnet50-bf16", "vgg16", "dlrm"} <= set(models_on("h100"))
    assert not profile_of("h100", "gpt2-medium", 128).fits  # measured: out of memory


def test_an_estimate_grows_with_the_batch() -> None:
    small, large = (estimated("a100", "resnet50", batch) for batch in (8, 64))
    assert small.step_s < large.step_s
    assert small.peak_mib < large.peak_mib


def test_a_users_table_is_read_from_csv_and_what_is_wrong_with_one_is_told(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    head = "gpu,model,batch_size,forward_s,backward_s,transfer_s,peak_mib,persistent_mib"
    good = tmp_path / "good.csv"
    good.write_text(f"{head}\nT4,net,8,0.1,0.2,0.01,800,300\nT4,net,16,0.2,0.4,,900,300\n")
    found = read_profiles(good)
    assert (found.holes, found.profile("t4", "net", 8).backward_s) == (1, 0.2)
    for text, said in (
        (head.replace("peak_mib", "peak"), "no column peak_mib"),
        (f"{head}\nT4,net,x,1,1,1,1,1\n", "numbers"),
    ):
        bad = tmp_path / "bad.csv"
        bad.write_text(text)
        with pytest.raises(InputError, match=said):
            read_profiles(bad)
    with pytest.raises(InputError, match="there is no such file"):
        read_profiles(tmp_path / "none.parquet")


def test_the_verdict_of_memory_is_that_of_the_public_table(data_dir: Path | None) -> None:
    duckdb = pytest.importorskip("duckdb")
    if data_dir is None or not (path := data_dir / "gpu-profiles/gpemu/gpemu_profiles.parquet").is_file():
        pytest.skip("no public table of profiles here")
    found = read_profiles(path)
    with duckdb.connect() as db:
        rows = db.execute(
            "SELECT gpu, model, batch_size, forward_s, fits_memory FROM read_parquet(?)", [str(path)]
        ).fetchall()
    fits = found.values[:, 4] <= np.array([capacity_mib(name) for name in found.gpu])
    said = {(gpu, model, batch): (bool(each), forward) for gpu, model, batch, forward, each in rows}
    keys = list(zip(found.gpu.tolist(), found.model.tolist(), found.batch.tolist(), strict=True))
    assert len(keys) == len(rows) == 55_296
    assert [said[key][0] for key in keys] == fits.tolist()
    assert [said[key][1] for key in keys] == found.values[:, 0].tolist()
