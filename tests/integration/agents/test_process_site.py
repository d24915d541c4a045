"""A site of real processes: its things run, and a thing that a crash left incomplete is known and completed."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stateward.agents.local_state import LocalState
from stateward.agents.messages import AgentOrder, Existing, OrderAction
from stateward.agents.site import SiteError
from stateward.domains.edge.sites import process_site
from stateward.domains.edge.sites.process_site import ProcessSite, marked_processes
from stateward.workloads.confinement import Confinement, landlock
from tests.long_forms import in_long_form
from tests.stopped_processes import stop_process
from tests.waiting import until

PATIENT = 60.0


def order(work: OrderAction, number: int, name: str = "c1", host: str = "", **spec: Any) -> AgentOrder:
    kind = "appinst" if host else "clusterinst"
    return AgentOrder(work, number, number, 1, name, host, spec=json.dumps({"kind": kind, **spec}))


def ignore_progress(text: str, done: int | None = None, total: int | None = None) -> None:
    """Hear of progress, and keep it to oneself."""


class SiteHarness:
    """A folder, the agents that come and go, and what of them runs on this machine."""

    def __init__(self, folder: Path, confinement: Confinement | None = None) -> None:
        self.folder, self.confinement = folder, confinement
        self.site = ProcessSite(folder, confinement)

    async def again(self) -> ProcessSite:
        """Come back after a crash: another site on what is there."""
        await self.site.close()
        self.site = ProcessSite(self.folder, self.confinement)
        return self.site

    async def do(self, one: AgentOrder) -> None:
        async with asyncio.timeout(PATIENT):
            await self.site.execute(one, ignore_progress)

    async def nodes(self) -> dict[str, int]:
        """Return the nodes that really run, with their process groups."""
        found = await self.site._nodes()
        return {key: int(one.details["pid"]) for key, one in found.items() if "pid" in one.details}

    async def apps(self) -> dict[str, int]:
        """Return the app processes that run in these nodes, by mark."""
        groups = set((await self.nodes()).values())
        return {mark: pid for (group, mark), pid in marked_processes().items() if group in groups}

    async def clear(self) -> None:
        for group in (await self.nodes()).values():
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        await self.site.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[SiteHarness]:
    found = SiteHarness(tmp_path / "site")
    yield found
    await found.clear()


@pytest.fixture
async def open_site(tmp_path: Path) -> AsyncIterator[SiteHarness]:
    """A place whose programs are told by files of the test when to go on."""
    found = SiteHarness(tmp_path / "site", Confinement(required=False))
    yield found
    await found.clear()


async def test_a_cluster_is_a_group_of_processes_that_grows_shrinks_and_ends(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1, nodes=2))
    first = await place.nodes()
    assert len(first) == 2
    await place.do(order(OrderAction.UPDATE, 2, nodes=3))
    assert set(first.items()) < set((await place.nodes()).items())
    await place.do(order(OrderAction.UPDATE, 3, nodes=1))
    assert await place.site.observe() == {"c1": Existing(3)}
    assert set((await place.nodes()).items()) < set(first.items())
    await place.do(order(OrderAction.DELETE, 4))
    assert await place.nodes() == {}
    assert await place.site.observe() == {}


async def test_an_app_is_processes_in_a_node_and_each_generation_of_it_replaces_the_one_before(
    place: SiteHarness,
) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000", count=2))
    assert sorted(await place.apps()) == [f"stateward-app/c1:web/2/{n}" for n in range(2)]
    await place.do(order(OrderAction.UPDATE, 3, "c1:web", "c1", command="sleep 1000"))
    assert list(await place.apps()) == ["stateward-app/c1:web/3/0"]
    await place.do(order(OrderAction.DELETE, 4, "c1:web", "c1"))
    assert await place.apps() == {}
    assert await place.site.observe() == {"c1": Existing(1)}


async def test_the_parts_of_a_manifest_are_processes_with_their_own_environment(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    web = {"name": "web", "command": ["sh", "-c", "test \"$A\" = 'b c' && sleep 1000"], "count": 2, "env": {"A": "b c"}}
    other = {"name": "other", "command": "test -z $A && sleep 1000"}
    await place.do(order(OrderAction.CREATE, 2, "c1:app", "c1", parts=[web, other]))
    assert len(await place.apps()) == 3
    with pytest.raises(SiteError, match=r"parts\[0\].image: 'web:1' must be left out"):
        await place.do(order(OrderAction.UPDATE, 3, "c1:app", "c1", parts=[{**web, "image": "web:1"}]))
    assert await place.site.observe() == {"c1": Existing(1), "c1:app": Existing(2)}


async def test_who_comes_back_after_a_crash_knows_what_runs_and_what_was_killed_meanwhile(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000"))
    site = await place.again()
    assert await site.observe() == {"c1": Existing(1), "c1:web": Existing(2)}
    (pid,) = (await place.apps()).values()
    os.kill(pid, signal.SIGKILL)
    await until_whole(site, "c1:web", whole=False)
    (group,) = (await place.nodes()).values()
    os.killpg(group, signal.SIGKILL)
    await until_whole(site, "c1", whole=False)


async def until_whole(site: ProcessSite, name: str, *, whole: bool) -> None:
    await until(site.observe, lambda listing: listing[name].whole == whole)


async def test_a_node_whose_setting_up_was_broken_off_is_made_anew_and_never_taken_for_set_up(
    open_site: SiteHarness, tmp_path: Path
) -> None:
    place = open_site
    gate, log = tmp_path / "gate", tmp_path / "log"
    asked = order(OrderAction.CREATE, 1, nodes=2, setup=f"while [ ! -e {gate} ]; do sleep 0.02; done; pwd >>{log}")
    work = asyncio.create_task(place.site.execute(asked, ignore_progress))
    await until(place.nodes)
    (left,) = await place.nodes()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    site = await place.again()
    assert await site.observe() == {"c1": Existing(1, whole=False, problem="it is not complete")}
    gate.touch()
    await place.do(asked)
    assert await site.observe() == {"c1": Existing(1)}
    now = await place.nodes()
    assert left not in now
    assert {Path(one).parent.name for one in log.read_text().split()} == set(now)


async def test_a_set_up_that_fails_leaves_pieces_that_are_removed_by_the_next_order(place: SiteHarness) -> None:
    with pytest.raises(SiteError, match="node c1-1-0"):
        await place.do(order(OrderAction.CREATE, 1, setup="false"))
    assert await place.site.observe() == {"c1": Existing(1, whole=False, problem="it is not complete")}
    await place.do(order(OrderAction.DELETE, 2))
    assert await place.nodes() == {}


async def test_the_undo_of_a_failed_re_create_leaves_nodes_that_run_with_their_apps(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1, nodes=2))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000"))
    (kept, app), (_, killed) = (await place.nodes()).items()
    os.killpg(killed, signal.SIGKILL)
    await until_whole(place.site, "c1", whole=False)
    with pytest.raises(SiteError, match="node c1-3-0"):
        await place.do(order(OrderAction.CREATE, 3, nodes=2, setup="false"))
    await place.do(msgspec.structs.replace(order(OrderAction.DELETE, 4), keep_data=True))
    assert await place.nodes() == {kept: app}
    assert list(await place.apps()) == ["stateward-app/c1:web/2/0"]
    await place.do(order(OrderAction.CREATE, 5, nodes=2))
    assert (await place.nodes())[kept] == app
    assert await place.site.observe() == {"c1": Existing(5), "c1:web": Existing(2)}
    await place.do(order(OrderAction.DELETE, 6))
    assert await place.nodes() == {}


async def test_apps_of_one_cluster_are_set_up_side_by_side_and_each_by_its_own(
    open_site: SiteHarness, tmp_path: Path
) -> None:
    place = open_site
    await place.do(order(OrderAction.CREATE, 1))
    gate = tmp_path / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    setups = {"first": waits, "second": waits, "third": f"{waits}; false"}
    orders = [
        order(OrderAction.CREATE, n, f"c1:{name}", "c1", command="sleep 1000", setup=setup)
        for n, (name, setup) in enumerate(setups.items(), start=2)
    ]
    works = [asyncio.create_task(place.do(one)) for one in orders]
    await asyncio.sleep(0)
    gate.touch()
    ends = await asyncio.gather(*works, return_exceptions=True)
    assert [str(end) for end in ends if end is not None] == ["node c1-1-0 could not be set up: exit status 1"]
    assert sorted(await place.apps()) == ["stateward-app/c1:first/2/0", "stateward-app/c1:second/3/0"]


async def test_an_app_that_ends_at_once_or_has_no_cluster_has_failed(place: SiteHarness) -> None:
    with pytest.raises(SiteError, match="there is no cluster 'c1'"):
        await place.do(order(OrderAction.CREATE, 1, "c1:web", "c1", command="sleep 1000"))
    await place.do(order(OrderAction.CREATE, 2))
    with pytest.raises(SiteError, match="c1:web/3/0 ended at once"):
        await place.do(order(OrderAction.CREATE, 3, "c1:web", "c1", command="exit 1"))


async def test_an_app_that_ends_at_once_fails_with_the_last_of_its_own_output(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    with pytest.raises(SiteError, match=r"ended at once; its last output: of another generation$"):
        await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="echo of another generation"))
    noisy = r"seq 1 9; printf 'port \033[31m80\033[0m is taken\n' >&2; exit 1"
    with pytest.raises(SiteError) as failure:
        await place.do(order(OrderAction.CREATE, 3, "c1:web", "c1", command=noisy))
    assert str(failure.value).endswith("ended at once; its last output: 6 | 7 | 8 | 9 | port [31m80[0m is taken")
    with pytest.raises(SiteError, match=r"ended at once$"):
        await place.do(order(OrderAction.CREATE, 4, "c1:web", "c1", command="exit 1"))
    with pytest.raises(SiteError) as failure:
        await place.do(order(OrderAction.CREATE, 5, "c1:web", "c1", command="printf 'x%.0s' $(seq 1 3000)"))
    assert str(failure.value).endswith("output: " + "x" * 500)


async def test_a_log_that_an_app_has_replaced_by_a_link_shows_nothing_that_the_app_cannot_read(
    place: SiteHarness,
) -> None:
    if os.geteuid() != 0 and not landlock.version():
        pytest.skip("NOT PROVED HERE: the kernel has no Landlock")
    secret = place.folder / "secret"
    secret.write_text("for the agent only")
    await place.do(order(OrderAction.CREATE, 1))
    with pytest.raises(SiteError) as failure:
        await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command=f"ln -sf {secret} app-c1_web.log"))
    assert "for the agent only" not in str(failure.value)


async def test_the_log_of_an_app_that_runs_is_bounded(place: SiteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_site, "MAX_LOG_FILE_BYTES", 100)
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="seq 1000; sleep 1000"))
    await place.site.observe()
    assert place.site._log_check is not None
    await place.site._log_check
    (log,), (old,) = place.folder.rglob("app-c1_web.log"), place.folder.rglob("app-c1_web.log.old")
    assert log.stat().st_size == 0
    assert old.read_text().endswith("\n999\n1000\n")


async def test_an_order_that_was_broken_off_between_two_processes_starts_only_what_is_not_there(
    place: SiteHarness,
) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    asked = order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000", count=2)
    await place.do(asked)
    before = await place.apps()
    os.kill(before["stateward-app/c1:web/2/1"], signal.SIGKILL)
    await until_whole(place.site, "c1:web", whole=False)
    await place.again()
    await place.do(asked)
    after = await place.apps()
    assert after["stateward-app/c1:web/2/0"] == before["stateward-app/c1:web/2/0"]
    assert len(after) == 2
    assert next(one for one in LocalState(place.folder / "things") if one.name == "c1:web").whole


ESCAPES = {
    "in a session of its own": "setsid sleep 4321 &",
    "whose parent has ended": "sh -c 'setsid sleep 4321 &'",
    "without an environment": "sh -c 'env -i setsid sleep 4321 &'",
    "that starts others again and again": "sh -c 'setsid sh -c \"while :; do sleep 4321 & sleep 0.01; done\" &'",
}


def escaped(folder: Path) -> list[int]:
    """Return the processes that an app of this folder has sent away."""
    found = []
    works = {one.stat().st_ino for one in folder.rglob("work")}  # a confined process sees its folder elsewhere
    for one in Path("/proc").iterdir():
        with suppress(OSError):
            if one.name.isdecimal() and (one / "cwd").stat().st_ino in works:
                line = (one / "cmdline").read_bytes().split(b"\0")
                found += [int(one.name)] if b"4321" in line else []
    return found


async def until_escaped(folder: Path) -> None:
    await until(lambda: escaped(folder))


CASES = list(product(ESCAPES, ("", "after a restart of the agent")))
SHORT = [(escape, "") for escape in ESCAPES] + CASES[-1:]


@pytest.mark.parametrize("case", in_long_form(CASES, short=SHORT), ids=" ".join)
async def test_an_app_ends_with_every_process(place: SiteHarness, case: tuple[str, str]) -> None:
    command, restarted = ESCAPES[case[0]], case[1]
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:other", "c1", command="sleep 1000"))
    await place.do(order(OrderAction.CREATE, 3, "c1:web", "c1", command=f"{command}\nsleep 1000"))
    await until_escaped(place.folder)
    if restarted:
        await place.again()
    await place.do(order(OrderAction.DELETE, 4, "c1:web", "c1"))
    assert escaped(place.folder) == []
    assert list(await place.apps()) == ["stateward-app/c1:other/2/0"]
    assert await place.site.observe() == {"c1": Existing(1), "c1:other": Existing(2)}


async def test_a_new_generation_ends_what_the_one_before_has_sent_away_and_keeps_its_own(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="setsid sleep 4321 &\nsleep 1000"))
    await until_escaped(place.folder)
    before = escaped(place.folder)
    setup = "setsid sleep 4321 >/dev/null 2>&1 &"
    await place.do(order(OrderAction.UPDATE, 3, "c1:web", "c1", command="sleep 1000", setup=setup))
    assert len(escaped(place.folder)) == 1
    assert not set(before) & set(escaped(place.folder))
    await place.do(order(OrderAction.DELETE, 4, "c1:web", "c1"))
    assert escaped(place.folder) == []


async def test_a_cluster_ends_with_what_its_apps_and_its_set_up_have_sent_away(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1, setup="setsid sleep 4321 >/dev/null 2>&1 &"))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="setsid sleep 4321 &\nsleep 1000"))
    await until(lambda: len(escaped(place.folder)) >= 2)
    await place.do(order(OrderAction.DELETE, 3))
    assert escaped(place.folder) == []


async def test_an_app_that_is_removed_while_its_node_is_stopped_takes_no_other_app_along(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000"))
    await place.do(order(OrderAction.CREATE, 3, "c1:db", "c1", command="sleep 1000"))
    (node,) = (await place.nodes()).values()
    stop_process(node)  # its shell alone
    await place.do(order(OrderAction.DELETE, 4, "c1:web", "c1"))
    os.kill(node, signal.SIGCONT)
    assert list((await place.nodes()).values()) == [node]
    assert list(await place.apps()) == ["stateward-app/c1:db/3/0"]


async def test_an_app_is_not_started_in_a_node_that_is_stopped(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1))
    (node,) = (await place.nodes()).values()
    stop_process(node)
    with pytest.raises(SiteError, match="of cluster 'c1' does not run"):
        await place.do(order(OrderAction.CREATE, 2, "c1:web", "c1", command="sleep 1000"))


async def test_an_app_whose_command_begins_with_exec_runs_and_ends(place: SiteHarness) -> None:
    await place.do(order(OrderAction.CREATE, 1, nodes=1))
    await place.do(order(OrderAction.CREATE, 2, "a1", "c1", command="exec sleep 1000"))
    assert (await place.site.observe())["a1"].whole
    await place.do(order(OrderAction.DELETE, 3, "a1", "c1"))
    assert await place.apps() == {}
