"""The event loop on which everything is measured, ours and others': the one that the server and the workers run on.

The garbage collector is settled as theirs is, too.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from uvloop import new_event_loop

from stateward.server.run import tune_garbage_collector

T = TypeVar("T")


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end."""
    tune_garbage_collector()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(program)
