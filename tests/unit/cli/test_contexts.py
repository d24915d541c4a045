import os
from pathlib import Path

import pytest

from stateward.client.contexts import (
    ClientContext,
    ClientFile,
    check_reference,
    client_file_path,
    read_client_file,
    read_reference,
    write_client_file,
)
from stateward.client.target import RemoteServer, TargetOptions, choose_namespace, choose_target
from stateward.errors import BadInput, UnknownName

FILE = ClientFile(
    "shop", {"shop": ClientContext("http://shop:1", "env:SHOP_TOKEN", "goods"), "lab": ClientContext("http://lab:1")}
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config" / "client.json"
    write_client_file(path, FILE)
    return {"STATEWARD_CLIENT_FILE": str(path), "SHOP_TOKEN": "secret"}


def target(environ: dict[str, str], **given: object) -> tuple[str, str, str]:
    """Return the address, the token and the namespace that commands use."""
    options = TargetOptions(**given)  # type: ignore[arg-type]
    found = choose_target(options, environ)
    assert isinstance(found, RemoteServer)
    return found.url, found.token.text, choose_namespace(None, options, environ)


def test_the_file_is_for_its_owner_alone(environ: dict[str, str]) -> None:
    path = client_file_path(environ)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert read_client_file(path) == FILE
    path.chmod(0o660)
    with pytest.raises(BadInput, match="writable only by you"):
        read_client_file(path)


def test_the_file_of_another_user_is_refused(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = client_file_path(environ)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12346)
    with pytest.raises(BadInput, match="your own"):
        read_client_file(path)


def test_no_link_that_somebody_has_prepared_is_followed(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = client_file_path(environ), tmp_path / "victim"
    victim.write_text("as it was")
    monkeypatch.setattr(os, "urandom", lambda count: b"0" * count)
    for name in (f"{path.name}.{os.getpid()}.new", f".{path.name}.{(b'0' * 8).hex()}"):
        path.with_name(name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_client_file(path, ClientFile())
    assert victim.read_text() == "as it was"


def test_the_file_is_where_the_environment_says(tmp_path: Path) -> None:
    assert client_file_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/stateward/client.json")
    assert client_file_path({"HOME": "/home/ann"}) == Path("/home/ann/.config/stateward/client.json")
    assert read_client_file(tmp_path / "none.json") == ClientFile()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"curent": "x"}')
    with pytest.raises(BadInput, match=r"client\.json.*curent"):
        read_client_file(tmp_path / "client.json")


def test_an_option_goes_before_the_environment_and_that_before_the_context(environ: dict[str, str]) -> None:
    assert target(environ) == ("http://shop:1", "secret", "goods")
    assert target({**environ, "STATEWARD_TOKEN": "mine"}) == ("http://shop:1", "mine", "goods")
    assert target({**environ, "STATEWARD_NAMESPACE": "x"})[2] == "x"
    assert target({**environ, "STATEWARD_CONTEXT": "lab"}) == ("http://lab:1", "", "default")
    assert target({**environ, "STATEWARD_SERVER": "http://other:1"}, context="lab")[0] == "http://lab:1"
    with pytest.raises(UnknownName, match="did you mean 'shop'"):
        target(environ, context="shp")
    with pytest.raises(BadInput, match="left out where --server"):
        target(environ, context="shop", server="http://other:1")


def test_the_token_of_a_context_never_goes_to_another_server(environ: dict[str, str]) -> None:
    assert target(environ, server="http://other:1") == ("http://other:1", "", "default")
    assert target({**environ, "STATEWARD_SERVER": "http://other:1"}) == ("http://other:1", "", "default")


def test_a_token_reference_is_a_file_a_variable_or_a_command(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    assert read_reference(f"file:{tmp_path}/token", {}) == "from-file\n"
    assert read_reference("env:TOKEN", {"TOKEN": "from-env"}) == "from-env"
    assert read_reference("command:printf '%s' from-command", {}) == "from-command"


@pytest.mark.parametrize("reference", ["file:/nowhere/token", "env:UNSET", "command:false", "command:no-such-program"])
def test_a_reference_that_leads_nowhere_is_named(reference: str) -> None:
    with pytest.raises(BadInput, match=reference):
        read_reference(reference, {})


def test_a_token_in_place_of_a_reference_is_not_repeated() -> None:
    with pytest.raises(BadInput, match="must be file:PATH") as caught:
        check_reference("sw_secret")
    assert "sw_secret" not in str(caught.value)
