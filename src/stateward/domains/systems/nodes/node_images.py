"""What images are, as one node with a container engine finds them.

The agent of a node has one connection, to one process, and deploys run in any process with a worker. So a worker whose
process has no connection to such a node stores its question with a node. The process that has the connection learns of
it from the journal, asks the agent, and stores the answer there.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from stateward.agents.agent_hub import AgentHub
from stateward.agents.agent_requests import IMAGES_TIMEOUT_S
from stateward.agents.node_messages import MAX_IMAGES, FoundImage, ImageAnswer, WantedImage
from stateward.domains.systems.backends.port import ReportText
from stateward.domains.systems.errors import ImageRefused, ImagesNotFound, NoContainerEngine, NodeCannotAnswer
from stateward.domains.systems.lifecycle import NODE, SERVING
from stateward.domains.systems.nodes.node_model import ImageQuestion, node_status
from stateward.domains.systems.nodes.node_records import loaded_node, save_seen, unit_of_work
from stateward.engine.transitions import journal
from stateward.lifecycle import CONTROLLER
from stateward.naming import new_id
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object

IMAGES_ASKED = "images asked"
"""The journal entry of a node that has a question about images."""

POLL_INTERVAL_S = 0.3
MAX_LISTED = 10_000
NO_ENGINE = "no node with a container engine is connected"


class NodeImages:
    """Questions about images to the nodes; `hub` has the connections of this process."""

    def __init__(self, hub: AgentHub) -> None:
        self._engine, self._hub = hub.engine, hub
        self._answering: set[str] = set()

    async def find(self, ns: str, images: Sequence[WantedImage], report: ReportText) -> Sequence[FoundImage]:
        """Return what images are now; raises `NoContainerEngine`, `ImagesNotFound` or `ImageRefused`."""
        node = await self._choose(ns)
        await report(f"node {node.id} looks for the images")
        results: list[FoundImage] = []
        for first in range(0, len(images), MAX_IMAGES):
            asked = tuple(images[first : first + MAX_IMAGES])
            is_here = node.key in self._hub.connections
            answer = await (self._ask_agent(node.key, asked) if is_here else self._ask_process(node, asked))
            if answer.error:
                raise ImagesNotFound(answer.error)
            if answer.refusal:
                raise ImageRefused(node.id, answer.refusal)
            results += answer.found
        return results

    async def _choose(self, ns: str) -> Object:
        """Return a node with an engine; one that is connected to this process comes first."""
        nodes = await self._engine.store.reader.list_objects(Selector(ns, NODE.kind), Page(None, MAX_LISTED))
        engines = [node for node in nodes if node_status(node).containers]
        if not engines:
            raise NoContainerEngine(ns)
        able = [node for node in engines if node.state in SERVING and node_status(node).connected]
        if not able:
            raise ImagesNotFound(NO_ENGINE)
        return min(able, key=lambda node: (node.key not in self._hub.connections, node.id))

    async def _ask_agent(self, node: Key, images: tuple[WantedImage, ...]) -> ImageAnswer:
        connection = self._hub.serving_connection(node)
        if connection is None:
            return ImageAnswer(0, 0, error=NO_ENGINE)
        try:
            return await self._hub.requests.find_images(connection, images)
        except NodeCannotAnswer as error:
            return ImageAnswer(0, 0, error=str(error))

    async def _ask_process(self, node: Object, images: tuple[WantedImage, ...]) -> ImageAnswer:
        """Store a question, and wait for the answer of the process that the node is connected to."""
        store, number = self._engine.store, new_id()
        await store.transact(lambda tx: _ask(tx, node.key, number, images))
        try:
            async with asyncio.timeout(IMAGES_TIMEOUT_S):
                while True:
                    current = await store.reader.object(node.key)
                    asked = None if current is None or current.removed else node_status(current).images.get(number)
                    if current is None or asked is None or not node_status(current).connected:
                        return ImageAnswer(0, 0, error=f"node {node.id} has lost its connection")
                    if asked.answer is not None:
                        return asked.answer
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            return ImageAnswer(0, 0, error=f"node {node.id} has not answered in time")
        finally:
            await store.transact(lambda tx: _change(tx, node.key, number, None))

    async def answer(self, node: Key) -> None:
        """Answer the stored questions to a node that is connected to this process."""
        record = await self._engine.store.reader.object(node)
        if record is None or node not in self._hub.connections:
            return
        for number, asked in node_status(record).images.items():
            if asked.answer is None and number not in self._answering:
                self._answering.add(number)
                try:
                    answered = ImageQuestion(answer=await self._ask_agent(node, asked.images))
                    await self._engine.store.transact(partial(_change, node=node, number=number, answered=answered))
                finally:
                    self._answering.discard(number)


async def _ask(tx: Tx, node: Key, number: str, images: tuple[WantedImage, ...]) -> None:
    async with unit_of_work(tx, [node]) as uow:
        record = loaded_node(uow, node)
        if record is not None:
            status = node_status(record)
            save_seen(uow, record, replace(status, images={**status.images, number: ImageQuestion(images)}))
            journal(uow, record, record.op, CONTROLLER, "", IMAGES_ASKED)


async def _change(tx: Tx, node: Key, number: str, answered: ImageQuestion | None) -> None:
    """Store the answer to a question, or remove the question; one that nobody waits for any more stays removed."""
    async with unit_of_work(tx, [node]) as uow:
        record = loaded_node(uow, node)
        if record is not None and number in node_status(record).images:
            kept = {other: asked for other, asked in node_status(record).images.items() if other != number}
            new = kept if answered is None else {**kept, number: answered}
            save_seen(uow, record, replace(node_status(record), images=new))
