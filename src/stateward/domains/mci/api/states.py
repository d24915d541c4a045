"""States: bad input that was meant for something that exists is answered with the state it is in, as refusals are.

Most of what comes is read before anything is looked up, so that is done here, and only when it is needed.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from stateward.domains.mci.api.hall import Call
from stateward.domains.mci.api.names import id_form
from stateward.domains.mci.model import part_id, vm_id
from stateward.errors import BadInput
from stateward.store.records import Key

P = ParamSpec("P")
T = TypeVar("T")
Meant = Callable[[Mapping[str, str]], str]
"""Returns the id of the object that a call is about, of what stands in its path."""

Route = Callable[P, Awaitable[T]]


def of_mci(path: Mapping[str, str]) -> str:
    """Return the id of the MCI that a call is about."""
    return path["mci"]


def of_vm(path: Mapping[str, str]) -> str:
    """Return the id of the VM that a call is about."""
    return vm_id(path["mci"], id_form(path["vm"]))


def of_part(word: str) -> Meant:
    """Return what gives the id of the network, security group or key that a call is about."""
    return lambda path: part_id(word, path["name"])


def tells_state(meant: Meant) -> Callable[[Route[P, T]], Route[P, T]]:
    """Let a route tell the state of what it is about with the bad input that it refuses."""

    def telling(route: Route[P, T]) -> Route[P, T]:
        @wraps(route)
        async def told(*args: P.args, **named: P.kwargs) -> T:
            try:
                return await route(*args, **named)
            except BadInput as error:
                request = named["request"]
                assert isinstance(request, Call)
                error.state = error.state or await _state(request, meant)
                raise

        return told

    return telling


async def _state(request: Call, meant: Meant) -> str | None:
    path = request.path_params
    found = await request.service.engine.store.reader.object(Key(path["ns"], meant(path)))
    return None if found is None or found.removed else found.state
