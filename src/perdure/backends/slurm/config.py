"""What ``scontrol show config`` says: which Slurm this is, and how it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import re2

_TIME = re2.compile(r"Configuration data as of (\d{1,12})~")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of slurm.conf that are in force, as text, by their names; "" for one that is not set."""

    values: Mapping[str, str] = field(default_factory=dict)
    time_s: float | None = None  # slurmctld's clock when it answered

    def __getitem__(self, name: str) -> str:
        return self.values.get(name) or self.values.get(f"{name}[0]", "")  # 24.11 numbers some: EpilogSlurmctld[0]

    def words(self, name: str) -> frozenset[str]:
        """The words of a list, in lower case."""
        return frozenset(word.strip().lower() for word in self[name].split(",") if word.strip())

    def number(self, name: str) -> int | None:
        """The number that a value begins with."""
        digits = self[name].partition(" ")[0]
        return int(digits) if digits.isdecimal() and len(digits) < 12 else None

    def codes(self, name: str) -> frozenset[int]:
        """The exit codes of a list such as ``75,100-110``."""
        found: set[int] = set()
        for word in self.words(name):
            first, _, last = word.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                found.update(range(min(int(first), 256), min(int(last or first), 255) + 1))
        return frozenset(found)

    @property
    def cluster(self) -> str:
        return self["ClusterName"]

    @property
    def accounts(self) -> bool:
        """Whether each job is reported to a slurmdbd."""
        return self["AccountingStorageType"] == "accounting_storage/slurmdbd"

    @property
    def identity(self) -> str:
        """Tells this Slurm from any other: the cluster's name, and where its controller listens."""
        host = self["SlurmctldHost[0]"] or self["SlurmctldHost"] or self["ControlMachine"]
        return f"{self.cluster}@{host}:{self['SlurmctldPort']}"


def read_config(text: bytes, mark: str) -> Config:
    """Read the answer to ``show config``; `mark` is behind each instant."""
    values: dict[str, str] = {}
    time_s = None
    for line in text.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and (key := name.strip()) not in values:
            said = value.strip()
            values[key] = "" if said in ("(null)", "N/A") else said.replace(f"~{mark}", "")
        elif found := _TIME.search(line):
            time_s = float(found[1])
    return Config(values, time_s)
