"""The server's own keys for VMs: one per namespace, from one secret that only its owner can read."""

from pathlib import Path

import pytest

from stateward.domains.mci.errors import NoAccessSecret
from stateward.domains.mci.remote import access_keys
from stateward.domains.mci.remote.access_keys import SECRET_FILE, AccessKeys, read_secret


def test_a_namespace_has_the_same_key_in_every_process_and_another_one_than_its_neighbour(tmp_path: Path) -> None:
    one, other = AccessKeys(tmp_path), AccessKeys(tmp_path)
    assert one.pair("shop").public == other.pair("shop").public
    assert one.pair("shop").public != one.pair("bank").public
    assert one.public_key("shop").startswith("ssh-ed25519 ")
    assert one.public_key("shop").endswith(" stateward-shop")


def test_the_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    AccessKeys(tmp_path).pair("shop")
    file = tmp_path / SECRET_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    before = read_secret(file)
    AccessKeys(tmp_path).pair("shop")
    assert read_secret(file) == before
    assert [one.name for one in tmp_path.iterdir()] == [SECRET_FILE]


def test_processes_that_share_a_database_are_given_the_secret(tmp_path: Path) -> None:
    without = AccessKeys(tmp_path, is_embedded=False)
    assert without.public_key("shop") == ""
    with pytest.raises(NoAccessSecret, match="mci_access_secret"):
        without.pair("shop")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "given"
    file.write_bytes(b"s" * 32)
    file.chmod(0o600)
    given = [AccessKeys(tmp_path / name, str(file), is_embedded=False).public_key("shop") for name in ("a", "b")]
    assert given[0] == given[1] != ""


@pytest.mark.parametrize(("content", "mode", "why"), [(b"s" * 31, 0o600, "32 bytes"), (b"s" * 32, 0o640, "chmod 600")])
def test_a_secret_that_is_short_or_not_private_is_refused(tmp_path: Path, content: bytes, mode: int, why: str) -> None:
    file = tmp_path / "given"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(NoAccessSecret, match=why):
        AccessKeys(tmp_path, str(file)).pair("shop")


def test_a_secret_file_that_is_named_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(NoAccessSecret, match="cannot be read"):
        AccessKeys(tmp_path, str(tmp_path / "missing")).pair("shop")


def test_the_pairs_of_some_namespaces_are_kept_and_the_others_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_keys, "MAX_PAIRS", 2)
    keys = AccessKeys(tmp_path)
    first = keys.public_key("one")
    for name in ("two", "three", "four"):
        keys.pair(name)
    assert len(keys._pairs) <= 2
    assert keys.public_key("one") == first
