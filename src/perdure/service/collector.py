"""Python's garbage collector, kept from pausing the service."""

from __future__ import annotations

import gc


def keep_pauses_short() -> None:
    """Have what is alive now never scanned again, and the rest seldom as a whole.

    The controller's state is thousands of small values that live long and form no cycles. Scanning them all, as the
    collector does by default once enough are new, stops every thread for 100 ms and more with 5,000 failures
    remembered. To be called once the journal has been read back; and before, too, where that is to be quick: what is
    frozen already is not scanned again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)
