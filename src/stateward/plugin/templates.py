"""Templates: how one domain creates and removes objects of another domain that it does not import.

A domain whose objects others may create registers a template in `ProcessContext.templates`, under a name. The other
domain asks the template for the spec of an object, and the engine for the creation. So bad input is refused at once,
and no domain reads the specs of another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stateward.engine import Request
from stateward.store.port import Reader
from stateward.store.records import Object


class Template(Protocol):
    """Makes the specs of new objects of one kind from what users write."""

    kind: str

    def read(self, name: str, uid: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of an object of this name; raises BadInput where none can be made of what is given."""

    async def check(self, ns: str, spec: Mapping[str, Any]) -> None:
        """Raise BadInput if a spec names what is not there, or what the namespace may not use."""

    async def removal(self, reader: Reader, record: Object, who: str) -> Sequence[Request]:
        """Return the next step that removes an object with all that belongs to it, whatever is being done to it.

        The requests of a step are accepted together. The step after it is asked for when they have ended.
        """
