"""The studies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from numpy.random import Generator

from perdure.emulation.profiles import ProfileTable
from perdure.emulation.studies.cpu_shares import synergy
from perdure.emulation.studies.data_stall import coordl, fetch_stalls
from perdure.emulation.studies.decoded_files import ffcv
from perdure.emulation.studies.interleaving import muri
from perdure.emulation.studies.locality import locality
from perdure.emulation.studies.matching import allox
from perdure.emulation.studies.result import StudyTable
from perdure.emulation.studies.sharing_iterations import salus
from perdure.emulation.studies.small_files import small_files

STUDIES: Mapping[str, Callable[[ProfileTable | None, Generator], StudyTable]] = MappingProxyType(
    {
        "data-stall": fetch_stalls, "coordl": coordl, "synergy": synergy, "salus": salus, "muri": muri, "allox": allox,
        "small-files": small_files, "ffcv": ffcv, "locality": locality,
    }
)  # fmt: skip
