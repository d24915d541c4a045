"""The agent's answers to requests for logs and commands of its instances.

Answers are limited, and come in short messages: the connection also carries the heartbeats. A request is not an order:
it changes no record, nobody sends it again, and it ends with the connection on which it came.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from stateward.agents.message_types import clip_text
from stateward.agents.messages import (
    MAX_ANSWER_CHARS,
    Answer,
    AnswerPiece,
    CommandAnswer,
    CommandRequest,
    LogAnswer,
    LogRequest,
    RequestCancelled,
    answer_pieces,
)
from stateward.agents.node_messages import ImageAnswer, ImageRequest, VolumeRemoval, VolumesRemoved
from stateward.agents.site import AgentSite, SiteError
from stateward.aio.supervise import cancel_tasks

log = logging.getLogger("stateward.agent")

MAX_REQUESTS = 16
"""The number of requests that an agent works on at once."""

END_MARGIN_S = 2.0
"""Seconds that a site has, after the time of a command is over, to end it and to tell what it has written."""


SiteRequest: TypeAlias = LogRequest | CommandRequest | ImageRequest | VolumeRemoval


class NodeEngine(Protocol):
    """The container engine of a node."""

    async def find_images(self, request: ImageRequest) -> ImageAnswer:
        """Return what images are now."""

    async def remove_volumes(self, request: VolumeRemoval) -> VolumesRemoved:
        """Remove the volumes of systems that were deleted."""


class SiteAnswers:
    """Answers the requests of one connection."""

    def __init__(
        self, site: AgentSite, send: Callable[[AnswerPiece], Awaitable[None]], engine: NodeEngine | None = None
    ) -> None:
        self._site, self._send, self._engine = site, send, engine
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def begin(self, request: SiteRequest) -> None:
        """Start to answer a request; one above the limit is refused."""
        if len(self._tasks) >= MAX_REQUESTS:
            await self._send_answer(_refusal(request, f"the agent works on {MAX_REQUESTS} requests already"))
            return
        task = self._tasks[request.request] = asyncio.create_task(self._answer(request))
        task.add_done_callback(lambda _: self._tasks.pop(request.request, None))

    def cancel(self, cancelled: RequestCancelled) -> None:
        """End the work on a request."""
        if task := self._tasks.get(cancelled.request):
            task.cancel()

    async def close(self) -> None:
        """End the work on all requests."""
        await cancel_tasks(list(self._tasks.values()))

    async def _answer(self, request: SiteRequest) -> None:
        try:
            answer = await self._ask_site(request)
        except SiteError as error:
            answer = _refusal(request, str(error))
        except TimeoutError:
            answer = _refusal(request, "it took too long, and was ended")
        except Exception as error:
            log.exception("request %d for %s has failed", request.request, request.name)
            answer = _refusal(request, type(error).__name__)
        await self._send_answer(answer)

    async def _send_answer(self, answer: Answer) -> None:
        for piece in answer_pieces(answer):
            await self._send(piece)

    async def _ask_site(self, request: SiteRequest) -> Answer:
        numbers = request.request, request.notify
        if isinstance(request, LogRequest):
            return LogAnswer(*numbers, tuple(await self._site.read_log(request)))
        if isinstance(request, ImageRequest | VolumeRemoval):
            if self._engine is None:
                raise SiteError("the agent has no container engine for services")
            if isinstance(request, VolumeRemoval):
                return await self._engine.remove_volumes(request)
            return await self._engine.find_images(request)
        async with asyncio.timeout(request.within + END_MARGIN_S):
            result = await self._site.run_command(request)
        kept = result.written[-MAX_ANSWER_CHARS:]
        cut = result.written[: len(result.written) - len(kept)]
        omitted, errors = result.omitted + len(cut.encode()), result.errors[:MAX_ANSWER_CHARS]
        return CommandAnswer(*numbers, result.status, kept, omitted, errors=errors, is_cut=result.is_cut)


ANSWERS: dict[type[SiteRequest], type[Answer]] = {
    LogRequest: LogAnswer, CommandRequest: CommandAnswer, ImageRequest: ImageAnswer, VolumeRemoval: VolumesRemoved
}  # fmt: skip


def _refusal(request: SiteRequest, error: str) -> Answer:
    return ANSWERS[type(request)](request.request, request.notify, error=clip_text(error))
