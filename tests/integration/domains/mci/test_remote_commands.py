"""Commands and files on VMs over real SSH: results, limits of rights, pinned host keys, one run, cancel, bastions."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stateward.access import Role
from stateward.domains.mci.handlers import command_handlers
from stateward.domains.mci.handlers.command_handlers import CommandHandlers
from stateward.domains.mci.lifecycle import COMMAND
from stateward.domains.mci.model import command_seen
from stateward.domains.mci.remote import vm_shells
from stateward.domains.mci.remote.command_retention import prune_commands
from stateward.domains.mci.remote.host_key_pins import known_host_key
from stateward.domains.mci.remote.kept_output import KeptOutput
from stateward.domains.mci.remote.vm_shells import RunOrder
from stateward.drivers import Driver
from stateward.drivers.ssh import ssh_connection
from stateward.engine.queries import list_all
from stateward.server.live import feeds
from stateward.store.filters import JournalFilter, Selector
from stateward.store.records import Key, Object, Status
from tests.integration.domains.mci.api_harness import AWS, NS, ApiHarness, group, mci, open_api
from tests.integration.domains.mci.conftest import ANN
from tests.integration.domains.mci.ssh_servers import USER, LoopbackMachines, loopback_machines
from tests.waiting import until

M1, CMD = f"/ns/{NS}/mci/m1", f"/ns/{NS}/cmd/mci/m1"
PATIENT = 60.0


@pytest.fixture
async def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopbackMachines]:
    async with loopback_machines(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
async def api(tmp_path: Path, machines: LoopbackMachines) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path) as opened:
        machines.keys.append(opened.plugin.access_keys.public_key(NS))
        yield opened


async def ran(api: ApiHarness, *commands: str, query: str = "", **how: Any) -> dict[str, Any]:
    """Run commands and return the result of each VM."""
    answer = await api.post(f"{CMD}{query}", {"command": list(commands), **how})
    assert answer.status_code == 200, answer.text
    return {one["vmId"]: one for one in answer.json()["results"]}


async def until_file(path: Path) -> str:
    """Wait until a file has a line."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text().strip()


async def until_gone(pid: int) -> None:
    """Wait until a process has ended; a zombie has."""
    await until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


async def test_each_vm_has_the_results_of_each_command_and_a_failed_one_is_the_last(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 2)))
    found = await ran(api, "echo one; echo two >&2", "echo three; exit 3", "echo never")
    assert list(found) == ["g1-1", "g1-2"]
    for one in found.values():
        assert (one["mciId"], one["vmIp"]) == ("m1", "127.0.0.1")
        assert one["command"] == {"0": "echo one; echo two >&2", "1": "echo three; exit 3", "2": "echo never"}
        assert one["stdout"] == {"0": "one\n", "1": "three\n", "2": ""}
        assert one["stderr"] == {"0": "two\n", "1": "", "2": ""}
        assert one["exitStatus"] == {"0": 0, "1": 3}
        assert one["error"] == "'echo three; exit 3' ended with exit status 3"
    commands = [one async for one in list_all(api.engine.store.reader, Selector(NS, COMMAND.kind))]
    assert [one.state for one in commands] == ["Failed"]


async def test_a_vm_without_a_valid_exit_status_has_an_error_and_the_others_have_their_results(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 2)))
    await ran(api, "true")
    (machines.of("g1-2").home / "liar").touch()
    lie = "[ ! -e liar ] || for d in .stateward/runs/*; do head -c 5000 /dev/zero | tr '\\0' 9 >$d/0.status; done"
    found = await ran(api, "echo mine", lie)
    assert (found["g1-1"]["stdout"]["0"], found["g1-1"]["error"]) == ("mine\n", "")
    assert (found["g1-2"]["stdout"]["0"], found["g1-2"]["exitStatus"]) == ("mine\n", {"1": 0})
    assert found["g1-2"]["error"].startswith("the exit status of 'echo mine' is unknown")


