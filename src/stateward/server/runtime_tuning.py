"""The garbage collector of a process that stays: what was there when it began to work is left alone.

That stays until the process ends. The collector would look through all of it again whenever enough has come to it, and
nobody is answered meanwhile. Neither are the parts of calls that are under way garbage, however many come at once.
"""

import gc

GC_THRESHOLD = 10_000
"""How many objects must have come, and not gone, before the collector looks at them."""


def tune_garbage_collector() -> None:
    """Leave alone what is there now, and look at what comes less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
