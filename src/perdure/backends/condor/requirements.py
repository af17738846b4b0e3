"""What a job requires of machines, with what Perdure adds at its end: nodes that are left out, and an instant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import re2

from perdure.backends.condor.ads import ClassAd, expression, literal

_OURS = re2.compile(
    r'(?s)\((.*)\)\s+&&\s+!stringListIMember\(TARGET\.Machine,\s?"([^"\\]*)"\)\s+&&\s+time\(\)\s+>=\s+(\d{1,11})'
)
_MACHINE = re2.compile(r'(?i)\b(?:TARGET\.)?Machine\s*=[=?]=?\s*"([^"\\]{1,255})"')


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Where and when a job may start."""

    owner: str  # the owner's own expression
    excluded: tuple[str, ...] = ()
    not_before_s: int = 0

    @classmethod
    def of(cls, ad: ClassAd) -> StartPlace:
        """Take the requirements of a job apart.

        >>> ours = '(Cpus > 1) && !stringListIMember(TARGET.Machine,"a,b") && time() >= 0'
        >>> StartPlace.of({"requirements": f"/Expr({ours})/"})
        StartPlace(owner='Cpus > 1', excluded=('a', 'b'), not_before_s=0)
        """
        told = expression(ad, "Requirements")
        found = _OURS.fullmatch(told)
        if found is None:
            return cls(told or "true")
        return cls(found[1], tuple(name for name in found[2].split(",") if name), int(found[3]))

    @property
    def required(self) -> tuple[str, ...]:
        """Machines that the owner names, as far as that is written plainly; alternatives are all named."""
        return tuple(dict.fromkeys(each[1] for each in _MACHINE.finditer(self.owner)))

    def changed(self, exclude: Iterable[str], lift: Iterable[str], not_before_s: float) -> StartPlace:
        """The same with other nodes left out; `exclude` counts more than `lift`."""
        left = [name for name in self.excluded if name not in set(lift)]
        return StartPlace(self.owner, tuple(dict.fromkeys((*left, *exclude))), int(not_before_s))

    @property
    def words(self) -> str:
        """The expression."""
        if not self.excluded and not self.not_before_s:
            return self.owner
        names = literal(",".join(self.excluded))
        return f"({self.owner}) && !stringListIMember(TARGET.Machine,{names}) && time() >= {self.not_before_s}"
