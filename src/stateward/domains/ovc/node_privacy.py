"""Privacy of nodes: only administrators see on which node a VM or a firewall runs, and that it moves.

The engine hides the fields that are declared here from all other readers. Drivers name their nodes in error texts. So
the errors of public actions are rewritten without ids of nodes and folders; the log has the original error.
"""

import logging
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import CLOUDSPACE, NODE, VM
from stateward.domains.ovc.model import file_name
from stateward.domains.ovc.nodes import NodeRegistry
from stateward.engine import Handler, Job, Kind, Permanent
from stateward.engine.job import Run
from stateward.engine.privacy import Privacy, internal_actions
from stateward.engine.queries import list_all
from stateward.engine.work_errors import UNCLEAR_ERRORS, Unknown, WorkError
from stateward.errors import StatewardError
from stateward.store.filters import Selector

log = logging.getLogger("stateward.ovc")

LANE_PREFIX = "ovc/"
"""Prefix of the lanes of nodes."""

PLACEMENT_PRIVACY = Privacy(fields=frozenset({"node", "machine", "to", "leftovers"}), places=LANE_PREFIX)
NODE_PRIVACY = Privacy(
    fields=frozenset({"options", "away", "report", "trouble", "strangers"}),
    texts=True,
    operations=True,
    places=LANE_PREFIX,
)
PRIVACY: Mapping[str, Privacy] = {
    VM.kind: PLACEMENT_PRIVACY,
    CLOUDSPACE.kind: PLACEMENT_PRIVACY,
    NODE.kind: NODE_PRIVACY,
}


def hide_nodes_in_errors(kind: Kind, nodes: NodeRegistry) -> Kind:
    """Return a kind whose public actions have no ids of nodes or folders in their errors."""
    if kind.privacy.texts:
        return kind
    internal = internal_actions(kind.lifecycle)
    handlers = {
        action: handler if action in internal else _hiding_handler(handler, nodes)
        for action, handler in kind.handlers.items()
    }
    return kind.with_handlers(handlers)


def _hiding_handler(handler: Handler, nodes: NodeRegistry) -> Handler:
    """Return a handler that hides nodes in the errors of its work and of its observations."""
    observe = None if handler.observe is None else _hiding(handler.observe, nodes)
    cancelled = None if handler.cancelled is None else _hiding(handler.cancelled, nodes)
    return replace(handler, run=_hiding(handler.run, nodes), observe=observe, cancelled=cancelled)


def _hiding(run: Run, nodes: NodeRegistry) -> Run:
    async def anonymous(job: Job) -> Any:  # noqa: ANN401 - what the handler returns
        try:
            return await run(job)
        except Exception as error:
            if isinstance(error, StatewardError) and not isinstance(error, WorkError):
                raise  # not an error of the work
            original = str(error)
            text = nodes.without_folders(original)
            async for node in list_all(nodes.reader, Selector(job.ns, NODE.kind)):
                text = text.replace(file_name(node), "its node").replace(node.id, "its node")
            if text == original:
                raise
            log.warning("operation %s on %s failed at its node: %s", job.key.id, job.object, original)
            if isinstance(error, WorkError):
                raise type(error)(text, after=error.after) from error
            raise (Unknown if isinstance(error, UNCLEAR_ERRORS) else Permanent)(text) from error

    return anonymous
