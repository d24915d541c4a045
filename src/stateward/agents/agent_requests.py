"""Requests to agents for logs and commands of instances, and the callers that wait for the answers.

A request lives in the memory of this process, as its caller does. It changes no record.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

from stateward.agents.connection import DECODE_ERRORS, AgentConnection, Disconnected
from stateward.agents.messages import (
    MAX_PIECES,
    Answer,
    AnswerPiece,
    CommandAnswer,
    CommandRequest,
    LogAnswer,
    LogRequest,
    RequestCancelled,
    read_answer,
)
from stateward.agents.node_messages import ImageAnswer, ImageRequest, VolumeRemoval, VolumesRemoved, WantedImage

T = TypeVar("T", LogAnswer, CommandAnswer, ImageAnswer, VolumesRemoved)

LOG_TIMEOUT_S = 20.0
"""Seconds that an agent has to send a log."""

COMMAND_MARGIN_S = 10.0
"""Seconds that an agent has, after the time of a command is over, to tell so."""

IMAGES_TIMEOUT_S = 900.0
"""Seconds that an agent has to pull images."""

VOLUMES_TIMEOUT_S = 60.0
"""Seconds that an agent has to remove volumes."""

MAX_WAITING = 16
"""The number of requests that wait for one agent: an agent works on as many at once."""


class WaitingCaller:
    """A caller that waits for an answer, and the pieces of it so far."""

    def __init__(self, connection: AgentConnection) -> None:
        self.connection, self.pieces = connection, list[str]()  # bounded by: MAX_PIECES
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def fail(self, why: Exception) -> None:
        """End the wait."""
        if not self.answer.done():
            self.answer.set_exception(why)


class AgentRequests:
    """The requests of this process that wait for an answer; `refusal` makes an error of an agent and a reason."""

    def __init__(self, refusal: Callable[[str, str], Exception]) -> None:
        self._refusal = refusal
        self._numbers = count(1)
        self._waiting: dict[int, WaitingCaller] = {}

    async def read_log(self, connection: AgentConnection, name: str, part: str, after: str, most: int) -> LogAnswer:
        """Return the log of an instance."""
        return await self._ask(connection, LOG_TIMEOUT_S, LogAnswer, LogRequest, name, part, after, most)

    async def run_command(
        self, connection: AgentConnection, name: str, argv: tuple[str, ...], part: str, within: float
    ) -> CommandAnswer:
        """Run a command in an instance; it ends when the caller leaves."""
        patience = within + COMMAND_MARGIN_S
        return await self._ask(connection, patience, CommandAnswer, CommandRequest, name, argv, part, within)

    async def find_images(self, connection: AgentConnection, images: tuple[WantedImage, ...]) -> ImageAnswer:
        """Return what images are now for the container engine of an agent."""
        return await self._ask(connection, IMAGES_TIMEOUT_S, ImageAnswer, ImageRequest, images)

    async def remove_volumes(self, connection: AgentConnection, systems: tuple[str, ...]) -> None:
        """Remove the volumes of deleted systems from the container engine of an agent."""
        await self._ask(connection, VOLUMES_TIMEOUT_S, VolumesRemoved, VolumeRemoval, connection.ns, systems)

    async def _ask(
        self,
        connection: AgentConnection,
        patience: float,
        form: type[T],
        request: Callable[..., LogRequest | CommandRequest | ImageRequest | VolumeRemoval],
        *fields: object,
    ) -> T:
        self._check(connection)
        number = next(self._numbers)
        caller = self._waiting[number] = WaitingCaller(connection)
        try:
            await connection.send(request(number, connection.notify, *fields))
            async with asyncio.timeout(patience):
                answer = await caller.answer
        except (TimeoutError, Disconnected) as error:
            raise self._refusal(connection.site_name, str(error) or "no answer in time") from error
        finally:
            del self._waiting[number]
            if not caller.answer.done() or caller.answer.cancelled():
                await _cancel(connection, number)
        if not isinstance(answer, form):
            raise self._refusal(connection.site_name, "its answer belongs to another request")
        if answer.error:
            raise self._refusal(connection.site_name, answer.error)
        return answer

    def _check(self, connection: AgentConnection) -> None:
        if not connection.answers:
            raise self._refusal(connection.site_name, "its version knows no requests for logs and commands")
        if sum(caller.connection is connection for caller in self._waiting.values()) >= MAX_WAITING:
            raise self._refusal(connection.site_name, f"it works on {MAX_WAITING} requests already")

    def on_answer(self, connection: AgentConnection, piece: AnswerPiece) -> None:
        """Give a piece of an answer to its caller; one for nobody is dropped, and so is one of another connection."""
        caller = self._waiting.get(piece.request)
        if caller is None or caller.connection is not connection or piece.notify != connection.notify:
            return
        caller.pieces.append(piece.text)
        if len(caller.pieces) > MAX_PIECES:
            caller.fail(Disconnected("its answer has no end"))
        elif piece.is_last and not caller.answer.done():
            try:
                caller.answer.set_result(read_answer("".join(caller.pieces)))
            except DECODE_ERRORS:
                caller.fail(Disconnected("its answer cannot be read"))

    def on_closed(self, connection: AgentConnection) -> None:
        """Tell the callers of a connection that it is lost: whether a command has run is not known."""
        for caller in self._waiting.values():
            if caller.connection is connection:
                caller.fail(Disconnected("the connection is lost; a command may have run or not"))


async def _cancel(connection: AgentConnection, number: int) -> None:
    with suppress(Disconnected):
        await connection.send(RequestCancelled(number, connection.notify))
