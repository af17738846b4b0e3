"""What a comparison says in three sentences: which policy, how sure that is, and who loses by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.simulation.by_day import DayTotals, Group
from perdure.simulation.difference import LEAST_DAYS, Differences, PairedDifference, differences, discovered
from perdure.simulation.groups import GroupKind

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_MOST_LOSERS = 3  # that are named, of each kind
_NO_DIFFERENCE = 0.05  # shares in between, the whole interval
_HARDLY = 0.02  # beyond a slow-down of 1: there is little to gain
_EVERYBODY: Group = (None, "")
_KINDS = {GroupKind.CLUSTER: "virtual cluster", GroupKind.USER: "user", GroupKind.GPUS: "size"}
_PASSED_ALIKE = 0.0005  # shares of jobs that passed, in between


@dataclass(frozen=True, slots=True)
class PolicyStanding:
    """How one of the policies does, by the completion times of all jobs."""

    label: str  # the policy, and the retry policy where they differ
    against_first: Differences
    against_best: PairedDifference | None  # of the completion times of all jobs; None of the best
    is_bound: bool = False  # it knows what no scheduler knows, beside policies that do not
    passed: float = 1.0  # share of the jobs whose last attempt passed

    @property
    def mark(self) -> str:
        """The best, no different from it, or not certain to be worse; nothing where it is, or too few days tell.

        A bound is no candidate.
        """
        found = self.against_best
        if found is None:
            return "best"
        if self.is_bound:
            return "bound"
        if not found.change or (found.low is not None and found.high is not None and _is_near(found.low, found.high)):
            return "no difference"
        return "" if found.is_sure or found.low is None else "not certain"

    @property
    def jct(self) -> PairedDifference:
        """The completion times of all jobs against those under the first policy."""
        return self.against_first[_EVERYBODY]["jct_s"]

    @property
    def changed(self) -> dict[Group, PairedDifference]:
        """Groups whose jobs surely end at other times than under the first policy, the many that are tested considered
        (`discovered`).
        """
        found = {group: of["jct_s"] for group, of in self.against_first.items() if group != _EVERYBODY}
        believed = zip(found.items(), discovered([*found.values()]), strict=True)
        return {group: each for (group, each), sure in believed if sure}

    @property
    def losers(self) -> dict[Group, PairedDifference]:
        """Those whose jobs surely end later, those that lose most time first."""
        lost = {group: each for group, each in self.changed.items() if each.change > 0}
        return dict(sorted(lost.items(), key=lambda item: -item[1].change * item[1].jobs))

    def to_json(self) -> dict[str, Any]:
        def told(group: Group) -> dict[str, Any]:
            of = self.against_first[group]
            return {name: each.to_json() for name, each in of.items()}

        changed = self.changed
        groups = [
            {"of": group[0], "name": group[1], "changed": group in changed, **told(group)}
            for group in self.against_first
            if group[0]
        ]
        return {"label": self.label, "mark": self.mark, **told(_EVERYBODY), "groups": groups}


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """How all policies do on one trace, in the order in which they were asked for."""

    standings: tuple[PolicyStanding, ...]
    days: int  # on which jobs came

    @property
    def best(self) -> PolicyStanding:
        return next(each for each in self.standings if each.against_best is None)

    def sentences(self) -> tuple[str, str, str]:
        """Which policy, and how much better it is; how sure that is; who loses by it."""
        return _which(self), self._how_sure(), _who_loses(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "says": self.sentences(),
            "days": self.days,
            "standings": [each.to_json() for each in self.standings],
        }

    def _how_sure(self) -> str:
        if self.days < LEAST_DAYS:
            days = f"{self.days} day{'' if self.days == 1 else 's'}"
            return f"How certain this is cannot be said: jobs came on {days}, and {LEAST_DAYS} are needed."
        return (
            f"Intervals are at 95%, from {self.days} days, resampled alike for all: they say what other days like "
            "these would change, not how well the simulation fits this cluster."
        )


def judge(
    labels: Sequence[str],
    totals: Sequence[Sequence[DayTotals]],
    foreknowing: Collection[int] = (),
    passed: Sequence[float] = (),
) -> PolicyVerdict:
    """Compare each policy with the first, and with the best; of each the totals are given, one a seed.

    The policies in the places `foreknowing` know what no scheduler knows: the best is another one, if there is any.
    `passed`: the share of the jobs that passed under each; all of them where it is not given.
    """
    means = [sum(float(each.totals[0, 0].sum()) for each in found) / len(found) for found in totals]
    bounds = foreknowing if len(foreknowing) < len(means) else ()
    best = min(range(len(means)), key=lambda place: (place in bounds, means[place]))
    standings = [
        PolicyStanding(
            label,
            differences(found, totals[0]),
            None if place == best else differences(found, totals[best])[_EVERYBODY]["jct_s"],
            place in bounds,
            share,
        )
        for place, (label, found, share) in enumerate(zip(labels, totals, passed or [1.0] * len(labels), strict=True))
    ]
    return PolicyVerdict(tuple(standings), int((totals[0][0].jobs[0] > 0).sum()))


def length(seconds: float) -> str:
    """A length of time in the largest unit of which it has one.

    >>> length(90), length(7)
    ('1.5 min', '7 s')
    """
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.0f} s"


def share_of(found: PairedDifference) -> str:
    """A difference as a share, with its interval where there is one: -12% (-15% to -8%)."""
    if found.low is None or found.high is None:
        return _percent(found.share)
    return f"{_percent(found.share)} ({_percent(found.low)} to {_percent(found.high)})"


def _percent(share: float) -> str:
    """In whole per cent, and finer where that would say that nothing is left.

    >>> _percent(-0.12), _percent(-0.997), _percent(-0.99999), _percent(-1.0)
    ('-12%', '-99.7%', '-99.9%', '-100%')
    """
    return f"{max(share, -0.999):+.1%}" if -1 < share < -0.995 else f"{share:+.0%}"


def _is_near(low: float, high: float) -> bool:
    return low >= -_NO_DIFFERENCE and high <= _NO_DIFFERENCE


def _which(verdict: PolicyVerdict) -> str:
    first, best = verdict.standings[0], verdict.best
    stays = best is not first and _makes_no_difference(best, first)
    alike, open_to = (
        _listed([each.label for each in verdict.standings if each.mark == mark and not (stays and each is first)])
        for mark in ("no difference", "not certain")
    )
    tail = f" No difference from it: {alike}." if alike else ""
    tail += f" Not certain to be worse: {open_to}." if open_to else ""
    candidates = len([each for each in verdict.standings if not each.is_bound])
    bounds = [f"{each.label} {share_of(each.jct)}" for each in verdict.standings if each.mark == "bound"]
    tail += f" Bounds, which know what no scheduler knows: {', '.join(bounds)}." if bounds else ""
    tail += _more_pass(verdict)
    if best is first:
        better = f"none of the others{' that can be run' * bool(bounds)} is better in the mean"
        return f"Stay with {first.label}: {better}.{_typical_gains(verdict)}{_little_to_gain(first)}{tail}"
    typical = best.against_first[_EVERYBODY]["log_jct"]
    of = f"the {candidates} that can be run" if bounds else str(candidates)
    when = f"{length(abs(best.jct.change))} {'sooner' if best.jct.change <= 0 else 'later'}"
    doubt = "" if best.jct.is_sure or best.jct.low is None else ", which is not certain"
    gain = f"{share_of(best.jct)}{doubt}; the typical job (geometric mean) {share_of(typical)}"
    if stays:
        no_better = f"best of {of} is {best.label}, but that is no difference: {gain}"
        return f"Stay with {first.label}: {no_better}.{_little_to_gain(first)}{tail}"
    return f"Best of {of} is {best.label}: against {first.label} jobs end {when} in the mean, {gain}.{tail}"


def _more_pass(verdict: PolicyVerdict) -> str:
    """That more jobs pass under another policy than under the best: jobs that fail for good end soon."""
    best = verdict.best
    most = max((each for each in verdict.standings if not each.is_bound), key=lambda each: each.passed, default=best)
    if most.passed - best.passed <= _PASSED_ALIKE:
        return ""
    how_many = f"{most.passed:.1%} instead of {best.passed:.1%}"
    return f" But more jobs pass under {most.label}: {how_many}; jobs that fail for good end sooner."


def _typical_gains(verdict: PolicyVerdict) -> str:
    """Under which policy the typical job surely ends sooner, though the mean job does not."""
    others = [each for each in verdict.standings[1:] if not each.is_bound]
    typical = [(each.against_first[_EVERYBODY]["log_jct"], each.label) for each in others]
    sooner = [(found.share, label, found) for found, label in typical if (found.high or 0.0) < -_NO_DIFFERENCE]
    if not sooner:
        return ""
    _, label, found = min(sooner, key=lambda each: each[0])
    return f" But the typical job (geometric mean) ends sooner under {label}: {share_of(found)}."


def _little_to_gain(first: PolicyStanding) -> str:
    """That jobs hardly wait, so that no policy can make them end much sooner."""
    slow = first.against_first[_EVERYBODY]["slowdown"].mean
    if not 0 < slow <= 1 + _HARDLY:
        return ""
    return f" Jobs hardly wait under it (slow-down {slow:.2f}), so no policy can gain much: try a higher --load."


def _makes_no_difference(best: PolicyStanding, first: PolicyStanding) -> bool:
    """Whether neither the mean nor the typical job tells the best from the first: a change of policy brings nothing."""
    typical = best.against_first[_EVERYBODY]["log_jct"]
    told = typical.low is not None and typical.high is not None and _is_near(typical.low, typical.high)
    return told and first.mark == "no difference"


def _who_loses(verdict: PolicyVerdict) -> str:
    best, first = verdict.best, verdict.standings[0]
    if best is first:
        return "Nobody loses, since nothing changes."
    if verdict.days < LEAST_DAYS:
        return "Nor can it be said who loses."
    looked = Counter(kind for (kind, _), of in best.against_first.items() if kind and of["jct_s"].low is not None)
    losers = best.losers
    if not losers:
        of = _listed([f"{many} {_some(kind, many)}" for kind, many in looked.items()])
        nobody = f"Nobody is seen to lose, of {of} with jobs enough." if of else "Too few jobs to say who loses."
        return nobody + _may_lose(best)
    told = []
    for kind, many in looked.items():
        lost = [(group[1], each) for group, each in losers.items() if group[0] is kind]
        if lost:
            named = ", ".join(f"{_name(kind, name)} {share_of(each)}" for name, each in lost[:_MOST_LOSERS])
            told.append(f"{len(lost)} of {many} {_some(kind, many)} ({named}{_more(lost)})")
    return f"Who loses, by later ends of jobs: {'; '.join(told)}.{_may_lose(best)}"


def _may_lose(best: PolicyStanding) -> str:
    """The groups whose jobs end later, but not surely, that lose most time."""
    changed = best.changed
    found = [(group, of["jct_s"]) for group, of in best.against_first.items() if group[0] and group not in changed]
    later = [(kind, name, each) for (kind, name), each in found if each.low is not None and each.share > _NO_DIFFERENCE]
    later.sort(key=lambda one: -one[2].change * one[2].jobs)
    named = [f"{_kind_and_name(kind, name)} {share_of(each)}" for kind, name, each in later[:_MOST_LOSERS] if kind]
    return f" Later, but not surely: {', '.join(named)}{_more(later)}." if named else ""


def _more(found: Sequence[object]) -> str:
    """How many are not named."""
    return f", and {len(found) - _MOST_LOSERS} more" if len(found) > _MOST_LOSERS else ""


def _some(kind: GroupKind, many: int) -> str:
    return f"{_KINDS[kind]}{'' if many == 1 else 's'}"


def _name(kind: GroupKind, name: str) -> str:
    return f"{name} GPU{'' if name == '1' else 's'}" if kind is GroupKind.GPUS else name or "none"


def _kind_and_name(kind: GroupKind, name: str) -> str:
    """For a sentence on groups of several kinds: user eve, 9+ GPUs."""
    return _name(kind, name) if kind is GroupKind.GPUS else f"{_KINDS[kind]} {_name(kind, name)}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
