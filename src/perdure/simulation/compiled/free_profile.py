"""The GPUs that will be free at each tick, compiled, for a policy that keeps and changes them from pass to pass.

A step function: stretches, each from its own tick to that of the next one, the last one without end. They lie in blocks
of at most `SIZE`, so that a change moves the stretches of a block and the list of blocks, not all stretches. Of each
block it is kept how long this many GPUs are free in it without a break, for each size of a job that was looked for
since the block last changed: a search passes over a block in which the job does not fit, at the cost of one comparison.
With n stretches a search costs about ``n / SIZE``, and ``SIZE`` more for each block that has changed since the last
search for that size.

The plain form is `perdure.scheduling.backfill.Forecast`: one sorted list, made again in each pass. It costs a walk over
all stretches for each search and each change, which long queues make by the ten thousand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records

SIZE = 32  # stretches in a full block
_FEW = SIZE // 2  # blocks that meet hold more than that together, but for the first one
_SIZES = 16  # sizes of jobs that are kept of a block at the same time


class Profile(NamedTuple):
    """What is free from the first tick on, in GPUs; negative where more has been promised than there is.

    Kept true between calls: stretches that meet differ, and no block is empty. Ticks are absolute, those of the
    simulation; what is asked about the time before the first tick has no meaning.

    A block is a record of where its stretches lie. Only these small records are kept in order: to put a block in
    between moves records, not stretches, and a block's place goes back to `unused` when it is dropped.
    """

    block: Records  # in ascending order of the ticks
    stretch: Records  # in places of `SIZE` stretches; the first ones of a place are in use, in ascending order
    gaps: Records  # `_SIZES` for each place: what is known of the block there
    unused: NDArray[np.int64]  # places without a block, the next one to be used last
    tally: Records  # one record


def empty_profile(most: int, free: int) -> Profile:
    """One stretch without end, from tick 0, in which `free` GPUs are free; room for `most` stretches.

    Two neighbouring blocks hold more than `_FEW` stretches together (`_join` merges them otherwise), which bounds the
    number of blocks, and with it the memory: it is taken once, since kernels allocate nothing.
    """
    places = 2 * most // _FEW + 4
    block = records(
        places,
        tick=LONG,  # at which the first stretch begins
        place=LONG,  # of the first stretch among all
        many=LONG,  # stretches
        change=LONG,  # the number of its last change
    )
    gaps = records(
        places * _SIZES,
        change=LONG,  # of the block, for which the rest is true
        gpus=LONG,  # of a job that is looked for
        lead=LONG,  # the first tick at which fewer are free; `NEVER` for none
        longest=LONG,  # ticks for which this many are free, without what goes on at the end of the block
        tail=LONG,  # from this tick on this many are free up to the end of the block; `NEVER` for none
    )
    block[0]["many"] = 1
    stretch = records(places * SIZE, tick=LONG, free=LONG)
    stretch[0]["free"] = free
    tally = records(1, blocks=LONG, unused=LONG, changes=LONG)
    tally[0]["blocks"], tally[0]["unused"] = 1, places - 1
    block[0]["change"] = tally[0]["changes"] = 1
    return Profile(block, stretch, gaps, SIZE * np.arange(places - 1, 0, -1), tally)


@kernel
def begin_of(profile):  # type: ignore[no-untyped-def]
    """The first tick for which it is known what is free: that of the last `forget_before`."""
    return profile.block[0].tick


@kernel
def forget_before(profile, now):  # type: ignore[no-untyped-def]
    """Make the profile begin at `now`, which is not before the tick at which it began so far.

    Whole blocks that are over are dropped, and of the next one the stretches that are over; the stretch that is under
    way is cut to begin at `now`. What is free from there on stays the same.
    """
    past = 0
    while past + 1 < profile.tally[0].blocks and profile.block[past + 1].tick <= now:
        past += 1
    if past:
        _drop(profile, 0, past)
    block = profile.block[0]
    past = _position(profile.stretch, block, now + 1) - 1
    if past:
        _shift(profile.stretch, block, past, -past)
    block.tick = now
    profile.stretch[block.place].tick = now
    _change(profile, block)


@kernel
def earliest(profile, size, gpus, length, old, until):  # type: ignore[no-untyped-def]
    """The first tick from which `gpus` are free for `length` ticks, or up to `old`; `old` where no earlier one is
    found.

    Only starts before `until` are looked for. With `old` and `until` at `NEVER` this finds the first start of a new
    job. With a promised start as `old` it finds how far that may be moved forward: from `old` on the job has its GPUs
    already, so that a gap that reaches up to `old` is long enough whatever its length. Where the last look found
    nothing, only what has come free since can help, and that ends at `until`.

    `size` numbers this count of GPUs among those that jobs ask for. It picks the place in `gaps`; where two sizes share
    one, each looks again at blocks that the other has seen, and the answer is the same.

    Walks from block to block. `begin` is the tick from which on enough is free without a break up to the present one,
    `NEVER` where it is not. A block that is free throughout prolongs it; one with no gap of `length` cannot hold the
    start, and what counts of it is its `tail`. Only where the answer may lie within a block are its stretches read.
    """
    begin = NEVER
    for k in range(profile.tally[0].blocks):
        block = profile.block[k]
        if block.tick >= old or block.tick >= (until if begin == NEVER else begin + length):
            break
        end = profile.block[k + 1].tick if k + 1 < profile.tally[0].blocks else NEVER
        if end <= old:
            gaps = profile.gaps[block.place // SIZE * _SIZES + size % _SIZES]
            if gaps.change != block.change or gaps.gpus != gpus:
                _find_gaps(profile.stretch, block, gaps, gpus)
            if begin < NEVER and gaps.lead == NEVER:
                continue
            if end <= until and gaps.longest < length and (begin == NEVER or gaps.lead < begin + length):
                begin = gaps.tail
                continue
        for i in range(block.place, block.place + block.many):
            stretch = profile.stretch[i]
            if stretch.tick >= old or stretch.tick >= (until if begin == NEVER else begin + length):
                return min(begin, old)
            begin = min(begin, stretch.tick) if stretch.free >= gpus else NEVER
    return min(begin, old)


@kernel
def _find_gaps(stretches, block, gaps, gpus):  # type: ignore[no-untyped-def]
    """Find in one walk for how long `gpus` are free in a block, and note that with the number of its last change.

    `lead` and `tail` are what goes on in the blocks before and behind, so that a gap across several blocks is found
    without reading their stretches again. `longest` leaves out the tail, whose end this block does not know.
    """
    begin, lead, longest = NEVER, NEVER, np.int64(0)
    for i in range(block.place, block.place + block.many):
        stretch = stretches[i]
        if stretch.free >= gpus:
            begin = min(begin, stretch.tick)
            continue
        lead = min(lead, stretch.tick)
        longest = max(longest, stretch.tick - begin)  # negative where nothing is free before
        begin = NEVER
    gaps.change, gaps.gpus = block.change, gpus
    gaps.lead, gaps.longest, gaps.tail = lead, longest, begin


@kernel
def take(profile, begin, end, gpus):  # type: ignore[no-untyped-def]
    """Take `gpus` from tick `begin` to `end`, which is later; a negative number gives them back.

    Neither tick is before the first one. Returns whether fewer than 0 GPUs are free somewhere between them afterwards:
    then more has been promised than there is, and some promise must be broken.

    Stretches are cut at both ticks, changed between them, and joined again at both where the counts have become equal.
    """
    _cut(profile, end)
    k, i = _cut(profile, begin)
    least = NEVER
    while True:
        block = profile.block[k]
        while i < block.many and profile.stretch[block.place + i].tick < end:
            profile.stretch[block.place + i].free -= gpus
            least = min(least, profile.stretch[block.place + i].free)
            i += 1
        _change(profile, block)
        if i < block.many:
            break
        k, i = k + 1, np.int64(0)
    _join(profile, k, i)
    k, i = _find(profile, begin)
    _join(profile, k, i)
    return least < 0


@kernel
def _block_at(profile, tick):  # type: ignore[no-untyped-def]
    """The number of the last block that begins at a tick or before it, by binary search; the first one for any tick
    before that.
    """
    low, high = np.int64(1), profile.tally[0].blocks
    while low < high:
        middle = (low + high) >> 1
        if profile.block[middle].tick <= tick:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _find(profile, tick):  # type: ignore[no-untyped-def]
    """Where a tick lies: the last block that begins at it or before, and how many of its stretches begin before it.

    The second is the position of the stretch that begins at the tick, if one does; otherwise, of the next one.
    """
    k = _block_at(profile, tick)
    return k, _position(profile.stretch, profile.block[k], tick)


@kernel
def _position(stretches, block, tick):  # type: ignore[no-untyped-def]
    """How many stretches of a block begin before a tick. A binary search."""
    low, high = block.place, block.place + block.many
    while low < high:
        middle = (low + high) >> 1
        if stretches[middle].tick < tick:
            low = middle + 1
        else:
            high = middle
    return low - block.place


@kernel
def _cut(profile, tick):  # type: ignore[no-untyped-def]
    """Split the stretch at a tick; the block of the part that begins there, and its position in the block.

    What is free stays the same at every tick; where a stretch begins at the tick already nothing is changed. A full
    block is split in two first.
    """
    k, i = _find(profile, tick)
    block = profile.block[k]
    if i < block.many and profile.stretch[block.place + i].tick == tick:
        return k, i
    if block.many == SIZE:
        _split(profile, k)
        if i > block.many:
            i -= block.many
            k += 1
            block = profile.block[k]
    _shift(profile.stretch, block, i, 1)
    at = block.place + i
    profile.stretch[at].tick = tick
    profile.stretch[at].free = profile.stretch[at - 1].free
    _change(profile, block)
    return k, i


@kernel
def _join(profile, k, i):  # type: ignore[no-untyped-def]
    """Join the i-th stretch of a block with that before it, which may be in the block before, where the same is free.

    The inverse of `_cut`: without it the profile would only grow. A block that becomes empty is dropped, one that is
    left with few stretches is merged with a neighbour that has few, so that a search does not walk over many small
    blocks.
    """
    block = profile.block[k]
    if i:
        before = block.place + i - 1
    elif k:
        before = profile.block[k - 1].place + profile.block[k - 1].many - 1
    else:
        return
    if profile.stretch[before].free != profile.stretch[block.place + i].free:
        return
    _shift(profile.stretch, block, i + 1, -1)
    if not block.many:
        _drop(profile, k, 1)
        return
    block.tick = profile.stretch[block.place].tick
    _change(profile, block)
    if k + 1 < profile.tally[0].blocks and block.many + profile.block[k + 1].many <= _FEW:
        _merge(profile, k)
    elif k and block.many + profile.block[k - 1].many <= _FEW:
        _merge(profile, k - 1)


@kernel
def _change(profile, block):  # type: ignore[no-untyped-def]
    """Invalidate what `gaps` holds of a block: it counts only under the number of the block's last change.

    Numbers are never given twice, so that a block that takes over the place of another one inherits nothing.
    """
    profile.tally[0].changes += 1
    block.change = profile.tally[0].changes


@kernel
def _shift(stretch, block, i, by):  # type: ignore[no-untyped-def]
    """Move the stretches of a block from the i-th on by `by` positions; the block then has as many more, or fewer.

    The block has room for them. Positions that come free in the middle keep their old values, to be written over.
    """
    begin, end = block.place + i, block.place + block.many
    if by < 0:
        for j in range(begin, end):
            stretch[j + by].tick = stretch[j].tick
            stretch[j + by].free = stretch[j].free
    else:
        for j in range(end - 1, begin - 1, -1):
            stretch[j + by].tick = stretch[j].tick
            stretch[j + by].free = stretch[j].free
    block.many += by


@kernel
def _split(profile, k):  # type: ignore[no-untyped-def]
    """Move the second half of a full block into a block of its own behind it, at a place that is not in use."""
    tally = profile.tally[0]
    for j in range(tally.blocks, k + 1, -1):
        profile.block[j] = profile.block[j - 1]
    tally.blocks += 1
    tally.unused -= 1
    block, new = profile.block[k], profile.block[k + 1]
    new.place = profile.unused[tally.unused]
    block.many = SIZE // 2
    new.many = SIZE - block.many
    for i in range(new.many):
        profile.stretch[new.place + i].tick = profile.stretch[block.place + block.many + i].tick
        profile.stretch[new.place + i].free = profile.stretch[block.place + block.many + i].free
    new.tick = profile.stretch[new.place].tick
    _change(profile, block)
    _change(profile, new)


@kernel
def _merge(profile, k):  # type: ignore[no-untyped-def]
    """Move the stretches of block ``k + 1`` into block k, which has room for them, and drop block ``k + 1``."""
    block, gone = profile.block[k], profile.block[k + 1]
    for i in range(gone.many):
        at = block.place + block.many + i
        profile.stretch[at].tick = profile.stretch[gone.place + i].tick
        profile.stretch[at].free = profile.stretch[gone.place + i].free
    block.many += gone.many
    _change(profile, block)
    _drop(profile, k + 1, 1)


@kernel
def _drop(profile, k, many):  # type: ignore[no-untyped-def]
    """Remove `many` blocks from the k-th on; their places may be used again."""
    tally = profile.tally[0]
    for j in range(k, k + many):
        profile.unused[tally.unused] = profile.block[j].place
        tally.unused += 1
    tally.blocks -= many
    for j in range(k, tally.blocks):
        profile.block[j] = profile.block[j + many]
