"""Compose what later versions of Slurm would print of the recorded story: ``python -m tests.golden.slurm.compose``.

Each step rewrites the text of the version before it, by what that version's documentation and source say it prints
otherwise. Nothing here was recorded; see README.md.
"""

from collections.abc import Callable
from pathlib import Path

import re2

HERE = Path(__file__).parent
DELIMITER = "GOLDENDELIMITER"
Texts = dict[str, str]


def asked_and_given(texts: Texts) -> Texts:
    """TRES= becomes ReqTRES= and AllocTRES=; a waiting job was given nothing. Nodes say when they resume."""
    given = re2.sub(r" TRES=(\S+)", r" ReqTRES=\1 AllocTRES=\1", texts["jobs"])
    waiting = [
        re2.sub(r" AllocTRES=\S+", " AllocTRES=(null)", line) if " JobState=PENDING " in line else line
        for line in given.split("\n")
    ]
    nodes = re2.sub(r" (LastBusyTime=\S+) ", r" \1 ResumeAfterTime=None ", texts["nodes"])
    return {**texts, "jobs": "\n".join(waiting), "nodes": nodes}


def typed_gpus(texts: Texts) -> Texts:
    """gres:gpu becomes gres/gpu, and counts by type stand beside the plain ones."""
    jobs = texts["jobs"].replace("gres:gpu", "gres/gpu")
    both = {"jobs": jobs, "nodes": texts["nodes"], "accounting": texts["accounting"]}
    return {k: re2.sub(r"gres/gpu=(\d+)", r"gres/gpu=\1,gres/gpu:h100=\1", text) for k, text in both.items()}


def no_power(texts: Texts) -> Texts:
    """Power= is gone from jobs, the power caps and sensors are gone from nodes."""
    nodes = re2.sub(r" CapWatts=n/a| ExtSensors\w+=\S+", "", texts["nodes"])
    return {**texts, "jobs": texts["jobs"].replace(" Power=", ""), "nodes": nodes}


def failed_node(texts: Texts) -> Texts:
    """Jobs name the node that failed them; sacct knows it and the logs' paths."""
    jobs = texts["jobs"].replace(" Reason=NodeDown ", " Reason=NodeDown FailedNode=node3 ")
    rows = texts["accounting"].split("\n")
    longer = [f"{row}{_later_cells(row)}" if row else row for row in rows]
    return {**texts, "jobs": jobs, "accounting": "\n".join(longer)}


def _later_cells(row: str) -> str:
    failed = "node3" if "NODE_FAIL" in row else ""
    return f"{failed}{DELIMITER}/cluster/out/log{DELIMITER}/cluster/out/log{DELIMITER}"


def more_words(texts: Texts) -> Texts:
    """OOMKillStep=, Extra= and LicensesAlloc= appear; nodes can be DYNAMIC_NORM."""
    jobs = texts["jobs"].replace(" Licenses=(null) ", " Licenses=(null) LicensesAlloc=(null) ")
    lines = [f"{line.rstrip()} OOMKillStep=0 " if " StdOut=" in line else line for line in jobs.split("\n")]
    extra = "\n".join(line.replace(" StdErr=", " Extra=a note  StdErr=", 1) for line in lines)
    return {**texts, "jobs": extra, "nodes": texts["nodes"].replace("State=MIXED ", "State=MIXED+DYNAMIC_NORM ")}


def stepmgr(texts: Texts) -> Texts:
    """StepMgrEnabled= appears behind BatchHost=."""
    return {**texts, "jobs": re2.sub(r" (BatchHost=\S+) ", r" \1 StepMgrEnabled=Yes ", texts["jobs"])}


def sluid(texts: Texts) -> Texts:
    """SLUID= may stand behind JobId=."""
    jobs = re2.sub(r"(?m)^JobId=(\d+) ", r"JobId=\1 SLUID=s6D7H2J\1 ", texts["jobs"])
    return {**texts, "jobs": re2.sub(r" SLUID=\S+ JobName=forged", " JobName=forged", jobs)}  # that line is a user's


STEPS: tuple[tuple[str, Callable[[Texts], Texts]], ...] = (
    ("23.02", asked_and_given),
    ("23.11", typed_gpus),
    ("24.05", no_power),
    ("24.11", failed_node),
    ("25.05", more_words),
    ("25.11", stepmgr),
    ("26.05", sluid),
)
RECORDED = ("24.11", "26.05")


def main() -> None:
    texts = {name: (HERE / "22.05" / name).read_text() for name in ("jobs", "nodes", "accounting")}
    for version, step in STEPS:
        texts = step(texts)
        if version in RECORDED:
            continue
        (HERE / version).mkdir(exist_ok=True)
        for name, text in texts.items():
            (HERE / version / name).write_text(text.replace("Version=22.05.8", f"Version={version}.1"))


if __name__ == "__main__":
    main()
