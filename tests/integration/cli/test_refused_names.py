"""Names that would lead a request to another path: every command refuses them, and nothing changes.

The commands are those of the program itself, so a new command is tried without a new row here.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.tokens import token_kind
from stateward.cli.in_process import in_process
from stateward.cli.lazy_commands import LazyGroup, imported_command
from stateward.cli.main import app as command_line
from stateward.client.transport import HttpRequest, HttpResponse, Transport
from stateward.engine import Engine
from stateward.store import open_store
from tests.integration.cli.cli_server import WIDE
from tests.long_forms import in_long_form

GOOD_NAMES = {
    "ACTION": "suspend",
    "MCI": "one",
    "MCI[/VM]": "one",
    "CLOUDLET": "rome",
    "CLOUDLET/CLUSTER": "rome/c",
    "CLOUDLET/CLUSTER/APP": "rome/c/a",
    "CLOUDLET=REQUESTS...": "rome=1",
    "PATH": "/api",
}
"""Arguments by their metavars; the others are `x`."""

NO_NAMES = {"VERSION", "PATH", "COMMAND...", "NS...", "CLOUDLET=REQUESTS...", "[FIELD=VALUE]..."}
OPTIONS = {
    "lanes set": ["--capacity", "1"],
    "lanes group": ["--lanes", "1"],
    "mci connection add": ["--provider", "aws", "--region", "r", "--driver", "simulated"],
    "mci spec add": ["--connection", "aws-ap-northeast-2", "--native", "t3.nano"],
    "mci image add": ["--connection", "aws-ap-northeast-2", "--native", "ubuntu22.04"],
    "mci delete": ["--force"],
    "mci do": ["--force"],
    "mci scale": ["--add", "1"],
    "edge clusterinst update": ["--nodes", "1"],
    "edge appinst update": ["--count", "1"],
    "edge flavor create": ["size=1"],
    "ovc queue": ["--stop"],
    "ovc delete": ["--permanently"],
    "system delete": ["--force"],
    "system deploy": ["--file", __file__],
    "watch": ["--after", "0", "--count", "1"],
}
"""What a command needs besides its arguments, or what makes it more dangerous."""

NAME_IN_BODY = {
    "create",
    "system create",
    "system secret create",
    "system node register",
    "system exec",
    "mci connection add",
    "mci spec add",
    "mci image add",
    "mci namespace create",
    "lease host add",
} | {f"edge {kind} create" for kind in ("cloudlet", "clusterinst", "appinst")}
"""Commands that send a new name in the body, where the server checks it."""

NOT_IN_PATHS = {"plan", "token create", "lease create"} | {
    f"ovc create {kind}" for kind in ("account", "cloudspace", "machine", "disk", "image", "node")
}
"""Commands whose names never become a part of a path: the objects have ids of their own."""

FLEET = "name: one\ngroups: [{name: web, size: 1, spec: aws+ap-northeast-2+t3.nano, image: ubuntu22.04}]\n"


class RecordingTransport:
    """The server's application, and the requests that were sent to it with the statuses of its responses."""

    def __init__(self, server: Transport) -> None:
        self.stream, self.close = server.stream, server.close
        self._server = server
        self.sent: list[tuple[str, str, int]] = []

    def send(self, request: HttpRequest) -> HttpResponse:
        response = self._server.send(request)
        self.sent.append((request.method, request.target.partition("?")[0], response.status))
        return response

    def run(self, *words: str, **how: Any) -> Result:
        env = {**WIDE, "STATEWARD_DATA": str(how.pop("data", "."))}
        return CliRunner().invoke(command_line, words, env=env, obj=lambda _: nullcontext(self), **how)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")

    async def begin() -> None:
        async with Engine(open_store(str(folder / "stateward.db")), [token_kind()], works=False) as engine:
            text, _ = await Tokens(engine).issue("admin", Role.ADMIN, ["*"])
            (folder / "admin-token").write_text(text)

    asyncio.run(begin())
    return folder


