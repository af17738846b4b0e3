"""Whole chains, and links that die early: python -m benchmarks.succession_chains TRACES... [--out FILE]

TRACES are those of `benchmarks.succession`, or some. Each goes through its clusters; links run for 48 hours with 1 GPU.
With `--out` their part of that report is replaced. With `--quick` decisions are each 4 hours, by 4 futures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.succession import PLANS, SHAPES, read_cell
from perdure.cli.study_successors import remembering
from perdure.studies.successor_chains import CasePoint, dying_links, whole_chains
from perdure.studies.successors import StudyOptions

HEAD = "## Whole chains, and links that die early"
PLANNERS = ("average", "quantile", "conformal")
LINKS = 10
NOTES = """\
Chains of ten links of 48 hours with 1 GPU, one each 8 hours of the time that planners did not learn from, as far as
they end within the trace, whoever plans them: few, and they share most of their time, so intervals are wide. The next
link begins at the step after its start. The oracle is the best for each link in turn. *Links that die early* die at a
step of their walltime that is drawn evenly and foreseen by nobody, the oracle excepted; their successor is submitted
then at the latest. Sums of a chain, means of links; price of overlap 0.25. Where all chains begin within one block of 4
days, as the 8 of CTC do, there is one draw and no interval.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--gpus", default="", help="some of the clusters, as 315,290")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found: list[CasePoint] = []
    options = StudyOptions(PLANNERS, samples=4 if asked.quick else 8)
    for path in asked.traces:
        name = next(each for each in PLANS if path.name.startswith(each))
        for gpus in [int(each) for each in asked.gpus.split(",") if each] or PLANS[name][1]:
            if gpus not in PLANS[name][1]:
                continue
            cell, began = (
                read_cell(path, name, gpus, SHAPES[:1], 4.0 if asked.quick else PLANS[name][2]),
                time.process_time(),
            )
            found += whole_chains(cell, 0, options, remembering(asked.cache), LINKS)
            found += dying_links(cell, 0, options, remembering(asked.cache))
            print(f"{name} {gpus}: {time.process_time() - began:.0f} s", flush=True)
            text = "\n".join([HEAD, "", *command(asked), "", NOTES, *table(found)]) + "\n"
            if asked.out is not None:
                asked.out.write_text(replaced(asked.out.read_text(), text))
    print(text)


def command(asked: argparse.Namespace) -> list[str]:
    words = [path.name for path in asked.traces]
    words += [f"--gpus {asked.gpus}"] if asked.gpus else []
    words += ["--quick"] if asked.quick else []
    return [f"`python -m benchmarks.succession_chains {' '.join(words)} --out benchmarks/succession.md`"]


def table(found: Sequence[CasePoint]) -> list[str]:
    lines = [
        "| case | cell | n | planner | interruption, h | overlap, h | without interruption | of the gap |",
        "|---" * 8 + "|",
    ]
    for each in found:
        model = ", wrong model" if each.model == "wrong" else ""
        late, over, gap = each.interruption_h, each.overlap_h, each.gap
        cells = (
            each.case, each.cell, str(each.episodes), f"{each.planner}{model}",
            *(f"{all_.mean:.1f} ({all_.low:.1f} to {all_.high:.1f})" for all_ in (late, over)),
            f"{each.seamless:.0%}", f"{gap.mean:.0%} ({gap.low:.0%} to {gap.high:.0%})",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def replaced(text: str, part: str) -> str:
    """The text with its part of the same heading replaced, or with the part at its end."""
    before, _, after = text.partition(part.partition("\n")[0])
    _, _, others = after.partition("\n## ")
    return f"{before.rstrip()}\n\n{part}" + (f"\n## {others}" if others else "")


if __name__ == "__main__":
    main()
