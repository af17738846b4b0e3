"""A window of observations: for each path, how many units used it, how many of them failed, and what it crosses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from perdure.errors import InputError

NO_TIER = "component"
MOST_ENTRIES = 1 << 28  # components of all paths together; a GiB of them
_GIVEN = "<window>"

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
At = Callable[[int], str]  # where path row i (the first is 0) stands, for an error


@dataclass(frozen=True)
class Window:
    """Paths as rows, components as columns. Build it with `window`, which checks what it is given.

    A unit is whatever can fail on a path: a VM, a probe, a training step, an attempt of a job.

    Invariants: ``0 <= failures <= units``; every path crosses a component, and none twice; ids are distinct. A path may
    have no units, a component no path.
    """

    incidence: sparse.csr_array  # (n_paths, n_components), 1.0 where the path crosses the component
    units: Floats  # (n_paths,) units that used the path; whole
    failures: Floats  # (n_paths,) of them failed; whole
    path_ids: Ints  # (n_paths,) as given
    component_ids: Ints  # (n_components,) as given, ascending
    tiers: NDArray[np.str_]  # (n_components,)

    @property
    def n_paths(self) -> int:
        """Used or not."""
        return len(self.units)

    @property
    def n_components(self) -> int:
        """All that could be blamed, crossed or not: the price of a name counts them."""
        return len(self.component_ids)

    @cached_property
    def by_component(self) -> sparse.csc_array:
        """The incidence by columns; row numbers ascend in each."""
        return self.incidence.tocsc()

    def rows(self, column: int) -> NDArray[np.int32]:
        """The paths that cross a component, ascending."""
        by = self.by_component
        found: NDArray[np.int32] = by.indices[by.indptr[column] : by.indptr[column + 1]]
        return found

    def totals(self, of_paths: Floats) -> Floats:
        """(n_components,) the sum of a quantity over the paths of each component."""
        summed: Floats = self.incidence.T @ of_paths
        return summed


def window(
    starts: ArrayLike,
    components: ArrayLike,
    units: ArrayLike,
    failures: ArrayLike,
    *,
    path_ids: ArrayLike | None = None,
    component_ids: ArrayLike | None = None,
    tiers: ArrayLike | None = None,
    source: str = _GIVEN,
) -> Window:
    """A checked window.

    Parameters
    ----------
    starts : (n_paths + 1,) where each path's components begin in `components`, and the end.
    components : component ids, path after path.
    units, failures : (n_paths,) whole numbers, ``0 <= failures <= units``.
    path_ids : (n_paths,) whole and distinct; 0, 1, ... if not given.
    component_ids : all components there are; those that occur, if not given.
    tiers : (n_components,) one name each, in the order of `component_ids`.
    source : what an error names, such as the file.

    Whole numbers may come as floats. Columns are numbered by ascending id, whatever order the ids have. Time and memory
    are linear in the entries, sorting apart; at most 2^28 entries.

    Raises `InputError` with the first row that breaks this.

    >>> paths = window([0, 2, 3], [9, 4, 9], [10, 20], [1, 0])  # path 0 crosses 9 and 4, path 1 crosses 9
    >>> paths.component_ids.tolist(), paths.rows(1).tolist(), paths.totals(paths.failures).tolist()
    ([4, 9], [0, 1], [1.0, 1.0])
    """

    def at(row: int) -> str:
        return f"{source}, row {row + 1}"

    n, e = _counts(units, "n", at), _counts(failures, "e", at)
    bounds, flat = np.asarray(starts, np.int64), _whole(components, "components", lambda _: source)
    if not len(n):
        raise InputError(source, "there is no path in it", "Give at least one path")
    paths = np.arange(len(n)) if path_ids is None else _whole(path_ids, "path", at)
    if len({len(n), len(e), len(paths), len(bounds) - 1}) > 1:
        raise InputError(source, "columns differ in length", "Give one path, n, e and list of components a row")
    if len(flat) > MOST_ENTRIES:
        raise InputError(source, f"paths have {len(flat)} components together", "Take a shorter window")
    _refuse(e > n, at, "e is larger than n", "Count in n every unit that used the path, failed ones too")
    _refuse(np.diff(bounds) <= 0, at, "the path has no components", "List what it crosses, or leave the row out")
    _refuse_repeated(paths, at)
    ids, names = _known(component_ids, tiers, flat, source)
    columns = _columns(ids, flat)
    if (columns < 0).any():
        place = int(np.argmax(columns < 0))
        row = int(np.searchsorted(bounds, place, side="right")) - 1
        raise InputError(at(row), f"component {flat[place]} is not known", "Add it to the components, or fix the path")
    shape = (len(n), len(ids))
    cells = (np.ones(len(flat)), columns, bounds.astype(np.int32))  # MOST_ENTRIES is below 2^31
    made = Window(sparse.csr_array(cells, shape=shape), n, e, paths, ids, names)
    _refuse_doubled(made, at)
    return made


def _whole(values: ArrayLike, name: str, at: At) -> Ints:
    """Whole numbers as int64, perhaps written as floats below 2^53, where each whole number has one float."""
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f" and len(array):
        raise InputError(at(0), f"{name} holds {array.dtype.name}, not whole numbers", "Write it as int32 or int64")
    _refuse(np.isnan(array), at, f"{name} is missing or NaN", "Fill it in, or leave the row out")
    _refuse(array != np.rint(array), at, f"{name} is not a whole number", "Write a whole number")
    _refuse(np.abs(array) >= 2.0**53, at, f"{name} is beyond 2^53", "Write a smaller number")
    return array.astype(np.int64)


def _counts(values: ArrayLike, name: str, at: At) -> Floats:
    """Whole numbers of 0 or more, as floats: products with the incidence stay exact and need no conversion."""
    found = _whole(values, name, at)
    _refuse(found < 0, at, f"{name} is negative", "Write a count of units")
    return found.astype(np.float64)


def _known(
    component_ids: ArrayLike | None, tiers: ArrayLike | None, flat: Ints, source: str
) -> tuple[Ints, NDArray[np.str_]]:
    """All ids, ascending, with their tiers."""
    if component_ids is None:
        ids = np.unique(flat)
        return ids, np.full(len(ids), NO_TIER)

    def at(row: int) -> str:
        return f"{source}, component row {row + 1}"

    ids = _whole(component_ids, "component", at)
    names = np.full(len(ids), NO_TIER) if tiers is None else np.asarray(tiers, np.str_)
    if len(names) != len(ids):
        raise InputError(source, "components and tiers differ in length", "Give each component one tier")
    order = np.argsort(ids, kind="stable")
    repeated = order[1:][ids[order[1:]] == ids[order[:-1]]]
    if len(repeated):
        row = int(repeated.min())
        raise InputError(at(row), f"component {ids[row]} is there twice", "Leave one of them out")
    return ids[order], names[order]


def _columns(ids: Ints, flat: Ints) -> NDArray[np.int32]:
    """The column of each id; -1 of an unknown one. Ids that are 0, 1, ... are columns already: no search."""
    if len(ids) and ids[0] == 0 and ids[-1] == len(ids) - 1:  # ids are columns
        known = (flat >= 0) & (flat < len(ids))
        return np.where(known, flat, -1).astype(np.int32)
    places = np.searchsorted(ids, flat).clip(max=max(0, len(ids) - 1))
    known = ids[places] == flat if len(ids) else np.zeros(len(flat), bool)
    return np.where(known, places, -1).astype(np.int32)


def _refuse(wrong: NDArray[np.bool_], at: At, what: str, fix: str) -> None:
    """Raise `InputError` for the first row that is wrong."""
    if wrong.any():
        raise InputError(at(int(np.argmax(wrong))), what, fix)


def _refuse_repeated(paths: Ints, at: At) -> None:
    """Refuse a path id that is in two rows, naming the first row that repeats one; ascending ids need no sort."""
    if (np.diff(paths) > 0).all():
        return
    order = np.argsort(paths, kind="stable")
    repeated = order[1:][np.diff(paths[order]) == 0]
    if len(repeated):
        row = int(repeated.min())
        raise InputError(at(row), f"path {paths[row]} is there twice", "Add up its rows, or give each its own id")


def _refuse_doubled(made: Window, at: At) -> None:
    """One path lists one component twice: then two rows of a column are the same."""
    by = made.by_component
    column = np.repeat(np.arange(made.n_components, dtype=np.int32), np.diff(by.indptr))
    doubled = np.flatnonzero((np.diff(by.indices) == 0) & (np.diff(column) == 0))
    if len(doubled):
        first = doubled[np.argmin(by.indices[doubled])]
        what = f"component {made.component_ids[column[first]]} is listed twice"
        raise InputError(at(int(by.indices[first])), what, "List each component of a path once")
