"""Python's garbage collector, kept from pausing the service."""

from __future__ import annotations

import gc


def keep_pauses_short() -> None:
    """Have what is alive now never scanned again, and the rest seldom as a whole.

    The controller's state is thousands of small values that live long and form no cycles. Scanning them all, as the
    collector does by default once enough are new, stops every thread for 100 ms and more with 5,000 failures
    remembered. Nor is what dies young worth a scan: a thousand exceptions raised at once make fewer values than it
    takes to begin one, and most are gone with their batch.

    To be called once the journal has been read back; and before, too, where that is to be quick: what is frozen
    already is not scanned again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 100)
