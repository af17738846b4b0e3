"""``perdure study tor`` and ``colocation``: availability studies, in words and as pictures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.output import print_json, print_line
from perdure.cli.picture_file import save
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.blame.charts import Format

MAX_BYTES = 64 * 1024 * 1024
SEED = 0  # of the draws: the same file gives the same figures


def tor(
    failing_share: float, soft_share: float, soft_min: float, hard_min: float, out: Path | None, form: Format,
    as_json: bool,
) -> None:  # fmt: skip
    """What hangs on one ToR can be no more available than that."""
    from perdure.studies.tor import TorStudy

    study = TorStudy(failing_share, soft_share, soft_min, hard_min)
    available = 1 - study.unavailability
    if out is not None:
        from perdure.blame.charts import picture
        from perdure.studies.charts import draw_tor

        save(out, picture(draw_tor(study), form))
    if as_json:
        print_json("study.tor", 1, **asdict(study), availability=available, bearable=study.bearable)
        return
    print_line(f"A ToR fails {study.failing_share:.3%} of months, for {study.repair_min:.0f} min on average.")
    print_line(f"Availability of a ToR: {available:.5%}")
    print_line(f"One extra nine: what hangs on one ToR alone may be promised up to {study.bearable:.4%}")


def colocation(days: Path, out: Path | None, form: Format, as_json: bool) -> None:
    """Near and far from storage, compared."""
    import numpy as np

    from perdure.studies.colocation import compare, read_days

    table = read_days(_lines(days), str(days))
    found = compare(table, np.random.default_rng(SEED))
    if out is not None:
        from perdure.blame.charts import picture
        from perdure.studies.charts import draw_colocation

        save(out, picture(draw_colocation(table, found), form))
    if as_json:
        print_json("study.colocation", 1, days=len(table.names), **asdict(found))
        return
    for hops, share, rate in (
        (table.near_hops, found.near_share, found.near_rate),
        (table.far_hops, found.far_share, found.far_rate),
    ):
        print_line(f"{hops} hops: {share:.0%} of units, {rate:.4%} fail a day")
    more = f"{found.excess:+.1%} (95 %: {found.excess_low:+.1%} to {found.excess_high:+.1%})"
    print_line(f"At {table.far_hops} hops {more}, p = {found.p:.2g}, {len(table.names)} days")


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(str(path), "larger than 64 MiB", "Take fewer days")
        return path.read_text("utf-8").splitlines()
    except OSError as err:
        raise InputError(str(path), f"cannot be read: {err.strerror}", "Name a CSV file that you may read") from err
    except UnicodeDecodeError as err:
        raise InputError(str(path), "not text in UTF-8", "Write it as CSV") from err
