import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from stateward.client.shared_options import namespace_of
from stateward.client.target import (
    LocalFolder,
    Nowhere,
    RemoteServer,
    Secret,
    TargetOptions,
    check_address,
    choose_namespace,
    choose_target,
    running_server,
    target_notes,
)
from stateward.config import Config
from stateward.errors import BadInput
from stateward.server.data_dir import DataDir

TEXT = "sw_0123_very-secret"


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stateward.db").touch()
    return tmp_path


def place(given: TargetOptions, **environ: str) -> RemoteServer | LocalFolder:
    return choose_target(given, environ)


def test_the_command_line_goes_before_the_environment(folder: Path) -> None:
    found = place(TargetOptions(data=folder), STATEWARD_SERVER="http://other")
    assert isinstance(found, LocalFolder)
    found = place(TargetOptions(server="http://one"), STATEWARD_SERVER="http://other", STATEWARD_DATA=str(folder))
    assert isinstance(found, RemoteServer)
    assert found.url == "http://one"


def test_the_environments_server_goes_before_its_folder(folder: Path) -> None:
    found = place(TargetOptions(), STATEWARD_SERVER="http://other/", STATEWARD_DATA=str(folder))
    assert isinstance(found, RemoteServer)
    assert found.url == "http://other"


def test_the_default_folder_is_used_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(Nowhere, match="STATEWARD_SERVER"):
        place(TargetOptions())
    (folder / "stateward-data").mkdir()
    (folder / "stateward-data" / "stateward.db").touch()
    assert place(TargetOptions()) == LocalFolder(Path("stateward-data"), None)


def test_a_running_server_is_spoken_to_with_the_folders_own_token(folder: Path, listening: str) -> None:
    (folder / "server.json").write_text(json.dumps({"url": listening, "pid": 1, "namespace": "demo"}))
    (folder / "admin-token").write_text(TEXT + "\n")
    found = place(TargetOptions(data=folder))
    assert isinstance(found, RemoteServer)
    assert (found.url, found.token.text, found.direct, found.namespace) == (listening, TEXT, True, "demo")


def test_of_a_crashed_server_only_the_namespace_counts(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (folder / "server.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "namespace": "demo"}))
    assert running_server(folder) is None
    found = place(TargetOptions(data=folder))
    assert found == LocalFolder(folder, None, "demo")
    assert choose_namespace(None, TargetOptions(data=folder), {}, found) == "demo"


def test_of_a_stopped_server_the_namespace_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_demo, namespace in ((True, "demo"), (False, "default")):
        server = DataDir(Config(data=str(folder), demo=is_demo))
        server.write_address("http://127.0.0.1:1")
        server.remove_address()
        found = place(TargetOptions(data=folder))
        assert choose_namespace(None, TargetOptions(data=folder), {}, found) == namespace
        monkeypatch.delenv("STATEWARD_NAMESPACE", raising=False)
        assert namespace_of(SimpleNamespace(params={"data": str(folder)})) == namespace  # type: ignore[arg-type]
    assert not (folder / "server.json").exists()


@pytest.mark.parametrize("url", ["http://192.0.2.1:80", "http://evil.example", "https://[2001:db8::1]:8420"])
def test_no_folder_leads_a_token_to_another_machine(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: socket.socket())  # any host would answer
    monkeypatch.chdir(folder)
    folder = folder / "stateward-data"
    folder.mkdir()
    (folder / "server.json").write_text(json.dumps({"url": url}))
    for given in (TargetOptions(), TargetOptions(data=folder)):
        with pytest.raises(BadInput, match=r"on this machine: its server\.json names http"):
            place(given, STATEWARD_TOKEN=TEXT)


def test_a_folder_of_another_user_leads_nowhere(folder: Path, listening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    folder = folder / "stateward-data"
    folder.mkdir()
    file = folder / "server.json"
    file.write_text(json.dumps({"url": listening}))
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12346)
    for given in (TargetOptions(), TargetOptions(data=folder)):
        with pytest.raises(BadInput, match="a folder of your own"):
            place(given, STATEWARD_TOKEN=TEXT)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert isinstance(place(TargetOptions(data=folder), STATEWARD_TOKEN=TEXT), RemoteServer)  # root has named it
    if file.stat().st_uid:
        with pytest.raises(BadInput, match="a folder of your own"):
            place(TargetOptions(), STATEWARD_TOKEN=TEXT)


def test_what_exposes_a_token_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TEXT)
    for mode, url, words in (
        (0o644, "http://127.0.0.1:1", ["chmod 600"]),
        (0o600, "http://192.0.2.1", ["without encryption"]),
        (0o600, "https://192.0.2.1", []),
        (0o600, "http://localhost:1", []),
    ):
        file.chmod(mode)
        notes = list(target_notes(place(TargetOptions(url, token_file=file))))
        assert len(notes) == len(words)
        assert all(word in note for word, note in zip(words, notes, strict=True))
        assert TEXT not in "".join(notes)
    assert list(target_notes(place(TargetOptions("http://192.0.2.1")))) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": ""}', '{"url": 7}', '{"url": "http://[::1"}'])
def test_a_damaged_server_file_is_no_server(folder: Path, content: str) -> None:
    (folder / "server.json").write_text(content)
    assert running_server(folder) is None


def test_a_folder_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no database"):
        place(TargetOptions(data=tmp_path))
    with pytest.raises(BadInput, match="a folder"):
        place(TargetOptions(data=tmp_path / "none"))


def test_a_server_and_a_folder_together_are_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="--server"):
        place(TargetOptions(server="http://one", data=folder))


@pytest.mark.parametrize("text", ["", "localhost", "ftp://x", "http://", "127.0.0.1:8420"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="server"):
        check_address(text)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput) as caught:
        check_address(f"http://me:{TEXT}@host:1")
    assert TEXT not in str(caught.value)
    assert TEXT not in str(caught.value.facts())


def test_the_token_comes_from_the_flag_then_the_file_then_the_environment(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(" from-file \n")
    ways = [
        TargetOptions("http://a", Secret("from-flag")),
        TargetOptions("http://a", None, tmp_path / "t"),
        TargetOptions("http://a"),
    ]
    found = [place(one, STATEWARD_TOKEN="from-environment") for one in ways]
    assert [one.token.text for one in found if isinstance(one, RemoteServer)] == [
        "from-flag",
        "from-file",
        "from-environment",
    ]


def test_two_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--token-file"):
        place(TargetOptions("http://a", Secret(TEXT), tmp_path / "t"))


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "ümlaut"])
def test_what_cannot_be_a_token_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        place(TargetOptions("http://a", Secret(text)))
    assert not text or text not in str(caught.value)


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        place(TargetOptions("http://a", None, tmp_path / "nowhere"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="binary"):
        place(TargetOptions("http://a", None, tmp_path / "binary"))


def test_a_secret_does_not_show() -> None:
    secret = Secret(TEXT)
    assert TEXT not in f"{secret!r} {secret} {RemoteServer('http://a', secret)!r} {TargetOptions(token=secret)!r}"
    assert secret.hidden_in(f"it says {TEXT}!") == "it says (token)!"
    assert Secret("").hidden_in("nothing to hide") == "nothing to hide"
