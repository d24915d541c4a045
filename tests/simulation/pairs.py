"""Pairs of actions of a domain in every order: the second begins at each await of the first, on another server."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import Struct

from stateward.engine import Accepted
from stateward.engine.accept.groups import GroupVerdict
from stateward.errors import StatewardError
from stateward.store.filters import Page, Selector
from stateward.testing import InterleavingReport, InterleavingRun, interleave_everywhere
from stateward.testing.invariants import Violation
from tests.simulation.domain_case import DomainCase, FirstChoice, Server, virtual_clocks

END_S = 900.0
"""How long an action waits for the end of its operation."""

REST_S = 600


class Opened(Struct):
    """A domain with two servers."""

    case: DomainCase
    servers: list[Server]


def explore_pair(case: type[DomainCase], first: str, second: str, most: int, **how: Any) -> InterleavingReport:
    """Try the second action at so many awaits of the first; raises `RaceFound`.

    What must be done before either action is done; if a part of that is refused, only what the first one needs.
    """
    of_first, of_second = case.before.get(first, ()), case.before.get(second, ())
    if not of_second:
        return _explore(case, first, second, most, of_first, **how)
    try:
        return _explore(case, first, second, most, dict.fromkeys((*of_first, *of_second)), **how)
    except StatewardError:
        return _explore(case, first, second, most, of_first, **how)


def _explore(
    case: type[DomainCase], first: str, second: str, most: int, preparations: Iterable[str], **how: Any
) -> InterleavingReport:
    cases: list[DomainCase] = []

    async def setup(run: InterleavingRun) -> Opened:
        made = case(run.clock, run.chance)
        made.processes = run.processes
        cases.append(made)
        opened = Opened(made, [])
        for name in ("one", "two"):
            engine = await run.start(lambda name=name: made.make_runtime(name), background=True)  # type: ignore[misc]
            opened.servers.append(Server(engine, run.processes[-1].runtime))
        await made.prepare(opened.servers[0])
        made.calm_down()
        for before in preparations:
            await _act(opened, 0, before)
        return opened

    try:
        with virtual_clocks():
            return interleave_everywhere(_action(0, first), _action(1, second), [rules], setup=setup, most=most, **how)
    finally:
        for one in cases:
            one.close()


def _action(server: int, name: str) -> Callable[[Opened], Awaitable[None]]:
    async def act(opened: Opened) -> None:
        await _act(opened, server, name)

    return act


async def _act(opened: Opened, number: int, name: str) -> None:
    """Do something, and wait for its end."""
    server = opened.servers[number]
    answer = await opened.case.actions[name](server, FirstChoice(0))
    answer = answer[0] if isinstance(answer, tuple) else answer
    answer = answer.whole if isinstance(answer, GroupVerdict) else answer
    if isinstance(answer, Accepted) and answer.operation is not None:
        await server.engine.wait_record(answer.op.ns, answer.op.id, END_S)


async def rules(opened: Opened) -> None:
    """Assert that everything has come to rest, and that no rule of the domain is broken."""
    case, server = opened.case, opened.servers[0]
    for _ in range(REST_S):
        reader = server.engine.store.reader
        found = [
            one
            for ns in await reader.namespaces()
            for one in await reader.list_objects(Selector(ns), Page(None, 10_000))
        ]
        if next(case.unsettled(found), None) is None:
            break
        await case.sleep(1.0)
    else:
        raise Violation(f"no rest: {list(case.unsettled(found))}")
    wrong = [*case.broken(found), *await case.broken_at_rest(server)]
    assert not wrong, "; ".join(wrong)