async def test_an_unexpected_error_on_a_vm_is_its_result_alone(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await api.created(mci("m1", group("g1", 2)))
    driver_of, secret = api.plugin.shells.driver_of, "open-sesame"

    async def fail_on_one(vm: Object) -> Driver:
        if vm.id.endswith("g1-2"):
            raise ValueError(secret)
        return await driver_of(vm)

    monkeypatch.setattr(api.plugin.shells, "driver_of", fail_on_one)
    found = await ran(api, "echo mine", secrets={"TOKEN": secret})
    assert (found["g1-1"]["stdout"], found["g1-1"]["error"]) == ({"0": "mine\n"}, "")
    assert found["g1-2"]["error"] == "ValueError: ***"
    assert "fail_on_one" in caplog.text
    assert secret not in caplog.text


async def test_a_request_selects_vms_and_the_access_data_tells_how_they_are_reached(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 2, label={"role": "web"}), group("g2", 1)))
    assert list(await ran(api, "true", query="?vmId=g1-2")) == ["g1-2"]
    assert list(await ran(api, "true", query="?subGroupId=g2")) == ["g2-1"]
    assert list(await ran(api, "true", query="?labelSelector=role=web,sys.id=g1-1")) == ["g1-1"]
    assert (await api.post(f"{CMD}?vmId=g9-1", {"command": "true"})).status_code == 404
    assert (await api.post(f"{CMD}?labelSelector=role=db", {"command": "true"})).status_code == 409
    access = (await api.get(f"{M1}/vm/g1-2?option=accessinfo")).json()
    server = machines.of("g1-2")
    assert (access["publicIP"], access["sshPort"], access["vmUserName"]) == ("127.0.0.1", server.port, USER)
    assert access["hostKeyFingerprint"] == server.fingerprint
    assert access["sshKeyId"]


