"""The view of an engine: one listing of all containers of the installation, taken again whenever there is a hint.

Events and finished calls are hints only. A listing is evidence about everything that was done before it began, so each
listing has its time. An engine that does not answer leaves the last listing and a reason: what it does not say is
unknown, and not gone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing

from msgspec import Struct

from stateward.aio.backoff import GrowingIntervals
from stateward.aio.supervise import wait_for_event
from stateward.containers import ContainerEngine, ContainerRecord, EngineRefused, EngineUnavailable

log = logging.getLogger("stateward.systems")

LIST_INTERVAL_S = 5.0
"""The longest time between two listings."""

LIST_TIMEOUT_S = 20.0
"""How long a listing may take until the engine counts as not answering: Podman's waits for all starts under way."""

MIN_PAUSE_S = 0.05
PAUSE_PER_LISTING = 10.0
"""The pause after a listing, in times of what it took: an engine with many containers is not kept busy by us."""

HINTS = frozenset(
    {"die", "died", "oom", "kill", "stop", "restart", "pause", "unpause", "rename", "update", "remove", "destroy"}
    | {"connect", "disconnect"}
)
"""The events after which the containers are listed: not those of a start, of which there may be hundreds."""

RETRY_S, EVENTS_RETRY_S = 1.0, 5.0

EngineErrors = (EngineRefused, EngineUnavailable)


class ContainerListing(Struct, frozen=True):
    """The containers of the installation by key, as they were at some time after `began`."""

    began: float
    containers: Mapping[str, ContainerRecord]


class EngineListing:
    """Keeps the newest listing of an engine."""

    def __init__(self, engine: ContainerEngine, label: str, notify: Callable[[], None]) -> None:
        self._engine, self._label, self._notify = engine, label, notify
        self._hint = asyncio.Event()
        self._log_distances = GrowingIntervals(time.monotonic)
        self.current: ContainerListing | None = None
        self.problem = ""  # why the engine does not answer; empty if it does

    def request_refresh(self) -> None:
        """List the containers again soon."""
        self._hint.set()

    async def keep_listing(self) -> None:
        """List for ever."""
        while True:
            self._hint.clear()
            began = time.monotonic()
            await self._list(began)
            self._notify()
            if self.problem:
                await asyncio.sleep(RETRY_S)
                continue
            pause = PAUSE_PER_LISTING * (time.monotonic() - began)
            await asyncio.sleep(max(MIN_PAUSE_S, min(pause, LIST_INTERVAL_S)))
            await wait_for_event(self._hint, LIST_INTERVAL_S)

    async def _list(self, began: float) -> None:
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                containers = await self._engine.list_containers((self._label,))
        except TimeoutError:
            self._note_problem(f"no answer of the container engine within {LIST_TIMEOUT_S:g} s")
        except EngineErrors as error:
            self._note_problem(str(error))
        else:
            self.problem = ""
            self.current = ContainerListing(began, {container.key: container for container in containers})

    def _note_problem(self, problem: str) -> None:
        self.problem = problem
        if self._log_distances.is_due("listing"):
            log.warning("containers of systems cannot be listed; retrying: %s", problem)

    async def keep_watching(self) -> None:
        """Take events as hints, for ever; without events there are the regular listings."""
        while True:
            try:
                async with aclosing(self._engine.watch_events()) as events:
                    async for event in events:
                        if event.action in HINTS and event.kind in ("container", "network"):
                            self.request_refresh()
            except EngineErrors as error:
                if self._log_distances.is_due("events"):
                    log.info("events of the container engine are missing; retrying: %s", error)
            await asyncio.sleep(EVENTS_RETRY_S)