@pytest.fixture(scope="module")
def transport(folder: Path) -> Iterator[RecordingTransport]:
    with in_process(folder) as server:
        transport = RecordingTransport(server)
        for words in (("mci", "create", "-f", "-"), ("edge", "cloudlet", "create", "rome")):
            done = transport.run(*words, data=folder, input=FLEET)
            assert done.exit_code == 0, done.output
        before = transport.run("list", "--all", "--json", data=folder).stdout
        yield transport
        assert transport.run("list", "--all", "--json", data=folder).stdout == before


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands that speak with a server."""
    if isinstance(command, LazyGroup):
        for one in command.lazy_commands():
            yield from leaves(imported_command(one), (one.name,))
    elif isinstance(command, typer.core.TyperGroup):
        for name, part in command.commands.items():
            yield from leaves(part, (*words, name))
    elif {"server", "namespace"} <= {one.name for one in command.params}:
        yield " ".join(words), command


BAD_NAMES = ("", "..", "{}/..")
MORE_BAD_NAMES = (".", "{}/", "{}/.")
"""Names that lead elsewhere, of an argument whose good name is in the braces; the suite tries the first three."""


def bad_calls() -> Iterator[tuple[str, str, list[str]]]:
    """Yield a command, a bad name, and the arguments, one of which it is."""
    for command, found in leaves(typer.main.get_command(command_line)):
        if command in NOT_IN_PATHS:
            continue
        metavars = [one.metavar.strip("[]") if one.metavar.startswith("[") and one.nargs == 1 else one.metavar
                    for one in found.params if one.param_type_name == "argument"]  # fmt: skip
        good = [GOOD_NAMES.get(one, "x") for one in metavars if one != "[FIELD=VALUE]..."]
        for number, metavar in enumerate(metavars):
            if metavar not in NO_NAMES:
                around = good[number].rpartition("/")[0] or good[number]
                for bad in (*BAD_NAMES, *MORE_BAD_NAMES):
                    yield command, bad, [*good[:number], bad.format(around), *good[number + 1 :]]


CALLS = list(bad_calls())


def test_the_table_has_the_commands_of_all_domains() -> None:
    groups = {command.split()[0] for command, _, _ in CALLS}
    assert groups >= {"get", "do", "cancel", "token", "lanes", "mci", "edge", "ovc", "lease", "system"}


@pytest.mark.parametrize("command", sorted({command for command, _, _ in CALLS}))
@pytest.mark.parametrize("names", in_long_form([BAD_NAMES, MORE_BAD_NAMES], short=[BAD_NAMES]), ids=" ".join)
def test_a_name_that_leads_elsewhere_is_refused(
    names: tuple[str, ...], command: str, transport: RecordingTransport, folder: Path
) -> None:
    for arguments in (arguments for name, bad, arguments in CALLS if name == command and bad in names):
        transport.sent.clear()
        done = transport.run(*command.split(), *arguments, *OPTIONS.get(command, []), data=folder)
        assert done.exit_code in (1, 2), (arguments, done.exit_code, done.output)
        changing = [one for one in transport.sent if one[0] != "GET"]
        assert command in NAME_IN_BODY or not changing, (arguments, changing)
        assert all(400 <= status < 500 for _, _, status in changing), (arguments, changing)


@pytest.mark.parametrize("ns", ["", ".", "..", "x/", "x/.."])
@pytest.mark.parametrize("command", ["list", "mci delete one --force", "ovc queue x --stop", "lease list"])
def test_a_namespace_that_leads_elsewhere_is_refused(
    ns: str, command: str, transport: RecordingTransport, folder: Path
) -> None:
    transport.sent.clear()
    done = transport.run(*command.split(), "-n", ns, data=folder)
    assert done.exit_code == 2
    assert "namespace" in done.output
    assert not transport.sent


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("mci", "delete", "", "--force"), "MCI"),
        (("mci", "do", "terminate", "one/"), "VM"),
        (("mci", "do", "suspend", "one/.."), "VM"),
        (("edge", "clusterinst", "delete", "rome/.."), "CLUSTER"),
        (("ovc", "queue", "", "--stop"), "object"),
        (("system", "delete", ""), "SYSTEM"),
        (("token", "revoke", ""), "token"),
        (("cancel", ".."), "operation"),
    ],
)
def test_the_refusal_says_the_argument(
    words: tuple[str, ...], field: str, transport: RecordingTransport, folder: Path
) -> None:
    transport.sent.clear()
    done = transport.run(*words, "--json", data=folder)
    assert done.exit_code == 2
    assert json.loads(done.stdout)["field"] == field
    assert not transport.sent