async def test_only_operators_of_the_namespace_run_commands(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    file = {"files": {"file": ("f", b"x")}, "data": {"path": "f"}}
    for who, status in (("nobody", 401), ("viewer", 403), ("outsider", 403), ("operator", 200)):
        assert (await api.post(CMD, {"command": ["true"]}, who)).status_code == status
        assert (await api.post(f"/ns/{NS}/transferFile/mci/m1", None, who, **file)).status_code == status
        assert (await api.delete(f"{M1}/vm/g1-1/hostKey", who)).status_code == status


async def test_without_the_grant_of_its_connection_nothing_runs_on_a_vm(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    await api.plugin.service.revoke(AWS, ["*"], api_caller())
    found = await ran(api, "echo here >marker")
    assert "is not granted" in found["g1-1"]["error"]
    assert not (machines.of("g1-1").home / "marker").exists()


def api_caller() -> Any:
    from tests.integration.domains.mci.conftest import ANN

    return ANN


async def test_secrets_reach_the_command_and_nobody_else(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    secrets = {"TOKEN": "open-sesame", "PEM": "first-line\nsecond-line"}
    answer = await api.post(
        CMD, {"command": ['echo "$TOKEN"; echo "$PEM"; sleep 1.2; echo "$TOKEN" >&2; exit 4'], "secrets": secrets}
    )
    (one,) = answer.json()["results"]
    assert (one["stdout"], one["stderr"], one["exitStatus"]) == ({"0": "***\n***\n"}, {"0": "***\n"}, {"0": 4})
    reader, op = api.engine.store.reader, answer.json()["operation"]
    found = await api.engine.record(NS, answer.json()["command"])
    progress = await reader.progress_of(Key(NS, op), 0)
    journal = await reader.journal(0, 1000, JournalFilter(NS))
    requests = (await api.client().get("/requests")).text
    operation = await api.engine.wait_record(NS, op, 1)  # as it is stored
    for text in (answer.text, str(found), str(progress), str(journal), requests, str(operation)):
        assert not any(part in text for value in secrets.values() for part in value.splitlines()), text
    assert any("g1-1: ***" in line.text for line in progress)


async def test_long_output_is_cut_on_the_vm_and_no_part_of_a_secret_is_left(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    size = KeptOutput(1, 2).stream_bytes
    command = f"printf %s $TOKEN; head -c {size - 5} /dev/zero | tr '\\0' x"
    found = await ran(api, command, "echo end", secrets={"TOKEN": "open-sesame"})
    assert found["g1-1"]["stdout"] == {"0": f"(11 bytes left out)\n{'x' * (size - 5)}", "1": "end\n"}


async def test_fast_output_is_streamed_whole_or_its_result_tells_exactly_how_much_is_not(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    whole = "".join(f"{number}\n" for number in range(1, 30_001))
    for most in (command_handlers.MAX_STREAMED_CHARS, 100_000):
        monkeypatch.setattr(command_handlers, "MAX_STREAMED_CHARS", most)
        answer = (await api.post(CMD, {"command": ["seq 1 30000"]})).json()
        size = KeptOutput(1, 1).stream_bytes
        (one,) = answer["results"]
        assert one["stdout"] == {"0": f"({len(whole) - size} bytes left out)\n{whole[-size:]}"}
        pieces = [one.text for one in await api.engine.store.reader.progress_of(Key(NS, answer["operation"]), 0)]
        told = "".join(f"{line.removeprefix('g1-1: ')}\n" for text in pieces if text for line in text.split("\n"))
        assert whole.startswith(told)
        result = command_seen(await api.engine.record(NS, answer["command"])).results["g1-1"]
        assert (len(told) + result.unstreamed, result.unstreamed > 0) == (len(whole), most == 100_000)


async def test_a_host_key_is_pinned_at_first_sight_and_a_changed_one_is_refused(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    assert (await ran(api, "echo mine"))["g1-1"]["stdout"] == {"0": "mine\n"}
    server = machines.of("g1-1")
    before, logins = server.fingerprint, server.logins
    await server.replace_host_key()
    refused = (await ran(api, "echo stolen"))["g1-1"]["error"]
    assert before in refused
    assert server.fingerprint in refused
    assert "forget-host-key m1/g1-1" in refused
    assert server.logins == logins
    assert (await api.delete(f"{M1}/vm/g1-1/hostKey", "operator")).status_code == 200
    assert (await ran(api, "echo mine"))["g1-1"]["stdout"] == {"0": "mine\n"}


async def test_the_host_key_of_a_machine_is_not_pinned_to_a_new_vm_of_the_same_name(
    api: ApiHarness, machines: LoopbackMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    service = api.plugin.service
    (vm,) = await service.vms(NS, "m1")
    open_ssh, pending = ssh_connection.open_ssh, [True]

    @asynccontextmanager
    async def open_late(*how: Any) -> AsyncIterator[ssh_connection.SshConnection]:
        async with open_ssh(*how) as connection:
            if pending:
                pending.clear()
                await service.delete(NS, "m1", "force", ANN)
                await api.created(mci("m1", group("g1", 1)))
            yield connection

    monkeypatch.setattr(ssh_connection, "open_ssh", open_late)
    async with api.plugin.shells.open([vm]) as shells:
        found = await shells.run(vm, RunOrder("r1", ("true",)))
    assert "m1.g1-1" in found.error
    assert known_host_key(await service.vm(NS, "m1", "g1-1")) == ""


async def test_a_vm_that_does_not_know_the_key_says_what_to_add(api: ApiHarness, machines: LoopbackMachines) -> None:
    await api.created(mci("m1", group("g1", 1)))
    machines.keys.clear()
    (vm,) = await api.plugin.service.vms(NS, "m1")
    async with api.plugin.shells.open([vm]) as shells:
        found = await shells.run(vm, RunOrder("r1", ("true",), patience_s=0.0))
    assert f"authorized_keys must have this line: {api.plugin.access_keys.public_key(NS)}" in found.error


async def test_a_second_connection_follows_the_run_of_the_first_and_runs_nothing_again(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    (vm,) = await api.plugin.service.vms(NS, "m1")
    home = machines.of("g1-1").home
    order = RunOrder("r1", ("echo run >>marker; while [ ! -e go ]; do sleep 0.05; done; cat marker; exit 5",))
    async with api.plugin.shells.open([vm]) as shells:
        first = asyncio.ensure_future(shells.run(vm, order))
        await until_file(home / "marker")
        first.cancel()  # as if its worker were killed: only the connection ends
        await asyncio.gather(first, return_exceptions=True)
    async with api.plugin.shells.open([vm]) as shells:
        second = asyncio.ensure_future(shells.run(vm, order))
        (home / "go").touch()
        found = await second
        again = await shells.run(vm, order)
    assert found == again
    assert [(one.written, one.status) for one in found.runs] == [("run\n", 5)]


async def test_a_command_under_which_its_vm_ends_is_interrupted_and_is_not_run_again(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    (vm,) = await api.plugin.service.vms(NS, "m1")
    killed, lost = RunOrder("r1", ("echo run >>marker; kill -9 0",)), RunOrder("r2", ("echo run >other; sleep 300",))
    async with api.plugin.shells.open([vm]) as shells:
        found = [await shells.run(vm, killed), await shells.run(vm, killed)]
        running = asyncio.ensure_future(shells.run(vm, lost))
        await until_file(machines.of("g1-1").home / "other")
        for connection in machines.of("g1-1").connections:
            connection.abort()
        found.append(await running)
        assert await shells.end(vm, lost) == ""
    assert [one.error.partition(":")[0] for one in found] == ["it was interrupted"] * 3
    assert (machines.of("g1-1").home / "marker").read_text() == "run\n"


async def test_a_namespace_that_uses_all_its_sessions_waits_alone(
    api: ApiHarness, machines: LoopbackMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_shells, "MAX_SESSIONS", 1)
    assert (await api.post("/ns", {"name": "lab"})).status_code == 200
    await api.created(mci("m1", group("g1", 1)))
    await api.created(mci("m1", group("g2", 1)), "lab")
    machines.keys.append(api.plugin.access_keys.public_key("lab"))
    (vm,), (other,) = await api.plugin.service.vms(NS, "m1"), await api.plugin.service.vms("lab", "m1")
    home = machines.of("g1-1").home
    async with api.plugin.shells.open([vm]) as shells, api.plugin.shells.open([other]) as others:
        order = RunOrder("r1", ("echo run >marker; while [ ! -e go ]; do sleep 0.05; done",))
        first = asyncio.ensure_future(shells.run(vm, order))
        await until_file(home / "marker")
        waited = await shells.run(vm, RunOrder("r2", ("echo run >second",), seconds=0.1))
        elsewhere = await others.run(other, RunOrder("r3", ("echo mine",)))
        (home / "go").touch()
        assert (await first).error == ""
        late = await shells.run(vm, RunOrder("r2", ("echo run >second",)))
    assert waited.error == "it waited 0.1 s for a free session (a namespace has 1 at once); nothing was started"
    assert (elsewhere.runs[0].written, elsewhere.error) == ("mine\n", "")
    assert (late.error, (home / "second").exists()) == ("it was ended before", False)


async def test_another_attempt_of_the_operation_runs_under_the_same_name(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    answer = (await api.post(CMD, {"command": ["pwd"]})).json()
    (vm,) = await api.plugin.service.vms(NS, "m1")
    order = RunOrder(answer["operation"], ("echo not run",))
    async with api.plugin.shells.open([vm]) as shells:
        found = await shells.run(vm, order)
    assert found.runs[0].written == answer["results"][0]["stdout"]["0"]


@pytest.mark.parametrize("has_own_sessions", [True, False])
async def test_cancel_ends_the_process_and_its_children(
    api: ApiHarness, machines: LoopbackMachines, has_own_sessions: bool
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    machines.of("g1-1").has_own_sessions = has_own_sessions
    home = machines.of("g1-1").home
    answer = await api.post(f"{CMD}?async=true", {"command": ["sleep 300 & echo $! >child; wait", "echo no >next"]})
    assert answer.status_code == 202
    child = int(await until_file(home / "child"))
    op = answer.json()["operation"]
    await api.engine.cancel(NS, op)
    ended = await api.engine.wait_record(NS, op, PATIENT)
    assert ended.status is Status.CANCELLED
    assert str(ended.error).startswith("cancelled (after ")
    await until_gone(child)
    assert not (home / "next").exists()
    commands = [one async for one in list_all(api.engine.store.reader, Selector(NS, COMMAND.kind))]
    assert [one.state for one in commands] == ["Cancelled"]


async def test_a_command_that_takes_too_long_is_ended(
    api: ApiHarness, machines: LoopbackMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.created(mci("m1", group("g1", 1)))
    away = "(setsid sh -c 'echo $$ >orphan; sleep 300; :' &)"  # its parent has ended, and its session is another one
    limits, timeout = list[asyncio.Timeout](), asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        made = timeout(seconds)
        if seconds is not None and 600 < seconds <= 660:
            limits.append(made)
        return made

    monkeypatch.setattr(asyncio, "timeout", noted)
    running = asyncio.create_task(ran(api, f"{away}; sleep 300 & echo $! >child; wait", timeoutMinutes=11))
    for name in ("child", "orphan"):
        await until_file(machines.of("g1-1").home / name)
    limits[-1].reschedule(asyncio.get_running_loop().time())  # eleven minutes have passed
    found = await running
    assert "not done in time" in found["g1-1"]["error"]
    assert "its processes were ended" in found["g1-1"]["error"]
    for name in ("child", "orphan"):
        await until_gone(int((machines.of("g1-1").home / name).read_text()))


async def test_output_is_streamed_while_a_command_runs(api: ApiHarness, machines: LoopbackMachines) -> None:
    await api.created(mci("m1", group("g1", 1)))
    home = machines.of("g1-1").home
    command = "echo early; printf par; echo oops >&2; while [ ! -e go ]; do sleep 0.05; done; echo tial; echo late"
    op = (await api.post(f"{CMD}?async=true", {"command": [command]})).json()["operation"]
    await until(
        lambda: api.engine.store.reader.progress_of(Key(NS, op), 0),
        lambda entries: any("g1-1: early" in one.text for one in entries),
    )
    (home / "go").touch()
    await api.engine.wait_record(NS, op, PATIENT)
    lines = [one.text for one in await api.engine.store.reader.progress_of(Key(NS, op), 0)]
    assert "\n".join(filter(None, lines)) == "g1-1: early\ng1-1 (stderr): oops\ng1-1: partial\ng1-1: late"


async def test_a_vm_without_a_public_address_is_reached_through_a_bastion(
    api: ApiHarness, machines: LoopbackMachines
) -> None:
    machines.private = {"g2-1"}
    await api.created(mci("m1", group("g1", 2), group("g2", 1)))
    assert (await ran(api, "echo inside", query="?vmId=g2-1"))["g2-1"]["stdout"] == {"0": "inside\n"}
    assert machines.of("g1-1").forwarded == [("127.0.0.1", machines.of("g2-1").port)]
    shown = (await api.get(f"{M1}/vm/g2-1/bastion")).json()
    assert shown == [{"nsId": NS, "mciId": "m1", "vmId": "g1-1", "assigned": "auto"}]
    assert (await api.put(f"{M1}/vm/g2-1/bastion/g1-2", {})).status_code == 200
    assert (await ran(api, "echo inside", query="?vmId=g2-1"))["g2-1"]["error"] == ""
    assert len(machines.of("g1-2").forwarded) == 1
    access = (await api.get(f"{M1}?option=accessinfo")).json()
    assert [one["BastionVmId"] for one in access["MciSubGroupAccessInfo"]] == ["", "g1-2"]
    assert (await api.delete(f"/ns/{NS}/mci/m1/bastion/g1-2")).status_code == 200
    assert (await api.get(f"{M1}/vm/g2-1/bastion")).json()[0]["assigned"] == "auto"


async def test_a_file_is_copied_whole_to_a_path_or_into_a_folder(api: ApiHarness, machines: LoopbackMachines) -> None:
    await api.created(mci("m1", group("g1", 2)))
    content, place = os.urandom(100_000), f"/ns/{NS}/transferFile/mci/m1"
    for path in ("copied", "folder/", "-f"):
        for vm in ("g1-1", "g1-2"):
            (machines.of(vm).home / "folder").mkdir(exist_ok=True)
        answer = await api.post(place, None, files={"file": ("data.bin", content)}, data={"path": path})
        assert [one["error"] for one in answer.json()["results"]] == ["", ""], answer.text
    for vm in ("g1-1", "g1-2"):
        assert (machines.of(vm).home / "copied").read_bytes() == content
        assert (machines.of(vm).home / "-f").read_bytes() == content
        assert (machines.of(vm).home / "folder" / "data.bin").read_bytes() == content
    stored = await api.engine.wait_record(NS, answer.json()["operation"], 1)
    assert (stored.args, len(content) > 10) == ('{"content":"***"}', True)
    failed = await api.post(place, None, files={"file": ("f", b"x")}, data={"path": "missing/f"})
    assert all("f was not copied to missing/f: " in one["error"] for one in failed.json()["results"])
    odd = '-it\'s "odd" \\ $HOME `x` \N{SNOWMAN}'
    for mode in ("750", "0600"):
        data = {"path": "folder", "name": odd, "mode": mode}
        answer = await api.post(place, None, files={"file": ("f", b"x")}, data=data)
        assert [one["error"] for one in answer.json()["results"]] == ["", ""], answer.text
        assert (machines.of("g1-1").home / "folder" / odd).stat().st_mode & 0o7777 == int(mode, 8)
    for wrong in ({"mode": "4755"}, {"mode": "rwx"}, {"name": "a/b"}, {"name": ".."}, {"name": "x" * 256}):
        answer = await api.post(place, None, files={"file": ("f", b"x")}, data={"path": "f"} | wrong)
        assert (answer.status_code, answer.json()["field"]) == (400, *wrong), answer.text
    assert (await api.post(place, None, data={"path": "f"})).status_code == 400


async def test_a_form_that_cannot_be_decoded_is_refused(api: ApiHarness) -> None:
    for head, path in (
        (b"", b"/tmp/\xff"),  # not UTF-8
        (b"Content-Type: text/plain; charset=nosuch\r\n", b"f"),
        (b"Content-Type: a; charset=hex\r\n", b"f"),  # no charset of texts
    ):
        part = b'--b\r\nContent-Disposition: form-data; name="path"\r\n' + head + b"\r\n" + path + b"\r\n--b--\r\n"
        headers = {"content-type": "multipart/form-data; boundary=b"}
        answer = await api.post(f"/ns/{NS}/transferFile/mci/m1", content=part, headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (400, "body"), answer.text


async def test_post_commands_go_over_ssh(api: ApiHarness, machines: LoopbackMachines) -> None:
    shown = await api.created(mci("m1", group("g1", 1), postCommand={"command": ["echo $0; pwd", "exit 3"]}))
    (result,) = shown["postCommandResult"]["results"]
    assert result["stdout"]["0"].endswith(f"{machines.of('g1-1').home}\n")
    assert result["exitStatus"] == {"0": 0, "1": 3}
    assert "exit status 3" in result["err"]


WRONG_COMMANDS: list[tuple[dict[str, Any], str]] = [
    ({}, "command"),
    ({"command": ["x"], "userName": "a b"}, "userName"),
    ({"command": ["x"], "timeoutMinutes": 10_000}, "timeoutMinutes"),
    ({"command": ["x"], "secrets": {"a-b": "12345"}}, "secrets"),
    ({"command": ["x"], "secrets": {"A": "123"}}, "secrets.A"),
    ({"command": ["x"] * 101}, "command"),
]


async def test_a_command_that_could_not_run_is_refused(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    for body, field in WRONG_COMMANDS:
        answer = await api.post(CMD, body)
        assert (answer.status_code, answer.json()["field"]) == (400, field), body


async def test_a_selection_by_an_unknown_name_runs_nothing(api: ApiHarness) -> None:
    await api.created()
    for query in ("?nodeID=g1-1", "?vmID=g1-1", "?subgroupId=g1"):
        for path in (CMD, f"/ns/{NS}/transferFile/mci/m1"):
            answer = await api.post(f"{path}{query}", {"command": ["true"]})
            assert (answer.status_code, "vmId" in answer.text) == (400, True), answer.text
        controlled = await api.get(f"/ns/{NS}/control/mci/m1{query}&action=suspend")
        assert controlled.status_code == 400, query
    assert (await api.get(f"{M1}?option=status")).json()["status"]["status"] == "Running:2 (R:2/2)"


async def test_a_user_name_that_programs_would_take_for_an_option_is_refused(api: ApiHarness) -> None:
    bad = "-oProxyCommand=touch /tmp/no"
    command = {"command": ["true"], "userName": bad}
    for body in (mci("m1", group(vmUserName=bad)), mci("m1", postCommand=command)):
        answer = await api.post(f"/ns/{NS}/mciDynamic", body)
        assert (answer.status_code, "serName" in answer.json()["field"]) == (400, True), answer.text
    assert (await api.get(M1)).status_code == 404


async def test_ended_commands_do_not_keep_a_namespace(api: ApiHarness) -> None:
    assert (await api.post("/ns", {"name": "lab"})).status_code == 200
    await api.created(mci("m1", group("g1", 1)), "lab")
    assert (await api.post("/ns/lab/cmd/mci/m1", {"command": ["true"]})).status_code == 200
    assert (await api.delete("/ns/lab/mci/m1?option=terminate")).status_code == 200
    assert (await api.delete("/ns/lab/sharedResources")).status_code == 200
    answer = await api.delete("/ns/lab")
    assert answer.status_code == 200, answer.text
    assert await api.engine.store.reader.count_states(Selector("lab")) == {}


async def test_a_command_for_one_vm_may_name_it_in_the_path(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 2)))
    answer = await api.post(f"{CMD}/vm/g1-2", {"command": "[echo -n [Hostname: ; hostname ; echo -n ]]"})
    assert [one["vmId"] for one in answer.json()["results"]] == ["g1-2"]
    assert (await api.post(f"{CMD}/vm/g1-9", {"command": ["true"]})).status_code == 404


async def test_a_command_is_followed_by_the_id_of_its_request(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 2)))
    head = {"x-request-id": "cmd-m1-abc"}
    body = {"command": ["echo one; echo two", "echo bad >&2"]}
    answer = await api.post(f"/ns/{NS}/cmd/infra/m1?async=true", body, headers=head)
    assert (answer.status_code, answer.json()["xRequestId"]) == (202, "cmd-m1-abc")
    stream = await api.get(f"/ns/{NS}/stream/cmd/infra/m1?xRequestId=cmd-m1-abc")
    assert stream.headers["content-type"].startswith("text/event-stream")
    parts = [one for one in stream.text.split("\n\n") if one.startswith("data: ")]
    events = [msgspec.json.decode(one.removeprefix("data: ")) for one in parts]
    assert [one["type"] for one in events[:2]] == ["CommandStatus", "CommandStatus"]
    logs = [(one["nodeId"], one["log"]["stream"], one["log"]["line"]) for one in events if one["type"] == "CommandLog"]
    lines = [("stdout", "one"), ("stdout", "two"), ("stderr", "bad")]
    assert logs == [(vm, *line) for vm in ("g1-1", "g1-2") for line in lines]
    ends = [one for one in events[2:] if one["type"] == "CommandStatus"]
    assert [(one["nodeId"], one["status"]["status"]) for one in ends] == [("g1-1", "Completed"), ("g1-2", "Completed")]
    counts = events[-1]["summary"]
    assert (events[-1]["type"], counts["completedNodes"], counts["failedNodes"]) == ("CommandDone", 2, 0)
    assert (await api.get(f"/ns/{NS}/stream/cmd/infra/m1?xRequestId=none")).status_code == 404
    assert (await api.get(f"/ns/{NS}/stream/cmd/infra/m1")).json()["field"] == "xRequestId"


async def test_a_followed_command_ends_with_the_token_and_counts_among_the_streams_of_the_token(
    api: ApiHarness, machines: LoopbackMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FOLLOWED_PER_TOKEN", 1)
    await api.created(mci("m1", group("g1", 1)))
    body, head = {"command": ["while [ ! -e go ]; do sleep 0.05; done"]}, {"x-request-id": "cmd-m1-held"}
    op = (await api.post(f"{CMD}?async=true", body, headers=head)).json()["operation"]
    api.texts["short"], info = await api.tokens.issue("short", Role.VIEWER, [NS])
    stream = f"/ns/{NS}/stream/cmd/mci/m1?xRequestId=cmd-m1-held"
    following = asyncio.create_task(api.get(stream, "short"))
    async with asyncio.timeout(PATIENT):
        await until(lambda: api.app.state.live_feeds.operation_followers._followed)
        refused = await api.get(stream, "short")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
        await api.tokens.revoke(info.id)
        answer = await following
    assert (answer.status_code, "Handling" in answer.text, "CommandDone" in answer.text) == (200, True, False)
    (machines.of("g1-1").home / "go").touch()
    await api.engine.wait_record(NS, op, PATIENT)
    assert "CommandDone" in (await api.get(stream)).text


async def test_a_bastion_of_an_unknown_mci_is_not_found(api: ApiHarness) -> None:
    assert (await api.delete(f"/ns/{NS}/mci/nothing/bastion/g1-1")).status_code == 404


async def test_old_commands_are_forgotten_and_running_ones_are_not(api: ApiHarness) -> None:
    await api.created(mci("m1", group("g1", 1)))
    for number in range(3):
        await ran(api, f"echo {number}")
    await prune_commands(api.engine, 1)
    left = [one async for one in list_all(api.engine.store.reader, Selector(NS, COMMAND.kind))]
    assert [command_seen(one).results["g1-1"].runs[0].written for one in left] == ["2\n"]
    assert CommandHandlers(api.plugin.shells).kind().general is False
