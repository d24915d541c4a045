"""The agent's requests for values of secrets, which it keeps in memory only.

An instance that is started gets the present values, as on the controller's own host. While no controller can be asked,
the agent uses the values that it got last: an instance that has crashed must not wait for a controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import count

from stateward.agents.node_messages import SecretAnswer, SecretRequest
from stateward.errors import StatewardError

ANSWER_TIMEOUT_S = 10.0

NOT_PRIVATE = "values are sent only over TLS (--controller wss://...), or from the same host"

Send = Callable[[SecretRequest], Awaitable[None]]


class SecretRefused(StatewardError):
    """A value that the agent does not get."""

    secret: str
    why: str
    text = "there is no value of secret {secret}: {why}"


class SecretUnavailable(StatewardError, retry=True):
    """A value that no controller has told yet."""

    secret: str
    why: str
    text = "the value of secret {secret} is not known yet: {why}"


class SecretRequests:
    """Asks the connected controller for values; `is_private` tells whether the present connection may carry them."""

    def __init__(self, is_private: Callable[[], bool]) -> None:
        self.is_private = is_private
        self._numbers = count(1)
        self._send: Send | None = None
        self._notify = 0
        self._waiting: dict[int, asyncio.Future[SecretAnswer]] = {}
        self._known: dict[str, str] = {}

    def open(self, send: Send, notify: int) -> None:
        """Ask over a new connection."""
        self._send, self._notify = send, notify

    def close(self) -> None:
        """Note that the connection has ended; nobody waits for its answers any more."""
        self._send = None
        for number, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_result(_no_answer(number, "the connection was lost"))

    def on_answer(self, answer: SecretAnswer) -> None:
        """Give an answer to its caller."""
        waiting = self._waiting.get(answer.request)
        if waiting is not None and not waiting.done() and answer.notify == self._notify:
            waiting.set_result(answer)

    async def values(self, ns: str, names: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002 - that of the node
        """Return the present values of secrets, or those last known; raises if there is none."""
        secrets = await asyncio.gather(*(self._value(name) for name in names))
        return dict(zip(names, secrets, strict=True))

    async def _value(self, secret: str) -> str:
        answer = await self._ask(secret)
        if answer.error and not answer.retry:
            self._known.pop(secret, None)
            raise SecretRefused(secret, answer.error)
        if not answer.error:
            self._known[secret] = answer.value
        elif secret not in self._known:
            raise SecretUnavailable(secret, answer.error)
        return self._known[secret]

    async def _ask(self, secret: str) -> SecretAnswer:
        number, send = next(self._numbers), self._send
        if send is None:
            return _no_answer(number, "no controller is connected")
        if not self.is_private():
            return _no_answer(number, NOT_PRIVATE)
        waiting: asyncio.Future[SecretAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            await send(SecretRequest(number, self._notify, secret))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await waiting
        except TimeoutError:
            return _no_answer(number, "the controller does not answer")
        finally:
            del self._waiting[number]


def _no_answer(number: int, why: str) -> SecretAnswer:
    return SecretAnswer(number, 0, error=why, retry=True)
