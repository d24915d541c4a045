"""Two hundred concurrent callers on a hundred objects: for each object one wins, and the others get its name."""

import asyncio
from collections import defaultdict

import httpx

from tests.integration.server.server_harness import NS, ServerHarness
from tests.waiting import until

CALLERS = 200
OBJECTS = 100
EACH = 5
"""How many objects each caller asks for, so that each object is asked for by ten."""


async def test_of_all_who_race_for_an_object_one_wins_and_the_others_hear_who(harness: ServerHarness) -> None:
    wanted = {"selector": {"kind": "test.pump"}}
    for number in range(OBJECTS):
        await harness.engine.create(NS, f"p{number}", "test.pump", "build")
    await until(lambda: harness.plant.done["build"] == OBJECTS)
    harness.plant.hold()

    async def race(caller: int) -> list[tuple[str, httpx.Response]]:
        who = ("operator", "local admin", "admin")[caller % 3]
        names = [f"p{(caller + step * 7) % OBJECTS}" for step in range(EACH)]
        action = ("pump", "tune")[caller % 2]
        return [(name, await harness.post(f"/ns/{NS}/objects/{name}/actions/{action}", who=who)) for name in names]

    answers: dict[str, list[httpx.Response]] = defaultdict(list)
    for ran in await asyncio.gather(*(race(caller) for caller in range(CALLERS))):
        for name, answer in ran:
            answers[name].append(answer)
    assert (len(answers), sum(map(len, answers.values()))) == (OBJECTS, CALLERS * EACH)
    for name, given in answers.items():
        won = [one for one in given if one.status_code == 202]
        lost = [one for one in given if one.status_code == 409]
        assert (len(won), len(won) + len(lost)) == (1, len(given)), name
        winner = won[0].json()["operation"]
        assert {one.json()["blocker"]["op"] for one in lost} == {winner["id"]}
        assert {one.json()["blocker"]["who"] for one in lost} == {winner["who"]}
    assert (await harness.post(f"/ns/{NS}/actions/pump", wanted)).json()["code"] == "none_allowed"
