"""The agent's requests for values of secrets."""

import asyncio

import pytest

from stateward.agents.agent import Agent
from stateward.agents.dialer import is_private_url
from stateward.agents.inprocess import AgentEnd
from stateward.agents.messages import Welcome, encode, read_agent
from stateward.agents.node_messages import SecretAnswer, SecretRequest
from stateward.agents.secret_requests import SecretRefused, SecretRequests, SecretUnavailable
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite


class Controller:
    """A controller that answers with what is set."""

    def __init__(self, requests: SecretRequests) -> None:
        self._requests, self.asked = requests, list[SecretRequest]()
        self.value, self.error, self.retry = "one", "", False

    async def receive(self, request: SecretRequest) -> None:
        """Answer a request."""
        self.asked.append(request)
        about = request.request, request.notify
        self._requests.on_answer(SecretAnswer(*about, "" if self.error else self.value, self.error, self.retry))


async def test_values_are_those_of_now_and_the_last_ones_while_nobody_answers() -> None:
    requests = SecretRequests(lambda: True)
    with pytest.raises(SecretUnavailable, match="no controller is connected"):
        await requests.values("default", ["db"])
    controller = Controller(requests)
    requests.open(controller.receive, 7)
    assert await requests.values("default", ["db"]) == {"db": "one"}
    controller.value = "two"
    assert await requests.values("default", ["db"]) == {"db": "two"}
    assert {one.notify for one in controller.asked} == {7}
    controller.error, controller.retry = "the database is down", True
    assert await requests.values("default", ["db"]) == {"db": "two"}
    requests.close()
    assert await requests.values("default", ["db"]) == {"db": "two"}
    requests.open(controller.receive, 8)
    controller.error, controller.retry = "there is no secret db", False
    for _ in range(2):  # a value that was taken away is not used again
        with pytest.raises(SecretRefused, match="there is no secret db"):
            await requests.values("default", ["db"])


async def test_an_answer_that_never_comes_ends_with_the_connection_and_none_is_asked_for_in_the_open() -> None:
    requests, asked = SecretRequests(lambda: bool(private)), list[SecretRequest]()
    private = [True]

    async def receive(request: SecretRequest) -> None:
        asked.append(request)

    requests.open(receive, 1)
    waiting = asyncio.create_task(requests.values("default", ["db"]))
    while not asked:
        await asyncio.sleep(0)
    requests.on_answer(SecretAnswer(asked[0].request, 99, "of another connection"))
    requests.close()
    with pytest.raises(SecretUnavailable, match="the connection was lost"):
        await waiting
    private.clear()
    requests.open(receive, 2)
    with pytest.raises(SecretUnavailable, match="only over TLS"):
        await requests.values("default", ["db"])
    assert len(asked) == 1


class OneConnection:
    """Dials a controller that the test speaks for."""

    retry_delay_s = 0.0

    def __init__(self) -> None:
        self.end, self.controller = AgentEnd(), AgentEnd()
        self.end.other, self.controller.other = self.controller, self.end

    async def dial(self) -> AgentEnd:
        return self.end

    def reset_backoff(self) -> None: ...


async def test_an_agent_hands_the_answers_of_its_controller_over() -> None:
    requests, dialer = SecretRequests(lambda: True), OneConnection()
    agent = Agent(SimulatedSite(), dialer, "1.0", NoUpgrade(), secrets=requests)
    dialer.end.put(encode(Welcome(7, beat=3600.0)))
    running = asyncio.create_task(agent.run())
    await agent.synced.wait()
    values = asyncio.create_task(requests.values("default", ["db"]))
    while not isinstance(asked := read_agent(await dialer.controller.recv()), SecretRequest):
        pass
    dialer.end.put(encode(SecretAnswer(asked.request, 7, "hunter2")))
    assert await values == {"db": "hunter2"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_message_with_a_value_does_not_show_it() -> None:
    assert "hunter2" not in repr(SecretAnswer(1, 2, "hunter2"))


@pytest.mark.parametrize(
    ("url", "is_private"),
    [
        ("wss://controller:8420/x", True),
        ("ws://127.0.0.1:8420/x", True),
        ("ws://[::1]:8420/x", True),
        ("ws://[::ffff:127.0.0.1]:8420/x", True),
        ("ws://localhost:8420/x", True),
        ("ws://10.0.0.1:8420/x", False),
        ("ws://localhost.example:8420/x", False),
    ],
)
def test_a_connection_is_private_over_tls_and_on_the_same_host(url: str, is_private: bool) -> None:
    assert is_private_url(url) is is_private
